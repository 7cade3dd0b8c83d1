"""Loading: the types of what operators give that compute."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.graph import DTYPES, DTYPES_BY_NUMBER, broadcast
from analyzer.loading.shape_inference.rules import (
    Given,
    Known,
    Sizes,
    Told,
    axes_of,
    axis_of,
    plain,
    rule,
)

_BOOL = DTYPES["bool"]
_INT64 = DTYPES["int64"]


@rule(
    """
Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Ceil Celu Clip Cos Cosh CumSum Elu Erf Exp Floor
Gelu GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization LRN LayerNormalization
LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu RMSNormalization
Reciprocal Relu Round ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign
Sqrt Tan Tanh ThresholdedRelu Trilu
"""
)
def _same(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    first = inputs[0]
    return ((first.dtype, first.shape),)


@rule("Dropout")
def _dropout(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    first = inputs[0]
    return (first.dtype, first.shape), (_BOOL, first.shape)


@rule("IsNaN IsInf")
def _asked(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    return ((_BOOL, inputs[0].shape),)


@rule("Add Sub Mul Div Pow Mod Max Min Sum Mean And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift")
def _broadcasting(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    first = inputs[0]
    return ((first.dtype, broadcast([tensor.shape for tensor in inputs])),)


@rule("Equal Greater GreaterOrEqual Less LessOrEqual")
def _comparing(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    return ((_BOOL, broadcast([tensor.shape for tensor in inputs])),)


@rule("Where")
def _where(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    return ((inputs[1].dtype, broadcast([tensor.shape for tensor in inputs])),)


@rule("Conv")
def _conv(inputs: Sequence[Known], attributes: Given, _outputs: int) -> Told:
    data, weight = inputs[0], inputs[1].shape
    attributes = plain(attributes)
    kernel = weight[2:]
    if attributes.get("kernel_shape", kernel) != kernel or len(weight) != len(data.shape):
        return None
    if data.shape[1] != weight[1] * attributes.get("group", 1):
        return None
    spatial = _windows(data.shape[2:], kernel, attributes)
    return None if spatial is None else ((data.dtype, (data.shape[0], weight[0], *spatial)),)


@rule("MaxPool AveragePool LpPool")
def _pool(inputs: Sequence[Known], attributes: Given, _outputs: int) -> Told:
    data, attributes = inputs[0], plain(attributes)
    if attributes.get("ceil_mode", 0):
        return None
    spatial = _windows(data.shape[2:], attributes["kernel_shape"], attributes)
    return None if spatial is None else ((data.dtype, (*data.shape[:2], *spatial)),)


def _windows(sizes: Sizes, kernel: Sizes, attributes: Given) -> Sizes | None:
    """How many windows fit along each spatial axis; None for padding that is worked out from the sizes."""
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    get = attributes.get
    axes = len(sizes)
    pads = get("pads") or (0,) * (2 * axes)
    strides, dilations = get("strides") or (1,) * axes, get("dilations") or (1,) * axes
    if len(pads) != 2 * axes or not axes:
        return None
    found = []
    each = zip(sizes, kernel, strides, dilations, pads[:axes], pads[axes:], strict=True)
    for size, taps, stride, dilation, before, after in each:
        count = (size + before + after - (taps - 1) * dilation - 1) // stride + 1
        if count < 1:
            return None
        found.append(count)
    return tuple(found)


@rule("GlobalAveragePool GlobalMaxPool")
def _whole(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    data = inputs[0]
    return ((data.dtype, (*data.shape[:2], *(1,) * (len(data.shape) - 2))),) if len(data.shape) > 2 else None


@rule("Gemm")
def _gemm(inputs: Sequence[Known], attributes: Given, _outputs: int) -> Told:
    (rows, inner), (other, columns) = inputs[0].shape, inputs[1].shape
    if attributes.get("transA", 0):
        rows, inner = inner, rows
    if attributes.get("transB", 0):
        other, columns = columns, other
    return ((inputs[0].dtype, (rows, columns)),) if inner == other else None


@rule("MatMul")
def _matmul(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    left, right = inputs[0].shape, inputs[1].shape
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        return None
    return ((inputs[0].dtype, (*broadcast([left[:-2], right[:-2]]), left[-2], right[-1])),)


@rule("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum")
def _reduce(inputs: Sequence[Known], attributes: Given, _outputs: int) -> Told:
    shape, axes = inputs[0].shape, axes_of(inputs, attributes)
    if not axes:
        return None
    gone = {axis_of(axis, len(shape)) for axis in axes}
    return ((inputs[0].dtype, _reduced(shape, gone, attributes.get("keepdims", 1))),)


@rule("ArgMax ArgMin")
def _arg(inputs: Sequence[Known], attributes: Given, _outputs: int) -> Told:
    shape = inputs[0].shape
    gone = {axis_of(attributes.get("axis", 0), len(shape))}
    return ((_INT64, _reduced(shape, gone, attributes.get("keepdims", 1))),)


def _reduced(shape: Sizes, gone: set[int], keep: int) -> Sizes:
    if keep:
        return tuple([1 if axis in gone else size for axis, size in enumerate(shape)])
    return tuple([size for axis, size in enumerate(shape) if axis not in gone])


@rule("Cast")
def _cast(inputs: Sequence[Known], attributes: Given, _outputs: int) -> Told:
    return ((DTYPES_BY_NUMBER[attributes["to"]], inputs[0].shape),)


@rule("QuantizeLinear")
def _quantize(inputs: Sequence[Known], attributes: Given, _outputs: int) -> Told:
    if "output_dtype" in attributes or len(inputs) < 3:
        return None
    return ((inputs[2].dtype, inputs[0].shape),)


@rule("DequantizeLinear")
def _dequantize(inputs: Sequence[Known], attributes: Given, _outputs: int) -> Told:
    return None if "output_dtype" in attributes else ((inputs[1].dtype, inputs[0].shape),)


@rule("CastLike")
def _cast_like(inputs: Sequence[Known], _attributes: Given, _outputs: int) -> Told:
    return ((inputs[1].dtype, inputs[0].shape),)
