"""The commands that write reports, of a model, a record or several records: one frame, in ``reports``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli import EXIT_FAILED, EXIT_UNUSABLE, print_error, say
from analyzer.cli.options import keywords, model_command, options_of
from analyzer.errors import DisagreementError, UsageError
from analyzer.text import printable

if TYPE_CHECKING:
    from analyzer.pipeline.apply.result import Applied
    from analyzer.record.formats import Format


@model_command("run")
def run(ctx: click.Context, /, **_: Any) -> None:
    """Profile a model, decide between CPU and GPU, and write a report.

    MODEL is model.py, model.py:Name, package.module:Name, "model.py:Net(hidden=512)", model.onnx, model.pt2, a
    folder with Hugging Face's config.json, timm:NAME or torchvision:NAME.
    """
    from analyzer.cli.reports import analyse_and_report

    if analyse_and_report(ctx, "run").run_fails:
        ctx.exit(EXIT_UNUSABLE)


@model_command("generate")
def generate(ctx: click.Context, /, **_: Any) -> None:
    """Predict a language model that generates, and write a report.

    MODEL is a folder with config.json, as Hugging Face keeps a model, or that file; a folder of ONNX Runtime
    GenAI; an .onnx file whose cache is among its inputs and outputs; model.py, model.py:Name or
    package.module:Name, a model with such a configuration, or with a function example_inputs(batch, tokens,
    past) beside it. Weights are never read.
    The answer has time to the first token (TTFT), time of each further token (TPOT), memory, the largest batch,
    the longest context and dollars per million tokens, on the GPU, on the CPU, and on all of the catalogue.
    """
    from analyzer.cli.reports import analyse_and_report

    analyse_and_report(ctx, "generate")


@model_command("capacity")
def capacity(ctx: click.Context, /, **_: Any) -> None:
    """Plan which instances serve a model, how many of them, how requests are batched, and what a month costs.

    MODEL is what `analyze` takes, or REPORT.json, a saved record. Needed are --rate (or a trace, --arrivals)
    and one limit: --p50, --p90, --p95, --p99 or --mean, of the time from a request's arrival to its answer.
    Every instance of the price list is looked at, CPUs beside GPUs, each at the batch and the delay that let
    the most requests through within the limit. Of a record of this command what is left out stays as it was
    asked.

    A model that generates, as `analyze generate` takes it, is limited by --ttft and --tpot instead, each
    kept by 99 of 100 requests under continuous batching.
    """
    from analyzer.cli.reports import analyse_and_report

    # Beside the model's own report, not in its place.
    analyse_and_report(ctx, "capacity", "-capacity")


@model_command("apply")
def apply(ctx: click.Context, /, **_: Any) -> int:
    """Write a folder that runs a plan under ONNX Runtime, and verify that it does.

    MODEL is what `analyze` takes, or REPORT.json, a saved record whose model is still there. The folder holds
    the model with its weights and an annotation on each node that the plan moves to the CPU (model.onnx), the
    session's settings (session.json), a program that needs onnxruntime and numpy alone (run.py; --verify
    compares it with the plan), and what was planned and verified (apply.json).

    --fix and --precision rewrite the model first, where that is predicted to be faster: outputs are compared
    with those of MODEL, and original.json beside record.json is its record (`analyze compare` reads both).

    Exit status 1 where numbers or placement are not as planned, or a fix that was named gives other numbers.
    """
    from analyzer.cli.reports import call, model_settings

    params = ctx.params
    if params["output"] in (None, "", "-"):
        raise UsageError("--output names the folder to write.", hint="For example --output deployed.")
    model_settings(ctx)
    try:
        applied: Applied = call("apply", params, output=params["output"], force=params["force"])
    except DisagreementError as error:
        print_error(error.message, error.hint)
        return EXIT_FAILED
    if not params["quiet"]:
        from analyzer.pipeline.apply.result import summary

        for line in summary(applied):
            say(line)
    say(str(applied.folder))
    verified = applied.verified
    return EXIT_FAILED if verified.numbers is False or verified.placement is False else 0


@click.command()
@click.argument("report", type=click.Path(path_type=Path))
@options_of("render")
@click.pass_context
def render(ctx: click.Context, /, **_: Any) -> None:
    """Write any format from REPORT.json; nothing is measured and the model is not read.

    With one of --gpu, --cpu, --precision, --objective, --slo, --pin, --prices, --pricing, --region and
    --utilisation the record's model is predicted and decided anew, at its batch and over all others; what the
    record measured stays for the devices that it was measured on. The rest of the question is as the record has
    it.
    """
    from analyzer.cli.reports import open_page, publish, report_targets
    from analyzer.record import load_report

    params, report = ctx.params, ctx.params["report"]
    analysis = load_report(report)
    # In the folder of the record, under its name: a page lies where its record does.
    targets = report_targets(params, report.stem, report.parent)
    given = keywords(params, "render")
    # Without a new question as it was decided: a record of another version shows that version's own answer.
    if given:
        from analyzer.api import analyze_record
        from analyzer.cli.options import progress

        with progress(quiet=params["quiet"]) as on_progress:
            analysis = analyze_record(analysis, progress=on_progress, **given)
    written = publish(analysis, targets, force=params["force"])
    if not params["quiet"]:
        for path in written:
            say(printable(str(path)))
    if params["open"]:
        open_page(written)


@click.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--format",
    default="text",
    show_default=True,
    help="text, markdown, json, html; svg, png: a picture of each chart. Several with commas.",
)
@click.option("--chart", default="", help="Charts that svg and png draw: record-latency, ... [all]")
@click.option(
    "--output",
    help="File (x.html is that format), or folder for several; `-` is standard output (the default).",
)
@click.option(
    "--fail-on",
    default="",
    help="Exit 1 where this got worse: latency, copies, flipped, ... or any; several with commas.",
)
@click.option("--tolerance", default="0", help="Share by which a figure may rise for --fail-on: 5%.")
@click.option("--force", is_flag=True, help="Replace files that are no reports of this program.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error.")
def compare(
    base: Path, new: tuple[Path, ...], fail_on: str, tolerance: str, force: bool, quiet: bool, **_: str | None
) -> None:
    """Put saved reports side by side: what flipped device, what got slower, which operators are new or gone.

    BASE and NEW are .json reports that `analyze` wrote. Operators are matched by module path and type, so a
    renamed or renumbered operator is not taken for a new one.
    """
    from analyzer.cli.reports import publish, report_targets
    from analyzer.record import load_report
    from analyzer.record.formats import COMPARED_CHARTS
    from analyzer.report.compare import build
    from analyzer.text import share

    context = click.get_current_context()
    allowed = share(tolerance, where="--tolerance")
    paths = (base, *new)
    comparison = build.compare(
        [(label, load_report(path)) for label, path in zip(labels(paths), paths, strict=True)]
    )
    conditions = [part.strip() for part in fail_on.split(",") if part.strip()]
    reasons = build.failures(comparison, conditions, tolerance=allowed)
    reports = report_targets(
        context.params, f"{base.stem}-compare", known=_formats(), charts=COMPARED_CHARTS, printed=True
    )
    written = publish(comparison, reports, force=force)
    if not quiet and any(target.format.is_picture for target in reports):
        for path in written:
            say(printable(str(path)), err=True)
    if reasons:
        if not quiet:
            say("failed: " + "; ".join(reasons), err=True)
        context.exit(1)


def labels(paths: tuple[Path, ...]) -> list[str]:
    """Return short names that differ: file names where they do, else whole paths, else numbered."""
    for names in ([path.stem for path in paths], [str(path) for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({number})" for number, path in enumerate(paths, 1)]


def _formats() -> dict[str, Format]:
    """Return the formats of a comparison, which is no record: ``record/formats.py`` does not know them."""
    from analyzer.record.formats import COMPARED_CHARTS, DRAWING, HTML_MARK, Format, marked_by, pictures

    known = (
        (
            "text",
            ".txt",
            "document:render_text",
            marked_by(r"\A[^\n]+(?:\n[^\n]+){0,9}?:\s+compared\s+with\s+the\s+base,\s"),
        ),
        ("markdown", ".md", "document:render_markdown", marked_by(r"\A## .+: .+\n\ncompared with the base, ")),
        ("json", ".json", "build:to_json", marked_by(r'\A\{\s*"labels":[\s\S]+?\],\s*"facts":')),
        ("html", ".html", "document:render", HTML_MARK),
    )
    written = {
        name: Format(name=name, extension=extension, writer=f"analyzer.report.compare.{writer}", mark=mark)
        for name, extension, writer, mark in known
    }
    return written | pictures(DRAWING, COMPARED_CHARTS)
