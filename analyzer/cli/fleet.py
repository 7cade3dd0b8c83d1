"""``analyze fleet MODEL...``: many models, many devices, one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli import EXIT_FAILED, EXIT_FINE, EXIT_INTERRUPTED, EXIT_TERMINATED, Terminated, say
from analyzer.cli.options import display, files, keywords, options_of
from analyzer.errors import UsageError
from analyzer.text import loggable

if TYPE_CHECKING:
    from analyzer.fleet.fleet import Finished, Watch
    from analyzer.record.fleet import Fleet

DEFAULT_FOLDER = "reports/fleet"


@click.command()
@click.argument("models", nargs=-1, metavar="MODEL...", shell_complete=files)
@options_of("fleet")
@click.pass_context
def fleet(ctx: click.Context, /, **_: Any) -> int:
    """Analyse many models, and write one page with all of them on all devices.

    MODEL is what `analyze` takes, a folder (of models; or one of a model that generates), a pattern, or a
    manifest, fleet.toml, that gives models names, options, traffic, owners and tags.

    The folder holds index.html, fleet.json, fleet.csv, and of each model its record and page. A model that
    fails, hangs or ends its process is a row with its message. The same command goes on where it was
    interrupted, and does again what has changed.
    """
    from analyzer.record.encoding import load_fleet

    params = ctx.params
    if not params["models"]:
        raise UsageError("No model is named.", hint="For example: analyze fleet models/ zoo/*.onnx fleet.toml.")
    fails = _fails(params["fail_on"])
    folder = Path(params["output"] or DEFAULT_FOLDER)
    # Before any work, and before the new one takes its place: it may be the same folder.
    before = load_fleet(params["compare"]) if params["compare"] else None
    seen: list[Finished] = []
    try:
        result = _analyse(params, folder, seen, before)
    except KeyboardInterrupt as error:
        if not seen:
            raise
        say(
            f"interrupted; {seen[-1].done} of {seen[-1].total} are finished and kept: "
            "the same command goes on with the rest",
            err=True,
        )
        return EXIT_TERMINATED if isinstance(error, Terminated) else EXIT_INTERRUPTED
    _print(result, folder, quiet=params["quiet"])
    if params["open"]:
        from analyzer.fleet.writing import INDEX_FILE

        click.launch((folder / INDEX_FILE).resolve().as_uri())
    failed = any(model.failure is not None for model in result.models)
    return EXIT_FAILED if fails and failed else EXIT_FINE


def _fails(given: tuple[str, ...]) -> bool:
    for value in given:
        if value not in ("error", "never"):
            raise UsageError(
                f"--fail-on {value}: a fleet fails on `error`, where a model failed, or `never`.",
                hint="`analyze check FOLDER/fleet.json` judges what was found.",
            )
    return "error" in given


def _analyse(params: dict[str, Any], folder: Path, seen: list[Finished], before: Fleet | None) -> Fleet:
    from analyzer.fleet.fleet import DEFAULT_TIMEOUT_S, analyze_fleet

    with _progress(quiet=params["quiet"], verbose=params["verbose"]) as show:

        def watch(finished: Finished) -> None:
            seen.append(finished)
            del seen[:-1]
            show(finished)

        return analyze_fleet(
            list(params["models"]),
            output=folder,
            on=params["on"] or "local",
            jobs=params["jobs"],
            timeout=DEFAULT_TIMEOUT_S if params["timeout"] is None else params["timeout"],
            retry_failed=params["retry_failed"],
            compare=before,
            force=params["force"],
            watch=watch,
            say=lambda text: None if params["quiet"] else say(text, err=True),
            **keywords(params, "fleet"),
        )


@contextmanager
def _progress(*, quiet: bool, verbose: bool) -> Iterator[Watch]:
    """Show what is done, failed and left, and when it should end; without a terminal a line for each model."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda finished: None if quiet else say("\n".join(_lines(finished, verbose=verbose)), err=True)
        return
    from rich.progress import MofNCompleteColumn

    with display(MofNCompleteColumn()) as shown:
        task = shown.add_task("models", total=None)

        def show(finished: Finished) -> None:
            failed = f", {finished.failed} failed" if finished.failed else ""
            shown.update(task, total=finished.total, completed=finished.done, description=f"models{failed}")
            if finished.model.failure is not None or verbose:
                # By the display itself, which would draw over what others print.
                lines = "\n".join(_lines(finished, verbose=verbose))
                shown.console.print(loggable(lines), markup=False, highlight=False)

        yield show


def _lines(finished: Finished, *, verbose: bool) -> Iterator[str]:
    model, failure = finished.model, finished.model.failure
    what = f"{failure.kind}: {failure.message}" if failure is not None else model.device
    spent = "kept" if finished.kept else f"{finished.seconds:.1f} s"
    yield f"[{finished.done}/{finished.total}] {finished.task}: {what} ({spent})"
    if verbose and failure is not None and failure.hint:
        yield f"    {failure.hint}"


def _print(fleet: Fleet, folder: Path, *, quiet: bool) -> None:
    from analyzer.fleet.writing import fleet_targets

    if not quiet:
        from rich.console import Console

        from analyzer.report.fleet_page import document
        from analyzer.report.terminal import print_document

        print_document(document(fleet), Console())
    for target in fleet_targets(folder):
        say(str(target.path))
