"""Translations of pooling and resizing, forward where PyTorch's own lacks something, and backward.

PyTorch's own are those of onnxscript/function_libs/torch_lib/ops/nn.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_export.untranslatable import opaque_node
from analyzer.loading.torch_private import PythonKernel, emit
from analyzer.loading.training.translation_values import constant, numbers, spread
from analyzer.training_operators import DOMAIN

if TYPE_CHECKING:
    import onnx_ir as ir

    from analyzer.loading.torch_export.untranslatable import Result
    from analyzer.loading.training.translation_values import Symbol


# What PyTorch calls the operator that resizes, and how it weighs.
RESIZING = {
    "upsample_nearest1d": "nearest",
    "upsample_nearest2d": "nearest",
    "upsample_nearest3d": "nearest",
    "_upsample_nearest_exact1d": "nearest-exact",
    "_upsample_nearest_exact2d": "nearest-exact",
    "_upsample_nearest_exact3d": "nearest-exact",
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "linear",
    "upsample_trilinear3d": "linear",
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
    return _max_pooled(x, attributes, space)


def _max_pooled(x: Symbol, attributes: dict[str, Any], space: int) -> Result:
    """PyTorch's indices count within one plane, ONNX's over the whole tensor.

    The gradient wants ONNX's, one scatter over all: it looks through the Mod for them.
    """
    y, places = emit("", "MaxPool", [x], attributes, 2)
    plane = numbers([prod(int(size) for size in x.shape[-space:])])
    return y, emit("", "Mod", [places, plane], {}, 1)


def _max_pool_backward(space: int, name: str, gradient: Symbol, x: Symbol, *rest: Any) -> Result:
    producer = rest[-1].producer()
    if len(x.shape) != space + 2 or producer is None or producer.op_type != "Mod":
        return opaque_node(name, 1, gradient, x, rest[-1])
    return emit(DOMAIN, "MaxPoolGrad", [gradient, producer.inputs[0]], {}, 1)


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
    y = emit("", "AveragePool", [x], attributes, 1)
    if not divisor:
        return y
    return emit("", "Mul", [y, constant(prod(taps) / divisor, x.dtype.numpy())], {}, 1)


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
    return emit(DOMAIN, "AveragePoolGrad", [gradient], attributes, 1)


def _resized(mode: str, gradient: Symbol, _outputs: object, _inputs: object, *rest: Any) -> ir.Value:
    return emit(DOMAIN, "ResizeGrad", [gradient], _placing(mode, gradient, rest), 1)


def _placing(mode: str, x: Symbol, rest: Sequence[float | None]) -> dict[str, Any]:
    """``rest`` is whether corners coincide (not for nearest neighbours), then a factor for each axis."""
    corners = bool(rest[0]) if "nearest" not in mode else False
    scales = [float(scale or 0.0) for scale in (rest if "nearest" in mode else rest[1:])]
    space = len(x.shape) - 2
    return {"mode": mode, "align_corners": int(corners), "scales": scales or [0.0] * space}


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
        return emit("", "Resize", [x, None, constant([1.0, 1.0, *scales], "float32")], attributes, 1)
    sizes = numbers([int(size) for size in (*list(x.shape)[:2], *outputs)])
    return emit("", "Resize", [x, None, None, sizes], attributes, 1)


def _scale_giving(factor: float, size: int, output_size: int) -> float:
    """The factor in single precision, or the next one where rounding would lose the last output."""
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
