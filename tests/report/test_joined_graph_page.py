"""The graph of two records on the comparison's page: what its lists say, and what its script is given."""

from dataclasses import replace
from typing import Any

import handmade
import pytest
import report_factory as factory

from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.compare import graph_view, html_page, plain_text
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


def data(comparison: Comparison, at: int = 1) -> dict[str, Any]:
    found = graph_view.payload(comparison, at)
    assert found is not None
    return found


def texts(column: Any) -> list[str]:
    return [column["of"][place] for place in column["at"]]


def test_the_largest_change_is_listed_with_both_times_and_selects_its_operator() -> None:
    view = graph_view.view(pair(), 1)
    (line,) = view.changes
    # Operator 4 takes 5 ms on the CPU and a tenth of that on the GPU.
    assert (line.title, line.before, line.after) == ("Conv of stage0.block1.conv", "500 µs", "1.50 ms")
    assert (line.rise, line.tone, line.box) == ("+1.00 ms", "worse", "o4")
    assert line.where == "samples/imaginary.py:14"


def test_a_module_that_lost_time_is_listed_and_is_the_first_to_be_opened() -> None:
    comparison = pair()
    (line,) = graph_view.view(comparison, 1).modules
    given = data(comparison)
    assert line.title == "stage0.block1.conv"
    assert given["modules"]["path"][given["worst"]] == "stage0.block1.conv"
    assert line.box == f"m{given['worst']}"


def test_the_script_is_given_both_sides_of_every_operator() -> None:
    given = data(pair())
    columns = given["operators"]
    assert columns["base_index"] == columns["new_index"] == list(range(24))
    assert (columns["base_time"][4], columns["new_time"][4]) == (5e-4, 1.5e-3)
    assert (columns["new_low"][4], columns["new_high"][4]) == (pytest.approx(1.05e-3), pytest.approx(2.25e-3))
    assert texts(columns["new_name"])[4] == "/another_name"
    assert texts(columns["base_name"])[4] == "/conv_4"
    # Conv and BatchNormalization are one group, MaxPool is alone.
    assert texts(columns["base_group"])[:4] == ["FusedConv, 2 operators"] * 2 + ["alone"] * 2
    assert texts(columns["base_session"])[2:4] == ["GPU", "CPU"]
    # A chain: each operator reads what the one before it makes; around a MaxPool on the CPU it is copied.
    assert given["edges"][0] == [0, 1, 1, 1]
    assert [edge[:2] for edge in given["edges"]] == [[at, at + 1] for at in range(23)]


def test_a_flip_is_told_where_the_best_plan_or_the_cuda_session_changed_its_device() -> None:
    base = factory.analysis(8)
    moved = replace(base.operators[4], placement="cpu")
    given = data(compare([("a", base), ("b", changed(base, _4=moved))]))
    assert texts(given["operators"]["flip"])[4] == "GPU → CPU"
    assert given["modules"]["flipped"][0] == 1


def test_new_and_gone_operators_are_marked() -> None:
    base = factory.analysis(8)
    longer = factory.analysis(9)
    given = data(compare([("a", base), ("b", longer)]))
    assert texts(given["operators"]["state"]) == ["both"] * 8 + ["new"]
    given = data(compare([("a", longer), ("b", base)]))
    assert texts(given["operators"]["state"]) == ["both"] * 8 + ["gone"]


def test_fusions_that_came_and_went_are_a_sentence_on_the_page_and_a_list_in_text() -> None:
    base = factory.analysis(4)
    # Conv and BatchNormalization run alone in the one record, and as one in the other.
    loose = replace(base, groups=tuple(each for each in base.groups if len(each.members) == 1))
    appeared, went = compare([("a", loose), ("b", base)]), compare([("a", base), ("b", loose)])
    said = "FusedConv of Conv and BatchNormalization in stage0.block0.conv"
    assert graph_view.view(appeared, 1).notes == (f"Fusions that appeared: {said}.",)
    assert graph_view.view(went, 1).notes == (f"Fusions that went: {said}.",)
    assert f"new fusions (1)\n    {said}" in plain_text.render_text(appeared)
    assert "**fusions gone (1)**" in plain_text.render_markdown(went)


def test_text_lists_the_modules_that_changed_most() -> None:
    text = plain_text.render_text(pair())
    assert "changed most, by module\n    stage0.block1.conv: 500 µs -> 1.50 ms (3.0x)" in text


def test_renamed_modules_are_told_once_and_not_again_for_what_is_inside() -> None:
    base = factory.analysis(8)
    renamed = tuple(replace(item, module=item.module.replace("stage0", "trunk")) for item in base.operators)
    view = graph_view.view(compare([("a", base), ("b", replace(base, operators=renamed))]), 1)
    assert view.notes == ("Renamed: stage0 is trunk now.",)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (factory.empty, "The two graphs are not drawn as one: poor holds no operators."),
        (None, "The two graphs are not drawn as one: no operator of one is found in the other."),
    ],
)
def test_where_no_graph_can_be_drawn_one_line_says_why_and_the_rest_of_the_page_stays(
    other: Any, said: str
) -> None:
    base = factory.analysis(4)
    foreign = tuple(replace(item, op_type="Gather", module="elsewhere", source=None) for item in base.operators)
    poor = replace(base, operators=foreign) if other is None else other()
    comparison = compare([("whole", base), ("poor", poor)])
    assert graph_view.payload(comparison, 1) is None
    text = html_page.render(comparison)
    assert said in text
    assert "data-joined" not in text
    assert 'id="side-by-side"' in text


def test_each_record_after_the_base_has_a_graph_of_its_own() -> None:
    base = factory.analysis(8)
    page = html_page.render(compare([("a", base), ("b", factory.analysis(9)), ("c", factory.analysis(10))]))
    assert page.count('class="joined"') == 2
    assert 'data-joined="1"' in page


def test_the_json_of_a_comparison_holds_modules_and_fusions_and_no_graph() -> None:
    text = to_json(pair())
    assert '"graph"' not in text
    assert '"modules"' in text
    assert '"fusions_new"' in text


def test_the_page_without_scripts_and_in_print_has_the_lists() -> None:
    page = html_page.render(pair())
    assert "Largest changes" in page
    assert "Conv of stage0.block1.conv" in page
    assert page == html_page.render(pair())


def test_a_page_of_two_large_graphs_stays_small() -> None:
    large = factory.analysis(5000)
    assert len(html_page.render(compare([("a", large), ("b", large)])).encode()) < 1_000_000
