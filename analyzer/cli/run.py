"""``analyze MODEL``: the default command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli import settings_defaults

if TYPE_CHECKING:
    from analyzer.record.analysis import Analysis
    from analyzer.report.output import Target

DEFAULT_FOLDER = Path("reports")
DEFAULT_FORMATS = "html,json"

# Options of the command line that mean something other than the keyword of the same name.
_NOT_KEYWORDS = ("model", "no_run", "no_cache", "format", "output", "open_page", "quiet", "verbose")


@click.command(name="run", short_help="Profile, decide, report: the default command.")
@click.argument("model")
@click.option(
    "--batch", metavar="N[,N...]", help="Batch size(s); the report is about the first, all are measured."
)
@click.option(
    "--input", multiple=True, metavar="NAME=SHAPE[:DTYPE]", help="One input, B for the batch; repeatable."
)
@click.option(
    "--gpu",
    metavar="NAME[,NAME...]",
    help="Target GPU(s) of the catalogue; `none` for the CPU only. [this machine's, else l4]",
)
@click.option("--cpu", metavar="NAME", help="Target CPU of the catalogue. [this machine]")
@click.option("--precision", metavar="P", help="fp32, tf32, fp16, bf16 or int8. [the model's own]")
@click.option(
    "--opset", type=int, metavar="N", help="Opset of the export; for an .onnx file the one to convert to. [20]"
)
@click.option("--no-run", is_flag=True, help="Execute nothing: counts and predictions only.")
@click.option("--runs", type=int, metavar="N", help="Exact number of timed runs.")
@click.option("--time-budget", metavar="S", help="Seconds to measure for, each batch. [10]")
@click.option("--threads", type=int, metavar="N", help="Intra-op threads of the CPU.")
@click.option("--training", is_flag=True, help="One training step instead of inference.")
@click.option(
    "--dataset-size", type=int, metavar="N", help="Examples in an epoch, for time and cost per epoch."
)
@click.option(
    "--objective", default="latency", metavar="O", help="latency, throughput, cost or energy. [latency]"
)
@click.option("--slo", metavar="TIME", help="Latency that must be met, like 20ms.")
@click.option(
    "--pin", multiple=True, metavar="PATTERN=cpu|gpu", help="Binds operators in the best plan; repeatable."
)
@click.option(
    "--prices", type=click.Path(path_type=Path), metavar="FILE", help="Your own instance prices (TOML)."
)
@click.option(
    "--utilisation", type=float, default=1.0, metavar="U", help="Share of rented time in use, for prices. [1]"
)
@click.option(
    "--format",
    default=DEFAULT_FORMATS,
    metavar="F[,F...]",
    help="html, json, markdown, csv, junit, sarif, github, text. [html,json]",
)
@click.option(
    "--output", metavar="PATH", help="File, or folder for several formats; - is standard output. [reports/]"
)
@click.option("--no-cache", is_flag=True, help="Export afresh.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option("--quiet", is_flag=True, help="Nothing but errors on standard error.")
@click.option("--verbose", is_flag=True, help="Findings and times of all stages as well.")
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Profile a model, decide between CPU and GPU, and write a report.

    MODEL is model.py, model.py:Name, package.module:Name, model.onnx or model.pt2.
    """
    from analyzer.loading.model_reference import parse_reference
    from analyzer.report.output import check_writable

    reference = parse_reference(ctx.params["model"])
    settings_defaults(ctx, reference.path or Path.cwd())
    asked = ctx.params
    # What cannot be written is said before anything is measured.
    where = report_targets(asked["format"], asked["output"], reference.stem)
    check_writable([target.path for target in where if target.path is not None])
    analysis = analysed(asked)
    if analysis.training is not None:
        from analyzer.pipeline.inference_reference import beside_inference

        folders = {target.path.parent for target in where if target.path is not None} or {DEFAULT_FOLDER}
        analysis = beside_inference(analysis, sorted(folders), asked["model"])
    written = publish(analysis, where)
    say(analysis, where, quiet=asked["quiet"], verbose=asked["verbose"])
    if asked["open_page"]:
        open_page(written)


def analysed(asked: dict[str, Any]) -> Analysis:
    """Calls the Python interface with the command line's options."""
    from analyzer.api import analyze
    from analyzer.cli.progress import progress

    keywords = {name: value for name, value in asked.items() if name not in _NOT_KEYWORDS}
    with progress(quiet=asked["quiet"]) as tell:
        return analyze(
            asked["model"],
            run=not asked["no_run"],
            cache=not asked["no_cache"],
            progress=tell,
            **keywords,
        )


def report_targets(
    formats: str, output: str | None, stem: str, default: Path = DEFAULT_FOLDER
) -> tuple[Target, ...]:
    """Which report goes where."""
    from analyzer.report import find
    from analyzer.report.output import targets

    chosen = [find(name.strip()) for name in formats.split(",") if name.strip()]
    if not chosen:
        raise click.UsageError("--format names no format.")
    return targets([(item.name, item.extension) for item in chosen], output, stem, default)


def publish(analysis: Analysis, where: tuple[Target, ...]) -> list[Path]:
    """Renders all reports, then writes them: all or none."""
    from analyzer.report import render
    from analyzer.report.output import write_all

    rendered = {target: render(analysis, target.format) for target in where}
    files = {target.path: text for target, text in rendered.items() if target.path is not None}
    write_all(files)
    for target, text in rendered.items():
        if target.path is None:
            click.echo(text, nl=not text.endswith("\n"))
    return list(files)


def say(analysis: Analysis, where: tuple[Target, ...], *, quiet: bool, verbose: bool) -> None:
    """The summary on the terminal; nothing where standard output is the report itself."""
    if any(target.path is None for target in where):
        return
    if not quiet:
        from rich.console import Console

        from analyzer.report.text import print_summary

        console = Console()
        print_summary(analysis, console)
        for note in (*analysis.model.notes, *analysis.environment.messages):
            click.echo(f"note: {note}", err=True)
        if verbose:
            say_more(analysis)
    for target in where:
        click.echo(str(target.path))


def say_more(analysis: Analysis) -> None:
    """Findings and the time of each stage."""
    for finding in analysis.findings:
        click.echo(f"{finding.severity} {finding.code}: {finding.message}", err=True)
    for stage, spent in analysis.environment.timings_s.items():
        click.echo(f"time: {stage}: {spent:.2f} s", err=True)


def open_page(written: list[Path]) -> None:
    """Opens the page in a browser, or says that there is none."""
    page = next((path for path in written if path.suffix == ".html"), None)
    if page is None:
        raise click.UsageError("--open needs an HTML report.")
    click.launch(page.resolve().as_uri())
