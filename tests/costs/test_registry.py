"""Rules: how they are found, added by users, and reported when they fail."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from onnx import helper

from analyzer.costs import count, explain, find, registry, rule, rules, unregister
from analyzer.costs.cost import Cost
from analyzer.graph import Graph, Node


@pytest.fixture
def acme() -> Iterator[None]:
    yield
    unregister("FusedGate", domain="com.acme")


def gate_graph(make_graph: Callable[..., Any]) -> Graph:
    node = helper.make_node("FusedGate", ["x"], ["y"], domain="com.acme", name="gate")
    return make_graph([node], {"x": [4, 5]}, ["y"], declared={"y": [4, 5]})


def test_the_documented_example_of_a_users_own_rule_works_as_printed(
    acme: None, make_graph: Callable[..., Any]
) -> None:
    assert count(gate_graph(make_graph)).costs[0].basis == "unknown"
    example = re.search(r"::\n\n(.*?)\n\n\S", registry.__doc__, re.DOTALL).group(1)
    code = "\n".join(line.removeprefix("    ") for line in example.splitlines())
    exec(compile(code, "documented example", "exec"), {"__name__": "user.rules"})
    cost = count(gate_graph(make_graph)).costs[0]
    assert (cost.flops, cost.bytes_moved, cost.basis) == (60, 160, "exact")
    assert "a sigmoid, a product and a sum" in explain("com.acme::FusedGate")


def test_a_rule_that_raises_is_unknown_with_its_reason_and_the_count_goes_on(
    acme: None, make_graph: Callable[..., Any]
) -> None:
    @rule("FusedGate", domain="com.acme")
    def broken(node: Node) -> Cost:
        """Fails."""
        raise KeyError("no such attribute")

    nodes = [
        helper.make_node("FusedGate", ["x"], ["y"], domain="com.acme"),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    table = count(make_graph(nodes, {"x": [4, 5]}, ["z"], declared={"z": [4, 5]}))
    assert table.costs[0].flops is None
    assert "KeyError" in table.costs[0].note
    assert "no such attribute" in table.costs[0].note
    assert table.costs[1].flops == 20


def test_a_rule_that_gives_no_cost_is_unknown_with_its_reason(
    acme: None, make_graph: Callable[..., Any]
) -> None:
    @rule("FusedGate", domain="com.acme")
    def wrong(node: Any) -> Any:
        """Gives a number."""
        return 17

    cost = count(gate_graph(make_graph)).costs[0]
    assert (cost.flops, cost.basis) == (None, "unknown")
    assert "gave int" in cost.note


@pytest.mark.parametrize("figure", ["flops", "macs", "bytes_read", "bytes_written"])
def test_a_rule_that_counts_less_than_nothing_is_unknown(
    acme: None, make_graph: Callable[..., Any], figure: str
) -> None:
    @rule("FusedGate", domain="com.acme")
    def negative(node: Node) -> Cost:
        """Takes an attribute at its word."""
        return Cost(**{figure: -72})  # type: ignore[arg-type]  # the figures alone are parametrized

    cost = count(gate_graph(make_graph)).costs[0]
    assert (cost.flops, cost.macs, cost.basis) == (None, None, "unknown")
    assert "-72" in cost.note
    assert (cost.bytes_read, cost.bytes_written) == (80, 80)


def test_a_rule_with_an_assumption_is_modelled_and_says_so(acme: None, make_graph: Callable[..., Any]) -> None:
    @rule("FusedGate", domain="com.acme", assumes="half of the gates are open")
    def assumed(node: Any) -> Any:
        """outputs / 2."""
        from analyzer.costs import cost, elements

        return cost(node, flops=elements(node.outputs[0]) // 2)

    cost = count(gate_graph(make_graph)).costs[0]
    assert (cost.flops, cost.basis, cost.note) == (10, "modelled", "half of the gates are open")


def test_a_second_rule_for_an_operator_is_refused_unless_it_replaces(acme: None) -> None:
    def one(node: Node) -> Cost:
        """One."""
        raise NotImplementedError

    rule("FusedGate", domain="com.acme")(one)
    with pytest.raises(registry.DuplicateRuleError, match=r"com\.acme::FusedGate"):
        rule("FusedGate", domain="com.acme")(one)
    rule("FusedGate", domain="com.acme", replace=True)(one)


def test_a_rule_without_an_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="names its operator"):
        rule()


def test_every_rule_has_a_formula_and_a_modelled_one_its_assumption() -> None:
    assert all(len(found.formula) > 10 and found.formula != "no description" for found in rules())
    assert all(found.assumes for found in rules() if found.basis == "modelled")


def test_one_operator_is_explained_with_formula_basis_and_family() -> None:
    text = explain("Conv")
    assert "ai.onnx::Conv" in text
    assert "Cin/group" in text
    assert "exact" in text
    assert "com.ms.internal.nhwc::Conv" in text


def test_an_unknown_operator_is_explained_by_its_nearest() -> None:
    from analyzer.errors import UsageError

    with pytest.raises(UsageError) as caught:
        explain("Convv")
    assert "Conv" in caught.value.hint


def test_rules_are_found_by_domain_and_name() -> None:
    assert find("Gelu") is not find("Gelu", "com.microsoft")
    assert find("Gelu", "com.acme") is None
