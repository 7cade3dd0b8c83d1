"""How much a model's parameters hold: their number of elements and their bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def parameter_sizes(parameters: Iterable[Tensor]) -> tuple[int, int]:
    """The number of elements of these tensors, and their bytes."""
    found = list(parameters)
    return sum(item.numel() for item in found), sum(item.numel() * item.element_size() for item in found)
