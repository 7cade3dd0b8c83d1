"""Counting: Graph -> CostTable. FLOPs and bytes of every operator, whatever device runs it."""

from analyzer.costs import families as families
from analyzer.costs.cost import ZERO as ZERO
from analyzer.costs.cost import Basis as Basis
from analyzer.costs.cost import Cost as Cost
from analyzer.costs.dimensions import OpenSizeError as OpenSizeError
from analyzer.costs.dimensions import dims as dims
from analyzer.costs.dimensions import elements as elements
from analyzer.costs.group_traffic import fused as fused
from analyzer.costs.registry import CostRule as CostRule
from analyzer.costs.registry import count_node as count_node
from analyzer.costs.registry import find as find
from analyzer.costs.registry import folded_flops as folded_flops
from analyzer.costs.registry import rule as rule
from analyzer.costs.registry import rules as rules
from analyzer.costs.registry import unregister as unregister
from analyzer.costs.rule_text import by_family as by_family
from analyzer.costs.rule_text import explain as explain
from analyzer.costs.table import CostTable as CostTable
from analyzer.costs.table import ModuleCost as ModuleCost
from analyzer.costs.table import TypeCost as TypeCost
from analyzer.costs.table import count as count
from analyzer.costs.traffic import cost as cost
from analyzer.costs.traffic import reads as reads
