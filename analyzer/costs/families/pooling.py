"""Counting pools: 1 FLOP a tap, taps on padding included."""

from __future__ import annotations

from math import prod

from analyzer.costs.cost import Cost, cost, out
from analyzer.costs.families.per_element import CONTRIB, NCHWC, NHWC, per_input, per_output
from analyzer.costs.registry import rule
from analyzer.graph import Node


def window(node: Node) -> int:
    """Taps of a pool."""
    # The whole window also at the borders, as a convolution has all its taps: both are counted dense.
    return prod(node.attributes["kernel_shape"])


@rule("MaxPool", "AveragePool")
def pool(node: Node) -> Cost:
    """Outputs * taps: comparisons, or additions and the division."""
    return cost(node, flops=out(node) * window(node))


@rule("MaxPool", "AveragePool", domain=NHWC)
def nhwc_pool(node: Node) -> Cost:
    """Outputs * taps: comparisons, or additions and the division; channels last."""
    return pool(node)


@rule("MaxPool", "AveragePool", domain=NCHWC)
def nchwc_pool(node: Node) -> Cost:
    """Outputs * taps: comparisons, or additions and the division; blocked channels."""
    return pool(node)


@rule("MaxpoolWithMask", "NhwcMaxPool", domain=CONTRIB)
def contrib_pool(node: Node) -> Cost:
    """Outputs * taps: comparisons."""
    return pool(node)


@rule("LpPool")
def lp_pool(node: Node) -> Cost:
    """Outputs * (2 * taps + 1): power and sum of each tap, the root."""
    return cost(node, flops=out(node) * (2 * window(node) + 1))


# The one division for each output of an average is left out: it is one beside H * W additions.
_GLOBAL = {"GlobalAveragePool": (1, "one addition each"), "GlobalMaxPool": (1, "one comparison each")}
per_input({**_GLOBAL, "GlobalLpPool": (2, "power and sum")}, family=__name__)
per_input(_GLOBAL, family=__name__, domain=NHWC)
per_input(_GLOBAL, family=__name__, domain=NCHWC)
per_output({"MaxUnpool": (0, "each maximum goes back to its place")}, family=__name__)
