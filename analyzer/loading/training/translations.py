"""Operators of the joint graph whose translation PyTorch lacks, or has wrong: mostly compact ones.

The parameters are those that torchgen/packaged/ATen/native/native_functions.yaml declares, in its order; what
has an underscore in front is not needed. PyTorch's own translations of pooling and resizing are those of
onnxscript/function_libs/torch_lib/ops/nn.py. Sizes are numbers: a step is traced at one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_export.failures import opaque, opaque_node
from analyzer.loading.torch_private import PythonKernel, emit, emit_several, operator_name
from analyzer.training_operators import DOMAIN

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import DTypeLike
    from torch import fx

    from analyzer.loading.torch_export.failures import Result
    from analyzer.loading.torch_private import OpOverload

    class Symbol(ir.Value):
        """A value while a step is translated: PyTorch's tracer knows its sizes and type.

        At run time it is a SymbolicTensor (torch/onnx/_internal/exporter/_tensors.py).
        """

        shape: tuple[int, ...]  # type: ignore[assignment]  # a value of onnx_ir may have none
        dtype: ir.DataType


def table(notes: list[str]) -> Mapping[str, PythonKernel]:
    """Return translations by qualified name; ``opaque`` makes one where there is none."""

    def keep(target: OpOverload, node: fx.Node) -> PythonKernel:
        name = operator_name(target)
        note = (
            f"{name} has no ONNX translation: kept as an operator of unknown cost; ONNX Runtime cannot "
            "run the step."
        )
        if note not in notes:
            notes.append(note)
        return opaque(target, node.meta.get("val"))

    return {**OWN, "opaque": keep}


def _convolution_backward(
    gradient: Symbol, x: Symbol, weight: Symbol, _bias: object, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, _output_padding: object, groups: int,
    _mask: object,
) -> Result:  # fmt: skip
    rank = len(weight.shape) - 2
    attributes = {
        "strides": spread(stride, rank),
        "pads": spread(padding, rank),
        "dilations": spread(dilation, rank),
        "group": int(groups),
        "transposed": int(transposed),
    }
    return emit_several(DOMAIN, "ConvGrad", [gradient, x, weight], attributes, 3)


def _batch_norm(
    x: Symbol, weight: Symbol | None, bias: Symbol | None, mean: Symbol, variance: Symbol, training: bool,
    momentum: float, eps: float,
) -> Result:  # fmt: skip
    # onnxscript/function_libs/torch_lib/ops/core.py makes inference's operator of this: a wrong loss, and
    # running statistics that never change.
    if not training:
        y = _frozen_batch_norm(x, weight, bias, mean, variance, eps)
        same = [emit("", "Identity", [statistic]) for statistic in (mean, variance)]
        # Empty, as of PyTorch: statistics of a batch that nothing took. The gradient reads the running ones.
        return (y, constant([], "float32"), constant([], "float32"), *same)
    attributes = {"momentum": float(momentum), "eps": float(eps)}
    return emit_several(DOMAIN, "BatchNorm", [x, weight, bias, mean, variance], attributes, 5)


def _frozen_batch_norm(
    x: Symbol, weight: Symbol | None, bias: Symbol | None, mean: Symbol, variance: Symbol, eps: float
) -> ir.Value:
    """With running statistics: ONNX's own operator, which always has a scale and a bias."""
    channels = int(x.shape[1])
    scale = weight if weight is not None else constant([1.0] * channels, x.dtype.numpy())
    shift = bias if bias is not None else constant([0.0] * channels, x.dtype.numpy())
    return emit("", "BatchNormalization", [x, scale, shift, mean, variance], {"epsilon": float(eps)})


def _batch_norm_without_statistics(
    x: Symbol, weight: Symbol | None, bias: Symbol | None, _training: bool, momentum: float, eps: float
) -> Result:
    attributes = {"momentum": float(momentum), "eps": float(eps)}
    return emit_several(DOMAIN, "BatchNorm", [x, weight, bias], attributes, 3)


def _batch_norm_backward(
    gradient: Symbol, x: Symbol, weight: Symbol | None, mean: Symbol, variance: Symbol, save_mean: Symbol,
    save_inverse: Symbol, train: bool, eps: float, _mask: object,
) -> Result:  # fmt: skip
    if not train:
        inputs = [gradient, x, weight, mean, variance]
        return emit_several(DOMAIN, "FrozenBatchNormGrad", inputs, {"eps": float(eps)}, 3)
    return emit_several(DOMAIN, "BatchNormGrad", [gradient, x, weight, save_mean, save_inverse], {}, 3)


def _layer_norm_backward(
    gradient: Symbol, x: Symbol, shape: Sequence[int], mean: Symbol, inverse: Symbol, weight: Symbol | None,
    _bias: object, _mask: object,
) -> Result:  # fmt: skip
    axis = len(x.shape) - len(shape)
    return emit_several(DOMAIN, "LayerNormGrad", [gradient, x, mean, inverse, weight], {"axis": axis}, 3)


# Gradients made of the gradient and one more tensor: the compact operator, its attributes and their defaults.
_OF_TWO_TENSORS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "_softmax_backward_data": ("SoftmaxGrad", {"axis": -1}),
    "_log_softmax_backward_data": ("LogSoftmaxGrad", {"axis": -1}),
    "threshold_backward": ("ReluGrad", {"threshold": 0.0}),
    "gelu_backward": ("GeluGrad", {"approximate": "none"}),
    "sigmoid_backward": ("SigmoidGrad", {}),
    "tanh_backward": ("TanhGrad", {}),
    "silu_backward": ("SiluGrad", {}),
    "hardtanh_backward": ("HardtanhGrad", {"minimum": -1.0, "maximum": 1.0}),
}


def _of_two_tensors(
    op_type: str, defaults: Mapping[str, Any], gradient: Symbol, x: Symbol, *options: Any, **named: Any
) -> Result:
    given = {**defaults, **dict(zip(defaults, options, strict=False)), **named}
    attributes = {name: type(default)(given[name]) for name, default in defaults.items()}
    return emit(DOMAIN, op_type, [gradient, x], attributes)


def _embedding_backward(
    gradient: Symbol, indices: Symbol, _rows: int, padding_idx: int = -1, scale: bool = False
) -> Result:
    if scale:
        return opaque_node("embedding_dense_backward", 1, gradient, indices)
    return emit(DOMAIN, "EmbeddingGrad", [gradient, indices], {"padding_idx": int(padding_idx)})


def _slice_backward(
    gradient: Symbol, shape: Sequence[int], dim: int, start: int, _end: int, step: int
) -> Result:
    size = int(shape[dim])
    # As Python slices: a start from the end is negative, one outside is brought inside.
    first = min(max(start + size if start < 0 else start, 0), size)
    if step != 1:
        attributes = {"axis": int(dim) % len(shape), "start": first, "step": int(step)}
        return emit(DOMAIN, "SliceGrad", [gradient], attributes)
    return _padded(gradient, len(shape), int(dim) % len(shape), first, size - first - int(gradient.shape[dim]))


def _select_backward(gradient: Symbol, shape: Sequence[int], dim: int, index: int) -> Result:
    size, axis = int(shape[dim]), int(dim) % len(shape)
    wide = emit("", "Unsqueeze", [gradient, numbers([axis])])
    place = index + size if index < 0 else index
    return _padded(wide, len(shape), axis, place, size - place - 1)


def _padded(gradient: ir.Value, rank: int, axis: int, before: int, after: int) -> ir.Value:
    """Return the gradient with zeros around it along one axis."""
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = before, after
    return emit("", "Pad", [gradient, numbers(pads)])


# ``aten_nll_loss_forward`` of onnxscript/function_libs/torch_lib/ops/nn.py makes up the total weight (a FIXME
# there says so): every gradient would be too large by the batch.
def _nll_loss(
    scores: Symbol, labels: Symbol, weights: Symbol | None, reduction: int, ignore_index: int
) -> Result:
    if len(scores.shape) < 2:  # one example without an axis for it
        return opaque_node("nll_loss_forward", 2, scores, labels, weights)
    attributes = {"reduction": int(reduction), "ignore_index": int(ignore_index)}
    return emit_several(DOMAIN, "NllLoss", [scores, labels, weights], attributes, 2)


def _nll_loss_backward(
    gradient: Symbol, scores: Symbol, labels: Symbol, weights: Symbol | None, reduction: int,
    ignore_index: int, total: Symbol,
) -> Result:  # fmt: skip
    if len(scores.shape) < 2:
        return opaque_node("nll_loss_backward", 1, gradient, scores, labels, weights, total)
    attributes = {"reduction": int(reduction), "ignore_index": int(ignore_index)}
    return emit(DOMAIN, "NllLossGrad", [gradient, scores, labels, weights, total], attributes)


def _inverse(x: Symbol, **_options: object) -> Result:
    # ONNX has no inverse; ONNX Runtime does
    # (onnxruntime/contrib_ops/cpu/inverse.cc). 0: no matrix is told singular.
    return emit("com.microsoft", "Inverse", [x]), constant(0, "int32")


def _matrix_by_vector(matrix: Symbol, vector: Symbol) -> Result:
    """As a product of matrices: ONNX Runtime 1.31 multiplies a transposed matrix by a vector wrongly."""
    column = emit("", "Unsqueeze", [vector, numbers([1])])
    return emit("", "Squeeze", [emit("", "MatMul", [matrix, column]), numbers([1])])


def _copy(target: Symbol, source: Symbol, _non_blocking: bool = False) -> Result:
    """Return a write into a tensor, broadcast, as onnxscript/function_libs/torch_lib/ops/core.py forgets to."""
    written: ir.Value = source
    if source.dtype != target.dtype:
        written = emit("", "Cast", [source], {"to": int(target.dtype)})
    return emit("", "Expand", [written, numbers([int(size) for size in target.shape])])


def _view(x: Symbol, sizes: Sequence[int]) -> Result:
    """Return the one constant that stands for the known sizes of a traced step.

    onnxscript/function_libs/torch_lib/ops/core.py concatenates one for each size, to be folded again.
    What is left to be worked out (-1) is so at some batches alone.
    """
    rest = prod(size for size in sizes if size != -1)
    known = [prod(x.shape) // rest if size == -1 and rest else size for size in sizes]
    return emit("", "Reshape", [x, numbers(known)], {"allowzero": 1})


def spread(sizes: Iterable[int], rank: int) -> list[int]:
    """One number an axis, where a single one stands for all."""
    listed = [int(size) for size in sizes]
    return listed * rank if len(listed) == 1 else listed


def constant(values: object, dtype: DTypeLike) -> ir.Value:
    """Return a small constant."""
    import numpy as np
    import onnx_ir

    return emit("", "Constant", [], {"value": onnx_ir.tensor(np.asarray(values, dtype))})


def numbers(values: Sequence[int]) -> ir.Value:
    """Return a constant of whole numbers."""
    return constant(list(values), "int64")


def take_type(value: ir.Value, like: ir.Value) -> None:
    """Give a value the shape and element type of another."""
    value.shape = like.shape
    if like.dtype is not None:
        value.dtype = like.dtype


# What PyTorch calls the operator that resizes, and how it weighs.
RESIZING = {
    **{f"upsample_nearest{axes}d": "nearest" for axes in (1, 2, 3)},
    **{f"_upsample_nearest_exact{axes}d": "nearest-exact" for axes in (1, 2, 3)},
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), "linear"),
}


def _max_pool(
    space: int, name: str, x: Symbol, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Result:  # fmt: skip
    if len(x.shape) != space + 2:
        return opaque_node(name, 2, x)
    pads = spread(padding, space)
    attributes = {
        "kernel_shape": spread(kernel, space),
        "strides": spread(stride or kernel, space),
        "pads": [*pads, *pads],
        "dilations": spread(dilation, space),
        "ceil_mode": int(ceil_mode),
    }
    # PyTorch's indices count within one plane, ONNX's over the whole tensor. The gradient wants ONNX's, one
    # scatter over all: it looks through the Mod for them.
    y, places = emit_several("", "MaxPool", [x], attributes, 2)
    plane = numbers([prod(int(size) for size in x.shape[-space:])])
    return y, emit("", "Mod", [places, plane])


def _max_pool_backward(space: int, name: str, gradient: Symbol, x: Symbol, *rest: Any) -> Result:
    producer = rest[-1].producer()
    if len(x.shape) != space + 2 or producer is None or producer.op_type != "Mod":
        return opaque_node(name, 1, gradient, x, rest[-1])
    return emit(DOMAIN, "MaxPoolGrad", [gradient, producer.inputs[0]])


def _average_pool(
    space: int, name: str, x: Symbol, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, include_pad: bool = True,
    divisor: int | None = None,
) -> Result:  # fmt: skip
    """PyTorch's own leaves the divisor out, and says so (a TODO at ``aten_avg_pool2d``)."""
    # With ceil_mode a last window hangs over the edge: ONNX counts what of
    # it is inside, PyTorch divides all alike.
    if len(x.shape) != space + 2 or (divisor and ceil_mode):
        return opaque_node(name, 1, x)
    taps, pads = spread(kernel, space), spread(padding, space)
    attributes = {
        "kernel_shape": taps,
        "strides": spread(stride or kernel, space),
        "pads": [*pads, *pads],
        "ceil_mode": int(ceil_mode),
        # With a divisor every window is to be divided by its full size, which the product below takes back.
        "count_include_pad": int(include_pad or bool(divisor)),
    }
    y = emit("", "AveragePool", [x], attributes)
    if not divisor:
        return y
    return emit("", "Mul", [y, constant(prod(taps) / divisor, x.dtype.numpy())])


def _average_pool_backward(
    space: int, name: str, gradient: Symbol, x: Symbol, kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], _ceil_mode: bool, include_pad: bool, divisor: int | None = None,
) -> Result:  # fmt: skip
    if len(x.shape) != space + 2:
        return opaque_node(name, 1, gradient, x)
    attributes = {
        "kernel_shape": spread(kernel, space),
        "strides": spread(stride or kernel, space),
        "pads": spread(padding, space),
        "divisor": int(divisor or 0),
        "include_pad": int(include_pad),
    }
    return emit(DOMAIN, "AveragePoolGrad", [gradient], attributes)


def _resized(mode: str, gradient: Symbol, _outputs: object, _inputs: object, *rest: Any) -> ir.Value:
    """``rest`` is whether corners coincide (not for nearest neighbours), then a factor for each axis."""
    corners = bool(rest[0]) if "nearest" not in mode else False
    scales = [float(scale or 0.0) for scale in (rest if "nearest" in mode else rest[1:])]
    scales = scales or [0.0] * (len(gradient.shape) - 2)
    attributes = {"mode": mode, "align_corners": int(corners), "scales": scales}
    return emit(DOMAIN, "ResizeGrad", [gradient], attributes)


def _resize(mode: str, x: Symbol, outputs: Sequence[int], *rest: Any) -> ir.Value:
    """PyTorch's own leaves the user's factors out, which place the samples (it takes them for ignored)."""
    corners = bool(rest[0]) if "nearest" not in mode else False
    factors = [factor for factor in (rest if "nearest" in mode else rest[1:]) if factor]
    attributes: dict[str, Any] = {
        "mode": mode.partition("-")[0],
        "coordinate_transformation_mode": "align_corners" if corners else "half_pixel",
    }
    if mode == "nearest":
        # nearest_neighbor_compute_source_index of
        # aten/src/ATen/native/UpSample.h: floor(i * scale), no half pixel.
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif mode == "nearest-exact":
        # floor((i + 0.5) * scale) there: of the half pixel's place, less 0.5, the nearest, halves up.
        attributes["nearest_mode"] = "round_prefer_ceil"
    if len(factors) == len(x.shape) - 2 and not corners:
        scales = [_scale_giving(*axis) for axis in zip(factors, list(x.shape)[2:], outputs, strict=True)]
        return emit("", "Resize", [x, None, constant([1.0, 1.0, *scales], "float32")], attributes)
    sizes = numbers([int(size) for size in (*list(x.shape)[:2], *outputs)])
    return emit("", "Resize", [x, None, None, sizes], attributes)


def _scale_giving(factor: float, size: int, output_size: int) -> float:
    """Return the factor in single precision, or the next one where rounding would lose the last output."""
    import numpy as np

    single = np.float32(factor)  # an input of Resize: ONNX has factors in single precision alone
    exact = int(float(single) * int(size)) == int(output_size)
    return float(single if exact else np.nextafter(single, np.float32(2**20)))


# For 2 and 3 axes of space; without an axis of examples they stay opaque.
_OF_RANK: Mapping[str, PythonKernel] = {
    "max_pool{}d_with_indices": _max_pool,
    "max_pool{}d_with_indices_backward": _max_pool_backward,
    "avg_pool{}d": _average_pool,
    "avg_pool{}d_backward": _average_pool_backward,
}
POOLING: Mapping[str, PythonKernel] = {
    **{
        name.format(space): partial(function, space, name.format(space))
        for name, function in _OF_RANK.items()
        for space in (2, 3)
    },
    **{name: partial(_resize, mode) for name, mode in RESIZING.items()},
    **{f"{name}_backward": partial(_resized, mode) for name, mode in RESIZING.items()},
}
_BY_NAME: Mapping[str, PythonKernel] = {
    **POOLING,
    **{name: partial(_of_two_tensors, *form) for name, form in _OF_TWO_TENSORS.items()},
    "convolution_backward": _convolution_backward,
    "_native_batch_norm_legit_functional": _batch_norm,
    "_native_batch_norm_legit": _batch_norm_without_statistics,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_layer_norm_backward": _layer_norm_backward,
    "embedding_dense_backward": _embedding_backward,
    "slice_backward": _slice_backward,
    "select_backward": _select_backward,
    "nll_loss_forward": _nll_loss,
    "nll_loss2d_forward": _nll_loss,
    "nll_loss_backward": _nll_loss_backward,
    "nll_loss2d_backward": _nll_loss_backward,
    "linalg_inv_ex": _inverse,
    "mv": _matrix_by_vector,
    "copy": _copy,
    "view": _view,
    "_unsafe_view": _view,
}
# By qualified name; each is for all overloads.
OWN = {f"aten::{name}": function for name, function in _BY_NAME.items()}
