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

from analyzer.errors import UsageError
from analyzer.record.analysis import BatchRange
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
    of_findings = {"junit", "sarif", "github"}
    of_readers = {"model-card", "model-explorer"}
    assert set(FORMATS) == {"html", "json", "text", "markdown", "csv"} | of_findings | of_readers
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


def test_where_no_operator_has_a_good_share_types_are_told_with_their_sums_and_counts() -> None:
    """Thirty operators of three types: ten have a third of the time, each type has one too."""
    told = factory.alike(3, 10)
    top = module_tree.top_operators(told)
    assert [(row.op_type, row.count, row.share) for row in top] == [
        (f"Type{at}", 10, pytest.approx(1 / 3)) for at in range(3)
    ]
    assert [(row.cpu[0], row.gpu[0], row.speedup) for row in top] == [("10.0 ms", "1.00 ms", "10.0x")] * 3
    # A name that leaves no room keeps the number whole.
    named = tuple(replace(one, op_type="BatchNormalization") for one in top[0].operators)
    long = replace(top[0], operators=named)
    assert (long.place, long.short_place) == ("10 operators", "× 10")
    # Of twelve operators ten have most of the time.
    assert [row.count for row in module_tree.top_operators(factory.alike(3, 4))] == [1] * 10


def test_small_operators_beside_one_large_one_are_told_by_type_where_much_would_be_hidden() -> None:
    """One of 60 %, and forty of 1 %: ten rows would leave 31 % in none. Of eleven of them none is hidden."""
    small = factory.alike(1, 40).operators
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


@pytest.mark.parametrize(
    ("ranges", "even", "said"),
    [
        (((1, 1, "cpu"), (2, 7, "either"), (8, 64, "gpu")), 4, "4 (2 to 8)"),
        (((1, 1, "cpu"), (2, 7, "either")), 4, "4 (from 2)"),
        (((1, 1, "cpu"), (2, 64, "gpu")), 2, "2"),
        (((1, 15, "either"), (16, 16, "cpu"), (17, 40, "either"), (41, 64, "gpu")), 4, "4 (1 to 41)"),
        # Where intervals begin to overlap is known no better than they are wide.
        (
            ((1, 99, "cpu"), (100, 3246, "either"), (3247, 4096, "gpu")),
            748,
            "about 750 (about 100 to about 3200)",
        ),
    ],
)
def test_a_crossover_has_the_batches_between_which_it_lies(
    ranges: tuple[tuple[int, int, Any], ...], even: int, said: str
) -> None:
    rows = tuple(BatchRange(first=first, last=last, device=device) for first, last, device in ranges)
    assert (
        summary.crossover_batch(replace(factory.analysis().verdict, ranges=rows, crossover_batch=even)) == said
    )


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


def test_only_a_cpu_whose_like_is_for_rent_is_compared_with_the_rented_ones() -> None:
    """One that has no kernels has no price for another reason, and nothing is ranked behind it."""
    base = factory.analysis()
    plans = tuple(replace(plan, usd_per_million=None) if plan.name == "cpu" else plan for plan in base.plans)
    rented = rankings.candidate("Other", 0.02, kind="cpu", plan="cpu", named=False, instance="c1")
    said = f"No rented machine has {base.devices.cpu.name} with its cores: the ranking has others."
    assert said in plan_cards.priced_on(replace(base, plans=plans, ranking=(rented,)))
    assert said not in plan_cards.priced_on(replace(base, plans=plans, ranking=()))


def test_few_inferences_a_second_are_shown_without_prefix() -> None:
    assert figure_text.per_second(0.0461) == "0.0461 /s"
    assert figure_text.per_second(4120.0) == "4.12 k/s"


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


def test_a_call_whose_inputs_have_no_batch_is_told_as_a_call() -> None:
    told = factory.graph_network()
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
    base = factory.graph_network()
    kept = tuple(replace(base.model.inputs[0], name=f"net.0.{name}") for name in ("weight", "weight.exp_avg"))
    training = replace(
        base, model=replace(base.model, training=True, notes=(), inputs=(*kept, *base.model.inputs))
    )
    assert summary.inputs(training) == "pos 144x3, edge_index 2x2,448"
    # The loss reads what forward may leave out.
    note = "edge_index was left out (None); --input edge_index=... gives it."
    fed = replace(training, model=replace(training.model, notes=(note,)))
    assert summary.inputs(fed) == "pos 144x3, edge_index 2x2,448"


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
