"""What commands with reports have in common: the call of Python's function, targets, files, the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from analyzer.cli import say
from analyzer.cli.options import keywords
from analyzer.errors import UsageError
from analyzer.loading.configuration_file import CONFIG_NAME, GENAI_NAME, is_record
from analyzer.option_kinds import Command
from analyzer.text import printable

if TYPE_CHECKING:
    from analyzer.record.analysis import Analysis
    from analyzer.record.formats import Format
    from analyzer.record.output_files import Target
    from analyzer.report.compare.comparison import Comparison

DEFAULT_FOLDER = Path("reports")


def call(command: Command, params: dict[str, Any], **own: Any) -> Any:
    """Call the Python function of a command with the command line's options, or with others in their place."""
    from analyzer import api
    from analyzer.cli.progress import progress
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


def analyse_and_report(command: Command, params: dict[str, Any], stem: str) -> Analysis:
    """Analyse a model, write its reports and print the summary."""
    from analyzer.record.output_files import check_writable

    # What cannot be written is said before anything is measured.
    targets = report_targets(params["format"], params["output"], stem, charts=params["chart"])
    check_writable(targets, force=params["force"])
    analysis: Analysis = call(command, params)
    if analysis.training is not None:
        from analyzer.pipeline.inference_reference import beside_inference

        # Before the record is written, which may take the place of the one of inference.
        folders = {target.path.parent for target in targets if target.path is not None} or {DEFAULT_FOLDER}
        analysis = beside_inference(analysis, sorted(folders), params["model"])
    written = publish(analysis, targets, force=params["force"])
    print_outcome(analysis, targets, written, quiet=params["quiet"], verbose=params["verbose"])
    if params["open"]:
        open_page(written)
    return analysis


def settings_start(model: str) -> tuple[Path, str]:
    """The file or folder from which settings are looked for, and the stem of the result's file names."""
    from analyzer.loading.model_reference import parse_reference

    path = Path(model)
    if is_record(model):
        return path, path.stem
    if path.is_dir() or path.name in (CONFIG_NAME, GENAI_NAME):
        folder = path if path.is_dir() else path.parent
        return path, folder.resolve().name or "model"
    reference = parse_reference(model)
    return reference.path or Path.cwd(), reference.stem


def report_targets(
    formats: str, output: str | None, stem: str, default: Path = DEFAULT_FOLDER, *, charts: str | None = None
) -> tuple[Target, ...]:
    """Which report goes where.

    Raises:
        UsageError: No format or chart has such a name, or charts are named and no picture is written.
        LibraryError: A picture is asked for, and what draws it is not installed.
    """
    from analyzer.record.formats import CHARTS
    from analyzer.record.output_files import targets
    from analyzer.report import find

    chosen = [find(name.strip()) for name in formats_asked(formats, output).split(",") if name.strip()]
    if not chosen:
        raise click.UsageError("--format names no format.")
    return targets(chosen, output, stem, default, charts_to_draw(charts, chosen, CHARTS))


def formats_asked(formats: str, output: str | None, known: Iterable[Format] | None = None) -> str:
    """What ``--format`` says, or the ending of ``--output`` where that was typed and ``--format`` was not.

    Args:
        formats: The value of ``--format``, its default or that of the settings.
        output: The value of ``--output``.
        known: The command's formats; those of a record where none are given.
    """
    from analyzer.record.formats import FORMATS, PICTURES, named_by_ending

    context = click.get_current_context()
    name = next(name for name in ("format", "formats") if name in context.params)
    if output is None or context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        return formats
    # A file that the settings name goes with the formats that they name.
    if context.get_parameter_source("output") is not ParameterSource.COMMANDLINE:
        return formats
    return named_by_ending(output, known or (*FORMATS.values(), *PICTURES.values())) or formats


def charts_to_draw(charts: str | None, formats: Sequence[Format], known: Sequence[str]) -> tuple[str, ...]:
    """The charts that ``--chart`` names, none where all are drawn.

    Raises:
        UsageError: No chart has such a name, or charts are named and no picture is written.
        LibraryError: A picture is asked for, and what draws it is not installed.
    """
    from analyzer.record.formats import find_charts

    drawn = find_charts((charts or "").split(","), known)
    # What stands in the settings is for the formats that it is of use to.
    typed = click.get_current_context().get_parameter_source("chart") is ParameterSource.COMMANDLINE
    if typed and not drawn:
        raise UsageError("--chart names no chart.", hint="For example --chart roofline.")
    if typed and not any(form.is_picture for form in formats):
        raise UsageError(
            "--chart says which charts are drawn as pictures, and no picture is written.",
            hint="Add --format svg, or png.",
        )
    if any(form.is_picture for form in formats):
        from analyzer.report.pictures import library

        library()
    return drawn


def publish(analysis: Analysis | Comparison, targets: tuple[Target, ...], *, force: bool) -> list[Path]:
    """Renders all reports, then writes them: all or none. Returns the files."""
    from analyzer.record.output_files import contents, write_all

    rendered = contents(analysis, targets)
    write_all(rendered, force=force)
    for target, content in rendered.items():
        if target.path is None:
            picture = target.format.is_picture
            click.echo(content if picture else content.decode(), nl=not picture and not content.endswith(b"\n"))
    return [target.path for target in rendered if target.path is not None]


def print_outcome(
    analysis: Analysis, targets: tuple[Target, ...], written: list[Path], *, quiet: bool, verbose: bool
) -> None:
    """The summary on the terminal; nothing where standard output is the report itself."""
    if any(target.path is None for target in targets):
        return
    if not quiet:
        from rich.console import Console

        from analyzer.report.record_document import document
        from analyzer.report.terminal import print_document

        print_document(document(analysis), Console())
        # On standard error: standard output is the summary and the paths alone.
        for note in (*analysis.model.notes, *analysis.environment.messages):
            say(f"note: {note}", err=True)
        if verbose:
            print_details(analysis)
    for path in written:
        say(printable(str(path)))


def print_details(analysis: Analysis) -> None:
    """Findings and the time of each stage."""
    for finding in analysis.findings:
        say(f"{finding.severity} {finding.code}: {finding.message}", err=True)
    for stage, spent in analysis.environment.timings_s.items():
        say(f"time: {stage}: {spent:.2f} s", err=True)


def open_page(written: list[Path]) -> None:
    """Opens the page in a browser, or says that there is none."""
    page = next((path for path in written if path.suffix == ".html"), None)
    if page is None:
        raise click.UsageError("--open needs an HTML report.")
    click.launch(page.resolve().as_uri())
