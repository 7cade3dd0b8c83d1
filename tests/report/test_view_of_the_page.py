"""The view-model of the page: charts, tree, edges, data."""

import base64
import gzip
import hashlib
import json
import re
import shlex
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import report_factory as factory

from analyzer.report import html, method, module_tree, operator_columns, summary
from analyzer.report.charts import batches, roofline, time_share, timeline
from analyzer.report.charts.chart import Chart, Column, coded, packed
from analyzer.report.charts.vega import decades
from analyzer.report.compare import document
from analyzer.report.compare.build import compare

PACKED = re.compile(r'<script type="text/plain" data-gzip="([^"]+)"(?: id="(\w+)")?>(.*?)</script>')


def carried(text: str) -> list[Any]:
    """What a page carries packed: the kind, the name and the bytes of the gzip of each part."""
    return [
        (kind, name, base64.b64decode(letters, validate=True)) for kind, name, letters in PACKED.findall(text)
    ]


def columns(chart: Chart) -> list[str]:
    return [column.name for column in chart.columns]


def dicts(chart: Chart | None) -> list[dict[str, Any]]:
    assert chart is not None
    return [dict(zip(columns(chart), row, strict=True)) for row in chart.rows]


def test_the_roofline_has_a_point_for_each_operator_with_work_on_each_device() -> None:
    # MaxPool has no FLOPs, a norm is part of its convolution: of 24 operators 12 are left, on two devices.
    chart = roofline.chart(factory.analysis(24))
    rows = dicts(chart)
    assert len(rows) == 24
    first = rows[0]
    # 2 GFLOP in the 3 ms of the convolution with its norm (1 ms and 2 ms); 2e9 FLOPs over 10e6 bytes.
    assert (first["intensity"], first["speed"]) == (200, pytest.approx(2e9 / 3e-3))
    assert "12 of 24 operators have no point of their own" in chart.alternative


def test_the_ceilings_meet_at_the_ridge_of_each_device() -> None:
    ridges = {row["device"]: row for row in roofline.chart(factory.analysis()).extra["ridges"]}
    assert ridges["CPU"]["intensity"] == 1e12 / 1e11  # no tf32 on this CPU: fp32 counts
    assert ridges["GPU"]["intensity"] == 4e13 / 5e11
    assert ridges["CPU"]["speed"] == 1e12
    assert ridges["GPU"]["slope"] / ridges["GPU"]["start"] == pytest.approx(5e11)


def test_an_operator_that_falls_to_the_cpu_has_no_point_on_the_gpu() -> None:
    base = factory.analysis(4)
    fallen = tuple(
        replace(item, gpu=replace(item.gpu, placed_on="cpu")) if item.index == 0 else item
        for item in base.operators
    )
    rows = dicts(roofline.chart(replace(base, operators=fallen)))
    assert {row["device"] for row in rows if row["index"] == 0} == {"CPU"}


def test_a_device_without_points_keeps_its_roof_and_its_colour() -> None:
    base = factory.analysis(4)
    fallen = tuple(replace(item, gpu=replace(item.gpu, placed_on="cpu")) for item in base.operators)
    chart = roofline.chart(replace(base, operators=fallen))
    assert {row["device"] for row in dicts(chart)} == {"CPU"}
    colour = chart.spec["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert colour == [ridge["device"] for ridge in chart.extra["ridges"]] == ["CPU", "GPU"]


def test_a_batch_that_saturates_or_fills_the_gpu_is_told_only_where_there_is_one() -> None:
    # The GPU plan does not fit at batch 64 of the invented sweep.
    told = summary.batches(factory.analysis())
    assert told == (
        "The CPU wins up to batch 3 and the GPU wins from batch 4 on. The GPU is saturated from batch 32 on. "
        "Of the batches looked at 32 is the largest that fits its memory."
    )
    # One that was not looked at with the others was looked for.
    exact = replace(factory.analysis(), verdict=replace(factory.analysis().verdict, largest_batch=37))
    assert summary.batches(exact).endswith("Batch 37 is the largest that fits its memory.")
    base = factory.analysis(4)
    nothing = tuple(replace(item, gpu=replace(item.gpu, placed_on="cpu")) for item in base.operators)
    # What moves data alone does not saturate a GPU.
    moves = (*nothing[:-1], replace(base.operators[-1], flops=0))
    moving = replace(base, operators=moves)
    assert sum(operator.flops or 0 for operator in moves) > 0
    assert "saturated" not in summary.batches(moving)
    alone = replace(base, operators=nothing, verdict=replace(base.verdict, largest_batch=64))
    assert summary.batches(alone) == "The CPU wins up to batch 3 and the GPU wins from batch 4 on."
    assert [mark["label"] for mark in batches.charts(alone)[0].extra["marks"]] == ["crossover at 4"]


def test_shares_by_type_add_up_to_one_on_each_device() -> None:
    rows = dicts(time_share.by_type(factory.analysis(24)))
    for side in ("CPU", "GPU"):
        assert sum(row["share"] for row in rows if row["device"] == side) == pytest.approx(1)


def test_many_types_are_cut_to_the_largest_and_the_rest_together() -> None:
    base = factory.analysis(60)
    many = tuple(replace(item, op_type=f"Type{item.index}") for item in base.operators)
    rows = dicts(time_share.by_type(replace(base, operators=many)))
    assert f"{60 - time_share.LARGEST} other types" in {row["type"] for row in rows}
    assert sum(row["share"] for row in rows if row["device"] == "CPU") == pytest.approx(1)


def test_a_module_holds_the_sum_of_what_is_below_it() -> None:
    tree, home = module_tree.tree(factory.analysis(24))
    by_path = {item.path: item for item in tree}
    # stage0 holds operators 0 to 11: CPU times 1+2+3+4+5 twice, then 1 and 2 ms.
    assert by_path["stage0"].total["cpu"] == pytest.approx(0.033)
    assert by_path["stage0"].operators == 12
    assert by_path["stage0"].on_gpu == 9
    assert by_path["stage0"].own["cpu"] is None
    assert tree[0].total["cpu"] == pytest.approx(
        by_path["stage0"].total["cpu"] + by_path["stage1"].total["cpu"]
    )
    assert tree[home[0]].path == "stage0.block0.conv"
    assert tree[home[0]].class_name == "Conv"


def test_an_operator_without_a_module_goes_with_its_neighbours() -> None:
    # Operator 1 stands between stage0.block0.conv and stage0.block0.relu; operator 11 between two stages.
    base = factory.analysis(24)
    stray = tuple(replace(item, module="") if item.index in (1, 11) else item for item in base.operators)
    tree, home = module_tree.tree(replace(base, operators=stray))
    assert tree[home[1]].path == "stage0.block0"
    assert tree[home[11]].path == ""


def test_a_sum_of_nothing_known_is_unknown() -> None:
    tree, _ = module_tree.tree(factory.without_times())
    assert tree[0].total["cpu"] is None
    assert tree[0].unknown == 1


def test_the_plan_lays_operators_and_copies_end_to_end() -> None:
    rows = dicts(timeline.chart(factory.analysis(8)))
    clock = 0.0
    for row in rows:
        assert row["start"] == pytest.approx(clock)
        clock += row["time"]
    what = [row["what"] for row in rows]
    assert what[0] == "t0 to the GPU (input)"
    assert what[-1] == "t8 to the CPU (output)"
    # Operator 3 falls to the CPU: its input is copied there before it, its output back after it.
    at = what.index("MaxPool")
    assert what[at - 1] == "t3 to the CPU (inside)"
    assert what[at + 1] == "t4 to the GPU (inside)"


def test_one_batch_makes_no_chart_of_batches() -> None:
    base = factory.analysis()
    assert batches.charts(replace(base, sweep=base.sweep[:1])) == ()


def test_a_batch_without_room_is_in_no_line_and_the_best_plans_breaks_there() -> None:
    base = factory.analysis()
    # The GPU's slow end at batch 64 would be the largest figure but for the CPU's: there it does not fit.
    for chart in batches.charts(base):
        first, second = chart.spec["transform"]
        assert first == {"filter": "datum.fits === 'yes'"}
        assert second["calculate"] == "datum.batch <= 32"
        best = chart.spec["layer"][1]
        assert best["transform"] == [{"filter": "datum.plan === 'Best plan'"}]
        assert best["encoding"]["detail"] == {"field": "held"}
        # The table has every batch, and the words end with the last that is drawn.
        assert {row["fits"] for row in dicts(chart)} == {"yes", "no"}
        told = chart.alternative.partition("GPU: ")[2].partition("Best plan")[0]
        assert told.rstrip().endswith("at batch 32.")
    nowhere = replace(
        base,
        sweep=tuple(
            replace(row, plans={name: replace(plan, fits=name == "cpu") for name, plan in row.plans.items()})
            for row in base.sweep
        ),
    )
    assert "GPU: fits at no batch." in batches.charts(nowhere)[0].alternative
    cannot = {name: replace(plan, fits=False) for name, plan in base.sweep[0].plans.items()}
    assert batches.charts(replace(base, sweep=tuple(replace(row, plans=cannot) for row in base.sweep))) == ()


def test_an_edge_joins_producer_and_consumer_and_knows_its_copy() -> None:
    edges = operator_columns.edges(factory.analysis(8))
    assert [0, 1, 0] in edges
    # Each of the two tensors has a copy of its own.
    assert [2, 3, 1] in edges
    assert [3, 4, 2] in edges
    assert len(edges) == 7


def test_a_copy_that_two_operators_read_is_one() -> None:
    analysis = factory.analysis(8)
    reader = analysis.operators[3]
    twice = replace(analysis, operators=(*analysis.operators[:4], reader, *analysis.operators[4:]))
    copies = [copy for _, _, copy in operator_columns.edges(twice) if copy]
    assert copies.count(1) == 2
    assert len(set(copies)) == 2


def test_columns_of_text_are_sent_once_and_unpacked_by_place() -> None:
    assert coded(["a", "b", "a"]) == {"of": ["a", "b"], "at": [0, 1, 0]}
    assert packed(Column(name="n", title="N", kind="seconds"), 0, ((1.23456,), (float("inf"),), (None,))) == [
        1.235,
        None,
        None,
    ]
    assert packed(Column(name="n", title="N", lookup="operators.type"), 0, ()) == {
        "lookup": ["operators", "type"]
    }


def test_a_logarithmic_axis_has_round_ticks() -> None:
    assert decades([3e-2, 2.0]) == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    assert decades([1.0, 1e5]) == [1, 10, 100, 1e3, 1e4, 1e5]
    assert decades([None, 0.0]) == []


def test_the_method_gives_the_command_that_asks_the_same_again() -> None:
    base = factory.analysis()
    facts = dict(dict(method.sections(base))["Repeat it"])
    assert facts["Command"] == "analyze samples/imaginary.py --batch 8,1 --gpu imaginary-gpu --slo 20ms"
    assert "repository" in facts["To be run in"]
    assert "calibrated" in facts["This CPU"]
    for unasked in (replace(base.invocation, model=None), None):
        assert "Repeat it" not in dict(method.sections(replace(base, invocation=unasked)))


@pytest.mark.parametrize(
    ("command", "options", "tells"),
    [
        ("run", {}, True),
        ("run", {"cpu": ("epyc-9654",)}, False),
        ("check", {}, False),
        ("check", {"run": ()}, True),
    ],
)
def test_a_cpu_that_another_machine_lacks_is_told_beside_the_command(
    command: str, options: dict[str, tuple[str, ...]], tells: bool
) -> None:
    base = factory.analysis()
    asked = replace(base.invocation, command=command, options=options)
    cpu = replace(base.devices.cpu, origin="catalogue")
    other = replace(base, invocation=asked, devices=replace(base.devices, cpu=cpu))
    facts = dict(dict(method.sections(other))["Repeat it"])
    assert ("no --cpu was named" in facts.get("This CPU", "")) == tells


def test_a_command_stands_on_the_page_as_plain_text() -> None:
    base = factory.analysis()
    odd = replace(base.invocation, model="my  models/a b.py", options={"pin": ("<b>'*=gpu",)})
    page_text = replace(base, invocation=odd).render("html")
    shown = re.search(r"<dt>Command</dt><dd><code>(.*?)</code>", page_text, re.DOTALL)
    assert shown is not None
    assert "<" not in shown[1]
    assert shlex.split(unescape(shown[1])) == [
        "analyze",
        "my  models/a b.py",
        "--gpu",
        "imaginary-gpu",
        "--pin",
        "<b>'*=gpu",
    ]


def test_the_data_of_the_page_cannot_leave_its_element() -> None:
    text = html.render(factory.hostile())
    (part,) = (part for kind, name, part in carried(text) if (kind, name) == ("application/json", "data"))
    data = json.loads(gzip.decompress(part))
    assert data["name"] == factory.HOSTILE
    assert "<img src=x" not in text


def test_the_page_requests_nothing_and_says_so_to_the_browser() -> None:
    text = html.render(factory.analysis())
    assert "default-src 'none'" in text
    markup = re.sub(r"(?s)(<(?:script|style)[^>]*>).*?</(?:script|style)>", r"\1", text)
    assert not re.search(r"<(?:link|img|iframe|script)[^>]*(?:href|src)=", markup)
    assert set(re.findall(r'href="([^"]*)"', markup)) == {
        link for link in re.findall(r'href="([^"]*)"', markup) if link.startswith("#")
    }


@pytest.mark.parametrize(("count", "most"), [(200, 750_000), (5000, 1_000_000)])
def test_a_page_stays_small_and_is_the_same_each_time(count: int, most: int) -> None:
    text = html.render(factory.analysis(count))
    assert len(text.encode()) < most
    assert text == html.render(factory.analysis(count))


def libraries(text: str) -> set[str]:
    """The names of the libraries in a page, found by the bytes that are kept of them."""
    names = {item.read_bytes(): item.name for item in (html.templates_dir() / "vendor").glob("*.gz")}
    return {names[part] for _, _, part in carried(text) if part in names}


def test_a_page_carries_the_libraries_that_it_needs_as_they_are_kept() -> None:
    charts = {"vega.min.js.gz", "vega-lite.min.js.gz", "vega-embed.min.js.gz"}
    graph = {"dagre.min.js.gz", "panzoom.min.js.gz"}
    table = {"tabulator.min.js.gz", "tabulator.min.css.gz"}
    base = factory.analysis(4)
    assert libraries(html.render(base)) == charts | graph | table
    # A comparison has trees where operators of both records are the same.
    assert libraries(document.render(compare([("a", base), ("b", base)]))) == charts | table
    assert libraries(document.render(compare([("a", base), ("b", factory.empty())]))) == charts
    assert carried(html.render(factory.empty())) == []


def test_the_policy_names_every_script_by_its_sum_and_no_other() -> None:
    text = html.render(factory.analysis(4))
    scripts = re.findall(r"(?s)<script>(.*?)</script>", text)
    for kind, _, part in carried(text):
        if kind == "text/javascript":
            scripts.append(re.sub(r"\n//# sourceMappingURL=\S+\s*$", "\n", gzip.decompress(part).decode()))
    sums = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    (policy,) = re.findall(r"script-src ([^;]*);", text)
    assert policy.split() == [*(f"'sha256-{digest}'" for digest in sums), "'unsafe-eval'"]


def test_licences_and_the_libraries_own_notices_are_read_without_unpacking() -> None:
    text = html.render(factory.analysis(4))
    notices = (
        "Tabulator v6.5.3 (c) Oliver Folkerd 2026",
        "(c) 2017-2021 Joachim Wester\nMIT license",
        "LEGAL.txt",
    )
    licences = ("2015-2023, University of Washington", "2012-2014 Chris Pettitt", "2015-2026 Oli Folkerd")
    for said in notices + licences:
        assert said in text, said


def test_the_vendored_libraries_are_those_that_the_list_names() -> None:
    folder = html.templates_dir() / "vendor"
    listed = re.findall(
        r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert {name for name, _ in listed} == {item.stem for item in folder.iterdir() if item.suffix == ".gz"}
    for name, digest in listed:
        unpacked = gzip.decompress((folder / f"{name}.gz").read_bytes())
        assert hashlib.sha256(unpacked).hexdigest() == digest


def test_a_file_with_an_end_tag_is_not_inlined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.js").write_text("'</script>'")
    monkeypatch.setattr(html, "templates_dir", lambda: tmp_path)
    html.asset.cache_clear()
    with pytest.raises(ValueError, match="end tag"):
        html.asset("bad.js")
    html.asset.cache_clear()


def test_templates_are_found_inside_a_wheel_and_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "analyzer"
    monkeypatch.setattr(html, "__file__", str(package / "report" / "html.py"))
    with pytest.raises(FileNotFoundError, match="neither in"):
        html.templates_dir()
    for folder in (tmp_path / "site-packages" / "templates", package / "templates"):
        folder.mkdir(parents=True)
        (folder / "report.html.j2").write_text("")
        assert html.templates_dir() == folder
