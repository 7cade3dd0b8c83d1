"""The registry of counting rules: one pure function per (domain, operator), and its text for users.

A rule takes a Node and gives a Cost. It is registered by a decorator, so that a user's own operator needs
four lines::

    from analyzer.costs import cost, elements, rule

    @rule("FusedGate", domain="com.acme")
    def fused_gate(node):
        \"\"\"3 * outputs: a sigmoid, a product and a sum.\"\"\"
        return cost(node, flops=3 * elements(node.outputs[0]))

The first line of the docstring is the formula that ``analyze ops`` prints.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from analyzer.costs.cost import ZERO, Cost, OpenSizeError, traffic
from analyzer.errors import UsageError
from analyzer.graph import DEFAULT_DOMAIN, NO_ATTRIBUTES, Graph, Node, Tensor
from analyzer.record.batch_ranges import SIZE_OF_ONE, is_least

Counts = Callable[[Node], Cost]
RuleBasis = Literal["exact", "modelled", "depends"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRule:
    """The counting rule of one operator.

    Attributes:
        domain: Operator domain, ``ai.onnx`` for the default one.
        formula: One line for the user.
        description: The rest of the explanation; empty where the formula says it all.
        assumes: What a modelled count rests on; empty where the count is exact.
        basis: ``exact``, ``modelled``, or ``depends`` where the node decides.
        family: The module that the rule stands in.
    """

    domain: str
    op_type: str
    count: Counts
    formula: str
    description: str = ""
    assumes: str = ""
    basis: RuleBasis = "exact"
    family: str = ""


OPEN_SIZE = 1
"""What stands in for a size that only the data decide."""

_RULES: dict[tuple[str, str], CostRule] = {}


class DuplicateRuleError(ValueError):
    """Two rules for one operator."""


def register(new: CostRule, *, replace: bool = False) -> None:
    """Add a rule; one operator has one rule unless ``replace`` says that this one takes its place."""
    key = (new.domain, new.op_type)
    if key in _RULES and not replace:
        raise DuplicateRuleError(
            f"{new.domain}::{new.op_type} has a rule already; say replace=True to change it"
        )
    _RULES[key] = new


def rule(
    *op_types: str,
    domain: str = DEFAULT_DOMAIN,
    assumes: str = "",
    depends: bool = False,
    replace: bool = False,
) -> Callable[[Counts], Counts]:
    """Register the decorated function as the rule of these operators.

    Args:
        op_types: Operator names, at least one.
        domain: Their domain.
        assumes: The assumption that the count rests on; every count by this rule is then ``modelled``.
        depends: The rule itself says, node by node, whether its count is exact.
        replace: Take the place of a rule that is there.
    """
    if not op_types:
        raise ValueError("a rule names its operator: @rule('MyOperator', domain='com.acme')")

    def decorate(function: Counts) -> Counts:
        formula, _, description = (inspect.getdoc(function) or "no description").partition("\n")
        for op_type in op_types:
            new = CostRule(
                domain=domain,
                op_type=op_type,
                count=function,
                formula=formula,
                description=description.strip(),
                assumes=assumes,
                basis="modelled" if assumes else "depends" if depends else "exact",
                family=function.__module__.rpartition(".")[2],
            )
            register(new, replace=replace)
        return function

    return decorate


def unregister(op_type: str, *, domain: str = DEFAULT_DOMAIN) -> None:
    """Remove a rule, if it is there."""
    _RULES.pop((domain, op_type), None)


def find(op_type: str, domain: str = DEFAULT_DOMAIN) -> CostRule | None:
    """Return the rule of an operator, None where there is none."""
    return _RULES.get((domain, op_type))


def rules() -> tuple[CostRule, ...]:
    """Return all rules, by domain and name."""
    return tuple(_RULES[key] for key in sorted(_RULES))


def is_constant(node: Node) -> bool:
    """Return whether all that a node gives is known before the run."""
    return all(tensor is None or tensor.constant for tensor in node.outputs) and bool(node.outputs)


def count_node(node: Node, expected_shapes: Mapping[str, tuple[int, ...]] = NO_ATTRIBUTES) -> Cost:
    """Return the cost of one operator; ``unknown`` with its reason where it cannot be told.

    Where the data decide a size that the rule needs, the likely one is taken for it, else 1: the count is
    ``modelled`` and its note names the tensor.
    """
    outputs = node.outputs
    # Folded when a session is made: it runs never. One output is the usual case and spares the call.
    if outputs and outputs[0] is not None and outputs[0].constant and (len(outputs) == 1 or is_constant(node)):
        return ZERO
    cost_rule = _RULES.get((node.domain, node.op_type))
    if cost_rule is None:
        return unknown(node, f"no rule for {node.domain}::{node.op_type}")
    try:
        cost: object = _counted(cost_rule, node)
    except OpenSizeError as error:
        return _assumed(node, cost_rule, error, expected_shapes)
    except Exception as error:  # a rule that fails, a user's own included, must not end the analysis
        return unknown(
            node, f"the rule for {node.domain}::{node.op_type} failed: {type(error).__name__}: {error}"
        )
    if not isinstance(cost, Cost):
        return unknown(
            node, f"the rule for {node.domain}::{node.op_type} gave {type(cost).__name__}, not a Cost"
        )
    if cost_rule.assumes and cost.basis == "exact":
        return dataclasses.replace(cost, basis="modelled", note=cost.note or cost_rule.assumes)
    return cost


def folded_flops(node: Node) -> int:
    """Return FLOPs of an operator folded when a session is made; 0 of one that runs or that no rule counts."""
    cost_rule = _RULES.get((node.domain, node.op_type)) if is_constant(node) else None
    if cost_rule is None:
        return 0
    try:
        cost: object = _counted(cost_rule, node)
    except Exception:  # as in ``count_node``: a rule that fails must not end the analysis
        return 0
    return (cost.flops or 0) if isinstance(cost, Cost) else 0


def _counted(cost_rule: CostRule, node: Node) -> Cost:
    cost = cost_rule.count(node)
    if isinstance(cost, Cost):  # a user's rule may give anything
        figures = (cost.flops or 0, cost.macs or 0, cost.bytes_read or 0, cost.bytes_written or 0)
        if min(figures) < 0:
            raise ValueError(f"a count of {min(figures)}, as where an attribute is out of its range")
    return cost


def _assumed(
    node: Node, cost_rule: CostRule, error: OpenSizeError, expected_shapes: Mapping[str, tuple[int, ...]]
) -> Cost:
    """Return cost with the likely size, or 1, in place of every open one; unknown where that does not do."""
    # The rule runs once more, as it is: it need not know that sizes can be open.
    try:
        cost = _counted(cost_rule, closed(node, expected_shapes))
    except Exception:  # the rank is open too, or a width: the first error says what is missing
        return unknown(node, str(error))
    expected_shape = expected_shapes.get(error.tensor.name) if error.tensor is not None else None
    likely = " x ".join(map(str, expected_shape or ()))
    note = f"{error}: {SIZE_OF_ONE if expected_shape is None else f'the likely {likely} is assumed'}"
    return cost if cost.basis == "unknown" else dataclasses.replace(cost, basis="modelled", note=note)


def closed(node: Node, expected_shapes: Mapping[str, tuple[int, ...]] = NO_ATTRIBUTES) -> Node:
    """Return the node with the likely size, or 1, in place of every size of its tensors that is open."""
    return dataclasses.replace(
        node,
        inputs=tuple(_closed(tensor, expected_shapes) for tensor in node.inputs),
        outputs=tuple(_closed(tensor, expected_shapes) for tensor in node.outputs),
    )


def _closed(tensor: Tensor | None, expected_shapes: Mapping[str, tuple[int, ...]]) -> Tensor | None:
    if tensor is None or (tensor.shape is not None and None not in tensor.shape):
        return tensor
    if tensor.name in expected_shapes:
        return dataclasses.replace(tensor, shape=expected_shapes[tensor.name])
    rank_open = (OPEN_SIZE,) * 8  # any axis that a rule asks for is there
    shape = (
        rank_open
        if tensor.shape is None
        else tuple(OPEN_SIZE if size is None else size for size in tensor.shape)
    )
    return dataclasses.replace(tensor, shape=shape)


def unknown(node: Node, reason: str) -> Cost:
    """Return a cost that says why there is none; bytes are given where the shapes tell them."""
    read: int | None
    written: int | None
    try:
        read, written = traffic(node)
    except Exception:  # an open size, or a node that is none of its operator: the reason says which
        read = written = None
    return Cost(flops=None, macs=None, bytes_read=read, bytes_written=written, basis="unknown", note=reason)


def count_graph(graph: Graph) -> Cost:
    """Return the sum over a subgraph's operators, with the note of a part that is a lower bound, if any."""
    total = ZERO
    for node in graph.nodes:
        cost = count_node(node)
        total += cost
        if is_least(cost.note) and total.basis != "unknown":
            total = dataclasses.replace(total, note=cost.note)
    return total


_BASIS = {
    "exact": "exact: follows from shapes and attributes alone",
    "modelled": "modelled",
    "depends": "exact or modelled, as the node decides",
}


def explain(operator: str) -> str:
    """Return the rules of an operator in words; ``domain::Operator`` names one, ``Operator`` all of that name.

    Raises:
        UsageError: No rule has that name; the hint gives the nearest.
    """
    domain, _, name = operator.rpartition("::")
    matching = [one for one in rules() if one.op_type.lower() == name.lower() and domain in ("", one.domain)]
    if not matching:
        near = difflib.get_close_matches(name, {one.op_type for one in rules()}, n=3)
        hint = f"Did you mean {', '.join(near)}?" if near else "`analyze ops` lists all"
        raise UsageError(f"no rule counts '{operator}'", hint=hint)
    ordered = sorted(matching, key=lambda one: (one.domain != DEFAULT_DOMAIN, one.domain))
    return "\n\n".join(_described(one) for one in ordered)


def by_family() -> Mapping[str, tuple[CostRule, ...]]:
    """Return all rules by family, both in order of their names."""
    families: dict[str, list[CostRule]] = {}
    for one in rules():
        families.setdefault(one.family, []).append(one)
    return {family: tuple(families[family]) for family in sorted(families)}


def _described(one: CostRule) -> str:
    lines = [f"{one.domain}::{one.op_type}", f"  FLOPs   {one.formula}"]
    lines += [f"          {line.strip()}" for line in one.description.splitlines() if line.strip()]
    basis = f"modelled: {one.assumes}" if one.basis == "modelled" else _BASIS[one.basis]
    return "\n".join([*lines, f"  basis   {basis}", f"  family  {one.family}"])
