"""The tree of two records on the comparison's page: what is said of it, and what its script is given."""

from dataclasses import replace
from typing import Any

import handmade
import pytest
import report_factory as factory

from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.compare import document, joined_tree
from analyzer.report.compare.build import compare, to_json
from analyzer.report.compare.comparison import Comparison


def slower(item: OperatorResult, factor: float) -> OperatorResult:
    """The operator with this multiple of its time on the GPU."""
    assert item.gpu is not None
    assert item.gpu.time_s is not None
    return replace(item, gpu=handmade.on_gpu(item.gpu.time_s * factor, (0.7, 1.5)))


def changed(base: Analysis, **at: OperatorResult) -> Analysis:
    """The analysis with some operators replaced, named ``_4`` after their index."""
    return replace(base, operators=tuple(at.get(f"_{item.index}", item) for item in base.operators))


def pair() -> Comparison:
    """The invented network, and one whose operator 4 (Conv, 0.5 ms) is three times as slow and renamed."""
    base = factory.analysis(24)
    conv = replace(slower(base.operators[4], 3), name="/another_name")
    return compare([("before", base), ("after", changed(base, _4=conv))])


def rows(comparison: Comparison, at: int = 1) -> list[dict[str, Any]]:
    """The tree's rows, in their order."""
    found = joined_tree.payload(comparison, at)
    assert found is not None
    columns = {
        name: values if isinstance(values, list) else [values["of"][place] for place in values["at"]]
        for name, values in found["rows"].items()
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def operators(comparison: Comparison) -> list[dict[str, Any]]:
    """The rows that none is inside of."""
    found = rows(comparison)
    parents = {row["parent"] for row in found}
    return [row for number, row in enumerate(found) if number not in parents]


def test_each_operator_has_both_times_with_interval_and_origin_and_what_became_of_it() -> None:
    row = operators(pair())[4]
    # Operator 4 takes 5 ms on the CPU and a tenth of that on the GPU; its name is another one now.
    assert (row["name"], row["aside"], row["where"]) == ("Conv", "/another_name", "samples/imaginary.py:14")
    assert (row["before"], row["after"], row["rise"]) == (5e-4, 1.5e-3, 1e-3)
    assert (row["after_low"], row["after_high"], row["after_origin"]) == (
        pytest.approx(1.05e-3),
        pytest.approx(2.25e-3),
        "predicted",
    )
    assert row["what"] == "slower beyond the intervals"


def test_a_module_has_the_sums_of_all_inside_and_counts_what_became_of_them() -> None:
    found = rows(pair())
    model = found[0]
    inside = operators(pair())
    assert model["after"] == pytest.approx(sum(row["after"] or 0 for row in inside), rel=1e-3)
    assert model["after_low"] == pytest.approx(sum(row["after_low"] or 0 for row in inside), rel=1e-3)
    assert (model["parent"], model["slower"], model["new"], len(inside)) == (None, 1, 0, 24)
    assert model["rise"] == pytest.approx(1e-3)
    # Parents come first, so that a page's script can build the tree in one pass.
    assert all(row["parent"] < number for number, row in enumerate(found) if row["parent"] is not None)


def test_the_way_to_the_module_that_changed_most_is_open_at_first() -> None:
    given = joined_tree.payload(pair(), 1)
    assert given is not None
    row = rows(pair())[given["first"]]
    assert (row["name"], row["slower"]) == ("conv", 1)
    assert "stage0.block1.conv" in document.render(pair())


def test_a_flip_is_told_where_the_best_plan_or_the_cuda_session_changed_its_device() -> None:
    base = factory.analysis(8)
    moved = replace(base.operators[4], placement="cpu")
    row = operators(compare([("a", base), ("b", changed(base, _4=moved))]))[4]
    assert (row["what"], row["flipped"]) == ("best plan: GPU → CPU", 1)


def test_new_and_gone_operators_are_marked() -> None:
    base = factory.analysis(8)
    longer = factory.analysis(9)
    assert [row["what"] for row in operators(compare([("a", base), ("b", longer)]))] == [""] * 8 + ["new"]
    (*_, last) = operators(compare([("a", longer), ("b", base)]))
    assert (last["what"], last["gone"], last["after"], last["after_origin"]) == ("gone", 1, None, "")


def test_fusions_that_came_and_went_are_a_sentence_on_the_page_and_a_list_in_text() -> None:
    base = factory.analysis(4)
    # Conv and BatchNormalization run alone in the one record, and as one in the other.
    loose = replace(base, groups=tuple(each for each in base.groups if len(each.members) == 1))
    appeared, went = compare([("a", loose), ("b", base)]), compare([("a", base), ("b", loose)])
    said = "FusedConv of Conv and BatchNormalization in stage0.block0.conv"
    assert joined_tree.notes(appeared.differences[0].tree) == [f"Fusions that appeared: {said}."]
    assert joined_tree.notes(went.differences[0].tree) == [f"Fusions that went: {said}."]
    assert operators(went)[0]["what"] == "no longer fused: FusedConv"
    assert f"Fusions that appeared: {said}." in " ".join(document.render_text(appeared).split())
    assert f"Fusions that went: {said}." in document.render_markdown(went)


def test_renamed_modules_are_told_once_and_not_again_for_what_is_inside() -> None:
    base = factory.analysis(8)
    renamed = tuple(replace(item, module=item.module.replace("stage0", "trunk")) for item in base.operators)
    (difference,) = compare([("a", base), ("b", replace(base, operators=renamed))]).differences
    assert joined_tree.notes(difference.tree) == ["Renamed: stage0 is trunk now."]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (factory.empty, "There is no tree of both: poor holds no operators."),
        (None, "There is no tree of both: no operator of one is found in the other."),
    ],
)
def test_where_there_is_no_tree_one_line_says_why_and_the_rest_of_the_page_stays(other: Any, said: str) -> None:
    base = factory.analysis(4)
    foreign = tuple(replace(item, op_type="Gather", module="elsewhere", source=None) for item in base.operators)
    poor = replace(base, operators=foreign) if other is None else other()
    comparison = compare([("whole", base), ("poor", poor)])
    assert joined_tree.payload(comparison, 1) is None
    text = document.render(comparison)
    assert said in text
    assert "data-joined" not in text
    assert 'id="side-by-side"' in text


def test_each_record_after_the_base_has_a_tree_of_its_own() -> None:
    base = factory.analysis(8)
    page = document.render(compare([("a", base), ("b", factory.analysis(9)), ("c", factory.analysis(10))]))
    assert page.count('class="joined scripted"') == 2
    assert 'data-joined="1"' in page


def test_the_json_of_a_comparison_holds_modules_and_fusions_and_no_tree() -> None:
    text = to_json(pair())
    assert '"trees"' not in text
    assert '"modules"' in text
    assert '"fusions_new"' in text


def test_a_page_of_two_large_graphs_stays_small() -> None:
    large = factory.analysis(5000)
    assert len(document.render(compare([("a", large), ("b", large)])).encode()) < 1_000_000
