"""The frame of commands with reports: settings, the call of Python's function, targets, files, the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from analyzer.cli import say
from analyzer.cli.options import keywords
from analyzer.errors import UsageError
from analyzer.loading.model_reference import CONFIG_NAME, GENAI_NAME, is_record
from analyzer.option_kinds import Command
from analyzer.text import did_you_mean, printable

if TYPE_CHECKING:
    from analyzer.checks.settings import Settings
    from analyzer.record.analysis import Analysis
    from analyzer.record.formats import Format
    from analyzer.record.output_files import Target
    from analyzer.report.compare.comparison import Comparison

DEFAULT_FOLDER = Path("reports")


def model_settings(ctx: click.Context) -> str:
    """Take options from the settings that hold for MODEL where the command line is silent.

    Returns:
        The stem of the names of reports on MODEL.
    """
    model: str = ctx.params["model"]
    stem, settings = settings_of(model)
    # They are for models of the folder: a record was made with them, and what is typed now is meant.
    if not is_record(model):
        ctx.params.update(not_typed(ctx, settings.default_map()))
    return stem


def settings_of(model: str) -> tuple[str, Settings]:
    """Return the stem of the names of reports on a model, and the settings that hold for it."""
    from analyzer.checks.settings import read_settings
    from analyzer.loading.model_reference import parse_reference

    path = Path(model)
    if is_record(model):
        return path.stem, read_settings(path)
    if path.is_dir() or path.name in (CONFIG_NAME, GENAI_NAME):
        folder = path if path.is_dir() else path.parent
        return folder.resolve().name or "model", read_settings(path)
    reference = parse_reference(model)
    return reference.stem, read_settings(reference.path or Path.cwd())


def not_typed(ctx: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of options that the command has and that were not typed."""
    # Not by Click's own default map: which file is read hangs on MODEL, known once the line is parsed.
    return {name: value for name, value in values.items() if name in ctx.params and not is_typed(ctx, name)}


def is_typed(ctx: click.Context, name: str) -> bool:
    """Return whether a parameter stands on the command line itself."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def call(command: Command, params: dict[str, Any], **own: Any) -> Any:
    """Call the Python function of a command with the command line's options, or with others in their place."""
    from analyzer import api
    from analyzer.cli.options import progress
    from analyzer.loading.reading_process import reading_process
    from analyzer.run_folder import temporary_things_in_one_folder

    functions: dict[str, Callable[..., Any]] = {
        "generate": api.analyze_generation,
        "capacity": api.plan_capacity,
        "apply": api.apply_plan,
    }
    function: Callable[..., Any] = functions.get(command) or api.analyze
    # Not around the whole command: a browser that opens the page outlives it.
    with temporary_things_in_one_folder(), reading_process(), progress(quiet=params["quiet"]) as on_progress:
        given = {**keywords(params, command), **own}
        return function(params["model"], progress=on_progress, **given)


def analyse_and_report(ctx: click.Context, command: Command, suffix: str = "") -> Analysis:
    """Analyse a model, write its reports, whose names end in a suffix, and print the summary."""
    params = ctx.params
    stem = model_settings(ctx)
    targets = report_targets(params, f"{stem}{suffix}")
    analysis: Analysis = call(command, params)
    if analysis.training is not None:
        from analyzer.pipeline.training_summary import with_inference

        # Before the record is written, which may take the place of the one of inference.
        folders = {target.path.parent for target in targets if target.path is not None} or {DEFAULT_FOLDER}
        analysis = with_inference(analysis, sorted(folders), params["model"])
    written = publish(analysis, targets, force=params["force"])
    # Nothing else is printed where standard output is the report itself.
    if all(target.path is not None for target in targets):
        if not params["quiet"]:
            print_outcome(analysis, verbose=params["verbose"])
        for path in written:
            say(printable(str(path)))
    if params["open"]:
        open_page(written)
    return analysis


def chosen_formats(params: Mapping[str, Any], known: Mapping[str, Format] | None = None) -> list[Format]:
    """Return the formats that ``--format`` names, or the ending of a file that was typed without it.

    They are among ``known``, by default the formats of a record.

    Raises:
        UsageError: No format has such a name.
    """
    from analyzer.record.formats import FORMATS, PICTURES, named_by_ending

    known = known or {**FORMATS, **PICTURES}
    names, context = params["format"], click.get_current_context()
    # A file that the settings name goes with the formats that they name.
    if is_typed(context, "output") and not is_typed(context, "format"):
        names = named_by_ending(params["output"], known.values()) or names
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        raise click.UsageError("--format names no format.")
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known, f"Choose among {', '.join(known)}.")
            raise UsageError(f"No report format is called {name!r}.", hint=hint)
    return [known[name] for name in chosen]


def report_targets(
    params: Mapping[str, Any],
    stem: str,
    default: Path = DEFAULT_FOLDER,
    *,
    known: Mapping[str, Format] | None = None,
    charts: Sequence[str] = (),
    printed: bool = False,
) -> tuple[Target, ...]:
    """Return which report goes where; what cannot be written is refused, before anything is measured.

    Files are called after ``stem``, in the folder ``default`` where none is given. ``known`` and ``charts`` are
    the command's, those of a record by default. ``printed``: one format alone goes to standard output.

    Raises:
        UsageError: No format or chart has such a name, or charts are named and no picture is written.
        OutputError: A file that cannot be written.
        LibraryError: What draws pictures is not installed.
    """
    from analyzer.record.formats import CHARTS
    from analyzer.record.output_files import STANDARD_OUTPUT, check_writable, targets

    chosen, output = chosen_formats(params, known), params["output"]
    drawn = _charts_to_draw(params.get("chart"), chosen, charts or CHARTS)
    # Of pictures there are several, but where one is named.
    if printed and not output and len(chosen) == 1 and not chosen[0].is_picture:
        output = STANDARD_OUTPUT
    reports = targets(chosen, output, stem, default, drawn)
    check_writable(reports, force=params["force"])
    return reports


def _charts_to_draw(charts: str | None, formats: Sequence[Format], known: Sequence[str]) -> tuple[str, ...]:
    """Return the charts that ``--chart`` names, none where all are drawn."""
    from analyzer.record.formats import find_charts

    drawn = find_charts((charts or "").split(","), known)
    has_pictures = any(form.is_picture for form in formats)
    # What stands in the settings is for the formats that it is of use to.
    typed = is_typed(click.get_current_context(), "chart")
    if typed and not drawn:
        raise UsageError("--chart names no chart.", hint="For example --chart roofline.")
    if typed and not has_pictures:
        raise UsageError(
            "--chart says which charts are drawn as pictures, and no picture is written.",
            hint="Add --format svg, or png.",
        )
    if has_pictures:
        from analyzer.report.pictures import library

        library()
    return drawn


def publish(analysis: Analysis | Comparison, targets: tuple[Target, ...], *, force: bool) -> list[Path]:
    """Render all reports, then write them: all or none. Returns the files."""
    from analyzer.record.output_files import contents, write_all

    rendered = contents(analysis, targets)
    write_all(rendered, force=force)
    for target, content in rendered.items():
        if target.path is None:
            picture = target.format.is_picture
            click.echo(content if picture else content.decode(), nl=not picture and not content.endswith(b"\n"))
    return [target.path for target in rendered if target.path is not None]


def print_outcome(analysis: Analysis, *, verbose: bool) -> None:
    """Print the summary on the terminal; notes, findings and times of stages on standard error."""
    from rich.console import Console

    from analyzer.report.record_document import document
    from analyzer.report.terminal import print_document

    print_document(document(analysis), Console())
    # The messages stand in the summary.
    for note in analysis.model.notes:
        say(f"note: {note}", err=True)
    if verbose:
        for finding in analysis.findings:
            say(f"{finding.severity} {finding.code}: {finding.message}", err=True)
        for stage, spent in analysis.environment.timings_s.items():
            say(f"time: {stage}: {spent:.2f} s", err=True)


def open_page(written: list[Path]) -> None:
    """Open the page in a browser, or say that there is none."""
    page = next((path for path in written if path.suffix == ".html"), None)
    if page is None:
        raise click.UsageError("--open needs an HTML report.")
    click.launch(page.resolve().as_uri())
