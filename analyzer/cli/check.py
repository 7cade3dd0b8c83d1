"""``analyze check``: the CI gate. Findings, exit status, formats that CI servers read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli import EXIT_FAILED, EXIT_UNUSABLE, say
from analyzer.cli.options import model_command
from analyzer.errors import OutputError, RecordError, UsageError
from analyzer.loading.model_reference import is_record
from analyzer.options import taken_by

if TYPE_CHECKING:
    from analyzer.checks.settings import CheckSettings
    from analyzer.record.analysis import Analysis
    from analyzer.record.fleet import Fleet, FleetModel
    from analyzer.record.invocation import Invocation
    from analyzer.record.output_files import Target
    from analyzer.report.findings_text import Check, CheckedModel

DEFAULT_BASELINE = "analyzer-baseline.json"


@model_command("check")
def check(ctx: click.Context, /, **_: Any) -> None:
    """Check what would run on the CPU of a GPU server, without a GPU, and fail on what must not be.

    MODEL is model.py, model.py:Name, package.module:Name, model.onnx, model.pt2, a saved REPORT.json, or the
    fleet.json of `analyze fleet`, all of whose models are judged. Exit status: 0 fine, 1 findings that fail, 2
    could not run, 3 a fault of the program. Budgets stand in [tool.analyzer.check] of pyproject.toml.
    """
    from analyzer.checks import fails, judge
    from analyzer.checks.evaluation import require_codes
    from analyzer.cli.reports import chosen_formats, model_settings, report_targets
    from analyzer.record.encoding import holds_fleet, load_fleet
    from analyzer.report import findings_text

    params, model = ctx.params, ctx.params["model"]
    stem, settings = model_settings(ctx, check=True)
    gate, force = gate_settings(params, settings.check), params["force"]
    for form in chosen_formats(params):
        if form.is_picture:
            raise UsageError(
                f"check has no format {form.name!r}: it reports findings.",
                hint=f"Pictures of a model's charts: analyze MODEL --format {form.name}",
            )
    targets = report_targets(params, stem, printed=True)
    # All that can be wrong with the options is said before a model is loaded, which may take minutes.
    require_codes(gate)
    if is_record(model):
        refuse_analysis_options(ctx)
        if holds_fleet(model):
            if judge_fleet(params, load_fleet(model), gate, targets):
                ctx.exit(EXIT_FAILED)
            return
    new_baseline = baseline_target(gate.baseline, force=force) if params["update_baseline"] else None
    baseline = load_baseline(gate.baseline) if new_baseline is None else None
    analysis = read_or_analyse(params)
    judgement = judge(analysis, gate, baseline=baseline)
    analysis = replace(analysis, findings=judgement.findings, ignored=judgement.ignored)
    # The report comes out whether the gate fails or not: CI shows it beside the status.
    checked = findings_text.check_of(analysis, gate.fail_on)
    # Formats that are about the whole analysis come from the registry.
    writers = _writers()
    publish(
        {
            target: writers[target.format.name](checked)
            if target.format.name in writers
            else target.format.write(analysis)
            for target in targets
        },
        checked,
        force=force,
    )
    if new_baseline is not None:
        save_baseline(analysis, new_baseline, force=force)
        if not params["quiet"]:
            say(f"baseline written to {new_baseline.path}", err=True)
    if analysis.run_fails and params["run"]:
        ctx.exit(EXIT_UNUSABLE)
    if fails(analysis.findings, gate):
        ctx.exit(EXIT_FAILED)


def gate_settings(params: Mapping[str, Any], settings: CheckSettings) -> CheckSettings:
    """Return the settings of pyproject.toml with the command line's on top."""
    from analyzer.checks.settings import gate_fields

    given = {one.name: params.get(one.name.replace("-", "_")) for one in settings.declared.values()}
    changes = gate_fields(given, "--")
    return settings.replace(**changes | {"ignore": settings.ignore + changes.get("ignore", ())})


def read_or_analyse(params: dict[str, Any]) -> Analysis:
    """Return a saved report as it is, or a model analysed, by default without executing it."""
    from analyzer.cli.reports import call
    from analyzer.record import load_report

    model = params["model"]
    if is_record(model):
        return load_report(model)
    # `--gpu ""`, from a variable of CI that is not set, is an option left out.
    params = {name: None if value == "" else value for name, value in params.items()}
    # Without --run the CPU is a fixed one of the catalogue, so that every runner comes to the same result.
    analysis: Analysis = call("check", params, run=params["run"], check=not params["run"])
    return replace(analysis, invocation=_with_gate_options(analysis.invocation, model, params))


def refuse_analysis_options(ctx: click.Context) -> None:
    """Refuse what would have to be asked before: a saved report holds one answer."""
    from analyzer.cli.reports import is_typed

    # Settings of pyproject.toml are for models of the folder, and are passed over; what is typed is meant.
    for option in taken_by("check"):
        if option.is_keyword and is_typed(ctx, option.name.replace("-", "_")):
            raise UsageError(
                f"--{option.name} changes nothing about a saved report",
                hint=f"check the model itself, or drop --{option.name}",
            )


def _with_gate_options(analysed: Invocation | None, model: str, params: dict[str, Any]) -> Invocation | None:
    """Add the gate's own options to the question; those of pyproject.toml are read there again."""
    from analyzer.pipeline.options import path_shower
    from analyzer.record.invocation import amended, written

    if analysed is None:
        return None
    gate = {option.keyword for option in taken_by("check") if option.settings == "tool.analyzer.check"}
    given = {name: value for name, value in params.items() if name in gate | {"run"}}
    # With --run `analyze()` analysed as `run` does: the command is still this one.
    return amended(replace(analysed, command="check"), written("check", given, path_shower(model)))


def load_baseline(path: Path | None) -> Analysis | None:
    """Return the record that figures may not rise above; None where none is set."""
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
    """Return the file of --update-baseline; refuse one that is no record of ours before a model is loaded."""
    from analyzer.record.formats import find
    from analyzer.record.output_files import Target, check_writable

    target = Target(format=find("json"), path=path or Path(DEFAULT_BASELINE))
    check_writable([target], force=force or _is_record(target.path))
    return target


def _is_record(path: Path | None) -> bool:
    """Return whether a file is a record of ours in whatever order a repository's formatter put its keys."""
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
        answer=None,
        ranking=(),
        instances=(),
        capacity=None,
    )
    write_all({target: to_json(lean)}, force=force or _is_record(target.path))


def judge_fleet(
    params: Mapping[str, Any], fleet: Fleet, settings: CheckSettings, targets: tuple[Target, ...]
) -> bool:
    """Judge the models of a fleet by their records in its folder; return whether the check fails.

    Raises:
        UsageError: A format or a baseline is of one model.
        RecordError: A model's record is missing or cannot be read.
    """
    from analyzer.report.findings_text import Check

    path, writers = Path(params["model"]), _writers()
    for target in targets:
        if target.format.name not in writers:
            raise UsageError(
                f"--format {target.format.name} is about one model, and {path} is a fleet",
                hint=f"use {', '.join(writers)}, or check the record of one of its models",
            )
    if params["update_baseline"] or settings.baseline is not None:
        raise UsageError(
            "a baseline is the record of one model, and this is a fleet",
            hint="`analyze fleet --compare OLD` says what changed",
        )
    records = {model.name: _record_of(model, path.parent) for model in fleet.models if model.failure is None}
    checked = Check(
        name=path.name,
        tool=fleet.tool,
        models=tuple(_checked(model, records.get(model.name), settings) for model in fleet.models),
        properties={"models": [model.name for model in fleet.models]},
        is_fleet=True,
        left=fleet.left,
    )
    publish(
        {target: writers[target.format.name](checked) for target in targets}, checked, force=params["force"]
    )
    return bool(checked.failing)


def _record_of(model: FleetModel, folder: Path) -> Path:
    """Return the file of a model's record; that all are there is said before any is judged."""
    file = folder / f"{model.name}.json"
    # The name is a stranger's text where the fleet is somebody else's: it stays in the folder.
    if file.parent != folder or Path(model.name).name != model.name:
        raise RecordError(f"{model.name!r} is no name of a fleet's model", hint="run `analyze fleet` anew")
    if not file.is_file():
        raise RecordError(
            f"there is no record {file}, which the fleet names",
            hint="check the fleet in the folder that `analyze fleet` wrote, or run it anew",
        )
    return file


def _checked(model: FleetModel, record: Path | None, settings: CheckSettings) -> CheckedModel:
    from analyzer.checks import judge, judge_failure
    from analyzer.record import load_report
    from analyzer.report.findings_text import checked, not_analysed

    if record is None:
        assert model.failure is not None
        judgement = judge_failure(
            model.failure.message.rstrip(".") or model.failure.kind,
            model.failure.hint.rstrip(".") or "see its log, and try again with `analyze fleet --retry-failed`",
            settings,
        )
        return not_analysed(model, judgement, fail_on=settings.fail_on)
    analysis = load_report(record)
    judgement = judge(analysis, settings)
    analysis = replace(analysis, findings=judgement.findings, ignored=judgement.ignored)
    return checked(analysis, fail_on=settings.fail_on, name=model.name)


def _writers() -> dict[str, Callable[[Check], str]]:
    """Return what writes findings, of one model or of a fleet, by format."""
    from analyzer.report import findings_text
    from analyzer.report.ci import github, junit, sarif

    return {
        "text": findings_text.render_text,
        "markdown": findings_text.render_markdown,
        "sarif": sarif.render,
        "junit": junit.render,
        "github": github.render,
    }


def publish(texts: Mapping[Target, str], checked: Check, *, force: bool) -> None:
    """Write all reports whole, then print what goes to standard output.

    Workflow commands are printed even where they go to a file as well: GitHub reads them from the log alone.
    A job's summary page is added where GitHub Actions names one.
    """
    from analyzer.record.output_files import write_all
    from analyzer.report.findings_text import render_markdown

    write_all(texts, force=force)
    for target, text in texts.items():
        if target.path is None or target.format.name == "github":
            click.echo(text, nl=False)
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if target.format.name != "github" or not path:
            continue
        try:
            # Appended: GitHub gives one file to a job's step, which other tools of it write to as well.
            with open(path, "a", encoding="utf-8") as file:
                file.write(render_markdown(checked))
        except OSError as error:
            raise OutputError(
                f"the job summary cannot be written: {error}", hint="unset GITHUB_STEP_SUMMARY"
            ) from error
