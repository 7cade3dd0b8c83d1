"""Reporting: operator types in eight families, so that a chart can give each a shape of its own."""

from __future__ import annotations

CONVOLUTION, PRODUCT, ATTENTION, RECURRENT = "convolution", "matrix product", "attention", "recurrent"
NORMALISATION, REDUCTION, MOVEMENT, OTHER = (
    "normalisation",
    "reduction",
    "movement",
    "elementwise",
)

# Vega's names of symbols (https://vega.github.io/vega/docs/marks/symbol/), of which these eight differ most.
SHAPES = {
    CONVOLUTION: "circle",
    PRODUCT: "square",
    ATTENTION: "diamond",
    RECURRENT: "triangle-right",
    NORMALISATION: "triangle-up",
    REDUCTION: "triangle-down",
    MOVEMENT: "stroke",
    OTHER: "cross",
}
# Standard and contrib names together (onnxruntime/docs/ContribOperators.md has the latter): what ONNX Runtime
# fuses keeps the shape of what it was made of. Domains are left out: a name that two have is of one family.
_MEMBERS = {
    CONVOLUTION: "Conv ConvTranspose ConvInteger QLinearConv DeformConv FusedConv NhwcConv",
    PRODUCT: "MatMul Gemm Einsum FusedMatMul FusedGemm MatMulInteger QLinearMatMul MatMulNBits QGemm",
    ATTENTION: "Attention MultiHeadAttention GroupQueryAttention PackedAttention "
    "DecoderMaskedMultiHeadAttention",
    RECURRENT: "LSTM GRU RNN",
    NORMALISATION: "BatchNormalization LayerNormalization SkipLayerNormalization InstanceNormalization "
    "GroupNormalization RMSNormalization SimplifiedLayerNormalization LpNormalization LRN Softmax LogSoftmax "
    "MeanVarianceNormalization EmbedLayerNormalization",
    REDUCTION: "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool ArgMax ArgMin TopK CumSum",
    MOVEMENT: "Reshape Transpose Concat Split Slice Gather GatherND GatherElements ScatterND ScatterElements "
    "Pad Expand Tile Squeeze Unsqueeze Flatten Identity Cast Shape Resize DepthToSpace SpaceToDepth",
}
_FAMILY = {name: family for family, names in _MEMBERS.items() for name in names.split()}


def family(op_type: str) -> str:
    """The family of an operator type; of one that is in no list, ``elementwise``."""
    # ReduceSum, ReduceMean, ReduceL2 and so on: ten types of one prefix.
    if op_type.startswith("Reduce"):
        return REDUCTION
    return _FAMILY.get(op_type, OTHER)
