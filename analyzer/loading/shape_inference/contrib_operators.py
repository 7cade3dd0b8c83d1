"""Loading: output types of ONNX Runtime's own operators and of ``ai.onnx.ml``, of which ONNX tells few.

Only the tensors that later operators need are inferred; what depends on data stays open. Shapes follow the
schemas of onnxruntime 1.31: each part of ``_TABLE`` names the file that declares its operators. Its own
inference can be asked: where a model declares a wrong output shape, a session warns and names both. What
computes as one of ONNX's own operators has the shape that ONNX infers for that one. Operators of ``ai.onnx.ml``
give as many rows as they are given, as ONNX Runtime 1.31.1's kernels write them
(``onnxruntime/core/providers/cpu/ml``), which the tests ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from analyzer.graph import (
    DEFAULT_DOMAIN,
    DTYPES,
    DTYPES_BY_NUMBER,
    NO_ATTRIBUTES,
    Dim,
    DType,
    Shape,
    Tensor,
    broadcast,
)
from analyzer.loading.shape_inference.onnx_inference import AttributeMap, InputTensors, Type, infer_node
from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, NCHWC_DOMAIN, NHWC_DOMAIN

if TYPE_CHECKING:
    import onnx

Sizes = tuple[int | None, ...]


class _Call(NamedTuple):
    """A node's operands for a rule; ``ValueError`` where one is missing, or its rank is open."""

    inputs: InputTensors
    attributes: AttributeMap

    def has(self, position: int) -> bool:
        return len(self.inputs) > position and self.inputs[position] is not None

    def tensor(self, position: int) -> Tensor:
        tensor = self.inputs[position]
        if tensor is None:
            raise ValueError(f"input {position} is absent")
        return tensor

    def dtype(self, position: int) -> DType:
        return self.tensor(position).dtype

    def shape(self, position: int) -> Sizes:
        shape = self.tensor(position).shape
        if shape is None:
            raise ValueError(f"the rank of input {position} is open")
        return shape


Rule = Callable[[_Call], Sequence[Type | None]]


def infer_contrib(
    proto: onnx.NodeProto, domain: str, inputs: InputTensors, attributes: AttributeMap
) -> Mapping[str, Type]:
    """Return the types of outputs that ONNX's inference does not tell, by name; empty where unknown."""
    rules = {CLASSICAL_DOMAIN: _CLASSICAL, NCHWC_DOMAIN: _BLOCKED}.get(domain, _TABLE)
    # ONNX Runtime declares it in ONNX's own domain, and its model builder writes it there
    # (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
    in_default_domain = proto.op_type == "SimplifiedLayerNormalization"
    if rules is _TABLE and not (domain in (CONTRIB_DOMAIN, NHWC_DOMAIN) or in_default_domain):
        return {}
    if domain == NHWC_DOMAIN:
        # There the operators' own attributes do not say that channels are last: the domain does
        # (onnxruntime/core/graph/contrib_ops/internal_nhwc_onnx_schemas.cc).
        attributes = {**attributes, "channels_last": 1}
    call, rule = _Call(inputs, attributes), rules.get(proto.op_type)
    try:
        if rule is None or (rules is _CLASSICAL and not call.shape(0)):
            return {}
        types = rule(call)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):  # an input's shape is open or odd
        return {}
    return {name: kind for name, kind in zip(proto.output, types, strict=False) if name and kind is not None}


def _inferred(op_type: str, *shapes: Shape, attributes: AttributeMap = NO_ATTRIBUTES, opset: int = 22) -> Shape:
    """Return the shape that an operator of ONNX gives for inputs of these shapes; None where it cannot be.

    From opset 22 on, as in ONNX Runtime, a window that would start in the padding behind an image is none.
    """
    from onnx import helper

    names = [f"x{place}" for place in range(len(shapes))]
    inputs = [
        Tensor(name=name, shape=shape, dtype=DTYPES["float32"])
        for name, shape in zip(names, shapes, strict=True)
    ]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    types, _ = infer_node(node, inputs, {DEFAULT_DOMAIN: opset}, 10, memo={})
    return types["y"][1] if "y" in types else None


def _like(*positions: int) -> Rule:
    """Each output has the type of an input."""
    return lambda c: [(c.dtype(position), c.tensor(position).shape) for position in positions]


def _broadcast(*positions: int) -> Rule:
    return lambda c: [(c.dtype(positions[-1]), broadcast([c.shape(position) for position in positions]))]


def _matmul(left: int, right: int, dtype: str = "") -> Rule:
    def rule(c: _Call) -> list[Type | None]:
        one, two = _transposed(c.shape(left), c.attributes, "A"), _transposed(c.shape(right), c.attributes, "B")
        return [(DTYPES[dtype] if dtype else c.dtype(left), _inferred("MatMul", one, two))]

    return rule


def _transposed(shape: Sizes, attributes: AttributeMap, side: str) -> Sizes:
    if attributes.get(f"transBatch{side}"):
        shape = (*shape[1:-1], shape[0], shape[-1])
    if attributes.get(f"trans{side}") and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def _packed_matmul(c: _Call) -> list[Type | None]:
    """Y of a product with weights of N by K given as attributes."""
    width = c.attributes["N"] if c.attributes.get("transB", 1) else c.attributes["K"]
    return [(c.dtype(0), (*c.shape(0)[:-1], width))]


def _gemm(right: int, dtype: Callable[[_Call], DType] = lambda c: c.dtype(0)) -> Rule:
    def rule(c: _Call) -> list[Type | None]:
        rows = c.shape(0)[1 if c.attributes.get("transA") else 0]
        columns = c.shape(right)[0 if c.attributes.get("transB") else 1]
        return [(dtype(c), (rows, columns))]

    return rule


_WINDOW = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def _windows(op_type: str, weight: int = 0, *, channels_last: bool = False, kernel_last: bool = True) -> Rule:
    """Y of a convolution or a pool.

    Args:
        op_type: ONNX's own.
        weight: Which input holds the filters, 0 for none; output channels are their first axis in every layout.
        channels_last: Whether data are in NHWC whatever the attributes say.
        kernel_last: Whether filters are (M, C, kH, kW), not (M, kH, kW, C).
    """

    def rule(c: _Call) -> list[Type | None]:
        last, data = channels_last or bool(c.attributes.get("channels_last", 0)), c.shape(0)
        shapes = [(data[0], data[-1], *data[1:-1]) if last else data]
        if weight:
            filters = c.shape(weight)
            shapes.append(filters if kernel_last else (filters[0], filters[-1], *filters[1:-1]))
        given = {name: c.attributes[name] for name in _WINDOW if name in c.attributes}
        result = _inferred(op_type, *shapes, attributes=given) or ()
        return [(c.dtype(0), (result[0], *result[2:], result[1]) if last else result)]

    return rule


def _attention(c: _Call) -> list[Type | None]:
    """Output and present state, whose first axis of 2 holds keys and values."""
    batch, sequence, _ = c.shape(0)
    hidden = c.attributes.get("qkv_hidden_sizes")
    # The merged weight is (input width, Q + K + V); V's width is the output's, the three are equal unless told.
    width = hidden[2] if hidden else (c.shape(1)[1] or 0) // 3
    result: list[Type | None] = [(c.dtype(0), (batch, sequence, width))]
    if c.has(4):
        past = c.shape(4)
        total = None if past[3] is None or sequence is None else past[3] + sequence
        result.append((c.dtype(0), (*past[:3], total, past[4])))
    return result


def _multi_head_attention(past: int, kv_heads: str = "num_heads") -> Rule:
    """Output, present key and present value of attention on projected inputs."""

    def rule(c: _Call) -> list[Type | None]:
        query, heads, dtype = c.shape(0), c.attributes["num_heads"], c.dtype(0)
        shared = c.attributes.get(kv_heads, heads)
        size, value_size = _head_sizes(c, query, heads, shared)
        out: Type = (dtype, (query[0], query[1], heads * value_size))
        key = c.shape(1) if c.has(1) else query
        keys = key[2] if len(key) == 4 else key[1]
        if c.has(past):
            before = c.shape(past)[2]
            keys = None if keys is None or before is None else keys + before
        if kv_heads != "num_heads" and c.attributes.get("past_present_share_buffer", 0):
            keys = c.shape(past)[2]  # the present is written into the past's buffer
        return [out, (dtype, (query[0], shared, keys, size)), (dtype, (query[0], shared, keys, value_size))]

    return rule


def _head_sizes(c: _Call, query: Sizes, heads: int, shared: int) -> tuple[int, int]:
    # Five axes are Q, K and V packed: (batch, sequence, heads, 3, head size). No key at all is the same for
    # GroupQueryAttention, with three axes.
    width = query[-1] or 0
    if len(query) == 5:
        return width, width
    if not c.has(1):
        return width // (heads + 2 * shared), width // (heads + 2 * shared)
    if not c.has(2):
        return width // heads, width // heads
    values = c.shape(2)
    return width // heads, (values[-1] or 0) if len(values) == 4 else (values[-1] or 0) // shared


def _group_query_attention(c: _Call) -> list[Type | None]:
    """GroupQueryAttention: the cache grows to total_sequence_length, or stays as long as its buffer."""
    types = list(_multi_head_attention(3, "kv_num_heads")(c))
    if c.has(3):  # a cache may be of a narrower type than the query: int8, packed uint8
        types[1:] = [None if kind is None else (c.dtype(3), kind[1]) for kind in types[1:]]
    total = c.tensor(6).value if c.has(6) else None
    before = c.shape(3)[2] if c.has(3) else 0
    # Where total_sequence_length is not known, the schema takes the past's length for lack of a better one.
    # Here the new tokens are added, as the kernel does where past and present are tensors of their own.
    if total is not None and before is not None:
        keys = max(int(total.reshape(-1)[0]), before)
        types[1:] = [kind and (kind[0], kind[1] and (*kind[1][:2], keys, *kind[1][3:])) for kind in types[1:]]
    return types


def _embed_layer_norm(c: _Call) -> list[Type | None]:
    batch, sequence = c.shape(0)
    # Of QEmbedLayerNormalization the tables are uint8: gamma (5), or its scale (11), has the output's type.
    kinds = [c.dtype(position) for position in (5, 11) if c.has(position)]
    kind = next((kind for kind in kinds if kind.is_float), _FLOAT)
    whole: Type = (kind, (batch, sequence, c.shape(2)[1]))
    return [whole, (DTYPES["int32"], (batch,)), whole]


def _skip_layer_norm(c: _Call) -> list[Type | None]:
    """Output, mean, inverse deviation and the sum of input and skip."""
    whole: Type = (c.dtype(0), c.tensor(0).shape)
    row: Type = (_FLOAT, (*c.shape(0)[:-1], 1))
    return [whole, row, row, whole]


def _gather_block_quantized(c: _Call) -> list[Type | None]:
    data, indices, axis = c.shape(0), c.shape(1), c.attributes.get("gather_axis", 0)
    # uint8 holds elements of fewer bits side by side; int4 and uint4 are types of their own, with one a place.
    packed = 8 // c.attributes.get("bits", 4) if c.dtype(0).name == "uint8" else 1
    last = data[-1]
    data = (*data[:-1], None if last is None else last * packed)
    return [(c.dtype(2), (*data[:axis], *indices, *data[axis + 1 :]))]


def _qlinear_concat(c: _Call) -> list[Type | None]:
    """Scale and zero point of the result, then a tensor with its scale and zero point, again and again."""
    shapes = [c.shape(position) for position in range(2, len(c.inputs), 3)]
    return [(c.dtype(2), _inferred("Concat", *shapes, attributes={"axis": c.attributes["axis"]}))]


def _qlinear_reduce_mean(c: _Call) -> list[Type | None]:
    given = {name: c.attributes[name] for name in ("axes", "keepdims") if name in c.attributes}
    # Axes were an attribute of ONNX's own up to opset 17.
    return [(c.dtype(0), _inferred("ReduceMean", c.shape(0), attributes=given, opset=17))]


def _dynamic_quantize_lstm(c: _Call) -> list[Type | None]:
    steps, batch = c.shape(0)[:2]
    directions, hidden = c.shape(2)[0], c.attributes["hidden_size"]
    kind, last = c.dtype(0), (directions, batch, hidden)
    return [(kind, (steps, directions, batch, hidden)), (kind, last), (kind, last)]


_FLOAT, _INTEGER, _STRING = DTYPES["float32"], DTYPES["int64"], DTYPES["string"]
# Their first output has the first input's type and shape; declared in all five files that are named below.
_UNCHANGED = """
BiasGelu BiasSoftmax BranchwiseRMSNorm ComplexMul ComplexMulConj DequantizeWithOrder FastGelu GatedAdd
GatedRMSNorm Gelu GroupNorm Inverse LongformerAttention MRotaryEmbedding QLinearLeakyRelu QLinearSigmoid
QLinearSoftmax QOrderedGelu QOrderedLayerNormalization QuickGelu RotaryEmbedding SampleOp ScaledSiLU Trilu
MoE QMoE BiasDropout
"""
_TABLE: Mapping[str, Rule] = {
    **dict.fromkeys((*_UNCHANGED.split(), "SimplifiedLayerNormalization"), _like(0)),
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
    "CDist": lambda c: [(c.dtype(0), (c.shape(0)[0], c.shape(1)[0]))],
    "FusedConv": _windows("Conv", 1),
    "FusedGemm": _gemm(1),
    "FusedMatMul": _matmul(0, 1),
    "FusedMatMulActivation": _matmul(0, 1),
    "GatherBlockQuantized": _gather_block_quantized,
    "GemmFloat8": _gemm(1, lambda c: DTYPES_BY_NUMBER[c.attributes.get("dtype", 1)]),
    # The first axis of their packed weight is N.
    **dict.fromkeys(
        ("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight"),
        lambda c: [(c.dtype(0), (*c.shape(0)[:-1], c.shape(1)[0]))],
    ),
    "MatMulBnb4": _packed_matmul,
    "MatMulInteger16": _matmul(0, 1, "int32"),
    "MatMulNBits": _packed_matmul,
    # The words of each text, as many as the text of most has: the data decide.
    "Tokenizer": lambda c: [(_STRING, None if c.tensor(0).shape is None else (*c.shape(0), None))],
    "TransposeMatMul": _matmul(0, 1),
    # onnxruntime/core/graph/contrib_ops/diffusion_defs.cc
    "BiasAdd": lambda c: [(c.dtype(0), c.tensor(2).shape)],
    "BiasSplitGelu": lambda c: [(c.dtype(0), (*c.shape(0)[:-1], (c.shape(0)[-1] or 0) // 2 or None))],
    "SkipGroupNorm": _like(0, 0),
    # onnxruntime/core/graph/contrib_ops/nhwc_schema_defs.cc
    # Its schema takes filters for (M, C, kH, kW), but the tool that makes it turns them to (M, kH, kW, C)
    # (onnxruntime/python/tools/transformers/fusion_nhwc_conv.py).
    "NhwcConv": _windows("Conv", 1, channels_last=True, kernel_last=False),
    "NhwcFusedConv": _windows("Conv", 1, channels_last=True),
    "NhwcMaxPool": _windows("MaxPool", channels_last=True),
    "QLinearAveragePool": _windows("AveragePool"),
    "QLinearConv": _windows("Conv", 3),
    "QLinearGlobalAveragePool": _windows("GlobalAveragePool"),
    # onnxruntime/core/graph/contrib_ops/quantization_defs.cc
    "DequantizeLinear": lambda c: [(c.dtype(1), c.tensor(0).shape)],
    "DynamicQuantizeLSTM": _dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": _matmul(0, 1, "float32"),
    "MatMulIntegerToFloat": _matmul(0, 1, "float32"),
    "QAttention": lambda c: [(_FLOAT, (*c.shape(0)[:2], (c.shape(1)[1] or 0) // 3))],
    "QEmbedLayerNormalization": _embed_layer_norm,
    "QGemm": _gemm(3, lambda c: c.dtype(8) if c.has(8) else _FLOAT),
    # Inputs 0 and 3 are the operands; scales and zero points follow each.
    "QLinearAdd": _broadcast(3, 0),
    "QLinearConcat": _qlinear_concat,
    "QLinearMul": _broadcast(3, 0),
    "QLinearReduceMean": _qlinear_reduce_mean,
    "QLinearWhere": _broadcast(0, 4, 1),
    "QOrderedMatMul": _matmul(0, 2),
    "QuantizeLinear": lambda c: [(c.dtype(2) if c.has(2) else DTYPES["uint8"], c.tensor(0).shape)],
}


def _reorder_input(c: _Call) -> list[Type | None]:
    shape = c.shape(0)
    # The schema rounds the channels up to whole blocks of the processor that runs it (MlasNchwcGetBlockSize: 8
    # or 16). The file does not say which that will be: the channels stand here as they are.
    last = bool(c.attributes.get("channels_last", 0))
    return [(c.dtype(0), (shape[0], shape[-1], *shape[1:-1]) if last else shape)]


def _reorder_output(c: _Call) -> list[Type | None]:
    batch, _, *sizes = c.shape(0)
    channels, last = c.attributes["channels"], bool(c.attributes.get("channels_last", 0))
    return [(c.dtype(0), (batch, *sizes, channels) if last else (batch, channels, *sizes))]


# Operators on blocks of channels (NCHWc) in models that ONNX Runtime saved, by
# onnxruntime/core/graph/contrib_ops/nchwc_schema_defs.cc, whose schemas call the inference functions of ONNX's
# own operators. Blocks change the order of the elements, not the sizes that a shape tells; channels may have
# been padded to whole blocks, which the weights' shapes show. Upsample, the one that is missing, is left open.
_BLOCKED: Mapping[str, Rule] = {
    "AveragePool": _windows("AveragePool"),
    "Conv": _windows("Conv", 1),  # a fourth input is added to what it gives
    "GlobalAveragePool": _windows("GlobalAveragePool"),
    "GlobalMaxPool": _windows("GlobalMaxPool"),
    "MaxPool": _windows("MaxPool"),
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
}


def _rows(c: _Call) -> Dim:
    """Return a row of features alone has one axis."""
    return c.shape(0)[0] if len(c.shape(0)) > 1 else 1


def _labels(attributes: AttributeMap) -> tuple[DType, int]:
    """Type and number of the classes that a classifier names."""
    kinds = (("strings", _STRING), ("int64s", _INTEGER), ("ints", _INTEGER))
    named = ((kind, attributes.get(f"classlabels_{name}")) for name, kind in kinds)
    return next(((kind, len(labels)) for kind, labels in named if labels), (_INTEGER, 0))


def _mapped(c: _Call) -> list[Type | None]:
    """Between texts and numbers."""
    return [(_INTEGER if c.dtype(0).name == "string" else _STRING, c.shape(0))]


def _encoded(c: _Call) -> list[Type | None]:
    kinds = (("values_strings", _STRING), ("values_int64s", _INTEGER), ("values_floats", _FLOAT))
    kind = next((kind for name, kind in kinds if c.attributes.get(name)), None)
    tensor = c.attributes.get("values_tensor")
    if kind is None and tensor is not None:
        kind = DTYPES[str(tensor.dtype)]
    return _mapped(c) if kind is None else [(kind, c.shape(0))]  # version 1 has none of these


def _linear_classifier(c: _Call) -> list[Type | None]:
    kind, labels = _labels(c.attributes)
    features = prod(size or 0 for size in (c.shape(0)[1:] if len(c.shape(0)) > 1 else c.shape(0)))
    scores = len(c.attributes.get("intercepts", ())) or len(c.attributes["coefficients"]) // features
    # One row of coefficients tells two classes apart.
    scores = 2 if scores == 1 and labels == 2 else scores
    return [(kind, (_rows(c),)), (_FLOAT, (_rows(c), scores))]


def _svm_classifier(c: _Call) -> list[Type | None]:
    kind, labels = _labels(c.attributes)
    classes = len(c.attributes.get("vectors_per_class", ())) or labels
    pairs = classes * (classes - 1) // 2
    # Without probabilities there is a score for each pair of classes, and of two classes for both.
    votes = c.attributes.get("vectors_per_class") and not c.attributes.get("prob_a")
    scores = pairs if votes and classes > 2 else max(classes, 2)
    return [(kind, (_rows(c),)), (_FLOAT, (_rows(c), scores))]


def _one_hot(c: _Call) -> list[Type | None]:
    categories = c.attributes.get("cats_int64s") or c.attributes.get("cats_strings") or ()
    return [(_FLOAT, (*c.shape(0), len(categories)))]


def _columns(c: _Call) -> list[Type | None]:
    count = c.inputs[1].elements if c.inputs[1] is not None else None
    return [(c.dtype(0), (*(c.shape(0)[:-1] or (1,)), count))]


def _of_rows(width: Callable[[AttributeMap], int]) -> Rule:
    return lambda c: [(_FLOAT, (_rows(c), width(c.attributes)))]


_CLASSICAL: Mapping[str, Rule] = {
    "ArrayFeatureExtractor": _columns,
    "Binarizer": _like(0),
    "CategoryMapper": _mapped,
    "FeatureVectorizer": _of_rows(lambda given: sum(given["inputdimensions"])),
    "Imputer": _like(0),
    "LabelEncoder": _encoded,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _of_rows(lambda given: int(given.get("targets", 1))),
    "Normalizer": lambda c: [(_FLOAT, c.shape(0))],
    "OneHotEncoder": _one_hot,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _of_rows(lambda _: 1),
    "Scaler": lambda c: [(_FLOAT, c.shape(0))],
    "TreeEnsembleClassifier": lambda c: [
        (_labels(c.attributes)[0], (_rows(c),)),
        (_FLOAT, (_rows(c), _labels(c.attributes)[1])),
    ],
    "TreeEnsembleRegressor": _of_rows(lambda given: int(given.get("n_targets", 1))),
}
