"""Counting: Graph -> CostTable. FLOPs and bytes of every operator, whatever device runs it."""

from analyzer.costs import families
from analyzer.costs.cost import ZERO, Basis, Cost
from analyzer.costs.dimensions import OpenSizeError, dims, elements
from analyzer.costs.group_traffic import fused
from analyzer.costs.registry import CostRule, count_node, find, folded_flops, rule, rules, unregister
from analyzer.costs.rule_text import by_family, explain
from analyzer.costs.table import CostTable, ModuleCost, TypeCost, count
from analyzer.costs.traffic import cost, reads

__all__ = [
    "ZERO",
    "Basis",
    "Cost",
    "CostRule",
    "CostTable",
    "ModuleCost",
    "OpenSizeError",
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
    "folded_flops",
    "fused",
    "reads",
    "rule",
    "rules",
    "unregister",
]
