"""What cannot run has no exact count."""

from collections.abc import Callable
from typing import Any


def test_operands_that_sum_over_different_sizes_are_unknown_with_both_sizes(
    cost_of: Callable[..., Any],
) -> None:
    cost = cost_of("MatMul", a=[1, 17], b=[16, 8], declared=[[1, 8]])
    assert cost.basis == "unknown"
    assert cost.flops is None
    assert "17 and 16" in cost.note


def test_an_open_size_of_one_operand_is_told_by_the_other(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("MatMul", a=[3, None], b=[16, 8], declared=[[3, 8]])
    assert cost.macs == 3 * 16 * 8
