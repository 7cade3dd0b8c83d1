"""The comparison as a page: what it says, and what its charts hold."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import report_factory as factory
from comparison_records import batches, pair

from analyzer.record.analysis import Analysis
from analyzer.report.charts import batches as batch_charts
from analyzer.report.charts import roofline, time_share
from analyzer.report.charts.chart import Chart
from analyzer.report.compare import document, sentences
from analyzer.report.compare.build import compare, to_json
from analyzer.report.compare.comparison import Comparison
from analyzer.report.document import Table


def of_latency(*latencies: float) -> Comparison:
    """Records whose only plan is the GPU's, each with an interval of 10 %, named a, b, c."""
    base = factory.analysis(4)
    plans = [factory.plan("gpu", latency) for latency in latencies]
    return compare([(name, replace(base, plans=(plan,))) for name, plan in zip("abc", plans, strict=False)])


def dicts(chart: Chart | None) -> list[dict[str, Any]]:
    assert chart is not None
    names = [column.name for column in chart.columns]
    return [dict(zip(names, row, strict=True)) for row in chart.rows]


def tables(comparison: Comparison, section: str = "figures") -> dict[str, Table]:
    (found,) = (one for one in document.document(comparison).sections if one.name == section)
    return {block.title: block for block in found.blocks if isinstance(block, Table)}


def cells(comparison: Comparison, group: str, label: str) -> list[tuple[str, str, str]]:
    """Figure, smaller text and mark of each record."""
    table = tables(comparison)[group]
    at = [row[0] for row in table.rows].index(label)
    return list(zip(table.rows[at], table.beside[at], table.cell_marks[at], strict=True))[1:]


def test_a_slower_plan_is_marked_worse_with_its_share_beyond_the_intervals() -> None:
    # 18 to 22 ms before, 28 to 32 now.
    before, after = cells(pair(), "GPU", "latency")
    assert before[0].startswith("20.0 ms")
    assert before[0].endswith(" ★")
    assert before[1] == "18.0 to 22.0 ms"
    assert after[0].endswith(", 50 % more")
    assert after[1:] == ("28.0 to 32.0 ms, worse, beyond the intervals", "worse")
    assert cells(pair(), "CPU", "latency")[1][2] == ""
    assert cells(pair(), "Work and findings", "findings")[1][2] == "better"


def test_a_best_plan_that_is_the_gpus_is_shown_once() -> None:
    base = factory.analysis(4)
    twin = replace(base.plans[1], name="hybrid")
    same = replace(base, plans=(*base.plans[:2], twin))
    titles = list(tables(compare([("a", same), ("b", same)])))
    assert titles == ["GPU, which is the best plan", "CPU", "Verdict", "Work and findings"]
    titles = list(tables(compare([("a", base), ("b", same)])))
    assert titles == ["Best plan", "GPU", "CPU", "Verdict", "Work and findings"]


def test_a_throughputs_interval_is_that_of_the_latency_turned_over() -> None:
    # 8 inferences in 20 ms, 18 to 22.
    text, interval, _ = cells(of_latency(0.020, 0.030), "GPU", "throughput")[0]
    assert text.startswith("400 /s")
    assert interval == "364 to 444 /s"


@pytest.mark.parametrize(
    ("base", "value", "said"),
    [
        (1.0, 1.0, "the same"),
        (1.0, 1.25, "25 % more"),
        (4.0, 1.0, "75 % less"),
        (1.0, 3.4, "3.4x"),
        (0.0, 5.0, "was 0"),
    ],
)
def test_changes_are_said_in_words(base: float, value: float, said: str) -> None:
    assert document.change(base, value) == said


def test_more_layers_of_one_kind_are_surely_slower_and_other_layers_may_not_be() -> None:
    # Six layers of 5 ms, within a third and three times that, against four: one factor errs in both.
    base = factory.analysis(4)
    layer = next(one for one in base.operators if one.gpu is not None and one.gpu.time_s)
    assert layer.gpu is not None

    def layers(number: int, op_type: str, each_s: float = 0.005) -> Analysis:
        assert layer.gpu is not None
        gpu = replace(layer.gpu, time_s=each_s, low_s=each_s / 3, high_s=each_s * 3, origin="predicted")
        one = replace(layer, op_type=op_type, placement="gpu", gpu=gpu, inputs=(), outputs=())
        plan = factory.plan("gpu", number * each_s, origin="predicted")
        return replace(base, operators=tuple(replace(one, index=at) for at in range(number)), plans=(plan,))

    alike = compare([("a", layers(6, "Conv")), ("b", layers(4, "Conv"))])
    # The table's mark says what the headline says.
    latency = alike.figure("plans.gpu.latency_s")
    assert latency is not None
    assert latency.certain is True
    # A third record, of another card, takes nothing from what the two share.
    other = layers(8, "Conv")
    assert other.devices.gpu is not None
    elsewhere = replace(other, devices=replace(other.devices, gpu=replace(other.devices.gpu, name="Other")))
    three = compare([("a", layers(6, "Conv")), ("b", layers(4, "Conv")), ("c", elsewhere)])
    latency = three.figure("plans.gpu.latency_s")
    assert latency is not None
    assert latency.ratio(0, 1) == pytest.approx((1.5, 1.5))
    assert latency.ratio(0, 2) is None
    _, sure = sentences.headline(alike)
    assert sure == (
        "That is certain: both are predictions for the same devices and share errors, and their ratio is "
        "1.5x to 1.5x."
    )
    # Two kinds err apart: exp(sqrt(2) * ln(3)) is 4.7, and 1.5 / 4.7 is 0.32.
    _, sure = sentences.headline(compare([("a", layers(6, "Conv")), ("b", layers(4, "MatMul"))]))
    assert sure.startswith("That is not certain")
    assert sure.endswith("their ratio is 0.32x to 7.1x.")


def test_of_different_batches_throughputs_and_single_inferences_are_compared() -> None:
    comparison = batches()
    assert any("batches differ" in note for note in comparison.notes)
    assert cells(comparison, "GPU", "latency")[1][2] == ""
    assert not any(mark in text for text, _, _ in cells(comparison, "GPU", "latency") for mark in "☆★")
    assert "★" in cells(comparison, "GPU", "throughput")[1][0]
    # Operator 0 takes 0.1 ms on the GPU in both: an eighth of it and a sixteenth for one inference.
    (difference,) = comparison.differences
    change = next(item for item in difference.of_kind("faster") if item.new == 0)
    assert (change.base_s, change.new_s) == (pytest.approx(1.25e-5), pytest.approx(6.25e-6))
    assert difference.per_inference
    assert sentences.headline(comparison)[0].startswith("sixteen has the highest throughput: 889 /s")
    points = dicts(batch_charts.plans(*comparison.analyses, labels=comparison.labels))
    assert [row["latency"] for row in points if row["plan"] == "CPU"] == pytest.approx([0.01, 0.005])


def test_times_by_type_stand_side_by_side_for_one_inference() -> None:
    comparison = batches()
    chart = time_share.by_type(*comparison.analyses, labels=comparison.labels)
    rows = {(row["type"], row["record"]): row for row in dicts(chart)}
    # The six MaxPools stay on the CPU: operators 3, 7, 11, 15, 19, 23 take 4, 3, 2, 1, 5 and 4 ms.
    assert rows["MaxPool", "eight"]["time"] == pytest.approx(19e-3 / 8)
    assert rows["MaxPool", "sixteen"]["time"] == pytest.approx(19e-3 / 16)
    assert rows["MaxPool", "eight"]["operators"] == 6
    shares = [row["share"] for (_, record), row in rows.items() if record == "eight"]
    assert sum(shares) == pytest.approx(1)


def test_a_record_that_is_called_as_a_device_has_its_own_points_alone() -> None:
    comparison = compare([("CPU", factory.analysis(24)), ("new", factory.analysis(24))])
    chart = roofline.chart(*comparison.analyses, labels=comparison.labels)
    assert [part.partition(" (")[0] for part in chart.alternative.split(". ")] == [
        "CPU: 12 operators",
        "new: 12 operators",
    ]


def test_the_json_holds_the_figures_and_not_the_records() -> None:
    values = json.loads(to_json(pair()))
    assert "analyses" not in values
    latency = next(item for item in values["figures"] if item["key"] == "plans.gpu.latency_s")
    assert (latency["low"], latency["better"]) == ([pytest.approx(0.018), 0.028], "less")


@pytest.mark.parametrize("make", [factory.empty, factory.without_times, factory.without_gpu])
def test_records_that_lack_something_still_make_a_page(make: Callable[..., Any]) -> None:
    text = document.render(compare([("whole", factory.analysis(8)), ("poor", make())]))
    assert "poor" in text
