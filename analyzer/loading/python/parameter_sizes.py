"""How much a model's parameters hold: their number of elements and their bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def parameter_sizes(parameters: Iterable[Tensor]) -> tuple[int, int]:
    """The number of elements of these tensors, and their bytes."""
    tensors = list(parameters)
    elements = sum(tensor.numel() for tensor in tensors)
    return elements, sum(tensor.numel() * tensor.element_size() for tensor in tensors)
