"""``analyze compare``: two or more saved reports side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli import say

if TYPE_CHECKING:
    from analyzer.record.formats import Format


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
    from analyzer.text import printable, share

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

    title = "(?:flipped device|new .+|.+ gone|slower|faster|no operator differs)"
    known = (
        ("text", ".txt", "plain_text:render_text", marked_by(rf"^.+ -> .+\n\n  {title} \(")),
        ("markdown", ".md", "plain_text:render_markdown", marked_by(r"\A## .+ -&gt; .+\n\n")),
        ("json", ".json", "build:to_json", marked_by(r'\A\{\s*"labels":[\s\S]+?\],\s*"facts":')),
        ("html", ".html", "html_page:render", HTML_MARK),
    )
    written = {
        name: Format(name=name, extension=extension, writer=f"analyzer.report.compare.{writer}", mark=mark)
        for name, extension, writer, mark in known
    }
    return written | pictures(DRAWING, COMPARED_CHARTS)
