"""Counting reductions: 1 FLOP an element that is folded in, and what is done to it before and after."""

from __future__ import annotations

from math import ceil, log2

from analyzer.costs.cost import Cost, cost, dims, elements, out, value
from analyzer.costs.families.per_element import CONTRIB, per_input
from analyzer.costs.registry import rule
from analyzer.graph import Node

per_input(
    {
        "ArgMax": (1, "one comparison each"),
        "ArgMin": (1, "one comparison each"),
        "CumSum": (1, "one addition each"),
        "CumProd": (1, "one product each"),
        "ReduceL1": (2, "absolute value and sum"),
        "ReduceMax": (1, "one comparison each"),
        "ReduceMin": (1, "one comparison each"),
        "ReduceProd": (1, "one product each"),
        "ReduceSum": (1, "one addition each"),
        "ReduceSumSquare": (2, "square and sum"),
    },
    family=__name__,
)
per_input({"ReduceSumInteger": (1, "one addition each")}, family=__name__, domain=CONTRIB)


@rule("ReduceMean", "ReduceLogSum")
def with_one_step(node: Node) -> Cost:
    """Inputs + outputs: the sums, and one division or logarithm each."""
    return cost(node, flops=elements(node.inputs[0]) + out(node))


@rule("ReduceL2")
def reduce_l2(node: Node) -> Cost:
    """2 * inputs + outputs: square and sum, one root each."""
    return cost(node, flops=2 * elements(node.inputs[0]) + out(node))


@rule("ReduceLogSumExp")
def reduce_log_sum_exp(node: Node) -> Cost:
    """4 * inputs + 2 * outputs: maximum, subtract, exp, sum; logarithm and the maximum added back."""
    return cost(node, flops=4 * elements(node.inputs[0]) + 2 * out(node))


@rule("TopK", assumes="a heap of k selects: log2(k) comparisons an element")
def top_k(node: Node) -> Cost:
    """Inputs * log2(k) comparisons, at least 1 an element."""
    # K has been an input since opset 10; where it is computed, the output's shape tells it.
    wanted = value(node.input(1))
    k = int(wanted[0]) if wanted else dims(node.outputs[0])[node.attributes.get("axis", -1)]
    return cost(node, flops=elements(node.inputs[0]) * max(1, ceil(log2(max(k, 1)))))
