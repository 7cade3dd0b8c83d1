"""The answer in words, on the terminal, in Markdown and as CSV."""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import pytest
import ranking_records as rankings
import rendering
import report_factory as factory

from analyzer import units
from analyzer.checks.device_answers import operator_label
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis, BatchRange, Opportunity, Where
from analyzer.record.invocation import Invocation
from analyzer.report import (
    FORMATS,
    figure_text,
    find,
    findings_text,
    html,
    module_tree,
    operator_columns,
    plan_cards,
    render,
    summary,
)
from analyzer.report.record_document import bar


def test_every_format_is_found_by_its_name_and_has_an_extension_of_its_own() -> None:
    assert set(FORMATS) == {"html", "json", "text", "markdown", "csv", "junit", "sarif", "github"}
    assert len({item.extension for item in FORMATS.values()}) == len(FORMATS)
    assert find("html").extension == ".html"


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="pdf") as caught:
        render(factory.analysis(), "pdf")
    assert "html" in str(caught.value.hint)


def test_a_time_that_may_be_a_third_is_to_be_measured_again_however_clear_the_device_is() -> None:
    analysis = factory.analysis(4)
    measured = replace(analysis.environment, measurement={"cpu": {"busy": True}})
    verdict = replace(analysis.verdict, speedup=18.0, low=9.0, high=25.0)
    for width, again in ((1.2, False), (2.0, True)):
        plans = tuple(
            replace(plan, origin="measured", low_s=plan.latency_s / width, high_s=plan.latency_s * width)
            if plan.name == "cpu"
            else plan
            for plan in analysis.plans
        )
        shown = replace(analysis, environment=measured, verdict=verdict, plans=plans)
        assert rendering.text(shown).splitlines()[1].startswith("Measure again on a quiet machine") is again


@pytest.mark.parametrize(
    ("busy", "low", "high", "again"),
    [
        (True, 0.74, 166.0, True),  # CPU or GPU: nobody can tell
        (True, 1.2, 40.0, True),
        (True, 3.2, 5.1, False),  # the GPU, whatever ran beside it
        (False, 0.74, 166.0, False),
    ],
)
def test_of_a_busy_machine_the_first_words_are_to_measure_again(
    busy: bool, low: float, high: float, again: bool
) -> None:
    analysis = factory.analysis(4)
    measured = replace(analysis.environment, measurement={"cpu": {"busy": busy}})
    verdict = replace(analysis.verdict, speedup=2.4, low=low, high=high)
    shown = replace(analysis, environment=measured, verdict=verdict)
    first = rendering.text(shown).splitlines()[1]
    assert first.startswith("Measure again on a quiet machine") is again
    assert ("Measure again on a quiet machine" in render(shown, "html")) is again


@pytest.mark.parametrize(
    ("device", "reason", "word"),
    [
        ("gpu", "compute-bound", "GPU"),
        ("cpu", "launch-bound", "CPU"),
        ("either", "within-error", "either"),
        ("cpu", "gpu-memory", "CPU (no room)"),
        ("gpu", "data-on-gpu", "GPU (neighbours)"),
        ("cpu", "transfer-bound", "CPU (copies)"),
        ("cpu", "no-cuda-kernel", "CPU (no kernel)"),
        ("either", "folded", "folded"),
        ("either", "free", "free"),
    ],
)
def test_a_verdict_is_worded_so_that_the_times_beside_it_do_not_contradict_it(
    device: Any, reason: str, word: str
) -> None:
    analysis = factory.analysis(2)
    verdict = replace(analysis.operators[0].verdict, device=device, reason=reason, speedup=183.0)
    operators = (replace(analysis.operators[0], verdict=verdict), *analysis.operators[1:])
    changed = replace(analysis, operators=operators)
    row = next(line for line in rendering.text(changed).splitlines() if line.startswith("Conv #0"))
    assert row.rstrip().endswith(f" {word}")
    row = next(line for line in render(changed, "markdown").splitlines() if line.startswith("| Conv 0 |"))
    assert row.endswith(f"| {word} |")
    told = operator_columns.columns(changed, [0, 0])
    words, asides = told["verdict_word"], told["verdict_aside"]
    bounds = told["cpu_bound"]
    assert words["of"][words["at"][0]] == word.partition(" (")[0]
    assert asides["of"][asides["at"][0]] == word.partition(" (")[2].rstrip(")")
    assert (bounds["of"][bounds["at"][0]] == "") == (word in ("folded", "free"))


def alike(count: int, of_each: int) -> Any:
    """So many types with so many operators each, of 0.1 ms each in the best plan and 1 ms on the CPU."""
    base = factory.analysis(count * of_each)
    first = base.operators[0]
    items = tuple(
        replace(first, index=at, op_type=f"Type{at % count}", module=f"block{at}")
        for at in range(count * of_each)
    )
    return replace(base, operators=items)


def test_where_no_operator_has_a_good_share_types_are_told_with_their_sums_and_counts() -> None:
    """Thirty operators of three types: ten have a third of the time, each type has one too."""
    told = alike(3, 10)
    top = module_tree.top_operators(told)
    assert [(row.op_type, row.count, row.share) for row in top] == [
        (f"Type{at}", 10, pytest.approx(1 / 3)) for at in range(3)
    ]
    assert [(row.cpu[0], row.gpu[0], row.speedup) for row in top] == [("10.0 ms", "1.00 ms", "10.0x")] * 3
    shown = io.StringIO()
    shown.write(rendering.screen(told, 120))
    for words in (rendering.text(told), shown.getvalue()):
        assert "time, by type of operator" in words
        assert "10 operators" in words
        assert "Type0 #" not in words
    page = html.render(told)
    assert "What takes the best plan&#39;s time, by type of operator" in page
    assert "Type0 <small>10 operators</small>" in page
    assert "| Type0 | 10 operators |" in rendering.markdown(told)
    # A name that leaves no room keeps the number whole.
    named = tuple(replace(one, op_type="BatchNormalization") for one in top[0].operators)
    long = replace(top[0], operators=named)
    assert (long.place, long.short_place) == ("10 operators", "× 10")
    # Of twelve operators ten have most of the time.
    assert [row.count for row in module_tree.top_operators(alike(3, 4))] == [1] * 10


def test_small_operators_beside_one_large_one_are_told_by_type_where_much_would_be_hidden() -> None:
    """One of 60 %, and forty of 1 %: ten rows would leave 31 % in none. Of eleven of them none is hidden."""
    small = alike(1, 40).operators
    assert small[0].gpu is not None
    large = replace(small[0], op_type="LSTM", gpu=replace(small[0].gpu, time_s=6e-3))
    items = (large, *(replace(one, index=one.index + 1) for one in small))
    told = replace(factory.analysis(), operators=items)
    assert [(row.op_type, row.count, row.share_text) for row in module_tree.top_operators(told)] == [
        ("LSTM", 1, "60 %"),
        ("Type0", 40, "40 %"),
    ]
    few = replace(told, operators=items[:11])
    assert [row.count for row in module_tree.top_operators(few)] == [1] * 10


def test_the_page_cuts_a_module_so_that_its_layer_and_its_end_are_read() -> None:
    base = factory.analysis(2)
    module = "encoder.encoder.layer.7.attention.output.dense"
    deep = replace(base, operators=(replace(base.operators[0], module=module), base.operators[1]))
    shown = html.render(deep)
    assert f'<small title="{module}">…7…output.dense</small>' in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_shows_fewer_columns_and_no_figure_cut(width: int) -> None:
    analysis = factory.analysis(4)
    deep = tuple(
        replace(operator, module=f"model.layers.{operator.index}.mlp.experts.{side}_projection")
        for operator, side in zip(analysis.operators, ("gate", "up", "gate", "up"), strict=True)
    )
    lines = rendering.screen(replace(analysis, operators=deep), width).splitlines()
    plans = next(line for line in lines if "Latency" in line)
    assert "$ per million" in plans
    assert max(len(line) for line in lines if "analyze apply" not in line) <= width
    first = next(at for at, line in enumerate(lines) if line.startswith("What takes the best plan")) + 3
    rows = lines[first : first + 4]
    for time in ("4.00 ms ●", "300 µs ○", "200 µs ○", "100 µs ○"):
        assert any(time in row for row in rows)
    if width > 80:
        assert [bool(re.search(r"up_\S*on", row)) for row in rows] == [True, False, True, False]
        assert [bool(re.search(r"gate\S*on", row)) for row in rows] == [False, True, False, True]


def test_the_ten_operators_are_those_that_take_most_of_the_best_plan() -> None:
    # MaxPool stays on the CPU at 1 ms times (1 + index mod 5); all others take a tenth of that on the GPU.
    # Of 24 operators the six MaxPool (3, 7, 11, 15, 19, 23) take 4+3+2+1+5+4 = 19 ms of 19 + 5.1 ms.
    top = module_tree.top_operators(factory.analysis(24))
    assert [item.index for item in top[:3]] == [19, 3, 23]
    assert len(top) == 10
    others = sum((1 + index % 5) / 10 for index in range(24) if index % 4 != 3)
    assert top[0].share == pytest.approx(5 / (19 + others))


def test_operators_without_times_are_ranked_by_their_work() -> None:
    top = module_tree.top_operators(factory.without_times())
    assert [item.op_type for item in top[:5]] == ["Conv"] * 5
    assert all(item.share is None and item.cpu[0] == "–" for item in top)


def test_a_cpu_that_wins_is_not_reported_as_a_speed_up_below_one() -> None:
    slow = replace(factory.analysis().verdict, device="cpu", speedup=0.5, low=0.4, high=0.8, sentence="")
    said = summary.confidence(replace(factory.analysis(), verdict=slow))
    assert said == "The CPU plan is 2.0x as fast as the GPU plan (90 % interval 1.2x to 2.5x)."


def test_the_crossover_is_said_with_what_is_certain_and_what_is_not() -> None:
    base = factory.analysis()
    ranges = (
        BatchRange(first=1, last=1, device="cpu"),
        BatchRange(first=2, last=7, device="either"),
        BatchRange(first=8, last=64, device="gpu"),
    )
    doubtful = replace(base, verdict=replace(base.verdict, ranges=ranges))
    assert summary.crossover(doubtful) == (
        "The CPU wins at batch 1, either may win from 2 to 7 (even odds at 4) and the GPU wins from batch 8 on."
    )
    assert summary.crossover_batch(doubtful.verdict) == "4 (2 to 8)"
    uncertain = replace(doubtful.verdict, ranges=ranges[:2])
    assert summary.crossover_batch(uncertain) == "4 (from 2)"
    certain = replace(doubtful.verdict, ranges=(ranges[0], replace(ranges[2], first=2)), crossover_batch=2)
    assert summary.crossover_batch(certain) == "2"


def test_a_single_batch_between_doubtful_ones_is_told_apart_from_the_crossover() -> None:
    base = factory.analysis()
    ranges = (
        BatchRange(first=1, last=15, device="either"),
        BatchRange(first=16, last=16, device="cpu"),
        BatchRange(first=17, last=40, device="either"),
        BatchRange(first=41, last=64, device="gpu"),
    )
    told = replace(base, verdict=replace(base.verdict, ranges=ranges))
    assert summary.crossover(told) == (
        "Either may win up to batch 40 (even odds at 4) and the GPU wins from batch 41 on; at 16, which is "
        "known more closely, the CPU wins."
    )
    assert summary.crossover_batch(told.verdict) == "4 (1 to 41)"


def test_batches_between_which_a_prediction_changes_are_told_with_two_digits() -> None:
    """3246 and 3247 are where intervals begin to overlap, which is known no better than they are wide."""
    base = factory.analysis()
    ranges = (
        BatchRange(first=1, last=99, device="cpu"),
        BatchRange(first=100, last=3246, device="either"),
        BatchRange(first=3247, last=4096, device="gpu"),
    )
    told = replace(base, verdict=replace(base.verdict, ranges=ranges, crossover_batch=748))
    assert summary.crossover(told) == (
        "The CPU wins up to batch 99, either may win from about 100 to about 3200 (even odds at about 750) "
        "and the GPU wins from about batch 3200 on."
    )
    assert summary.crossover_batch(told.verdict) == "about 750 (about 100 to about 3200)"


def test_beside_a_gpu_that_would_run_nothing_no_batch_is_compared() -> None:
    base = factory.analysis()
    told = replace(base, groups=tuple(replace(group, provider="cpu") for group in base.groups))
    assert (summary.crossover(told), summary.confidence(told)) == ("", "")
    # Nor where no session of the GPU can be made.
    alone = tuple(replace(row, plans={"cpu": row.plans["cpu"]}) for row in base.sweep)
    assert summary.crossover(replace(base, sweep=alone, verdict=replace(base.verdict, ranges=()))) == ""


@pytest.mark.parametrize(
    ("batch", "exporter", "asked", "aside"),
    [
        (64, "torch.export", ("64",), " (--batch 64,1 analyses several)"),
        (1, "torchscript", (), " (--batch 1,32 analyses several)"),
        (64, "onnx", ("64",), ""),
        (64, "torchscript", ("64,128",), ""),
    ],
)
def test_one_batch_alone_is_no_crossover(batch: int, exporter: str, asked: tuple[str, ...], aside: str) -> None:
    """What asks for several keeps the report's batch first; a file's one batch cannot be another."""
    base = factory.analysis()
    ranges = (BatchRange(first=1, last=1, device="either"),)
    one = replace(
        base,
        model=replace(base.model, batch=batch, exporter=exporter, inputs=()),
        sweep=base.sweep[:1],
        verdict=replace(base.verdict, ranges=ranges, crossover_batch=1),
        invocation=Invocation(command="run", model="net.py", options={"batch": asked} if asked else {}),
    )
    known = "The batch from which the GPU wins is not known: only one batch was analysed"
    assert summary.crossover(one) == f"{known}{aside}."


def test_plans_that_run_on_one_machine_share_a_line_about_its_watts() -> None:
    base = factory.analysis()
    plans = tuple(
        replace(plan, energy_of="A (1 to 2 W)" if plan.name == "cpu" else "A (1 to 2 W) and B (3 to 4 W)")
        for plan in base.plans
    )
    said = "Energy counts, idle to full, CPU: A (1 to 2 W); GPU and Best plan: A (1 to 2 W) and B (3 to 4 W)."
    assert plan_cards.energy_of(replace(base, plans=plans)) == said
    assert " ".join(render(replace(base, plans=plans), "text").split()).count(said) == 1
    assert plan_cards.energy_of(base) == ""


def test_the_instances_whose_dollars_are_told_are_named() -> None:
    base = factory.analysis()
    on = {"cpu": "c1", "gpu": "g1", "hybrid": "g1"}
    plans = tuple(replace(plan, usd_per_million=1.0, instance=on[plan.name]) for plan in base.plans)
    said = "Dollars are of rented machines at full use: CPU: c1; GPU and Best plan: g1."
    assert plan_cards.priced_on(replace(base, plans=plans)) == said
    assert said in " ".join(render(replace(base, plans=plans), "text").split())
    unknown = tuple(replace(plan, usd_per_million=None) for plan in plans)
    assert plan_cards.priced_on(replace(base, plans=unknown)) == ""


def test_only_a_cpu_whose_like_is_for_rent_is_compared_with_the_rented_ones() -> None:
    """One that has no kernels has no price for another reason, and nothing is ranked behind it."""
    base = factory.analysis()
    plans = tuple(replace(plan, usd_per_million=None) if plan.name == "cpu" else plan for plan in base.plans)
    rented = rankings.candidate("Other", 0.02, kind="cpu", plan="cpu", named=False, instance="c1")
    said = f"No rented machine has {base.devices.cpu.name} with its cores: the ranking has others."
    assert said in plan_cards.priced_on(replace(base, plans=plans, ranking=(rented,)))
    assert said not in plan_cards.priced_on(replace(base, plans=plans, ranking=()))


def test_dollars_of_another_machine_are_told_with_the_time_there() -> None:
    """The CPU plan takes 80 ms here and 20 on the instance whose dollars it has."""
    base = factory.analysis()
    there = {"usd_per_million": 1.0, "instance": "c1", "instance_latency_s": 0.02}
    told = replace(
        base, plans=tuple(replace(plan, **there) if plan.name == "cpu" else plan for plan in base.plans)
    )
    said = (
        "Dollars are of rented machines at full use: CPU: c1 (20.0 ms there); GPU and Best plan: "
        "imaginary.large."
    )
    assert plan_cards.priced_on(told) == said
    assert "rented: c1 (20.0 ms there)" in render(told, "html")
    for shown in (rendering.mail(told), rendering.notebook(told), rendering.screen(told, 80)):
        assert said in " ".join(shown.split())


def priced(**changes: Any) -> Analysis:
    """A measured plan of the CPU whose dollars are another machine's, predicted; and its record."""
    base = factory.analysis()
    plan = replace(
        factory.plan("cpu", 0.02, operators_on_gpu=0),
        origin="measured",
        usd_per_million=1.0,
        usd_low_per_million=0.25,
        usd_high_per_million=4.0,
        usd_origin="predicted",
        energy_j=0.5,
        energy_low_j=0.4,
        energy_high_j=0.7,
        energy_origin="mixed",
    )
    return replace(base, plans=(replace(plan, **changes),))


def test_dollars_and_joules_have_an_interval_and_an_origin_of_their_own() -> None:
    card = plan_cards.plan_cards(priced())[0]
    assert card.plan.origin == "measured"
    assert (card.dollars_interval, card.dollars_origin) == ("$0.250 to $4.00", "predicted")
    assert (card.energy_interval, card.energy_origin) == ("400 to 700 mJ", "mixed")
    unknown = ("usd_low_per_million", "usd_high_per_million", "energy_low_j", "energy_high_j")
    card = plan_cards.plan_cards(priced(**dict.fromkeys(unknown)))[0]
    assert (card.dollars_interval, card.energy_interval) == ("", "")


@pytest.mark.parametrize("name", ["html", "text", "markdown"])
def test_every_format_for_people_marks_dollars_and_joules_by_their_own_origin(name: str) -> None:
    text = render(priced(), name)
    if name == "html":
        text = " ".join(re.sub(r"<[^>]+>", " ", text).split())
        assert "Per million $1.00 ○ $0.250 to $4.00" in text
        assert "Energy each 500 mJ ◐ 400 to 700 mJ" in text
    else:
        line = next(row for row in text.replace("\\", "").splitlines() if "$1.00" in row)
        assert "$1.00 ○" in line
        assert "500 mJ ◐" in line
        assert "20.0 ms ●" in line


def test_few_inferences_a_second_are_shown_without_prefix() -> None:
    assert figure_text.per_second(0.0461) == "0.0461 /s"
    assert figure_text.per_second(4120.0) == "4.12 k/s"


def test_the_summary_to_paste_says_what_was_guessed_and_what_is_not_known() -> None:
    blind = factory.without_times()
    guessed = replace(blind, model=replace(blind.model, guessed_inputs=("x: float32[8,3]",)))
    points = rendering.mail(guessed).partition("What it rests on:\n")[2].split("\n\n")[0].splitlines()
    assert points == [f"- {gap}" for gap in summary.missing(blind)]
    # What may decide the answer stands beside it.
    assert "\nInputs guessed: x: float32[8,3] (--input says others).\n" in rendering.mail(guessed)


def test_a_bar_is_as_long_as_its_share() -> None:
    assert bar(1.0, 4) == "████"
    assert bar(0.5, 4) == "██  "
    assert bar(0.125, 1) == "▏"
    assert bar(None, 3) == "   "


def test_markdown_escapes_names_and_mentions() -> None:
    analysis = factory.analysis()
    evil = replace(analysis.model, name="@team | <b>x</b> [a](http://b)")
    said = render(replace(analysis, model=evil), "markdown")
    assert "&#64;team \\| &lt;b&gt;x&lt;/b&gt; \\[a\\](http://b)" in said


def test_every_row_of_a_markdown_table_has_the_cells_of_its_heading() -> None:
    for block in render(factory.hostile(), "markdown").split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("| ")]
        cells = {row.replace("\\|", "").count("|") for row in rows}
        assert len(cells) <= 1


def test_the_csv_holds_every_operator_with_unrounded_figures() -> None:
    rows = list(csv.DictReader(io.StringIO(render(factory.analysis(24), "csv"), newline="")))
    assert len(rows) == 24
    assert rows[3]["op_type"] == "MaxPool"
    assert float(rows[3]["cpu_time_s"]) == 0.004
    assert rows[3]["gpu_placed_on"] == "cpu"
    assert rows[0]["outputs"] == "t1:8x64x56x56:float32"
    assert rows[0]["phase"] == ""


def test_an_unknown_figure_is_an_empty_cell_and_never_zero() -> None:
    rows = list(csv.DictReader(io.StringIO(render(factory.without_times(), "csv"), newline="")))
    assert rows[0]["flops"] == ""
    assert rows[0]["cpu_time_s"] == ""


def test_no_name_becomes_a_formula_in_a_spreadsheet() -> None:
    analysis = factory.analysis(4)
    evil = tuple(replace(item, name="=HYPERLINK(1)", module="@a") for item in analysis.operators)
    for row in csv.DictReader(io.StringIO(render(replace(analysis, operators=evil), "csv"), newline="")):
        assert row["name"] == "'=HYPERLINK(1)"
        assert row["module"] == "'@a"


def test_what_is_computed_once_is_told_beside_the_work_of_a_run() -> None:
    base = factory.analysis()
    flops = base.totals.flops
    half = replace(base, totals=replace(base.totals, folded_flops=flops // 2))
    said = f"{units.flop_count(flops // 2)} more once, when the session is made"
    for name in ("html", "text", "markdown"):
        assert said in " ".join(render(half, name).split())
        # Less than a hundredth is no matter.
        little = replace(base, totals=replace(base.totals, folded_flops=flops // 200))
        assert "when the session is made" not in render(little, name)


def test_what_is_the_same_fused_is_told_once() -> None:
    base = factory.analysis()
    same = replace(
        base.totals,
        fused_bytes_read=base.totals.bytes_read,
        fused_bytes_written=base.totals.bytes_written,
        fused_intensity=base.totals.intensity,
    )
    facts = dict(summary.facts(replace(base, totals=same)))
    assert "fused" not in facts["Memory traffic"] + facts["FLOPs per byte"]
    apart = replace(same, fused_bytes_read=base.totals.bytes_read // 2)
    facts = dict(summary.facts(replace(base, totals=apart)))
    assert facts["Memory traffic"].endswith(" fused")


def test_of_memory_that_is_not_known_the_weights_and_the_reason_are_told() -> None:
    """A ZipMap gives a sequence of maps, whose size nobody knows."""
    base = factory.analysis(2)
    last = base.operators[-1]
    maps = replace(last.outputs[0], name="probabilities", shape=None, dtype="seq(map(int64,tensor(float)))")
    told = replace(
        base,
        operators=(*base.operators[:-1], replace(last, outputs=(maps,))),
        plans=tuple(replace(plan, memory_bytes=None) for plan in base.plans),
    )
    weights = units.byte_count(base.model.parameter_bytes)
    said = (
        f"The memory that it needs is not known beyond {weights} of weights: the size of probabilities is open."
    )
    assert said in summary.missing(told)
    assert said in " ".join(render(told, "text").split())
    assert not any("memory" in text for text in summary.missing(base))


def test_modules_that_differ_at_their_end_are_told_apart_on_a_narrow_terminal() -> None:
    base = factory.analysis(4)
    paths = [f"encoder.encoder.layer.{at}.attention.output.dense" for at in range(4)]
    told = replace(
        base,
        operators=tuple(replace(op, module=path) for op, path in zip(base.operators, paths, strict=True)),
    )
    for width, kept in ((140, "…{}.attention.output.dense"), (90, "…{}…output.dense")):
        printed = io.StringIO()
        printed.write(rendering.screen(told, width))
        for at in range(4):
            assert kept.format(at) in printed.getvalue()


def graph_network() -> Analysis:
    """A call of a graph network: 144 atoms and 2,448 edges, and no batch."""
    base = factory.analysis()
    atoms, edges = replace(base.model.inputs[0], name="pos", shape=(144, 3)), (2, 2448)
    inputs = (atoms, replace(atoms, name="edge_index", shape=edges, dtype="int64"))
    model = replace(
        base.model, batch=1, inputs=inputs, notes=("y was left out (None); --input y=... gives it.",)
    )
    return replace(base, model=model, sweep=(), verdict=replace(base.verdict, ranges=(), crossover_batch=None))


def test_the_sizes_of_the_inputs_stand_beside_the_answer() -> None:
    told = graph_network()
    sizes = "pos 144x3, edge_index 2x2,448; y was left out (None)"
    shown = io.StringIO()
    shown.write(rendering.screen(told, 140))
    for words in (rendering.text(told), shown.getvalue(), rendering.markdown(told), rendering.mail(told)):
        assert f"Inputs: {sizes}." in " ".join(words.replace("\\", "").split())
    assert f"<dt>Inputs</dt><dd>{sizes}</dd>" in html.render(told)
    # One that was guessed is told as such, with its shape.
    guessed = replace(told.model, inputs=told.model.inputs[:1], guessed_inputs=("pos=144,3",))
    assert summary.inputs_line(replace(told, model=guessed)) == ""


def test_a_call_whose_inputs_have_no_batch_is_told_as_a_call() -> None:
    told = graph_network()
    assert summary.subject(told).startswith("per call, ")
    assert summary.crossover(told) == (
        "Its inputs have no batch, so no crossover batch is told. What there is to compute grows with "
        "the size of pos and edge_index (--input)."
    )
    # A column of weights of edges is no batch; a state of one axis has the size that the weights have.
    column = replace(told.model.inputs[0], name="weight", shape=(2448, 1))
    assert summary.subject(replace(told, model=replace(told.model, inputs=(column,)))).startswith("per call, ")
    state = replace(told.model.inputs[0], name="state", shape=(64,))
    alone = summary.crossover(replace(told, model=replace(told.model, inputs=(state,))))
    assert alone == "Its inputs have no batch, so no crossover batch is told."
    steps_first = replace(told.model.inputs[0], name="steps", shape=(12, 1, 64))
    assert summary.subject(replace(told, model=replace(told.model, inputs=(steps_first,)))).startswith(
        "batch 1, "
    )
    image = replace(told.model, inputs=(replace(told.model.inputs[0], shape=(1, 3, 224, 224)),))
    assert summary.subject(replace(told, model=image)).startswith("batch 1, ")


def test_inputs_of_a_training_step_are_those_that_are_fed() -> None:
    base = graph_network()
    kept = tuple(replace(base.model.inputs[0], name=f"net.0.{name}") for name in ("weight", "weight.exp_avg"))
    training = replace(
        base, model=replace(base.model, training=True, notes=(), inputs=(*kept, *base.model.inputs))
    )
    assert summary.inputs(training) == "pos 144x3, edge_index 2x2,448"
    # The loss reads what forward may leave out.
    note = "edge_index was left out (None); --input edge_index=... gives it."
    fed = replace(training, model=replace(training.model, notes=(note,)))
    assert summary.inputs(fed) == "pos 144x3, edge_index 2x2,448"


def test_where_memory_is_not_known_what_the_run_held_is_told() -> None:
    base = factory.analysis()
    measured = {"cpu": {"arena_peak_bytes": 13_502_580}}
    told = replace(
        base,
        plans=tuple(replace(plan, memory_bytes=None) for plan in base.plans),
        environment=replace(base.environment, measurement=measured),
    )
    (gap,) = (line for line in summary.missing(told) if "memory" in line)
    assert gap.endswith("When it was timed on the CPU, ONNX Runtime's arena held up to 13.5 MB.")


def test_tf32_is_left_out_where_no_product_runs_on_the_gpu() -> None:
    base = replace(factory.analysis(), model=replace(factory.analysis().model, precision="tf32"))
    assert "tf32, " in summary.subject(base)
    trees = replace(base, operators=tuple(replace(one, macs=0) for one in base.operators))
    assert "tf32" not in summary.subject(trees)
    # A precision that was asked for and changes weights is one of any model.
    half = replace(trees, model=replace(trees.model, precision="fp16"))
    assert "fp16, " in summary.subject(half)


def test_a_model_without_an_opset_of_onnx_has_none_in_the_line_of_the_check() -> None:
    base = factory.analysis()
    said = findings_text.subject_line(replace(base, model=replace(base.model, opset=0)))
    assert "opset" not in said
    assert said.endswith(f"for {factory.GPU.name} in a host with {factory.CPU.name}")


def test_operators_that_do_not_run_are_told_apart_from_those_that_do() -> None:
    base = factory.analysis()
    ran = tuple(replace(plan, operators_on_cpu=base.totals.operators - 5) for plan in base.plans)
    shown = html.render(replace(base, plans=ran))
    assert f"<dd>{base.totals.operators}, {base.totals.operators - 5} of them run</dd>" in shown
    assert "<dt>Peak activations on the GPU</dt>" in shown


def test_what_to_do_next_is_five_changes_with_gain_place_and_command_and_findings_say_none_of_it_again() -> (
    None
):
    base = factory.analysis()
    assert base.findings
    changes = tuple(
        Opportunity(
            code=f"change-{at}",
            title=f"Change number {at}",
            operators=(1,),
            source=Where(file="net.py", line=at, code="y = x"),
            gain_s=(9 - at) * 1e-3,
            gain_low_s=1e-3,
            gain_high_s=9e-3,
            gain_usd_per_million=0.25,
            command=f"analyze apply net.py --batch {at}",
            findings=(base.findings[0].code,),
        )
        for at in range(1, 8)
    )
    found = replace(base, opportunities=changes)
    words = " ".join(render(found, "text").split())
    label = operator_label(base.operators[1])
    for at in range(1, 6):
        gain = f"saves {9 - at}.00 ms (1.00 to 9.00 ms) and $0.250 per million"
        told = f"Change number {at}: {gain}, {label}, net.py:{at}. analyze apply net.py --batch {at}"
        assert told in words
    assert "Change number 6" not in words
    assert "The record has 2 more." in words
    # A line to be copied is one, however long.
    assert "    analyze apply net.py --batch 1" in render(found, "text").splitlines()
    assert "net.py:1. `analyze apply net.py --batch 1`" in render(found, "markdown")
    assert f"{base.findings[0].code}:" in render(base, "markdown")
    assert f"{base.findings[0].code}:" not in render(found, "markdown")


@pytest.mark.parametrize("name", ["text", "html"])
def test_operators_say_how_much_of_the_best_plan_is_copies_that_they_leave_out(name: str) -> None:
    """Operators and copies together are the plan's latency."""
    base = factory.analysis()
    best = base.plan("hybrid")
    assert best is not None

    def with_copies(time_s: float) -> Analysis:
        copied = replace(best, transfers=replace(best.transfers, time_s=time_s))
        return replace(base, plans=tuple(copied if plan is best else plan for plan in base.plans))

    words = " ".join(render(with_copies(3.5e-3), name).replace("&#39;", "'").split())
    assert "best plan's time, without 3.50 ms of copies" in words
    top = module_tree.top_operators(base)
    assert "of copies" not in module_tree.top_title(top, with_copies(0.0))
