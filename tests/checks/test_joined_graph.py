"""Two graphs as one: sums, flips, fusions, copies, what changed most, parts of what is too large."""

from dataclasses import replace
from typing import Any

import pytest
from checks_factory import analysis, operator, stem

from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.compare.alignment import align
from analyzer.report.compare.graph_joining import CROWDED, join
from analyzer.report.compare.joined_graph import JoinedGraph, JoinedModule
from analyzer.report.compare.sides import ComparedSide


def joined(base: Analysis, new: Analysis) -> JoinedGraph:
    return join(*ComparedSide.pair(base, new), align(base, new))


def modules(graph: JoinedGraph) -> dict[str, JoinedModule]:
    return {module.path: module for module in graph.modules}


def named(kind: str, at: int, module: str, **changes: Any) -> OperatorResult:
    return operator(kind, [f"t{at}"], [f"t{at + 1}"], module=module, name=f"n{at}", **changes)


def test_each_operator_is_there_once_in_the_order_of_the_new_graph() -> None:
    before = analysis(named("Conv", 0, "a"), named("Dropout", 1, "b"), named("Relu", 2, "c"))
    after = analysis(named("Conv", 0, "a"), named("Relu", 1, "c"), named("Gemm", 2, "d"))
    assert [(one.base, one.new, one.state) for one in joined(before, after).operators] == [
        (0, 0, "both"),
        (1, None, "gone"),
        (2, 1, "both"),
        (None, 2, "new"),
    ]


def test_a_module_holds_the_sums_of_all_inside_and_a_fused_groups_time_once() -> None:
    # The group's 300 us are shared among its operators as 200 and 100.
    before = analysis(
        named("Conv", 0, "layer.conv", gpu_s=2e-4),
        named("Relu", 1, "layer.relu", gpu_s=1e-4),
        named("Gemm", 2, "head", gpu_s=5e-5),
        fused={(0, 1): "FusedConv"},
    )
    after = analysis(
        named("Conv", 0, "layer.conv", gpu_s=1e-4),
        named("Relu", 1, "layer.relu", gpu_s=5e-5),
        named("Gemm", 2, "head", gpu_s=5e-5),
        fused={(0, 1): "FusedConv"},
    )
    found = modules(joined(before, after))
    assert (found["layer"].base_s, found["layer"].new_s) == (pytest.approx(3e-4), pytest.approx(1.5e-4))
    assert (found[""].base_s, found[""].new_s) == (pytest.approx(3.5e-4), pytest.approx(2e-4))
    assert joined(before, after).fusion_changes == ()


def test_an_unknown_time_is_neither_gained_nor_lost() -> None:
    before = analysis(named("Conv", 0, "a", gpu_s=None))
    after = analysis(named("Conv", 0, "a", gpu_s=1e-3))
    graph = joined(before, after)
    assert graph.operators[0].rise_s == 0
    assert (graph.modules[1].base_s, graph.modules[1].new_s, graph.modules[1].rise_s) == (None, 1e-3, 0)
    assert (graph.changes, graph.module_changes) == ((), ())


def test_a_device_that_changed_and_the_copies_around_it_are_found() -> None:
    # At opset 23 MaxPool falls to the CPU: its input and its output are copied.
    graph = joined(stem(20), stem(23))
    flipped = [one for one in graph.operators if one.flipped]
    assert [(one.new, one.placed_on, one.device) for one in flipped] == [(2, ("cuda", "cpu"), ("gpu", "cpu"))]
    assert [(copy.state, copy.direction, copy.producer) for copy in graph.copy_changes] == [
        ("new", "to_cpu", 1),
        ("new", "to_gpu", 2),
    ]
    copied = [
        (edge.producer, edge.consumer) for edge in graph.edges if edge.new_copied and not edge.base_copied
    ]
    assert copied == [(1, 2), (2, 3)]
    # From 20 to 800 us, and copies of 300 and 100 us.
    assert [(one.kind, one.rise_s) for one in graph.changes] == [
        ("slower", pytest.approx(7.8e-4)),
        ("copy", pytest.approx(3e-4)),
        ("copy", pytest.approx(1e-4)),
    ]
    assert graph.modules[graph.worst].path == "maxpool"
    back = joined(stem(23), stem(20))
    assert [copy.state for copy in back.copy_changes] == ["gone", "gone"]
    assert [one.kind for one in back.changes] == ["faster", "copy", "copy"]


def test_fusions_that_appeared_and_went_are_told_by_what_both_records_have() -> None:
    operators = [named(kind, at, "block") for at, kind in enumerate(("Conv", "Relu", "Add"))]
    before, after = (
        analysis(*operators, fused={(0, 1): "FusedConv"}),
        analysis(*operators, fused={(1, 2): "Sum"}),
    )
    found = joined(before, after).fusion_changes
    assert [(one.state, one.op_type, one.of, one.module) for one in found] == [
        ("new", "Sum", ("Relu", "Add"), "block"),
        ("gone", "FusedConv", ("Conv", "Relu"), "block"),
    ]
    # A BatchNormalization that is gone takes no fusion along: what is left of it was one node, and is.
    with_norm = analysis(
        named("Conv", 0, "block"),
        named("BatchNormalization", 1, "block"),
        named("Relu", 2, "block"),
        fused={(0, 1, 2): "FusedConv"},
    )
    without = analysis(named("Conv", 0, "block"), named("Relu", 1, "block"), fused={(0, 1): "FusedConv"})
    assert joined(with_norm, without).fusion_changes == ()


def test_what_replaces_operators_is_compared_with_them() -> None:
    before = analysis(
        named("Div", 0, "act", gpu_s=1e-4),
        named("Erf", 1, "act", gpu_s=2e-4),
        named("Mul", 2, "act", gpu_s=3e-4),
    )
    after = analysis(named("Gelu", 0, "act", gpu_s=1e-4))
    (change,) = joined(before, after).changes
    assert (change.kind, change.title) == ("replaced", "Gelu of act for Div, Erf and Mul")
    assert (change.base_s, change.new_s) == (pytest.approx(6e-4), pytest.approx(1e-4))


def test_layers_that_change_alike_are_one_entry_with_their_sum() -> None:
    def network(seconds: float) -> Analysis:
        return analysis(*(named("MatMul", at, f"layers.{at}.fc", gpu_s=seconds) for at in range(4)))

    graph = joined(network(1e-3), network(5e-4))
    (change,) = graph.changes
    assert (change.title, change.alike) == ("MatMul of layers.0.fc", 3)
    assert (change.base_s, change.new_s) == (pytest.approx(4e-3), pytest.approx(2e-3))
    (module,) = graph.module_changes
    assert (module.path.split(".")[0], module.alike) == ("layers", 3)
    assert (module.base_s, module.new_s) == (pytest.approx(4e-3), pytest.approx(2e-3))


def test_a_layer_that_changes_otherwise_is_an_entry_of_its_own() -> None:
    def network(*seconds: float) -> Analysis:
        return analysis(*(named("MatMul", at, f"layers.{at}", gpu_s=time) for at, time in enumerate(seconds)))

    graph = joined(network(1e-3, 1e-3, 1e-3), network(5e-4, 5e-4, 3e-3))
    found = [(one.path, one.alike, one.rise_s) for one in graph.module_changes]
    assert found == [("layers.2", 0, pytest.approx(2e-3)), ("layers.0", 1, pytest.approx(-1e-3))]
    assert graph.modules[graph.worst].path == "layers.2"


def test_a_change_within_two_percent_is_none() -> None:
    before, after = (analysis(named("Conv", 0, "a", gpu_s=time)) for time in (1.000e-3, 1.019e-3))
    graph = joined(before, after)
    assert (graph.changes, graph.module_changes) == ((), ())


def test_of_different_batches_times_are_those_of_one_inference() -> None:
    before = analysis(named("Conv", 0, "a", gpu_s=8e-3))
    small = replace(before, model=replace(before.model, batch=8))
    large = replace(before, model=replace(before.model, batch=16))
    (one,) = joined(small, large).operators
    assert (one.base_s, one.new_s) == (pytest.approx(1e-3), pytest.approx(5e-4))


@pytest.mark.parametrize("count", [CROWDED + 1, 5000])
def test_a_crowded_module_is_shown_in_parts_that_hold_all_of_it(count: int) -> None:
    flat = analysis(*(named("Add", at, "") for at in range(count)))
    graph = joined(flat, flat)
    inside: dict[int, int] = {}
    for module in graph.modules[1:]:
        inside[module.parent or 0] = inside.get(module.parent or 0, 0) + 1
    for one in graph.operators:
        inside[one.module] = inside.get(one.module, 0) + 1
    assert max(inside.values()) <= CROWDED
    assert graph.modules[0].operators == count

    assert sum(module.operators for module in graph.modules if module.parent == 0) == count


def test_an_uncrowded_module_has_no_parts() -> None:
    flat = analysis(*(named("Add", at, "block") for at in range(CROWDED)))
    assert not any(module.is_part for module in joined(flat, flat).modules)
