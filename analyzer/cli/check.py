"""``analyze check``: the CI gate. Findings, exit status, formats that CI servers read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli import EXIT_FAILED, EXIT_UNUSABLE, say, settings_defaults
from analyzer.cli.completion import files
from analyzer.cli.options import options_of
from analyzer.errors import OutputError, RecordError, UsageError
from analyzer.loading.configuration_file import is_record
from analyzer.options import taken_by

if TYPE_CHECKING:
    from analyzer.checks.settings import CheckSettings
    from analyzer.option_kinds import Option
    from analyzer.record.analysis import Analysis
    from analyzer.record.fleet import Fleet
    from analyzer.record.invocation import Invocation
    from analyzer.record.output_files import Target

DEFAULT_BASELINE = "analyzer-baseline.json"


@click.command(name="check", short_help="CI gate: findings, exit status, machine-readable formats.")
@click.argument("model", shell_complete=files)
@options_of("check")
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Check what would run on the CPU of a GPU server, without a GPU, and fail on what must not be.

    MODEL is model.py, model.py:Name, package.module:Name, model.onnx, model.pt2, a saved REPORT.json, or the
    fleet.json of `analyze fleet`, all of whose models are judged. Exit status: 0 fine, 1 findings that fail, 2
    could not run, 3 a fault of the program. Budgets stand in [tool.analyzer.check] of pyproject.toml.
    """
    from analyzer.checks import fails, judge
    from analyzer.checks.evaluation import require_codes
    from analyzer.cli.reports import settings_start

    model = ctx.params["model"]
    start, stem = settings_start(model)
    settings_defaults(ctx, start, check=True)
    settings = gate_settings(ctx.params, start)
    force = ctx.params["force"]
    targets = chosen_targets(ctx.params["format"], ctx.params["output"], stem, force=force)
    # All that can be wrong with the options is said before a model is loaded, which may take minutes.
    require_codes(settings)
    fleet = fleet_at(model)
    if fleet is not None:
        refuse_analysis_options(ctx)
        if judge_fleet(ctx, fleet, settings, targets):
            ctx.exit(EXIT_FAILED)
        return
    new_baseline = baseline_target(settings.baseline, force=force) if ctx.params["update_baseline"] else None
    baseline = load_baseline(settings.baseline) if new_baseline is None else None
    analysis = read_or_analyse(ctx, model)
    judgement = judge(analysis, settings, baseline=baseline)
    analysis = replace(analysis, findings=judgement.findings, ignored=judgement.ignored)
    failing = fails(analysis.findings, settings)
    # The report comes out whether the gate fails or not: CI shows it beside the status.
    publish(analysis, targets, settings.fail_on, force=force)
    if new_baseline is not None:
        save_baseline(analysis, new_baseline, force=force)
        if not ctx.params["quiet"]:
            say(f"baseline written to {new_baseline.path}", err=True)
    if analysis.run_fails and ctx.params["run"]:
        ctx.exit(EXIT_UNUSABLE)
    if failing:
        ctx.exit(EXIT_FAILED)


def judge_fleet(ctx: click.Context, fleet: Fleet, settings: CheckSettings, targets: tuple[Target, ...]) -> bool:
    """Judges every model of a fleet, publishes what was found, and says whether the check fails."""
    from analyzer.cli.check_fleet import checked_fleet
    from analyzer.record.output_files import write_all
    from analyzer.report.fleet.check import fleet_markdown, render_fleet

    if ctx.params["update_baseline"] or settings.baseline is not None:
        raise UsageError(
            "a baseline is the record of one model, and this is a fleet",
            hint="`analyze fleet --compare OLD` says what changed",
        )
    told = checked_fleet(fleet, Path(ctx.params["model"]), settings, [target.format.name for target in targets])
    texts = {target: render_fleet(told, target.format.name) for target in targets}
    write_all(texts, force=ctx.params["force"])
    show(texts, lambda: fleet_markdown(told))
    return bool(told.failing)


def gate_settings(params: dict[str, Any], start: Path) -> CheckSettings:
    """The settings of pyproject.toml with the command line's on top."""
    from analyzer.checks.settings import CheckSettings, gate_fields, read_settings

    settings = read_settings(start).check
    given = {one.name: params.get(one.name.replace("-", "_")) for one in CheckSettings.declared.values()}
    changes = gate_fields(given, "--")
    return settings.replace(**changes | {"ignore": settings.ignore + changes.get("ignore", ())})


def read_or_analyse(ctx: click.Context, model: str) -> Analysis:
    """The analysis: a saved report as it is, or a model analysed without executing it."""
    if is_record(model):
        refuse_analysis_options(ctx)
        from analyzer.record import load_report

        return load_report(model)
    from analyzer.cli.reports import call

    # `--gpu ""`, from a variable of CI that is not set, is an option left out.
    params: dict[str, Any] = {name: None if value == "" else value for name, value in ctx.params.items()}
    # Without --run the CPU is a fixed one of the catalogue, so that every runner comes to the same result.
    analysis: Analysis = call("check", params, run=params["run"], check=not params["run"])
    return replace(analysis, invocation=_with_gate_options(analysis.invocation, model, params))


def refuse_analysis_options(ctx: click.Context) -> None:
    """Refuse what would have to be asked before: a saved report holds one answer."""
    # Settings of pyproject.toml are for models of the folder, and are passed over; what is typed is meant.
    typed = [option.name for option in taken_by("check") if option.is_keyword and _is_typed(ctx, option)]
    if typed:
        raise UsageError(
            f"--{typed[0]} changes nothing about a saved report",
            hint=f"check the model itself, or drop --{typed[0]}",
        )


def fleet_at(model: str) -> Fleet | None:
    """The fleet that a file holds; None of a model and of one model's record."""
    from analyzer.record.encoding import holds_fleet, load_fleet

    return load_fleet(model) if is_record(model) and holds_fleet(model) else None


def _is_typed(ctx: click.Context, option: Option) -> bool:
    """Whether an option stands on the command line itself."""
    source = ctx.get_parameter_source(option.name.replace("-", "_"))
    return source == click.core.ParameterSource.COMMANDLINE


def _with_gate_options(analysed: Invocation | None, model: str, params: dict[str, Any]) -> Invocation | None:
    """What ``analyze()`` was asked and the gate's own options; those of pyproject.toml are read there again."""
    from analyzer.pipeline.options import path_shower
    from analyzer.record.invocation import amended, written

    if analysed is None:
        return None
    gate = {option.keyword for option in taken_by("check") if option.settings == "tool.analyzer.check"}
    given = {name: value for name, value in params.items() if name in gate | {"run"}}
    # With --run `analyze()` analysed as `run` does: the command is still this one.
    return amended(replace(analysed, command="check"), written("check", given, path_shower(model)))


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


def baseline_target(path: Path | None, *, force: bool) -> Target:
    """Where --update-baseline writes; what is no record of ours is refused before a model is loaded."""
    from analyzer.record.formats import find
    from analyzer.record.output_files import Target, check_writable

    target = Target(format=find("json"), path=path or Path(DEFAULT_BASELINE))
    check_writable([target], force=force or _is_record(target.path))
    return target


def _is_record(path: Path | None) -> bool:
    """Whether a file is a record of ours in whatever order a repository's formatter put its keys."""
    from analyzer.record import load_report

    with suppress(RecordError):
        return path is not None and path.is_file() and bool(load_report(path))
    return False


def save_baseline(analysis: Analysis, target: Target, *, force: bool) -> None:
    """Write the record that later checks compare with: nothing in it depends on the machine or the time."""
    from analyzer.record import to_json
    from analyzer.record.analysis import Environment
    from analyzer.record.output_files import write_all

    # Kept in the repository: no date, and nothing that an unrelated change of a price or a rule alters.
    lean = replace(
        analysis,
        environment=Environment(),
        findings=(),
        ignored=(),
        alternatives=(),
        costs=(),
        sweep=(),
        ranking=None,
        capacity=None,
    )
    write_all({target: to_json(lean)}, force=force or _is_record(target.path))


def chosen_targets(formats: str, output: str | None, stem: str, *, force: bool) -> tuple[Target, ...]:
    """Which format goes where; one alone goes to standard output. What cannot be written is said at once."""
    from analyzer.cli.reports import formats_asked, report_targets
    from analyzer.record.formats import PICTURES
    from analyzer.record.output_files import STANDARD_OUTPUT, check_writable

    formats = formats_asked(formats, output)
    for name in formats.split(","):
        if name.strip() in PICTURES:
            raise UsageError(
                f"check has no format {name.strip()!r}: it reports findings.",
                hint=f"Pictures of a model's charts: analyze MODEL --format {name.strip()}",
            )
    # "-" is the default of one format alone: several cannot share standard output.
    single = len([name for name in formats.split(",") if name.strip()]) == 1
    targets = report_targets(formats, output or (STANDARD_OUTPUT if single else None), stem)
    check_writable(targets, force=force)
    return targets


def publish(analysis: Analysis, targets: tuple[Target, ...], fail_on: str, *, force: bool) -> None:
    """Render every format first, then write all of them whole, then print.

    Workflow commands are printed even where they go to a file as well: GitHub reads them from the log alone.
    """
    from analyzer.record.output_files import write_all
    from analyzer.report.ci.github import summary

    texts = {target: render(analysis, target.format.name, fail_on) for target in targets}
    write_all(texts, force=force)
    show(texts, lambda: summary(analysis, fail_on=fail_on))


def show(texts: Mapping[Target, str], summary: Callable[[], str]) -> None:
    """Print what goes to standard output; ``summary`` gives a job's summary page where one is asked for."""
    for target, text in texts.items():
        if target.path is None or target.format.name == "github":
            click.echo(text, nl=False)
        if target.format.name == "github":
            append_summary(summary)


def render(analysis: Analysis, name: str, fail_on: str) -> str:
    """The findings in this format; formats that are about the whole analysis come from the registry."""
    from analyzer import report
    from analyzer.report import findings_text
    from analyzer.report.ci import junit

    if name == "text":
        return findings_text.render_text(analysis, fail_on=fail_on)
    if name == "markdown":
        return findings_text.render_markdown(analysis, fail_on=fail_on)
    if name == "junit":
        return junit.render(analysis, fail_on=fail_on)
    return report.render(analysis, name)


def append_summary(summary: Callable[[], str]) -> None:
    """Add the job summary where GitHub Actions asks for one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        # Appended: GitHub gives one file to a job's step, which other tools of it write to as well.
        with open(path, "a", encoding="utf-8") as file:
            file.write(summary())
    except OSError as error:
        raise OutputError(
            f"the job summary cannot be written: {error}", hint="unset GITHUB_STEP_SUMMARY"
        ) from error
