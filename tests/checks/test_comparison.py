import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from checks_factory import analysis, operator, stem

from analyzer.checks import run
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis
from analyzer.report.compare.build import CONDITIONS, compare, failures, to_json
from analyzer.report.compare.comparison import Comparison
from analyzer.report.compare.document import render_markdown, render_text


def judged(toy: Analysis) -> Analysis:
    return replace(toy, findings=run(toy))


def opsets() -> Comparison:
    return compare([("old", judged(stem(21))), ("new", judged(stem(23)))])


def test_a_record_beside_itself_differs_in_nothing() -> None:
    (difference,) = compare([("a", stem(23)), ("b", stem(23))]).differences
    assert {change.kind for change in difference.both} == {"same"}
    assert len(difference.both) == len(difference.tree.operators) == 4
    assert difference.flipped == difference.findings_new == difference.findings_gone == ()


def test_a_newer_opset_shows_what_flipped_and_what_was_found() -> None:
    (difference,) = opsets().differences
    (flip,) = difference.flipped
    assert flip.name == "MaxPool of maxpool"
    assert flip.where == "models/toy.py:57"
    assert flip.placed_on == ("cuda", "cpu")
    assert flip.device == ("gpu", "cpu")
    (slower,) = difference.of_kind("slower")
    assert abs(slower.rise_s - (8e-4 - 2e-5)) < 1e-12
    assert slower.certain is True  # At most 40 us before, at least 400 us now.
    assert [entry.code for entry in difference.findings_new] == ["A101"]
    assert difference.findings_gone == ()


def test_the_other_way_round_they_are_gone() -> None:
    (difference,) = compare([("new", judged(stem(23))), ("old", judged(stem(21)))]).differences
    assert [entry.code for entry in difference.findings_gone] == ["A101"]
    assert [change.name for change in difference.of_kind("faster")] == ["MaxPool of maxpool"]


def test_figures_stand_side_by_side_with_their_units_and_origins() -> None:
    comparison = opsets()
    assert comparison.figure("copies").values == (0, 2)
    assert comparison.figure("copy_bytes").values == (0, 4_014_080)
    latency = comparison.figure("plans.gpu.latency_s")
    assert latency.unit == "s"
    assert latency.origins == ("predicted", "predicted")
    assert [fact.values for fact in comparison.facts if fact.key == "model.opset"] == [("21", "23")]


def test_a_finding_about_a_renumbered_operator_is_the_same_finding() -> None:
    before = judged(stem(23))
    shifted = tuple(replace(op, index=op.index + 1) for op in before.operators)
    first = replace(operator("Cast", ["z"], ["x"], module="pre"), index=0)
    after = judged(replace(before, operators=(first, *shifted), groups=()))
    (difference,) = compare([("a", before), ("b", after)]).differences
    assert difference.findings_new == difference.findings_gone == ()
    assert [entry.name for entry in difference.of_kind("new")] == ["Cast of pre"]


def test_three_records_are_each_compared_with_the_first() -> None:
    comparison = compare([("a", stem(21)), ("b", stem(23)), ("c", stem(21))])
    assert [difference.label for difference in comparison.differences] == ["b", "c"]
    assert len(comparison.differences[0].flipped) == 1
    assert comparison.differences[1].flipped == ()


def test_one_record_alone_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="at least two"):
        compare([("a", stem(21))])


@pytest.mark.parametrize(
    ("condition", "fails"),
    [
        ("copies", True),
        ("flipped", True),
        ("findings", True),
        ("any", True),
        ("flops", False),
        ("bytes", False),
        ("verdict", False),
        ("latency", False),
    ],
)
def test_what_fail_on_fails_on(condition: str, fails: bool) -> None:
    assert bool(failures(opsets(), [condition])) is fails


def test_a_rise_within_the_tolerance_does_not_fail() -> None:
    pair = [
        ("a", analysis(operator("Relu", ["x"], ["y"], flops=100))),
        ("b", analysis(operator("Relu", ["x"], ["y"], flops=110))),
    ]
    assert failures(compare(pair), ["flops"], tolerance=0.1) == ()
    assert len(failures(compare(pair), ["flops"], tolerance=0.09)) == 1


def test_weights_that_grew_are_more_memory() -> None:
    before = stem(21)
    after = replace(before, model=replace(before.model, parameter_bytes=2 * before.model.parameter_bytes + 1))
    pair = compare([("a", before), ("b", after)])
    assert failures(pair, ["memory"]) == failures(pair, ["any"]) == ("b: weights rose",)
    assert failures(compare([("b", after), ("a", before)]), ["memory"]) == ()


def test_an_unknown_condition_suggests_the_nearest() -> None:
    with pytest.raises(UsageError) as raised:
        failures(opsets(), ["copy"])
    assert raised.value.hint == "Did you mean copies?"
    assert "any" in CONDITIONS


def test_text_and_markdown_name_what_matters_and_json_holds_it_all() -> None:
    text, markdown, values = render_text(opsets()), render_markdown(opsets()), json.loads(to_json(opsets()))
    for rendered in (text, markdown):
        moved = rendered[rendered.index("On another device") :]
        row = next(line for line in moved.splitlines() if "MaxPool of maxpool" in line)
        for part in ("models/toy.py:57", "GPU", "CPU", "best plan"):
            assert part in row
        assert "4.01 MB" in rendered
    assert values["labels"] == ["old", "new"]
    assert values["differences"][0]["flipped"][0]["placed_on"] == ["cuda", "cpu"]
    assert values["differences"][0]["matched"] == 4


@pytest.mark.parametrize("render", [render_text, render_markdown, to_json])
def test_the_same_records_give_the_same_text(render: Callable[..., Any]) -> None:
    assert render(opsets()) == render(opsets())


def test_markdown_keeps_its_table_whatever_the_labels_are() -> None:
    comparison = compare([("a|b", stem(21)), ("<img>", stem(23))])
    lines = render_markdown(comparison).splitlines()
    header = next(line for line in lines if line.startswith("|  |"))
    assert header.replace("\\|", "").count("|") == 4
    assert "<img>" not in "\n".join(lines)
