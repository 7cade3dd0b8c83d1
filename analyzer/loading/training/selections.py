"""Operators that choose among numbers and give their gradients to the chosen, taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_private import REFUSED, operator
from analyzer.loading.training.decompositions import distances, distances_backward

if TYPE_CHECKING:
    from torch import Tensor

    from analyzer.loading.torch_private import OpOverload, PythonKernel, Refused

    Pair = tuple[Tensor, Tensor]


_MAX = 2  # of embedding bags: EmbeddingBagMode of aten/src/ATen/native/EmbeddingBag.h; sums are 0, means 1


def choosing() -> Mapping[OpOverload, PythonKernel]:
    """By operator, the function that stands for it."""
    import torch

    aten = torch.ops.aten
    table: dict[OpOverload, PythonKernel] = {
        aten.cummax.default: partial(_running, aten.gt),
        aten.cummin.default: partial(_running, aten.lt),
        aten.rrelu_with_noise_functional.default: _random_slopes,
        operator("_embedding_bag"): _largest_of_bags,
        operator("_embedding_bag_backward"): _largest_of_bags_backward,
        operator("_embedding_bag_per_sample_weights_backward"): _bag_weights_backward,
        operator("_pdist_forward"): _pairs,
        operator("_pdist_backward"): _pairs_backward,
        aten.masked_scatter.default: _filled_in,
        aten.masked_scatter_backward.default: _filled_in_backward,
        aten.index_put.default: _written,
        aten.amax.default: partial(_extreme, aten.amax),
        aten.amin.default: partial(_extreme, aten.amin),
    }
    for axes in (2, 3):
        name = f"adaptive_max_pool{axes}d"
        table[getattr(aten, name).default] = _adaptive_maximum
        table[getattr(aten, f"{name}_backward").default] = partial(_adaptive_maximum_backward, axes)
        table[getattr(aten, f"max_pool{axes}d_with_indices_backward").default] = partial(
            _one_maximum_backward, axes
        )
        for name in (f"max_pool{axes}d_with_indices", f"avg_pool{axes}d", f"_adaptive_avg_pool{axes}d"):
            for op in (operator(name), operator(f"{name}_backward")):
                table.setdefault(op, partial(_as_batch, op, axes))
    return table


def _as_batch(
    op: PythonKernel, axes: int, *arguments: Any, **keywords: object
) -> Tensor | tuple[Tensor, ...] | Refused:
    """One example without an axis for it, with one."""
    import torch

    if arguments[0].dim() != axes + 1:
        return REFUSED
    outputs = op(
        *(item.unsqueeze(0) if isinstance(item, torch.Tensor) else item for item in arguments),
        **keywords,
    )
    return tuple(item.squeeze(0) for item in outputs) if isinstance(outputs, tuple) else outputs.squeeze(0)


def _extreme(op: PythonKernel, x: Tensor, axes: Sequence[int] = (), keepdim: bool = False) -> Tensor | Refused:
    """All axes written out: ``aten_amax`` of onnxscript/function_libs/torch_lib/ops/core.py has no default."""
    return x.clone() if not x.dim() else REFUSED if axes else op(x, list(range(x.dim())), keepdim)


def _running(beats: PythonKernel, x: Tensor, axis: int) -> Pair:
    """Each round over twice as many; of equal numbers the last counts.

    So do ``cummax`` and ``cummin`` of aten/src/ATen/native/ReduceOps.cpp, which compare with greater_equal and
    less_equal. A loop over the places would be as many operators as places; rounds are their logarithm.
    """
    import torch

    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    length = x.shape[axis]
    shape = [length if place == axis % x.dim() else 1 for place in range(x.dim())]
    places = torch.arange(length).reshape(shape).expand(x.shape)
    reach = 1
    while reach < length:
        start = [tensor.narrow(axis, 0, reach) for tensor in (x, places)]
        shifted = [tensor.narrow(axis, 0, length - reach) for tensor in (x, places)]
        earlier = [torch.cat(pair, axis) for pair in zip(start, shifted, strict=True)]
        better = beats(earlier[0], x)
        x, places = torch.where(better, earlier[0], x), torch.where(better, earlier[1], places)
        reach *= 2
    return x, places


def _adaptive_maximum(x: Tensor, wanted: Sequence[int]) -> Pair | Refused:
    """Windows of several sizes, made equal by repeating their last place, along one axis after another."""
    import torch

    if _is_even(x, wanted):
        return REFUSED
    space = len(wanted)
    sizes = x.shape[-space:]
    places = torch.arange(sizes.numel()).reshape(sizes).expand(x.shape)
    for axis in range(x.dim() - 1, x.dim() - 1 - space, -1):
        size, part = x.shape[axis], wanted[axis - x.dim()]
        # start_index and end_index of aten/src/ATen/native/AdaptivePooling.h.
        bounds = [(number * size // part, -(-(number + 1) * size // part)) for number in range(part)]
        width = max(end - start for start, end in bounds)
        number = torch.arange(part).unsqueeze(1)
        last = (number * size + size + part - 1) // part - 1
        taps = (number * size // part + torch.arange(width)).minimum(last).flatten()
        shape = (*x.shape[:axis], part, width, *x.shape[axis + 1 :])
        x, places = (tensor.index_select(axis, taps).reshape(shape) for tensor in (x, places))
        x, best = x.max(axis + 1, keepdim=True)
        x, places = x.squeeze(axis + 1), places.gather(axis + 1, best).squeeze(axis + 1)
    return x, places


def _adaptive_maximum_backward(space: int, gradient: Tensor, x: Tensor, places: Tensor) -> Tensor | Refused:
    return REFUSED if _is_even(x, gradient.shape[-space:]) else _given_back(space, gradient, x, places)


def _one_maximum_backward(space: int, gradient: Tensor, x: Tensor, *rest: Any) -> Tensor | Refused:
    return REFUSED if x.dim() > space + 1 else _given_back(space, gradient, x, rest[-1])


def _given_back(space: int, gradient: Tensor, x: Tensor, places: Tensor) -> Tensor:
    flat = x.new_zeros((*x.shape[:-space], x.shape[-space:].numel()))
    return flat.scatter_add(-1, places.flatten(-space), gradient.flatten(-space)).reshape(x.shape)


def _is_even(x: Tensor, wanted: Sequence[int]) -> bool:
    """Whether ONNX's pooling does it: windows of one size side by side, and an axis of examples."""
    space = len(wanted)
    return x.dim() == space + 2 and not any(a % b for a, b in zip(x.shape[-space:], wanted, strict=True))


def _random_slopes(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *_generator: object,
) -> Pair:
    import torch

    if training:
        # As the kernel does, random slopes where x <= 0 and 1 elsewhere are kept for the gradient.
        noise = torch.where(x <= 0, lower + (upper - lower) * torch.rand_like(x), 1.0)
        return x * noise, noise
    return torch.where(x <= 0, x * ((lower + upper) / 2), x), noise.clone()


def _largest_of_bags(
    table: Tensor, indices: Tensor, offsets: Tensor, _scale: bool = False, mode: int = 0, _sparse: bool = False,
    _weights: object = None, include_last: bool = False, padding: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor] | Refused:  # fmt: skip
    import torch

    if mode != _MAX:
        return REFUSED
    number, width, filled = indices.shape[0], table.shape[1], offsets.shape[0] - include_last
    bags = _bag_of_each(indices, offsets)
    used = indices != padding
    # The index that pads may be the largest row of all: it must not win.
    rows = torch.where(used.unsqueeze(1), table.index_select(0, indices), -torch.inf)
    wide = bags.unsqueeze(1).expand(number, width)
    best = table.new_full((filled, width), -torch.inf).scatter_reduce(0, wide, rows, "amax")
    order = torch.arange(number).unsqueeze(1)
    first = torch.where(rows == best.gather(0, wide), order, number)  # of equal rows the first counts
    place = indices.new_full((filled, width), number - 1).scatter_reduce(0, wide, first, "amin")
    empty = best == -torch.inf  # PyTorch gives 0 for a bag without indices
    chosen = torch.where(empty, -1, indices.index_select(0, place.flatten()).reshape(place.shape))
    sizes = indices.new_zeros(filled).scatter_add(0, bags, used.to(indices.dtype))
    return torch.where(empty, 0.0, best), bags, sizes, chosen


def _bag_of_each(indices: Tensor, offsets: Tensor) -> Tensor:
    import torch

    number = indices.shape[0]
    starts = indices.new_zeros(number + 1).scatter_add(0, offsets, torch.ones_like(offsets))
    return starts.cumsum(0).narrow(0, 0, number) - 1


def _largest_of_bags_backward(
    gradient: Tensor, _indices: object, _offsets: object, _bags: object, _sizes: object, chosen: Tensor,
    rows: int, _scale: bool, mode: int, *_rest: object,
) -> Tensor | Refused:  # fmt: skip
    if mode != _MAX:
        return REFUSED
    taken = gradient * (chosen >= 0).to(gradient.dtype)
    return gradient.new_zeros((rows, gradient.shape[1])).scatter_add(0, chosen.clamp_min(0), taken)


def _bag_weights_backward(
    gradient: Tensor,
    table: Tensor,
    indices: Tensor,
    offsets: Tensor,
    _bags: object,
    _mode: int,
    padding: int = -1,
) -> Tensor:
    bags = _bag_of_each(indices, offsets)
    products = (gradient.index_select(0, bags) * table.index_select(0, indices)).sum(1)
    return products * (indices != padding).to(products.dtype)


def _pairs(x: Tensor, p: float = 2.0) -> Tensor:
    first, second = _of_pairs(x)
    return distances(x[first].unsqueeze(1), x[second].unsqueeze(1), p).flatten()


def _pairs_backward(gradient: Tensor, x: Tensor, p: float, norms: Tensor) -> Tensor:
    first, second = _of_pairs(x)
    gradient, norms = (tensor.reshape(-1, 1, 1) for tensor in (gradient, norms))
    to_first = distances_backward(gradient, x[first].unsqueeze(1), x[second].unsqueeze(1), p, norms).squeeze(1)
    return x.new_zeros(x.shape).index_add(0, first, to_first).index_add(0, second, -to_first)


def _of_pairs(x: Tensor) -> Pair:
    """The two rows of each pair, by its number.

    Before row ``i`` are ``i (2 rows - i - 1) / 2`` pairs; solved for ``i``. In double precision: single
    finds 714 of the pairs of 5,000 rows in another row.
    """
    import torch

    rows = x.shape[0]
    number = torch.arange(rows * (rows - 1) // 2, dtype=torch.float64)
    first = ((2 * rows - 1 - ((2 * rows - 1) ** 2 - 8 * number).sqrt()) / 2).floor()
    second = number - first * (2 * rows - 3 - first) / 2 + 1
    return first.long(), second.long()


def _filled_in(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """By numbers: onnxscript/function_libs/torch_lib/ops/core.py takes NonZero, whose size hangs on values."""
    import torch

    taken = source.flatten().index_select(0, _numbered(mask.expand(x.shape), source.numel()))
    return torch.where(mask, taken.reshape(x.shape), x)


def _filled_in_backward(gradient: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    import torch

    mask = mask.expand(gradient.shape)
    to_source = gradient.new_zeros(torch.Size(sizes).numel())
    passed = torch.where(mask, gradient, 0.0).flatten()
    return to_source.scatter_add(0, _numbered(mask, to_source.numel()), passed).reshape(list(sizes))


def _numbered(mask: Tensor, most: int) -> Tensor:
    """The number of each place among those that a mask takes."""
    return (mask.flatten().long().cumsum(0) - 1).clamp(0, most - 1)


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
