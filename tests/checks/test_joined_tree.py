"""Two records as one tree: sums, flips, fusions, what changed most."""

from dataclasses import replace
from typing import Any

import pytest
from checks_factory import analysis, operator, stem

from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.compare.alignment import align
from analyzer.report.compare.comparison import ComparedSide, JoinedTree
from analyzer.report.compare.joined_tree import join


def joined(base: Analysis, new: Analysis) -> JoinedTree:
    return join(*ComparedSide.pair(base, new), align(base, new))


def times(tree: JoinedTree) -> dict[str, tuple[float | None, float | None]]:
    """Both times of each module in the list of those that changed most."""
    return {change.path: (change.base_s, change.new_s) for change in tree.changes}


def named(kind: str, at: int, module: str, **changes: Any) -> OperatorResult:
    return operator(kind, [f"t{at}"], [f"t{at + 1}"], module=module, name=f"n{at}", **changes)


def test_each_operator_is_there_once_in_the_order_of_the_new_graph() -> None:
    before = analysis(named("Conv", 0, "a"), named("Dropout", 1, "b"), named("Relu", 2, "c"))
    after = analysis(named("Conv", 0, "a"), named("Relu", 1, "c"), named("Gemm", 2, "d"))
    assert [(one.base, one.new, one.kind) for one in joined(before, after).operators] == [
        (0, 0, "same"),
        (1, None, "gone"),
        (2, 1, "same"),
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
    tree = joined(before, after)
    assert [(one.path, len(one.inside)) for one in tree.modules] == [
        ("", 3),
        ("layer", 2),
        ("layer.conv", 1),
        ("layer.relu", 1),
        ("head", 1),
    ]
    assert times(tree) == {
        "layer.conv": (pytest.approx(2e-4), pytest.approx(1e-4)),
        "layer.relu": (pytest.approx(1e-4), pytest.approx(5e-5)),
    }
    assert tree.fusions == ()


def test_an_unknown_time_is_neither_gained_nor_lost() -> None:
    before = analysis(named("Conv", 0, "a", gpu_s=None))
    after = analysis(named("Conv", 0, "a", gpu_s=1e-3))
    graph = joined(before, after)
    assert (graph.operators[0].kind, graph.operators[0].rise_s) == ("same", 0)
    assert graph.changes == ()


def test_a_device_that_changed_is_found() -> None:
    # At opset 23 MaxPool falls to the CPU.
    tree = joined(stem(20), stem(23))
    flipped = [one for one in tree.operators if one.flipped]
    assert [(one.new, one.placed_on, one.device) for one in flipped] == [(2, ("cuda", "cpu"), ("gpu", "cpu"))]
    # From 20 to 800 us.
    assert [(one.path, one.rise_s) for one in tree.changes] == [("maxpool", pytest.approx(7.8e-4))]


def test_fusions_that_appeared_and_went_are_told_by_what_both_records_have() -> None:
    operators = [named(kind, at, "block") for at, kind in enumerate(("Conv", "Relu", "Add"))]
    before, after = (
        analysis(*operators, fused={(0, 1): "FusedConv"}),
        analysis(*operators, fused={(1, 2): "Sum"}),
    )
    found = joined(before, after).fusions
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
    assert joined(with_norm, without).fusions == ()


def test_layers_that_change_alike_are_one_entry_with_their_sum() -> None:
    def network(seconds: float) -> Analysis:
        return analysis(*(named("MatMul", at, f"layers.{at}.fc", gpu_s=seconds) for at in range(4)))

    graph = joined(network(1e-3), network(5e-4))
    (module,) = graph.changes
    assert (module.path.split(".")[0], module.alike) == ("layers", 3)
    assert (module.base_s, module.new_s) == (pytest.approx(4e-3), pytest.approx(2e-3))


def test_a_layer_that_changes_otherwise_is_an_entry_of_its_own() -> None:
    def network(*seconds: float) -> Analysis:
        return analysis(*(named("MatMul", at, f"layers.{at}", gpu_s=time) for at, time in enumerate(seconds)))

    graph = joined(network(1e-3, 1e-3, 1e-3), network(5e-4, 5e-4, 3e-3))
    found = [(one.path, one.alike, one.rise_s) for one in graph.changes]
    assert found == [("layers.2", 0, pytest.approx(2e-3)), ("layers.0", 1, pytest.approx(-1e-3))]


def test_a_change_within_two_percent_is_none() -> None:
    before, after = (analysis(named("Conv", 0, "a", gpu_s=time)) for time in (1.000e-3, 1.019e-3))
    graph = joined(before, after)
    assert graph.changes == ()
    assert [one.kind for one in graph.operators] == ["same"]


def test_of_different_batches_times_are_those_of_one_inference() -> None:
    before = analysis(named("Conv", 0, "a", gpu_s=8e-3))
    small = replace(before, model=replace(before.model, batch=8))
    large = replace(before, model=replace(before.model, batch=16))
    (one,) = joined(small, large).operators
    assert (one.base_s, one.new_s) == (pytest.approx(1e-3), pytest.approx(5e-4))
