"""``analyze compare``: two or more saved reports side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli import say
from analyzer.errors import UsageError

if TYPE_CHECKING:
    from analyzer.record.formats import Format


@click.command(name="compare", short_help="Two or more reports side by side.")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--format",
    "formats",
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
def command(
    base: Path,
    new: tuple[Path, ...],
    formats: str,
    chart: str,
    output: str | None,
    fail_on: str,
    tolerance: str,
    force: bool,
    quiet: bool,
) -> None:
    """Put saved reports side by side: what flipped device, what got slower, which operators are new or gone.

    BASE and NEW are .json reports that `analyze` wrote. Operators are matched by module path and type, so a
    renamed or renumbered operator is not taken for a new one.
    """
    from analyzer.cli.reports import charts_to_draw, formats_asked, publish
    from analyzer.record import load_report
    from analyzer.record.formats import COMPARED_CHARTS
    from analyzer.record.output_files import STANDARD_OUTPUT, check_writable, targets
    from analyzer.report.compare.build import compare, failures
    from analyzer.text import printable, share

    conditions = _parts(fail_on)
    allowed = share(tolerance, where="--tolerance")
    paths = (base, *new)
    comparison = compare([(label, load_report(path)) for label, path in zip(labels(paths), paths, strict=True)])
    reasons = failures(comparison, conditions, tolerance=allowed)
    known = _known_formats()
    chosen = _formats(_parts(formats_asked(formats, output, known.values())), known)
    drawn = charts_to_draw(chart, chosen, COMPARED_CHARTS)
    # Of pictures there are several, but where one is named.
    if output is None and len(chosen) == 1 and not chosen[0].is_picture:
        output = STANDARD_OUTPUT
    reports = targets(chosen, output, f"{base.stem}-compare", Path("reports"), drawn)
    check_writable(reports, force=force)
    written = publish(comparison, reports, force=force)
    if not quiet and any(known.is_picture for known in chosen):
        for path in written:
            say(printable(str(path)), err=True)
    if reasons:
        if not quiet:
            say("failed: " + "; ".join(reasons), err=True)
        click.get_current_context().exit(1)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def labels(paths: tuple[Path, ...]) -> list[str]:
    """Short names that differ: file names where they do, else whole paths, else numbered."""
    for names in ([path.stem for path in paths], [str(path) for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({number})" for number, path in enumerate(paths, 1)]


def _known_formats() -> dict[str, Format]:
    """The formats of a comparison, which is no record: ``record/formats.py`` does not know them."""
    from analyzer.record.formats import COMPARED_CHARTS, DRAWING, HTML_MARK, Format, marked_by, pictures

    package = "analyzer.report.compare"
    known = (
        Format(
            name="text",
            extension=".txt",
            writer=f"{package}.document:render_text",
            mark=marked_by(r"\A[^\n]+(?:\n[^\n]+){0,9}?:\s+compared\s+with\s+the\s+base,\s"),
        ),
        Format(
            name="markdown",
            extension=".md",
            writer=f"{package}.document:render_markdown",
            mark=marked_by(r"\A## .+: .+\n\ncompared with the base, "),
        ),
        Format(
            name="json",
            extension=".json",
            writer=f"{package}.build:to_json",
            mark=marked_by(r'\A\{\s*"labels":[\s\S]+?\],\s*"facts":'),
        ),
        Format(
            name="html",
            extension=".html",
            writer=f"{package}.html_page:render",
            mark=HTML_MARK,
        ),
    )
    return {one.name: one for one in known} | pictures(DRAWING, COMPARED_CHARTS)


def _formats(names: list[str], by_name: Mapping[str, Format]) -> list[Format]:
    from analyzer.text import did_you_mean

    if not names:
        raise UsageError("--format names no format", hint=f"one of {', '.join(by_name)}")
    for name in names:
        if name not in by_name:
            hint = did_you_mean(name, by_name, f"One of {', '.join(by_name)}.")
            raise UsageError(f"compare has no format {name!r}", hint=hint)
    return [by_name[name] for name in names]
