"""Operators that a training step has decomposed, where PyTorch has no decomposition or a mistaken one.

Most are decomposed before the tracer differentiates: the gradient then is autograd's own, of smaller operators.
What neither PyTorch nor this module decomposes or translates stays whole, as an operator of unknown cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf, prod
from typing import TYPE_CHECKING

from analyzer.loading.torch_private import REFUSED, operator, registered_decompositions

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from analyzer.loading.torch_private import OpOverload, PythonKernel, Refused

    Pair = tuple[Tensor, Tensor]

# PyTorch decomposes these forwards, and has no decomposition of their gradients.
_BY_PYTORCH = (
    "_weight_norm_interface",
    "grid_sampler_2d",
    "unfold",
    *(f"replication_pad{axes}d" for axes in (1, 2, 3)),
)


def before_differentiation() -> Mapping[OpOverload, PythonKernel]:
    """Return, by operator, the function that the tracer differentiates in its place."""
    import torch

    aten = torch.ops.aten
    return {
        **registered_decompositions(_BY_PYTORCH),
        operator("_cdist_forward"): _distances,
        operator("_embedding_bag"): _bags,
        operator("_linalg_check_errors"): lambda *_, **__: None,
        aten.bilinear.default: _bilinear,
        aten.adaptive_avg_pool2d.default: _adaptive_average,
        aten.adaptive_avg_pool3d.default: _adaptive_average,
        aten.cumprod.default: _running_products,
        aten.masked_scatter.default: _filled_in,
    }


def after_differentiation() -> Mapping[OpOverload, PythonKernel]:
    """Return, by operator of the joint graph, the function that gives the same from smaller operators."""
    import torch

    aten = torch.ops.aten
    # What torch/_decomp knows goes unmentioned, unless it makes what has no translation itself: squeeze.dims
    # and sort.stable have none in onnxscript/function_libs/torch_lib/ops/core.py, though squeeze.dim and sort
    # have.
    table: dict[OpOverload, PythonKernel] = {
        aten.squeeze.dims: _squeezed,
        aten.sort.stable: _sorted,
        aten.var.correction: _variance,
        aten.diagonal_scatter.default: _diagonal_written,
        aten.exponential.default: _exponential,
        aten.index_put.default: _written,
        aten.scatter_reduce.two: _scatter_reduced,
        aten.amax.default: partial(_extreme, aten.amax),
        aten.amin.default: partial(_extreme, aten.amin),
        operator("_embedding_bag_forward_only"): _bags,
    }
    for axes in (2, 3):
        pool, pool_backward = (
            operator(f"max_pool{axes}d_with_indices{suffix}") for suffix in ("", "_backward")
        )
        table[operator(f"adaptive_max_pool{axes}d")] = partial(_adaptive_maximum, pool)
        table[operator(f"adaptive_max_pool{axes}d_backward")] = partial(
            _adaptive_maximum_backward, axes, pool_backward
        )
    return table


def _distances(x: Tensor, y: Tensor, p: float, _mode: object = None) -> Tensor:
    """Between each row of ``x`` and each of ``y``, in the norm ``p``; no gradient where they coincide."""
    import torch

    difference = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == inf:
        return difference.amax(-1)
    if p in (0, 1):
        return (difference.sign() if p == 0 else difference).sum(-1)
    powers = difference.square().sum(-1) if p == 2 else difference.pow(p).sum(-1)
    apart = powers > 0
    return torch.where(apart, torch.where(apart, powers, 1.0).pow(1 / p), 0.0)


def _bags(
    table: Tensor, indices: Tensor, offsets: Tensor, scale: bool = False, mode: int = 0, _sparse: bool = False,
    weights: Tensor | None = None, include_last: bool = False, padding: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return sums (mode 0), means (1) or maxima (2), as aten/src/ATen/native/EmbeddingBag.h counts modes."""
    import torch

    shape = (offsets.shape[0] - include_last, table.shape[1])
    marks = indices.new_zeros(indices.shape[0] + 1).scatter_add(0, offsets, torch.ones_like(offsets))
    bags = marks.cumsum(0).narrow(0, 0, indices.shape[0]) - 1
    rows = torch.embedding(table, indices, padding, scale)
    used = indices != padding
    sizes = indices.new_zeros(shape[0]).scatter_add(0, bags, used.to(indices.dtype))
    places = bags.unsqueeze(1).expand_as(rows)
    if mode == 2:
        rows = torch.where(used.unsqueeze(1), rows, -inf)
        result = table.new_zeros(shape).scatter_reduce(0, places, rows, "amax", include_self=False)
        return torch.where(result == -inf, 0.0, result), bags, sizes, bags  # a bag of padding alone
    factors = used.to(rows.dtype) if weights is None else used * weights
    result = table.new_zeros(shape).scatter_add(0, places, rows * factors.unsqueeze(1))
    if mode == 1:
        result = result / sizes.clamp_min(1).to(result.dtype).unsqueeze(1)
    return result, bags, sizes, bags


def _bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    import torch

    product = torch.einsum("...i,kij,...j->...k", x, weight, y)
    return product if bias is None else product + bias


def _adaptive_average(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Windows of one size are an average pool; others are a product along each axis."""
    import torch

    if prod(output_size) == 1:
        return x.mean(list(range(-len(output_size), 0)), keepdim=True)
    if (windows := _even_windows(x, output_size)) is not None:
        pool = torch.nn.functional.avg_pool2d if len(output_size) == 2 else torch.nn.functional.avg_pool3d
        return pool(x, windows, windows)
    for axis, after in enumerate(output_size, x.dim() - len(output_size)):
        before = x.shape[axis]
        # start_index and end_index of aten/src/ATen/native/AdaptivePooling.h.
        bounds = [(row * before // after, -(-(row + 1) * before // after)) for row in range(after)]
        rows = [[(start <= at < end) / (end - start) for at in range(before)] for start, end in bounds]
        x = (x.movedim(axis, -1) @ torch.tensor(rows, dtype=x.dtype).T).movedim(-1, axis)
    return x


def _adaptive_maximum(pool: PythonKernel, x: Tensor, output_size: Sequence[int]) -> Pair | Refused:
    windows = _even_windows(x, output_size)
    return REFUSED if windows is None else pool(x, windows, windows)


def _adaptive_maximum_backward(
    axes: int, pool: PythonKernel, gradient: Tensor, x: Tensor, places: Tensor
) -> Tensor | Refused:
    windows = _even_windows(x, gradient.shape[-axes:])
    return REFUSED if windows is None else pool(gradient, x, windows, windows, 0, 1, False, places)


def _even_windows(x: Tensor, output_size: Sequence[int]) -> list[int] | None:
    """Return the windows of an adaptive pool where all have one size and do not overlap."""
    sizes = x.shape[-len(output_size) :]
    if any(size % part for size, part in zip(sizes, output_size, strict=True)):
        return None
    return [size // part for size, part in zip(sizes, output_size, strict=True)]


def _running_products(x: Tensor, axis: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Each round over twice as many.

    The gradient that PyTorch has (``cumprod_backward`` of aten/src/ATen/native/ReduceOps.cpp) finds the first
    zero by the largest of truth values, which ONNX's TopK and ReduceMax do not take at opset 18.
    """
    import torch

    product = x if dtype is None else x.to(dtype)
    reach, length = 1, x.shape[axis] if x.dim() else 1
    while reach < length:
        ones = torch.ones_like(product.narrow(axis, 0, reach))
        product = product * torch.cat([ones, product.narrow(axis, 0, length - reach)], axis)
        reach *= 2
    return product


def _filled_in(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """By numbers: onnxscript/function_libs/torch_lib/ops/core.py takes NonZero, whose size hangs on values."""
    import torch

    mask = mask.expand(x.shape)
    number = (mask.flatten().long().cumsum(0) - 1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.flatten().index_select(0, number).reshape(x.shape), x)


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


def _diagonal_written(x: Tensor, diagonal: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    import torch

    moved = x.movedim((first, second), (-2, -1))
    *outer, _, columns = moved.shape
    number = torch.arange(diagonal.shape[-1])
    places = (number + max(-offset, 0)) * columns + number + max(offset, 0)
    flat = moved.reshape([*outer, -1]).index_copy(-1, places, diagonal)
    return flat.reshape(moved.shape).movedim((-2, -1), (first, second))


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


def _extreme(op: PythonKernel, x: Tensor, axes: Sequence[int] = (), keepdim: bool = False) -> Tensor | Refused:
    """All axes written out: ``aten_amax`` of onnxscript/function_libs/torch_lib/ops/core.py has no default."""
    return x.clone() if not x.dim() else REFUSED if axes else op(x, list(range(x.dim())), keepdim)


def _written(
    x: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor | Refused:
    """Where a mask chooses what gets one value, its places need not be known.

    PyTorch's translation of a mask is NonZero, which gives a size that only values tell.
    """
    import torch

    mask = indices[0]
    if accumulate or len(indices) > 1 or mask.dtype != torch.bool or values.dim() > x.dim() - mask.dim():
        return REFUSED
    return torch.where(mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim())), values.to(x.dtype), x)
