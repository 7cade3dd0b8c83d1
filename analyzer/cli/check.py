"""``analyze check``: the CI gate. Findings, exit status, formats that CI servers read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli import EXIT_FAILED, settings_defaults
from analyzer.errors import OutputError, RecordError, UsageError

if TYPE_CHECKING:
    from analyzer.checks.settings import CheckSettings
    from analyzer.record.analysis import Analysis
    from analyzer.report.output import Target

DEFAULT_BASELINE = "analyzer-baseline.json"
# Options that decide how a model is analysed; a saved report is analysed already.
ANALYSIS_OPTIONS = (
    "batch",
    "input",
    "gpu",
    "cpu",
    "precision",
    "opset",
    "training",
    "objective",
    "slo",
    "pin",
    "prices",
    "utilisation",
    "run",
    "runs",
    "time_budget",
    "threads",
    "no_cache",
)


@click.command(name="check", short_help="CI gate: findings, exit status, machine-readable formats.")
@click.argument("model")
@click.option("--batch", help="Batch size; with several, the first is checked.")
@click.option(
    "--input", multiple=True, metavar="NAME=SHAPE[:DTYPE]", help="One input, B for the batch; repeatable."
)
@click.option("--gpu", help="Target GPU of the catalogue (`analyze devices`); none for CPU only.")
@click.option("--cpu", help="Target CPU of the catalogue; default: a fixed one, the same on every runner.")
@click.option("--precision", help="fp32, tf32, fp16, bf16 or int8.")
@click.option("--opset", type=int, help="Opset of the export; for an .onnx file the opset to convert to.")
@click.option("--training", is_flag=True, help="One training step instead of inference.")
@click.option("--objective", help="latency, throughput, cost or energy.")
@click.option("--slo", help="Latency that must be met, like 20ms.")
@click.option(
    "--pin", multiple=True, metavar="PATTERN=cpu|gpu", help="Binds operators in the best plan; repeatable."
)
@click.option(
    "--prices", type=click.Path(path_type=Path), metavar="FILE", help="Your own instance prices (TOML)."
)
@click.option("--utilisation", type=float, help="Share of rented time in use, for prices. [1]")
@click.option("--run/--no-run", default=False, help="Execute and measure here. By default nothing is executed.")
@click.option("--runs", type=int, help="How many runs to measure, with --run.")
@click.option("--time-budget", help="Seconds to measure for, with --run.")
@click.option("--threads", type=int, help="Intra-op threads, with --run.")
@click.option(
    "--fail-on", multiple=True, help="error (default), warning, note or never; or codes that become errors."
)
@click.option("--warn-on", multiple=True, help="Codes that become warnings.")
@click.option(
    "--ignore", multiple=True, help="Codes to set aside; [tool.analyzer.check] takes patterns and reasons."
)
@click.option("--max-cpu-operators", type=click.IntRange(min=0), help="Most operators forced to the CPU.")
@click.option("--max-copies", type=click.IntRange(min=0), help="Most copies inside the graph.")
@click.option("--max-latency", help="Longest latency, like 20ms.")
@click.option("--baseline", type=click.Path(path_type=Path), help="Record that figures may not rise above.")
@click.option("--update-baseline", is_flag=True, help=f"Write the baseline (default {DEFAULT_BASELINE}).")
@click.option("--tolerance", help="Share by which a figure may rise above the baseline, like 2%.")
@click.option(
    "--format", default="text", show_default=True, help="text, json, sarif, junit, github, markdown, ..."
)
@click.option("--output", help="File, or folder for several formats; `-` is standard output (the default).")
@click.option("--no-cache", is_flag=True, help="Export afresh.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
@click.option("--verbose", is_flag=True, help="More about what is happening.")
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Check what would run on the CPU of a GPU server, without a GPU, and fail on what must not be.

    MODEL is model.py, model.py:Name, package.module:Name, model.onnx, model.pt2 or a saved REPORT.json. Exit
    status: 0 fine, 1 findings that fail, 2 could not run, 3 a fault of the program. Budgets stand in
    [tool.analyzer.check] of pyproject.toml.
    """
    from analyzer.checks import fails, judge
    from analyzer.checks.evaluation import require_codes

    model = ctx.params["model"]
    start, stem = place_of(model)
    settings_defaults(ctx, start, check=True)
    settings = gate_settings(ctx.params, start)
    where = chosen_targets(ctx.params["format"], ctx.params["output"], stem)
    require_codes(settings)
    baseline = None if ctx.params["update_baseline"] else load_baseline(settings.baseline)
    analysis = obtain(ctx, model)
    judgement = judge(analysis, settings, baseline=baseline)
    analysis = replace(analysis, findings=judgement.findings, ignored=judgement.ignored)
    failing = fails(analysis.findings, settings)
    publish(analysis, where, settings.fail_on)
    if ctx.params["update_baseline"]:
        path = settings.baseline or Path(DEFAULT_BASELINE)
        save_baseline(analysis, path)
        if not ctx.params["quiet"]:
            click.echo(f"baseline written to {path}", err=True)
    if failing:
        ctx.exit(EXIT_FAILED)


def place_of(model: str) -> tuple[Path, str]:
    """The file or folder from which settings are looked for, and the stem of the result's file names."""
    from analyzer.loading.model_reference import parse_reference

    if model.endswith(".json"):
        return Path(model), Path(model).stem
    reference = parse_reference(model)
    return reference.path or Path.cwd(), reference.stem


def gate_settings(params: dict[str, Any], start: Path) -> CheckSettings:
    """The settings of pyproject.toml with the command line's on top."""
    from analyzer.checks.settings import Ignore, levels, read_settings
    from analyzer.parsing import duration, share

    settings = read_settings(start).check
    changes: dict[str, Any] = {
        "max_cpu_operators": params["max_cpu_operators"],
        "max_copies": params["max_copies"],
        "baseline": params["baseline"],
    }
    changes = {key: value for key, value in changes.items() if value is not None}
    if params["max_latency"] is not None:
        changes["max_latency_s"] = {"": duration(params["max_latency"], where="--max-latency")}
    if params["tolerance"] is not None:
        changes["tolerance"] = share(params["tolerance"], where="--tolerance")
    if fail_on := _split(params["fail_on"]):
        level, codes = levels(fail_on, where="--fail-on")
        changes |= {"fail_on": level, "raise_to_error": codes}
    if warn_on := _split(params["warn_on"]):
        changes["raise_to_warning"] = levels(warn_on, where="--warn-on")[1]
    extra = tuple(Ignore(code=code.upper()) for code in _split(params["ignore"]))
    return replace(settings, **changes, ignore=settings.ignore + extra)


def obtain(ctx: click.Context, model: str) -> Analysis:
    """The analysis: a saved report as it is, or a model analysed without executing it."""
    if model.endswith(".json"):
        given = [name for name in ANALYSIS_OPTIONS if ctx.get_parameter_source(name) == _COMMAND_LINE]
        if given:
            option = given[0].replace("_", "-")
            raise UsageError(
                f"--{option} changes nothing about a saved report",
                hint=f"check the model itself, or drop --{option}",
            )
        from analyzer.record import load_report

        return load_report(model)
    from analyzer.api import analyze
    from analyzer.cli.progress import progress

    params = ctx.params
    options = {name: params[name] for name in ANALYSIS_OPTIONS if params[name] not in (None, (), "")}
    options["cache"] = not options.pop("no_cache")
    # Without --run the CPU is a fixed one of the catalogue, so that every runner comes to the same result.
    with progress(quiet=params["quiet"]) as tell:
        return analyze(model, **options, check=not params["run"], progress=tell)


_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE


def load_baseline(path: Path | None) -> Analysis | None:
    """The record that figures may not rise above; None where none is set."""
    if path is None:
        return None
    from analyzer.record import load_report

    if not path.exists():
        raise RecordError(f"there is no baseline {path}", hint="write it with --update-baseline")
    try:
        return load_report(path)
    except RecordError as error:
        raise RecordError(f"the baseline cannot be read: {error.message}", hint=error.hint) from error


def save_baseline(analysis: Analysis, path: Path) -> None:
    """Write the record that later checks compare with: nothing in it depends on the machine or the time."""
    from analyzer.record import to_json
    from analyzer.record.analysis import Environment
    from analyzer.report.output import write_all

    lean = replace(
        analysis, environment=Environment(), findings=(), ignored=(), alternatives=(), costs=(), sweep=()
    )
    write_all({path: to_json(lean)})


def chosen_targets(formats: str, output: str | None, stem: str) -> tuple[Target, ...]:
    """Which format goes where; one alone goes to standard output. What cannot be written is said at once."""
    from analyzer.cli.run import report_targets
    from analyzer.report.output import STANDARD_OUTPUT, check_writable

    single = len([name for name in formats.split(",") if name.strip()]) == 1
    where = report_targets(formats, output or (STANDARD_OUTPUT if single else None), stem)
    check_writable([target.path for target in where if target.path is not None])
    return where


def publish(analysis: Analysis, where: tuple[Target, ...], fail_on: str) -> None:
    """Render every format first, then write all of them whole, then print.

    Workflow commands are printed even where they go to a file as well: GitHub reads them from the log alone.
    """
    from analyzer.report.output import write_all

    texts = {target: render(analysis, target.format, fail_on) for target in where}
    write_all({target.path: text for target, text in texts.items() if target.path is not None})
    for target, text in texts.items():
        if target.path is None or target.format == "github":
            click.echo(text, nl=False)
        if target.format == "github":
            append_summary(analysis, fail_on)


def render(analysis: Analysis, name: str, fail_on: str) -> str:
    """The findings in this format; formats that are about the whole analysis come from the registry."""
    from analyzer import report
    from analyzer.report import findings_text, junit

    if name == "text":
        return findings_text.render_text(analysis, fail_on=fail_on)
    if name == "markdown":
        return findings_text.render_markdown(analysis, fail_on=fail_on)
    if name == "junit":
        return junit.render(analysis, fail_on=fail_on)
    return report.render(analysis, name)


def append_summary(analysis: Analysis, fail_on: str) -> None:
    """Add the job summary where GitHub Actions asks for one."""
    from analyzer.report.github import summary

    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(summary(analysis, fail_on=fail_on))
    except OSError as error:
        raise OutputError(
            f"the job summary cannot be written: {error}", hint="unset GITHUB_STEP_SUMMARY"
        ) from error


def _split(values: tuple[str, ...]) -> list[str]:
    return [item.strip() for value in values for item in value.split(",") if item.strip()]
