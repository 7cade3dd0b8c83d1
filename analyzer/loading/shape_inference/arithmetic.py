"""Loading: the types of what operators give that compute."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.graph import DTYPES, DTYPES_BY_NUMBER, broadcast
from analyzer.loading.shape_inference.rules import (
    AttributeValues,
    KnownInput,
    OutputTypes,
    Sizes,
    as_dictionary,
    axes_of,
    axis_of,
    rule,
)

_BOOL = DTYPES["bool"]
_INT64 = DTYPES["int64"]


# In the schemas of all of these (onnx/defs/math/defs.cc, onnx/defs/nn/defs.cc, onnx/defs/tensor/defs.cc) the
# output has the first input's type and shape. Only the first output is given: a BatchNormalization that trains,
# or a LayerNormalization that gives its mean, has more of them and so goes to ONNX's own inference.
@rule(
    """
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh CumSum Elu Erf Exp Floor Gelu GroupNormalization
HardSigmoid HardSwish Identity InstanceNormalization LRN LeakyRelu Log LpNormalization
MeanVarianceNormalization Mish Neg Not PRelu Reciprocal Relu Round ScatterElements ScatterND Selu Shrink
Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Trilu
"""
)
def _same(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    first = inputs[0]
    return ((first.dtype, first.shape),)


@rule("BatchNormalization")
def _batch_normalization(
    inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int
) -> OutputTypes:
    first, *others = inputs
    alike = all(tensor.shape == first.shape[1:2] for tensor in others)
    return ((first.dtype, first.shape),) if alike else None


@rule("Hardmax LayerNormalization LogSoftmax RMSNormalization Softmax")
def _along_an_axis(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    first = inputs[0]
    if "axis" in attributes:
        axis_of(attributes["axis"], len(first.shape))
    return ((first.dtype, first.shape),)


@rule("Dropout")
def _dropout(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    first = inputs[0]
    return (first.dtype, first.shape), (_BOOL, first.shape)


@rule("IsNaN IsInf")
def _is_nan_or_inf(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    return ((_BOOL, inputs[0].shape),)


@rule("Add Sub Mul Div Pow Mod Max Min Sum Mean And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift")
def _broadcast(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    first = inputs[0]  # Pow's exponent may be of another type: the base's is the result's
    return ((first.dtype, broadcast([tensor.shape for tensor in inputs])),)


@rule("Equal Greater GreaterOrEqual Less LessOrEqual")
def _comparing(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    return ((_BOOL, broadcast([tensor.shape for tensor in inputs])),)


@rule("Where")
def _where(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    return ((inputs[1].dtype, broadcast([tensor.shape for tensor in inputs])),)


@rule("Conv")
def _conv(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    data, weight = inputs[0], inputs[1].shape
    attributes = as_dictionary(attributes)
    kernel = weight[2:]
    # What contradicts itself is refused with a reason, and ONNX's inference knows the reason.
    if attributes.get("kernel_shape", kernel) != kernel or len(weight) != len(data.shape):
        return None
    if data.shape[1] != weight[1] * attributes.get("group", 1):
        return None
    spatial = _windows(data.shape[2:], kernel, attributes)
    return None if spatial is None else ((data.dtype, (data.shape[0], weight[0], *spatial)),)


@rule("MaxPool AveragePool LpPool")
def _pool(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    data, attributes = inputs[0], as_dictionary(attributes)
    # With ceil_mode a window that would start in the padding behind the image does not count, but in older
    # opsets it does (convPoolShapeInference in onnx/defs/nn/defs.cc, and in old.cc): ONNX is asked.
    if attributes.get("ceil_mode", 0):
        return None
    spatial = _windows(data.shape[2:], attributes["kernel_shape"], attributes)
    return None if spatial is None else ((data.dtype, (*data.shape[:2], *spatial)),)


def _windows(sizes: Sizes, kernel: Sizes, attributes: AttributeValues) -> Sizes | None:
    """How many windows fit along each spatial axis; None for padding that is worked out from the sizes."""
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    get = attributes.get
    axes = len(sizes)
    pads = get("pads") or (0,) * (2 * axes)
    strides, dilations = get("strides") or (1,) * axes, get("dilations") or (1,) * axes
    if len(pads) != 2 * axes or not axes:
        return None
    counts = []
    windows = zip(sizes, kernel, strides, dilations, pads[:axes], pads[axes:], strict=True)
    for size, taps, stride, dilation, before, after in windows:
        count = (size + before + after - (taps - 1) * dilation - 1) // stride + 1
        if count < 1:  # the kernel is larger than the padded image: an error that ONNX words
            return None
        counts.append(count)
    return tuple(counts)


@rule("GlobalAveragePool GlobalMaxPool")
def _global_pool(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    data = inputs[0]
    return ((data.dtype, (*data.shape[:2], *(1,) * (len(data.shape) - 2))),) if len(data.shape) > 2 else None


@rule("Gemm")
def _gemm(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    (rows, inner), (other, columns) = inputs[0].shape, inputs[1].shape
    if attributes.get("transA", 0):
        rows, inner = inner, rows
    if attributes.get("transB", 0):
        other, columns = columns, other
    return ((inputs[0].dtype, (rows, columns)),) if inner == other else None


@rule("MatMul")
def _matmul(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    left, right = inputs[0].shape, inputs[1].shape
    # A vector is a row on the left and a column on the right, and that axis is dropped again: rare, left to
    # ONNX.
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        return None
    return ((inputs[0].dtype, (*broadcast([left[:-2], right[:-2]]), left[-2], right[-1])),)


@rule("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum")
def _reduce(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape, axes = inputs[0].shape, axes_of(inputs, attributes)
    # None at all means every axis, or none of them with noop_with_empty_axes; unknown ones are not ours either.
    if not axes:
        return None
    reduced = {axis_of(axis, len(shape)) for axis in axes}
    return ((inputs[0].dtype, _reduced(shape, reduced, attributes.get("keepdims", 1))),)


@rule("ArgMax ArgMin")
def _arg_max(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape = inputs[0].shape
    reduced = {axis_of(attributes.get("axis", 0), len(shape))}
    return ((_INT64, _reduced(shape, reduced, attributes.get("keepdims", 1))),)


def _reduced(shape: Sizes, reduced: set[int], keep: int) -> Sizes:
    if keep:
        return tuple([1 if axis in reduced else size for axis, size in enumerate(shape)])
    return tuple([size for axis, size in enumerate(shape) if axis not in reduced])


@rule("Cast")
def _cast(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    return ((DTYPES_BY_NUMBER[attributes["to"]], inputs[0].shape),)


@rule("QuantizeLinear")
def _quantize(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    # Without a zero point the type is uint8, or what output_dtype says since opset 21: rare, left to ONNX.
    if "output_dtype" in attributes or len(inputs) < 3:
        return None
    return ((inputs[2].dtype, inputs[0].shape),)


@rule("DequantizeLinear")
def _dequantize(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    return None if "output_dtype" in attributes else ((inputs[1].dtype, inputs[0].shape),)


@rule("CastLike")
def _cast_like(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    return ((inputs[1].dtype, inputs[0].shape),)
