"""Costs made the fast way are what the dataclass's own constructor makes."""

from __future__ import annotations

from analyzer.costs.cost import Cost, cost
from analyzer.graph import DTYPES, Node, Tensor


def test_a_cost_is_equal_to_one_made_by_its_constructor() -> None:
    x = Tensor(name="x", shape=(2, 3), dtype=DTYPES["float32"])
    relu = Node(index=0, name="n", op_type="Relu", inputs=(x,), outputs=(x,))
    assert cost(relu, flops=6) == Cost(flops=6, macs=0, bytes_read=24, bytes_written=24)
