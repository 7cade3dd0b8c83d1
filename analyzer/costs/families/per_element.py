"""Counting: rules that are one number an element, registered from tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from analyzer.costs.cost import Cost, cost, elements, out
from analyzer.costs.registry import CostRule, Counts, register
from analyzer.graph import DEFAULT_DOMAIN, Node
from analyzer.operators import CONTRIB_DOMAIN, NCHWC_DOMAIN, NHWC_DOMAIN

CONTRIB, NCHWC, NHWC = CONTRIB_DOMAIN, NCHWC_DOMAIN, NHWC_DOMAIN


Table = Mapping[str, tuple[int, str]]


def per_output(table: Table, *, family: str, domain: str = DEFAULT_DOMAIN) -> None:
    """Register operators that cost a number of FLOPs an element of their first output."""
    for op_type, (each, why) in table.items():
        _add(op_type, domain, partial(_of_output, each), f"{each} * outputs: {why}", family)


def per_input(table: Table, *, family: str, domain: str = DEFAULT_DOMAIN) -> None:
    """Register operators that cost a number of FLOPs an element of their first input."""
    for op_type, (each, why) in table.items():
        _add(op_type, domain, partial(_of_input, each), f"{each} * inputs: {why}", family)


def moves(table: Mapping[str, str], *, family: str, domain: str = DEFAULT_DOMAIN) -> None:
    """Register operators that compute nothing and move the bytes that the text names."""
    for op_type, what in table.items():
        _add(op_type, domain, moved, f"0 FLOPs; {what}", family)


def moved(node: Node) -> Cost:
    """No FLOPs; the compulsory traffic."""
    return cost(node, flops=0)


def _add(op_type: str, domain: str, count: Counts, formula: str, family: str) -> None:
    # ``family`` is the ``__name__`` of the module with the table, as the decorator of the other rules takes it.
    register(
        CostRule(domain=domain, op_type=op_type, count=count, formula=formula, family=family.rpartition(".")[2])
    )


def _of_output(each: int, node: Node) -> Cost:
    return cost(node, flops=each * out(node))


def _of_input(each: int, node: Node) -> Cost:
    return cost(node, flops=each * elements(node.inputs[0]))
