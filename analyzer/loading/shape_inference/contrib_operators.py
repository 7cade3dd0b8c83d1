"""Loading: output types of ONNX Runtime's own operators, which ONNX's inference does not know.

Only the tensors that later operators need are inferred; what depends on data stays open. Shapes follow the
schemas of onnxruntime 1.31: each part of ``_TABLE`` names the file that declares its operators. Its own
inference can be asked: where a model declares a wrong output shape, a session warns and names both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from analyzer.graph import DTYPES, DTYPES_BY_NUMBER, DType, Shape, Tensor, broadcast
from analyzer.loading.shape_inference import classical_operators
from analyzer.loading.shape_inference.onnx_inference import AttributeMap, InputTensors
from analyzer.loading.shape_inference.protobuf_values import Type
from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, NCHWC_DOMAIN, NHWC_DOMAIN

if TYPE_CHECKING:
    import onnx

    from analyzer.graph import Tensor
    from analyzer.loading.shape_inference.protobuf_values import Type

Infer = Callable[[InputTensors, AttributeMap], Sequence[Type | None]]


def infer_contrib(
    proto: onnx.NodeProto, domain: str, inputs: InputTensors, attributes: AttributeMap
) -> Mapping[str, Type]:
    """The types of outputs that ONNX's inference does not tell, by name; empty where they are not known."""
    if domain == CLASSICAL_DOMAIN:
        return _by_name(proto, classical_operators.classical_types(proto.op_type, inputs, attributes))
    if domain == NCHWC_DOMAIN:
        function = _BLOCKED.get(proto.op_type)
    else:
        known = domain in (CONTRIB_DOMAIN, NHWC_DOMAIN) or proto.op_type in _IN_DEFAULT_DOMAIN
        function = _TABLE.get(proto.op_type) if known else None
    if function is None:
        return {}
    if domain == NHWC_DOMAIN:
        # There the operators' own attributes do not say that channels are last: the domain does
        # (onnxruntime/core/graph/contrib_ops/internal_nhwc_onnx_schemas.cc).
        attributes = {**attributes, "channels_last": 1}
    try:
        types = function(inputs, attributes)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):  # an input's shape is open or odd
        return {}
    return _by_name(proto, types)


def _by_name(proto: onnx.NodeProto, types: Sequence[Type | None]) -> dict[str, Type]:
    return {name: kind for name, kind in zip(proto.output, types, strict=False) if name and kind is not None}


def _tensor(inputs: InputTensors, position: int) -> Tensor:
    tensor = inputs[position]
    if tensor is None:
        raise ValueError(f"input {position} is absent")
    return tensor


def _shape(inputs: InputTensors, position: int) -> tuple[int | None, ...]:
    shape = _tensor(inputs, position).shape
    if shape is None:
        raise ValueError(f"the rank of input {position} is open")
    return shape


def _has(inputs: InputTensors, position: int) -> bool:
    return len(inputs) > position and inputs[position] is not None


def _like(*positions: int) -> Infer:
    """Each output has the type of an input."""

    def infer(inputs: InputTensors, _: AttributeMap) -> list[Type | None]:
        return [(_tensor(inputs, position).dtype, _tensor(inputs, position).shape) for position in positions]

    return infer


def _broadcast(*positions: int) -> Infer:
    def infer(inputs: InputTensors, _: AttributeMap) -> list[Type | None]:
        shape = broadcast([_shape(inputs, position) for position in positions])
        return [(_tensor(inputs, positions[-1]).dtype, shape)]

    return infer


def _matmul_shape(left: Sequence[int | None], right: Sequence[int | None]) -> tuple[int | None, ...]:
    if len(left) == 1:
        return (*right[:-2], right[-1])
    if len(right) == 1:
        return tuple(left[:-1])
    return (*broadcast([left[:-2], right[:-2]]), left[-2], right[-1])


def _matmul(left: int, right: int, dtype: str = "") -> Infer:
    def infer(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
        one = _transposed(_shape(inputs, left), attributes, "A")
        two = _transposed(_shape(inputs, right), attributes, "B")
        kind = DTYPES[dtype] if dtype else _tensor(inputs, left).dtype
        return [(kind, _matmul_shape(one, two))]

    return infer


def _transposed(shape: tuple[int | None, ...], attributes: AttributeMap, side: str) -> tuple[int | None, ...]:
    if attributes.get(f"transBatch{side}"):
        shape = (*shape[1:-1], shape[0], shape[-1])
    if attributes.get(f"trans{side}") and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def _packed_matmul(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    """Y of a product with weights of N by K given as attributes."""
    width = attributes["N"] if attributes.get("transB", 1) else attributes["K"]
    return [(_tensor(inputs, 0).dtype, (*_shape(inputs, 0)[:-1], width))]


def _gemm(left: int, right: int) -> Infer:
    def infer(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
        rows = _shape(inputs, left)[1 if attributes.get("transA") else 0]
        columns = _shape(inputs, right)[0 if attributes.get("transB") else 1]
        return [(_tensor(inputs, left).dtype, (rows, columns))]

    return infer


def _gemm_float8(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    (_, shape) = _gemm(0, 1)(inputs, attributes)[0] or (None, None)
    return [(DTYPES_BY_NUMBER[attributes.get("dtype", 1)], shape)]


def _qgemm(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    (_, shape) = _gemm(0, 3)(inputs, attributes)[0] or (None, None)
    kind = _tensor(inputs, 8).dtype if _has(inputs, 8) else DTYPES["float32"]
    return [(kind, shape)]


def _quantized(inputs: InputTensors, _: AttributeMap) -> list[Type | None]:
    kind = _tensor(inputs, 2).dtype if _has(inputs, 2) else DTYPES["uint8"]
    return [(kind, _tensor(inputs, 0).shape)]


def _conv(*, weight: int, channels_last: bool = False, kernel_last: bool = True) -> Infer:
    """Y of a convolution.

    Args:
        weight: Which input holds the filters; output channels are their first axis in every layout.
        channels_last: Whether data are in NHWC whatever the attributes say.
        kernel_last: Whether filters are (M, C, kH, kW), not (M, kH, kW, C).
    """

    def infer(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
        data, filters = _shape(inputs, 0), _shape(inputs, weight)
        last = channels_last or bool(attributes.get("channels_last", 0))
        space = data[1:-1] if last else data[2:]
        kernel = attributes.get("kernel_shape") or (filters[2:] if kernel_last else filters[1:-1])
        sizes = window_sizes(space, kernel, attributes)
        shape = (data[0], *sizes, filters[0]) if last else (data[0], filters[0], *sizes)
        return [(_tensor(inputs, 0).dtype, shape)]

    return infer


def _pool(*, channels_last: bool = False) -> Infer:
    def infer(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
        data = _shape(inputs, 0)
        last = channels_last or bool(attributes.get("channels_last", 0))
        space = data[1:-1] if last else data[2:]
        sizes = window_sizes(space, attributes["kernel_shape"], attributes)
        shape = (data[0], *sizes, data[-1]) if last else (*data[:2], *sizes)
        return [(_tensor(inputs, 0).dtype, shape)]

    return infer


def _global_pool(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    data = _shape(inputs, 0)
    ones = (1,) * (len(data) - 2)
    shape = (data[0], *ones, data[-1]) if attributes.get("channels_last") else (*data[:2], *ones)
    return [(_tensor(inputs, 0).dtype, shape)]


def window_sizes(
    space: Sequence[int | None], kernel: Sequence[int | None], attributes: AttributeMap
) -> tuple[int | None, ...]:
    """How many positions a sliding window has along each axis.

    Mirrors ``convPoolShapeInference`` of ``onnx/defs/nn/defs.cc``, which ONNX Runtime's schemas call.
    """
    rank = len(space)
    strides = attributes.get("strides") or (1,) * rank
    dilations = attributes.get("dilations") or (1,) * rank
    pads = attributes.get("pads") or (0,) * (2 * rank)
    auto = attributes.get("auto_pad", "NOTSET")
    sizes: list[int | None] = []
    for axis, (size, taps) in enumerate(zip(space, kernel, strict=True)):
        if size is None or taps is None:
            sizes.append(None)
            continue
        reach = dilations[axis] * (taps - 1) + 1
        if auto.startswith("SAME"):
            sizes.append(-(-size // strides[axis]))
            continue
        before, after = (0, 0) if auto == "VALID" else (pads[axis], pads[axis + rank])
        room = size + before + after - reach
        if attributes.get("ceil_mode"):
            room += strides[axis] - 1
        count = room // strides[axis] + 1
        if attributes.get("ceil_mode") and (count - 1) * strides[axis] >= size + before:
            count -= 1  # a window that would start in the padding behind the image is none, as in PyTorch
        sizes.append(count)
    return tuple(sizes)


def _attention(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    """Output and present state, whose first axis of 2 holds keys and values."""
    batch, sequence, _ = _shape(inputs, 0)
    hidden = attributes.get("qkv_hidden_sizes")
    # The merged weight is (input width, Q + K + V); V's width is the output's, the three are equal unless told.
    width = hidden[2] if hidden else (_shape(inputs, 1)[1] or 0) // 3
    result: list[Type | None] = [(_tensor(inputs, 0).dtype, (batch, sequence, width))]
    if _has(inputs, 4):
        past = _shape(inputs, 4)
        total = None if past[3] is None or sequence is None else past[3] + sequence
        result.append((_tensor(inputs, 0).dtype, (*past[:3], total, past[4])))
    return result


def _multi_head_attention(past: int, kv_heads: str = "num_heads") -> Infer:
    """Output, present key and present value of attention on projected inputs."""

    def infer(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
        query, heads = _shape(inputs, 0), attributes["num_heads"]
        shared = attributes.get(kv_heads, heads)
        dtype = _tensor(inputs, 0).dtype
        size, value_size = _head_sizes(inputs, query, heads, shared)
        out: Type = (dtype, (query[0], query[1], heads * value_size))
        keys = _key_length(inputs, query[1])
        if _has(inputs, past):
            before = _shape(inputs, past)[2]
            keys = None if keys is None or before is None else keys + before
        if kv_heads != "num_heads" and attributes.get("past_present_share_buffer", 0):
            keys = _shape(inputs, past)[2]  # the present is written into the past's buffer
        return [out, (dtype, (query[0], shared, keys, size)), (dtype, (query[0], shared, keys, value_size))]

    return infer


def _head_sizes(
    inputs: InputTensors, query: tuple[int | None, ...], heads: int, shared: int
) -> tuple[int, int]:
    # Five axes are Q, K and V packed: (batch, sequence, heads, 3, head size). No key at all is the same for
    # GroupQueryAttention, with three axes.
    if len(query) == 5:
        return query[-1] or 0, query[-1] or 0
    width = query[-1] or 0
    if not _has(inputs, 1):
        return width // (heads + 2 * shared), width // (heads + 2 * shared)
    size = width // heads
    if not _has(inputs, 2):
        return size, size
    values = _shape(inputs, 2)
    return size, (values[-1] or 0) if len(values) == 4 else (values[-1] or 0) // shared


def _key_length(inputs: InputTensors, sequence: int | None) -> int | None:
    if not _has(inputs, 1):
        return sequence
    key = _shape(inputs, 1)
    return key[2] if len(key) == 4 else key[1]


def _group_query_attention(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    """GroupQueryAttention: the cache grows to total_sequence_length, or stays as long as its buffer."""
    types = list(_multi_head_attention(3, "kv_num_heads")(inputs, attributes))
    if _has(inputs, 3):  # a cache may be of a narrower type than the query: int8, packed uint8
        cache = _tensor(inputs, 3).dtype
        types[1:] = [None if kind is None else (cache, kind[1]) for kind in types[1:]]
    total = _tensor(inputs, 6).value if _has(inputs, 6) else None
    before = _shape(inputs, 3)[2] if _has(inputs, 3) else 0
    keys: int | None = None
    # Where total_sequence_length is not known, the schema takes the past's length for lack of a better one.
    # Here the new tokens are added, as the kernel does where past and present are tensors of their own.
    if total is not None and before is not None:
        keys = max(int(total.reshape(-1)[0]), before)
    if keys is not None:
        types[1:] = [None if kind is None else (kind[0], _with_axis(kind[1], 2, keys)) for kind in types[1:]]
    return types


def _with_axis(shape: Shape, axis: int, size: int | None) -> Shape:
    return None if shape is None else (*shape[:axis], size, *shape[axis + 1 :])


def _embed_layer_norm(inputs: InputTensors, _: AttributeMap) -> list[Type | None]:
    batch, sequence = _shape(inputs, 0)
    # Of QEmbedLayerNormalization the tables are uint8: gamma (5), or its scale (11), has the output's type.
    whole: Type = (_floating(inputs, (5, 11)), (batch, sequence, _shape(inputs, 2)[1]))
    mask: Type = (DTYPES["int32"], (batch,))
    return [whole, mask, whole]


def _floating(inputs: InputTensors, positions: Sequence[int]) -> DType:
    kinds = [_tensor(inputs, position).dtype for position in positions if _has(inputs, position)]
    return next((kind for kind in kinds if kind.is_float), DTYPES["float32"])


def _skip_layer_norm(inputs: InputTensors, _: AttributeMap) -> list[Type | None]:
    """Output, mean, inverse deviation and the sum of input and skip."""
    whole: Type = (_tensor(inputs, 0).dtype, _tensor(inputs, 0).shape)
    row: Type = (DTYPES["float32"], (*_shape(inputs, 0)[:-1], 1))
    return [whole, row, row, whole]


def _gather_block_quantized(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    data, indices, axis = _shape(inputs, 0), _shape(inputs, 1), attributes.get("gather_axis", 0)
    # uint8 holds elements of fewer bits side by side; int4 and uint4 are types of their own, with one a place.
    packed = 8 // attributes.get("bits", 4) if _tensor(inputs, 0).dtype.name == "uint8" else 1
    last = data[-1]
    data = (*data[:-1], None if last is None else last * packed)
    return [(_tensor(inputs, 2).dtype, (*data[:axis], *indices, *data[axis + 1 :]))]


def _qlinear_concat(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    """Scale and zero point of the result, then a tensor with its scale and zero point, again and again."""
    shapes = [_shape(inputs, position) for position in range(2, len(inputs), 3)]
    axis = attributes["axis"] % len(shapes[0])
    sizes = [shape[axis] for shape in shapes]
    whole = None if None in sizes else sum(size for size in sizes if size is not None)
    return [(_tensor(inputs, 2).dtype, _with_axis(shapes[0], axis, whole))]


def _qlinear_reduce_mean(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    shape = _shape(inputs, 0)
    axes = {axis % len(shape) for axis in attributes.get("axes", range(len(shape)))}
    if attributes["keepdims"]:
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    else:
        shape = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return [(_tensor(inputs, 0).dtype, shape)]


def _dynamic_quantize_lstm(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    steps, batch = _shape(inputs, 0)[:2]
    directions, hidden = _shape(inputs, 2)[0], attributes["hidden_size"]
    kind, last = _tensor(inputs, 0).dtype, (directions, batch, hidden)
    return [(kind, (steps, directions, batch, hidden)), (kind, last), (kind, last)]


def _tokens(inputs: InputTensors, _: AttributeMap) -> list[Type | None]:
    """The words of each text, as many as the text of most has: the data decide."""
    shape = _tensor(inputs, 0).shape
    return [(DTYPES["string"], None if shape is None else (*shape, None))]


# Their first output has the first input's type and shape; declared in all five files that are named below.
_UNCHANGED = """
BiasGelu BiasSoftmax BranchwiseRMSNorm ComplexMul ComplexMulConj DequantizeWithOrder FastGelu GatedAdd
GatedRMSNorm Gelu GroupNorm Inverse LongformerAttention MRotaryEmbedding QLinearLeakyRelu QLinearSigmoid
QLinearSoftmax QOrderedGelu QOrderedLayerNormalization QuickGelu RotaryEmbedding SampleOp ScaledSiLU Trilu
MoE QMoE BiasDropout
"""
# ONNX Runtime declares it in ONNX's own domain, and its model builder writes it there
# (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
_IN_DEFAULT_DOMAIN = frozenset({"SimplifiedLayerNormalization"})
_TABLE: dict[str, Infer] = {
    "SimplifiedLayerNormalization": _like(0),
    **dict.fromkeys(_UNCHANGED.split(), _like(0)),
    # onnxruntime/core/graph/contrib_ops/bert_defs.cc
    "Attention": _attention,
    "DecoderMaskedMultiHeadAttention": _multi_head_attention(5),
    "EmbedLayerNormalization": _embed_layer_norm,
    "GemmFastGelu": _matmul(0, 1),
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention(6),
    "NGramRepeatBlock": _like(1),
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_layer_norm,
    # onnxruntime/core/graph/contrib_ops/contrib_defs.cc
    "CDist": lambda inputs, _: [(_tensor(inputs, 0).dtype, (_shape(inputs, 0)[0], _shape(inputs, 1)[0]))],
    "FusedConv": _conv(weight=1),
    "FusedGemm": _gemm(0, 1),
    "FusedMatMul": _matmul(0, 1),
    "FusedMatMulActivation": _matmul(0, 1),
    "GatherBlockQuantized": _gather_block_quantized,
    "GemmFloat8": _gemm_float8,
    # The first axis of their packed weight is N.
    **dict.fromkeys(
        ("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight"),
        lambda inputs, _: [(_tensor(inputs, 0).dtype, (*_shape(inputs, 0)[:-1], _shape(inputs, 1)[0]))],
    ),
    "MatMulBnb4": _packed_matmul,
    "MatMulInteger16": _matmul(0, 1, "int32"),
    "MatMulNBits": _packed_matmul,
    "Tokenizer": _tokens,
    "TransposeMatMul": _matmul(0, 1),
    # onnxruntime/core/graph/contrib_ops/diffusion_defs.cc
    "BiasAdd": lambda inputs, _: [(_tensor(inputs, 0).dtype, _tensor(inputs, 2).shape)],
    "BiasSplitGelu": lambda inputs, _: [
        (_tensor(inputs, 0).dtype, (*_shape(inputs, 0)[:-1], (_shape(inputs, 0)[-1] or 0) // 2 or None))
    ],
    "SkipGroupNorm": _like(0, 0),
    # onnxruntime/core/graph/contrib_ops/nhwc_schema_defs.cc
    # Its schema takes filters for (M, C, kH, kW), but the tool that makes it turns them to (M, kH, kW, C)
    # (onnxruntime/python/tools/transformers/fusion_nhwc_conv.py).
    "NhwcConv": _conv(weight=1, channels_last=True, kernel_last=False),
    "NhwcFusedConv": _conv(weight=1, channels_last=True),
    "NhwcMaxPool": _pool(channels_last=True),
    "QLinearAveragePool": _pool(),
    "QLinearConv": _conv(weight=3),
    "QLinearGlobalAveragePool": _global_pool,
    # onnxruntime/core/graph/contrib_ops/quantization_defs.cc
    "DequantizeLinear": lambda inputs, _: [(_tensor(inputs, 1).dtype, _tensor(inputs, 0).shape)],
    "DynamicQuantizeLSTM": _dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": _matmul(0, 1, "float32"),
    "MatMulIntegerToFloat": _matmul(0, 1, "float32"),
    "QAttention": lambda inputs, _: [
        (DTYPES["float32"], (*_shape(inputs, 0)[:2], (_shape(inputs, 1)[1] or 0) // 3))
    ],
    "QEmbedLayerNormalization": _embed_layer_norm,
    "QGemm": _qgemm,
    # Inputs 0 and 3 are the operands; scales and zero points follow each.
    "QLinearAdd": _broadcast(3, 0),
    "QLinearConcat": _qlinear_concat,
    "QLinearMul": _broadcast(3, 0),
    "QLinearReduceMean": _qlinear_reduce_mean,
    "QLinearWhere": _broadcast(0, 4, 1),
    "QOrderedMatMul": _matmul(0, 2),
    "QuantizeLinear": _quantized,
}


def _reorder_input(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    shape = _shape(inputs, 0)
    # The schema rounds the channels up to whole blocks of the processor that runs it (MlasNchwcGetBlockSize: 8
    # or 16). The file does not say which that will be: the channels stand here as they are.
    last = bool(attributes.get("channels_last", 0))
    return [(_tensor(inputs, 0).dtype, (shape[0], shape[-1], *shape[1:-1]) if last else shape)]


def _reorder_output(inputs: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    batch, _, *sizes = _shape(inputs, 0)
    channels, last = attributes["channels"], bool(attributes.get("channels_last", 0))
    shape = (batch, *sizes, channels) if last else (batch, channels, *sizes)
    return [(_tensor(inputs, 0).dtype, shape)]


# Operators on blocks of channels (NCHWc) in models that ONNX Runtime saved, by
# onnxruntime/core/graph/contrib_ops/nchwc_schema_defs.cc, whose schemas call the inference functions of ONNX's
# own operators. Blocks change the order of the elements, not the sizes that a shape tells; channels may have
# been padded to whole blocks, which the weights' shapes show. Upsample, the one that is missing, is left open.
_BLOCKED: Mapping[str, Infer] = {
    "AveragePool": _pool(),
    "Conv": _conv(weight=1),  # a fourth input is added to what it gives
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "MaxPool": _pool(),
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
}
