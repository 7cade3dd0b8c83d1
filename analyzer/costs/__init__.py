"""Counting: Graph -> CostTable. FLOPs and bytes of every operator, whatever device runs it."""

from analyzer.costs import families as families
from analyzer.costs.cost import ZERO as ZERO
from analyzer.costs.cost import Basis as Basis
from analyzer.costs.cost import Cost as Cost
from analyzer.costs.cost import OpenSizeError as OpenSizeError
from analyzer.costs.cost import cost as cost
from analyzer.costs.cost import dims as dims
from analyzer.costs.cost import elements as elements
from analyzer.costs.cost import reads as reads
from analyzer.costs.registry import CostRule as CostRule
from analyzer.costs.registry import by_family as by_family
from analyzer.costs.registry import count_node as count_node
from analyzer.costs.registry import explain as explain
from analyzer.costs.registry import find as find
from analyzer.costs.registry import folded_flops as folded_flops
from analyzer.costs.registry import rule as rule
from analyzer.costs.registry import rules as rules
from analyzer.costs.registry import unregister as unregister
from analyzer.costs.table import CostTable as CostTable
from analyzer.costs.table import ModuleCost as ModuleCost
from analyzer.costs.table import TypeCost as TypeCost
from analyzer.costs.table import count as count
from analyzer.costs.table import fused as fused
