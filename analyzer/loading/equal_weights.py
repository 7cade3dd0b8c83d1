"""Weights that are equal and not tied, as untrained copies of a layer have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Smaller weights, and those of one axis, are in the nearest cache whoever has them.
_TOLD_APART_BYTES, _LOOKED_AT = 4096, 64
_DIFFERENCE = 2.0**-7


def told_apart(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights that are equal to others and not tied to them, each with one value that differs.

    Copies of one layer begin alike (``nn.TransformerEncoder`` makes such), and training tells them apart. ONNX
    Runtime packs equal weights once and keeps them once (1.31.1): six layers took 1.9 ms that take 4.7 when
    trained, since each found in the cache what the one before it had read.

    Args:
        parameters: By name; tied ones are one tensor under several names.
    """
    import torch

    known = {torch.float32, torch.float16, torch.bfloat16, torch.float64}
    # No other classes, as libraries of quantisers have them.
    plain = (torch.Tensor, torch.nn.Parameter)
    seen: dict[Any, list[torch.Tensor]] = {}
    changed: dict[str, torch.Tensor] = {}
    instead: dict[int, torch.Tensor] = {}  # by the address of what they replace, which several names may have
    for name, tensor in parameters.items():
        held = tensor.numel() * tensor.element_size()
        if tensor.dim() < 2 or held < _TOLD_APART_BYTES or tensor.dtype not in known:
            continue
        if type(tensor) not in plain or tensor.layout is not torch.strided:
            continue
        # Few elements tell most weights apart without a pass over them.
        some = tensor.detach().reshape(-1)[:: max(1, tensor.numel() // _LOOKED_AT)]
        alike = seen.setdefault((tensor.shape, tensor.dtype, tuple(some.tolist())), [])
        tied = any(one.data_ptr() == tensor.data_ptr() for one in alike)
        if not tied and any(torch.equal(one, tensor) for one in alike):
            other = tensor.detach().clone(memory_format=torch.contiguous_format)
            other.view(-1)[len(alike) % other.numel()] += _DIFFERENCE
            instead[tensor.data_ptr()] = other
        if tensor.data_ptr() in instead:
            changed[name] = instead[tensor.data_ptr()]
        if not tied:
            alike.append(tensor)
    return changed
