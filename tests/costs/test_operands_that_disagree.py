"""What cannot run has no exact count."""

from collections.abc import Callable
from typing import Any

import pytest


def test_operands_that_sum_over_different_sizes_are_unknown_with_both_sizes(
    cost_of: Callable[..., Any],
) -> None:
    cost = cost_of("MatMul", a=[1, 17], b=[16, 8], declared=[[1, 8]])
    assert cost.basis == "unknown"
    assert cost.flops is None
    assert "17 and 16" in cost.note


@pytest.mark.parametrize(
    ("attributes", "a", "b"),
    [
        ({}, [3, 16], [16, 8]),
        ({"transA": 1}, [16, 3], [16, 8]),
        ({"transB": 1}, [3, 16], [8, 16]),
        ({"transA": 1, "transB": 1}, [16, 3], [8, 16]),
    ],
)
def test_operands_that_agree_count_each_product_once(
    cost_of: Callable[..., Any], attributes: dict[Any, Any], a: list[int], b: list[int]
) -> None:
    assert cost_of("Gemm", a=a, b=b, attributes=attributes).macs == 3 * 16 * 8


def test_an_open_size_of_one_operand_is_told_by_the_other(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("MatMul", a=[3, None], b=[16, 8], declared=[[3, 8]])
    assert cost.macs == 3 * 16 * 8
