"""``analyze check``: the CI gate. Findings, exit status, formats that CI servers read."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli import EXIT_FAILED, EXIT_FINE, EXIT_UNUSABLE, say
from analyzer.cli.options import files, options_of
from analyzer.errors import AnalyzerError, MeasurementError, OutputError, RecordError, UsageError
from analyzer.loading.model_reference import is_record, split_path
from analyzer.options import taken_by

if TYPE_CHECKING:
    from analyzer.checks.settings import CheckSettings, Settings
    from analyzer.record.analysis import Analysis
    from analyzer.record.fleet import Fleet, FleetFailure, FleetModel
    from analyzer.record.invocation import Invocation
    from analyzer.record.output_files import Target
    from analyzer.report.findings_text import Check, CheckedModel

DEFAULT_BASELINE = Path("analyzer-baseline")


@dataclass(kw_only=True)
class Task:
    """A model to check: MODEL or a record, of what was typed, and the options and settings that hold for it.

    ``name`` is its own in this call, ``file`` that of its baseline in a folder, in any call. ``targets`` are
    reports about it alone, ``failure`` says why a fleet has no record of it.
    """

    typed: str
    model: str
    name: str
    file: str
    params: dict[str, Any]
    gate: CheckSettings
    failure: FleetFailure | None = None
    baseline: Path | None = None
    targets: tuple[Target, ...] = ()


@click.command()
@click.argument("models", nargs=-1, metavar="MODEL...", shell_complete=files)
@options_of("check")
@click.pass_context
def check(ctx: click.Context, /, **_: Any) -> None:
    """Check what would run on the CPU of a GPU server, without a GPU, and fail on what must not be.

    MODEL is model.py, model.py:Name, package.module:Name, model.onnx, model.pt2, a pattern in quotes, a
    saved REPORT.json, or the fleet.json of `analyze fleet`. Budgets stand in [tool.analyzer.check] of
    pyproject.toml; [[tool.analyzer.check.model]] tables name models and what differs for each, and are what is
    checked where no MODEL is given. Exit status: 0 fine, 1 findings that fail, 2 could not run, 3 a fault of
    the program.
    """
    from analyzer.checks.baseline import baseline_of
    from analyzer.checks.evaluation import require_codes
    from analyzer.cli.reports import report_targets
    from analyzer.record.baseline import BASELINE_FORMAT, baseline_to_json
    from analyzer.record.output_files import Target, check_writable, write_all
    from analyzer.report.findings_text import Check, not_analysed

    tasks, fleet = tasks_of(ctx)
    many, shared = fleet is not None or len(tasks) > 1, tasks[0].params
    force, update = shared["force"], shared["update_baseline"]
    stem = "fleet" if fleet is not None else "check" if many else tasks[0].name
    writers, targets = _writers(shared), report_targets(shared, stem, printed=True)
    # All that can be wrong with the options is said before a model is loaded, which may take minutes.
    whole = [target for target in targets if target.format.name not in writers]
    for task in tasks:
        require_codes(task.gate)
        task.targets = tuple(_own(target, task, stem) if many else target for target in whole)
    set_baselines(tasks, update=update, many=many)
    places = [Target(format=BASELINE_FORMAT, path=task.baseline) for task in tasks if update]
    check_writable([*places, *(target for task in tasks for target in task.targets)], force=force)
    models: list[CheckedModel] = []
    texts: dict[Target, str] = {}
    baselines: dict[Target, str] = {}
    failures: list[AnalyzerError] = []
    run_failed = False
    for task in tasks:
        try:
            analysis, model = judged(task, many=many)
        except AnalyzerError as error:
            if not many:
                raise
            failures.append(error)
            models.append(not_analysed(task.name, task.model, error, task.gate))
            continue
        run_failed |= bool(analysis.run_fails) and shared["run"]
        models.append(model)
        texts.update({target: target.format.write(analysis) for target in task.targets})
        if update:
            place = Target(format=BASELINE_FORMAT, path=task.baseline)
            baselines[place] = baseline_to_json(baseline_of(analysis))
    # What is wrong with an option is wrong for all models.
    if fleet is None and len(failures) == len(tasks) and len({error.message for error in failures}) == 1:
        raise failures[0]
    checked = Check(
        name=Path(tasks[0].typed).name if fleet is not None else stem,
        models=reported_once(models),
        several=many,
        left=fleet.left if fleet is not None else 0,
    )
    # Reports come out whether the gate fails or not: CI shows them beside the status.
    texts.update({target: writers[target.format.name](checked) for target in targets if target not in whole})
    publish(texts, checked, force=force)
    if failures and update:
        say("no baseline was written, as a model could not be analysed", err=True)
    else:
        write_all(baselines, force=force)
        for target in baselines if not shared["quiet"] else ():
            say(f"baseline written to {target.path}", err=True)
    if run_failed and not many:
        ctx.exit(EXIT_UNUSABLE)
    ctx.exit(EXIT_FAILED if checked.failing else EXIT_FINE)


def tasks_of(ctx: click.Context) -> tuple[list[Task], Fleet | None]:
    """Return the models that are named, each once, and the fleet where they are one's.

    Raises:
        UsageError: None is named, or an option changes nothing about a saved report.
        ModelError: A file that is not there, or a pattern that fits none.
    """
    from analyzer.checks.settings import read_settings
    from analyzer.cli.reports import settings_of
    from analyzer.fleet.model_list import Entry, expanded
    from analyzer.record.encoding import holds_fleet, load_fleet

    named = ctx.params["models"] or [table.path for table in read_settings(Path.cwd()).check.models]
    if not named:
        raise UsageError(
            "No model is named.", hint="Name one, or write [[tool.analyzer.check.model]] in pyproject.toml."
        )
    if any(map(is_record, named)):
        refuse_analysis_options(ctx)
    if any(is_record(one) and holds_fleet(one) for one in named):
        if len(named) > 1:
            raise UsageError("A fleet is checked alone.", hint="Name the records of its models instead.")
        fleet = load_fleet(named[0])
        if not fleet.models:
            raise UsageError(f"{named[0]} holds no model.", hint="Run `analyze fleet` again: it goes on.")
        settings = settings_of(named[0])[1]
        return [_fleet_task(ctx, named[0], settings, row) for row in fleet.models], fleet
    models: dict[tuple[str, str], str] = {}
    for argument in named:
        for entry in expanded(Entry(reference=argument, where=argument)):
            path, name = split_path(entry.reference)
            file = os.path.realpath(path) if path else ""
            models.setdefault((file, name), entry.reference)
    read = {model: settings_of(model) for model in models.values()}
    stems = Counter(stem for stem, _ in read.values())
    tasks = []
    for model, (stem, settings) in read.items():
        file = _file_name(model, stem)
        tasks.append(_task(ctx, model, settings, name=stem if stems[stem] == 1 else file, file=file))
    return tasks, None


def _task(ctx: click.Context, model: str, settings: Settings, *, name: str, file: str) -> Task:
    from analyzer.checks.settings import gate_fields
    from analyzer.cli.reports import not_typed

    own = settings.check.for_model(model)
    params = ctx.params | not_typed(ctx, replace(settings, check=own).default_map(check=True))
    # `--gpu ""`, from a variable of CI that is not set, is an option left out.
    params = {name: None if value == "" else value for name, value in params.items()} | {"model": model}
    given = {one.name: params.get(one.name.replace("-", "_")) for one in own.declared.values()}
    gate = own.with_fields(gate_fields(given, "--"))
    return Task(typed=model, model=model, params=params, gate=gate, name=name, file=file)


def _fleet_task(ctx: click.Context, fleet: str, settings: Settings, row: FleetModel) -> Task:
    task = _task(ctx, row.reference, settings, name=row.name, file=row.name)
    model = str(_record_of(row, Path(fleet).parent)) if row.failure is None else row.reference
    return replace(task, typed=fleet, model=model, params={**task.params, "model": model}, failure=row.failure)


def _file_name(model: str, stem: str) -> str:
    """Return the name of a model's baseline: its path in the repository, so that no two share one."""
    from analyzer.loading.python.source_lines import shown_path

    path, _ = split_path(model)
    shown = Path(shown_path(path) if path else "")
    folders = () if shown.is_absolute() else shown.parent.parts
    return re.sub(r"[^\w.=+-]+", "-", "-".join((*folders, f"{stem}{shown.suffix.replace('.py', '')}")))


def set_baselines(tasks: Sequence[Task], *, update: bool, many: bool) -> None:
    """Give each model the file of its baseline: what is named, or the model's own in the folder.

    Raises:
        UsageError: Two models have one file.
    """
    default = (DEFAULT_BASELINE if many else DEFAULT_BASELINE.with_suffix(".json")) if update else None
    for task in tasks:
        given = task.gate.baseline or default
        if given is not None:
            is_file = given.is_file() or (given.suffix == ".json" and not given.is_dir())
            task.baseline = given if is_file else given / f"{task.file}.json"
        task.gate = task.gate.replace(baseline=None if update else task.baseline)
    places = Counter(task.baseline for task in tasks if task.baseline is not None)
    for place, number in places.items():
        if number > 1:
            raise UsageError(
                f"{place} would be the baseline of {number} models",
                hint="give --baseline a folder, in which each model has a file",
            )


def judged(task: Task, *, many: bool) -> tuple[Analysis, CheckedModel]:
    """Analyse a model, or read its record, and judge it."""
    from analyzer.checks import judge
    from analyzer.checks.baseline import changed_lines, commented_lines, read_baseline
    from analyzer.report.findings_text import checked

    if task.failure is not None:
        hint = task.failure.hint or "see its log, and try again with `analyze fleet --retry-failed`"
        raise RecordError(task.failure.message or task.failure.kind, hint=hint)
    path = task.gate.baseline
    baseline = read_baseline(path) if path is not None else None
    analysis = read_or_analyse(task.params)
    if many and analysis.run_fails and task.params["run"]:
        raise MeasurementError(analysis.run_fails)
    root, sources = _sources(task.model, analysis)
    judgement = judge(
        analysis,
        task.gate,
        baseline=baseline,
        renew=_renewal(task, analysis),
        commented=commented_lines(root, sources, analysis.operators),
        changed=changed_lines(root, sources, path) if path is not None and baseline is not None else (),
    )
    analysis = replace(analysis, findings=judgement.findings, ignored=judgement.ignored)
    return analysis, checked(analysis, fail_on=task.gate.fail_on, name=task.name, baseline=baseline)


def _sources(model: str, analysis: Analysis) -> tuple[Path, list[str]]:
    """Return the folder of the repository, and in it the files of a model's code; of Python alone."""
    from analyzer.loading.model_reference import names_python
    from analyzer.loading.python.source_lines import repository_root, shown_path

    path, _ = split_path(model)
    folder = os.path.dirname(os.path.realpath(path or "any"))
    root = Path(repository_root(folder) or os.path.realpath(os.curdir))
    if is_record(model) or not names_python(model):
        return root, []
    sources = {operator.source.file for operator in analysis.operators if operator.source is not None}
    return root, sorted(sources | ({shown_path(path)} if path else set()))


def _renewal(task: Task, analysis: Analysis) -> str:
    """Return the command that writes a model's baseline anew."""
    from analyzer.record.invocation import command_line

    line = "" if is_record(task.model) or analysis.invocation is None else command_line(analysis.invocation)
    given = task.params["baseline"]
    words = [task.typed, *(["--baseline", str(given)] if given else [])]
    return f"{line or f'analyze check {shlex.join(words)}'} --update-baseline"


def read_or_analyse(params: dict[str, Any]) -> Analysis:
    """Return a saved report as it is, or a model analysed, by default without executing it."""
    from analyzer.cli.reports import call
    from analyzer.record import load_report

    model = params["model"]
    if is_record(model):
        return load_report(model)
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


def _with_gate_options(analysed: Invocation | None, model: str, params: Mapping[str, Any]) -> Invocation | None:
    """Add the gate's own options to the question; those of pyproject.toml are read there again."""
    from analyzer.pipeline.options import path_shower
    from analyzer.record.invocation import amended, written

    if analysed is None:
        return None
    gate = {option.keyword for option in taken_by("check") if option.settings == "tool.analyzer.check"}
    given = {name: value for name, value in params.items() if name in gate | {"run"}}
    # With --run `analyze()` analysed as `run` does: the command is still this one.
    return amended(replace(analysed, command="check"), written("check", given, path_shower(model)))


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


def reported_once(models: Sequence[CheckedModel]) -> tuple[CheckedModel, ...]:
    """Return the models with one finding for each comment in code that several of them share.

    What one of them sets aside is of use there.
    """
    places = [{one.place for one in model.ignored} for model in models]
    of_use, reported, result = set().union(*places), set(), []
    for model, own in zip(models, places, strict=True):
        findings = []
        for one in model.findings:
            key = (one.place, one.finding.message)
            if one.finding.code != "A706" or (key not in reported and one.place not in of_use - own):
                findings.append(one)
            reported.add(key)
        result.append(replace(model, findings=tuple(findings)))
    return tuple(result)


def _own(target: Target, task: Task, stem: str) -> Target:
    """Return where a model's own report goes: into the folder of the reports on all models.

    Raises:
        UsageError: There is no folder.
    """
    name = target.format.name
    if target.path is None or target.path.name != f"{stem}{target.format.extension}":
        raise UsageError(
            f"--format {name} is about one model, and there are several",
            hint="give --output a folder (with a slash at its end): each model has a file in it",
        )
    return replace(target, path=target.path.with_name(f"{task.name}{target.format.extension}"))


def _writers(params: Mapping[str, Any]) -> dict[str, Callable[[Check], str]]:
    """Return what writes findings, of one model or of several, by format.

    Raises:
        UsageError: A format is that of a picture.
    """
    from analyzer.cli.reports import chosen_formats
    from analyzer.report import findings_text
    from analyzer.report.ci import github, junit, sarif

    for form in chosen_formats(params):
        if form.is_picture:
            raise UsageError(
                f"check has no format {form.name!r}: it reports findings.",
                hint=f"Pictures of a model's charts: analyze MODEL --format {form.name}",
            )
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
