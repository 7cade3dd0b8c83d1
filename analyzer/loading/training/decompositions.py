"""Operators that the tracer is to take apart into ones with a translation, where PyTorch has no way to.

Which gradient belongs to which operator stands in PyTorch's tools/autograd/derivatives.yaml (in its wheel
torchgen/packaged/autograd/derivatives.yaml). The gradient of a result ``y`` of ``x`` is called ``gradient``
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from analyzer.loading.torch_private import REFUSED, operator

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from analyzer.loading.torch_private import OpOverload, PythonKernel, Refused

    Pair = tuple[Tensor, Tensor]


def own_decompositions() -> Mapping[OpOverload, PythonKernel]:
    """By operator, the function that stands for it; the same results from smaller operators."""
    import torch

    aten = torch.ops.aten
    # What torch/_decomp knows goes unmentioned, unless it makes what has no translation itself: squeeze.dims
    # and sort.stable have none in
    # onnxscript/function_libs/torch_lib/ops/core.py, though squeeze.dim and sort have.
    table: dict[OpOverload, PythonKernel] = {
        operator("_weight_norm_interface_backward"): _weight_norm_backward,
        aten.softshrink_backward.default: _shrink_backward,
        aten.hardshrink_backward.default: _shrink_backward,
        operator("_cdist_forward"): distances,
        operator("_cdist_backward"): distances_backward,
        operator("_trilinear"): _trilinear,
        aten.squeeze.dims: _squeezed,
        aten.sort.stable: _sorted,
        aten.var.correction: _variance,
        aten.hypot.default: _hypotenuse,
        aten.unfold_backward.default: _unfolded_backward,
        aten.grid_sampler_2d_backward.default: _sampled_backward,
        aten.diagonal_scatter.default: _diagonal_written,
        aten.as_strided_scatter.default: _written_by_strides,
        aten.kthvalue.default: _kth_value,
        aten.median.dim: _median,
        aten.exponential.default: _exponential,
        aten.scatter_reduce.two: _scatter_reduced,
    }
    return table | {
        getattr(aten, f"replication_pad{rank}d_backward").default: partial(_replicated_backward, rank)
        for rank in (1, 2, 3)
    }


def _weight_norm_backward(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Pair:
    """Of ``w = g v / |v|``: ``dg = (dw . v) / |v|``, ``dv = g / |v| (dw - v (dw . v) / |v|^2)``, a row each."""
    axes = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    along = (gradient * v).sum(axes, keepdim=True)
    to_v = (g / norms) * (gradient - v * (along / (norms * norms)))
    return to_v, along / norms


def _shrink_backward(gradient: Tensor, x: Tensor, limit: float) -> Tensor:
    """Soft and hard shrinking alike have slope 1 beyond the limit and 0 within, the limit itself included."""
    import torch

    return torch.where((x >= -limit) & (x <= limit), torch.zeros_like(gradient), gradient)


def _replicated_backward(rank: int, gradient: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor | Refused:
    """What was copied beyond an edge gives its gradient to the edge."""
    import torch

    for number in range(rank):
        axis = x.dim() - 1 - number
        before, after = (max(0, int(pad)) for pad in padding[2 * number : 2 * number + 2])
        if any(int(pad) < 0 for pad in padding[2 * number : 2 * number + 2]):
            return REFUSED  # a negative pad cuts off: left to PyTorch
        size = x.shape[axis]
        if not before and not after:
            continue
        if size == 1:
            gradient = gradient.sum(axis, keepdim=True)
            continue
        first = gradient.narrow(axis, 0, before + 1).sum(axis, keepdim=True)
        last = gradient.narrow(axis, before + size - 1, after + 1).sum(axis, keepdim=True)
        inner = gradient.narrow(axis, before + 1, size - 2)
        gradient = torch.cat([first, inner, last], axis)
    return gradient


def distances(x: Tensor, y: Tensor, p: float, _mode: object = None) -> Tensor:
    """Between each row of ``x`` and each of ``y``, in the norm ``p``."""
    difference = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (difference != 0).to(x.dtype).sum(-1)
    if p == inf:
        return difference.amax(-1)
    if p == 1:
        return difference.sum(-1)
    return (difference * difference).sum(-1).sqrt() if p == 2 else difference.pow(p).sum(-1).pow(1 / p)


def distances_backward(gradient: Tensor, x: Tensor, y: Tensor, p: float, distances: Tensor) -> Tensor:
    """The gradient of ``x``; where two points coincide there is none."""
    import torch

    # d|x - y|_p / dx = sign(x - y) |x - y|^(p - 1) / |x - y|_p^(p - 1), as the kernels for each p of
    # aten/src/ATen/native/cpu/DistanceOpsKernel.cpp have it, which give 0 at distance 0 and for p = 0.
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    gradient, distances = gradient.unsqueeze(-1), distances.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        return (difference.sign() * gradient).sum(-2)
    if p == inf:
        largest = (difference.abs() == distances).to(x.dtype)
        return (difference.sign() * largest * gradient).sum(-2)
    power = difference if p == 2 else difference.sign() * difference.abs().pow(p - 1)
    scale = distances if p == 2 else distances.pow(p - 1)
    zero = torch.zeros_like(power)  # chosen, not multiplied: 0 / 0 times 0 is no number
    return torch.where(distances == 0, zero, power * gradient / scale).sum(-2)


def _trilinear(
    a: Tensor, b: Tensor, c: Tensor, wide_a: Sequence[int], wide_b: Sequence[int], wide_c: Sequence[int],
    summed: Sequence[int], _unrolled: int = 1,
) -> Tensor:  # fmt: skip
    expanded = []
    for tensor, axes in ((a, wide_a), (b, wide_b), (c, wide_c)):
        for axis in sorted(axes):
            tensor = tensor.unsqueeze(axis)
        expanded.append(tensor)
    product = expanded[0] * expanded[1] * expanded[2]
    return product.sum(list(summed)) if summed else product


def _squeezed(x: Tensor, axes: Sequence[int]) -> Tensor:
    dropped = {axis % x.dim() for axis in axes if x.shape[axis] == 1} if x.dim() else set()
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in dropped])


def _sorted(x: Tensor, *, dim: int = -1, descending: bool = False, **_stable: object) -> Pair:
    """ONNX's TopK puts the lower index of equal values first (its operator's documentation): it is stable."""
    return x.sort(dim, descending)


def _variance(
    x: Tensor, axes: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    chosen = list(axes) if axes else list(range(x.dim()))
    number = 1
    for axis in chosen:
        number *= x.shape[axis]
    centred = x - x.mean(chosen, keepdim=True)
    # Not below 0, where a quotient by 0 is infinite as PyTorch's is.
    free = max(0, number - (1 if correction is None else correction))
    return (centred * centred).sum(chosen, keepdim=keepdim) / free


def _hypotenuse(a: Tensor, b: Tensor) -> Tensor:
    # torch/_refs/__init__.py makes it the primitive prims.hypot, which has no translation.
    return (a * a + b * b).sqrt()


def _unfolded_backward(gradient: Tensor, sizes: Sequence[int], axis: int, size: int, step: int) -> Tensor:
    """Windows give their gradients to the places that they showed."""
    import torch

    rank = len(sizes)
    axis = axis % rank
    windows = gradient.shape[axis]
    first = torch.arange(windows).unsqueeze(1) * step
    places = (first + torch.arange(size).unsqueeze(0)).reshape(-1)
    moved = gradient.movedim(-1, axis + 1).flatten(axis, axis + 1)
    return gradient.new_zeros(list(sizes)).index_add(axis, places, moved)


def _diagonal_written(x: Tensor, diagonal: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    import torch

    moved = x.movedim((first, second), (-2, -1))
    *outer, _, columns = moved.shape
    number = torch.arange(diagonal.shape[-1])
    places = (number + max(-offset, 0)) * columns + number + max(offset, 0)
    flat = moved.reshape([*outer, -1]).index_copy(-1, places, diagonal)
    return flat.reshape(moved.shape).movedim((-2, -1), (first, second))


def _written_by_strides(
    x: Tensor, source: Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Tensor | Refused:
    """A write through a view of memory, which autograd makes of a view that it has no other words for.

    What is written twice has no order; of a tensor that does not lie in order, places are not indices: both
    are left to PyTorch.
    """
    import torch

    if not x.is_contiguous() or x.storage_offset() or _overlaps(sizes, strides):
        return REFUSED
    flat, written, first = x.reshape(-1), source.reshape(-1), offset or 0
    if not source.numel():
        return x.clone()
    last = first + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if last - first + 1 == source.numel() and _in_order(sizes, strides):  # one stretch: nothing to look up
        rest = [flat.narrow(0, 0, first), written, flat.narrow(0, last + 1, flat.numel() - last - 1)]
        parts = [part for part in rest if part.numel()]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    else:
        places = torch.full([1], first)
        for size, stride in zip(sizes, strides, strict=True):
            places = places.unsqueeze(-1) + torch.arange(size) * stride
        whole = flat.index_copy(0, places.reshape(-1), written)
    return whole.reshape(x.shape)


def _overlaps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices may name one place."""
    reach = 0
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


def _in_order(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the last axis moves fastest; an axis of one place moves nothing."""
    moving = [stride for size, stride in zip(sizes, strides, strict=True) if size > 1]
    return moving == sorted(moving, reverse=True)


def running_products(x: Tensor, axis: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Each round over twice as many.

    The gradient that PyTorch has (``cumprod_backward`` of aten/src/ATen/native/ReduceOps.cpp) finds the first
    zero by the largest of truth values, which ONNX's TopK and ReduceMax do not take at opset 18.
    """
    import torch

    product = x if dtype is None else x.to(dtype)
    if not x.dim():
        return product
    reach, length = 1, x.shape[axis]
    while reach < length:
        ones = torch.ones_like(product.narrow(axis, 0, reach))
        product = product * torch.cat([ones, product.narrow(axis, 0, length - reach)], axis)
        reach *= 2
    return product


def _kth_value(x: Tensor, k: int, axis: int = -1, keepdim: bool = False) -> Pair:
    values, places = x.topk(k, axis, largest=False, sorted=True)
    result = (values.narrow(axis, k - 1, 1), places.narrow(axis, k - 1, 1))
    return result if keepdim else (result[0].squeeze(axis), result[1].squeeze(axis))


def _median(x: Tensor, axis: int, keepdim: bool = False) -> Pair:
    # Of an even number the lower of the two in the middle, as torch.median says.
    return _kth_value(x, (x.shape[axis] + 1) // 2, axis, keepdim)


def _exponential(x: Tensor, rate: float = 1.0, **_generator: object) -> Tensor:
    import torch

    # 1 - u, since u may be 0 and never is 1; torch/_refs/__init__.py has the logarithm of u itself.
    return -torch.log1p(-torch.rand_like(x)) / rate


def _scatter_reduced(
    x: Tensor, axis: int, places: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor | Refused:
    """A mean as a sum over a count; ONNX has the other reductions."""
    import torch

    if reduce != "mean":
        return REFUSED
    if not include_self:
        x = x.scatter(axis, places, 0.0)
    ones = torch.ones_like(source)
    own_count = torch.ones_like(x) if include_self else torch.zeros_like(x)
    number = own_count.scatter_add(axis, places, ones)
    return x.scatter_add(axis, places, source) / number.clamp_min(1)


# By number, as aten/src/ATen/native/GridSamplerUtils.h has them; 2 reflects. Modes: 0 bilinear, 1 nearest.
_ZEROS, _BORDER = 0, 1


def _sampled_backward(
    gradient: Tensor,
    x: Tensor,
    grid: Tensor,
    mode: int,
    padding: int,
    corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None] | Refused:
    """Samples give their gradients to the pixels around them, and by the slopes between those to the grid."""
    import torch

    if padding not in (_ZEROS, _BORDER) or mode not in (0, 1):
        return REFUSED
    height, width = x.shape[-2:]
    across, slope_x = _placed(grid[..., 0], width, padding, corners)
    down, slope_y = _placed(grid[..., 1], height, padding, corners)
    pixels, flat = x.flatten(2), gradient.flatten(2)
    to_x, to_grid = torch.zeros_like(pixels), (torch.zeros_like(across), torch.zeros_like(down))
    # Halves go to the even neighbour: nearbyint of
    # aten/src/ATen/native/GridSampler.cpp, round in PyTorch and ONNX.
    left, top = (across.round(), down.round()) if mode else (across.floor(), down.floor())
    for right, below in [(0, 0)] if mode else [(0, 0), (1, 0), (0, 1), (1, 1)]:
        column, row = left + right, top + below
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        place = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
        place = place.long().flatten(1).unsqueeze(1).expand_as(flat)
        counted = inside.to(x.dtype)
        near_x = 1 - (across - column).abs() if not mode else torch.ones_like(across)
        near_y = 1 - (down - row).abs() if not mode else torch.ones_like(down)
        share = (counted * near_x * near_y).flatten(1).unsqueeze(1)
        to_x = to_x.scatter_add(2, place, flat * share)
        if not mode:
            seen = (pixels.gather(2, place) * flat).sum(1).reshape(across.shape) * counted
            to_grid = (
                to_grid[0] + seen * near_y * (2 * right - 1),
                to_grid[1] + seen * near_x * (2 * below - 1),
            )
    to_both_axes = torch.stack([to_grid[0] * slope_x, to_grid[1] * slope_y], -1)
    return to_x.reshape(x.shape) if output_mask[0] else None, to_both_axes if output_mask[1] else None


def _placed(grid: Tensor, size: int, padding: int, corners: bool) -> tuple[Tensor, Tensor | float]:
    """Where a grid from -1 to 1 lies in pixels, and how fast that moves with it."""
    # grid_sampler_unnormalize of aten/src/ATen/native/GridSampler.h: -1
    # and 1 are centres or edges of outer pixels.
    place = (grid + 1) * ((size - 1) / 2) if corners else ((grid + 1) * size - 1) / 2
    slope = (size - 1) / 2 if corners else size / 2
    if padding == _ZEROS:
        return place, slope
    # On the border itself the slope is 0: clip_coordinates_set_grad of aten/src/ATen/native/GridSampler.h.
    free = ((place > 0) & (place < size - 1)).to(place.dtype)
    return place.clamp(0, size - 1), free * slope
