"""Counting: Graph -> CostTable. FLOPs and bytes of every operator, whatever device runs it."""

from analyzer.costs import families
from analyzer.costs.arena import planned_peak_bytes
from analyzer.costs.cost import ZERO, Basis, Cost
from analyzer.costs.explain import by_family, explain
from analyzer.costs.fused import fused
from analyzer.costs.memory import peak_memory_bytes
from analyzer.costs.registry import Rule, count_node, find, rule, rules, unregister
from analyzer.costs.sizes import OpenSizeError, dims, elements
from analyzer.costs.table import CostTable, ModuleCost, TypeCost, count
from analyzer.costs.traffic import cost, reads

__all__ = [
    "ZERO",
    "Basis",
    "Cost",
    "CostTable",
    "ModuleCost",
    "OpenSizeError",
    "Rule",
    "TypeCost",
    "by_family",
    "cost",
    "count",
    "count_node",
    "dims",
    "elements",
    "explain",
    "families",
    "find",
    "fused",
    "peak_memory_bytes",
    "planned_peak_bytes",
    "reads",
    "rule",
    "rules",
    "unregister",
]
