"""``analyze compare``: two or more saved reports side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.errors import UsageError

if TYPE_CHECKING:
    from analyzer.report.compare.comparison import Comparison

# Formats of a comparison, which is no record: `record/formats.py` does not know them.
EXTENSIONS = {"text": ".txt", "markdown": ".md", "json": ".json", "html": ".html"}


@click.command(name="compare", short_help="Two or more reports side by side.")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--format",
    "formats",
    default="text",
    show_default=True,
    help="text, markdown, json, html; several with commas.",
)
@click.option("--output", help="File, or folder for several formats; `-` is standard output (the default).")
@click.option(
    "--fail-on",
    default="",
    help="Exit 1 where this got worse: latency, copies, flipped, ... or any; several with commas.",
)
@click.option("--tolerance", default="0", help="Share by which a figure may rise for --fail-on: 5%.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error.")
def command(
    base: Path,
    new: tuple[Path, ...],
    formats: str,
    output: str | None,
    fail_on: str,
    tolerance: str,
    quiet: bool,
) -> None:
    """Put saved reports side by side: what flipped device, what got slower, which operators are new or gone.

    BASE and NEW are .json reports that `analyze` wrote. Operators are matched by module path and type, so a
    renamed or renumbered operator is not taken for a new one.
    """
    from analyzer.record import load_report
    from analyzer.report.compare.build import compare, failures
    from analyzer.text import share

    conditions = _parts(fail_on)
    allowed = share(tolerance, where="--tolerance")
    paths = (base, *new)
    comparison = compare([(label, load_report(path)) for label, path in zip(labels(paths), paths, strict=True)])
    reasons = failures(comparison, conditions, tolerance=allowed)
    _write(comparison, _parts(formats), output, base.stem)
    if reasons:
        if not quiet:
            click.echo("failed: " + "; ".join(reasons), err=True)
        click.get_current_context().exit(1)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def labels(paths: tuple[Path, ...]) -> list[str]:
    """Short names that differ: file names where they do, else whole paths, else numbered."""
    for names in ([path.stem for path in paths], [str(path) for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({number})" for number, path in enumerate(paths, 1)]


def _write(comparison: Comparison, formats: list[str], output: str | None, stem: str) -> None:
    from analyzer.record.output_files import check_writable, targets, write_all

    # All are rendered before anything is written: a format that is not known leaves no files of the others.
    texts = {name: _render(comparison, name) for name in formats}
    if output is None and len(texts) == 1:
        output = "-"
    files = {}
    pairs = [(name, EXTENSIONS[name]) for name in texts]
    destinations = targets(pairs, output, f"{stem}-compare", Path("reports"))
    check_writable([target.path for target in destinations if target.path is not None])
    for target in destinations:
        if target.path is None:
            click.echo(texts[target.format], nl=False)
        else:
            files[target.path] = texts[target.format]
    write_all(files)


def _render(comparison: Comparison, name: str) -> str:
    from analyzer.report.compare import build, html_page, plain_text
    from analyzer.text import nearest

    known = {
        "text": plain_text.render_text,
        "markdown": plain_text.render_markdown,
        "json": build.to_json,
        "html": html_page.render,
    }
    if name not in known:
        meant = nearest(name, EXTENSIONS)
        raise UsageError(
            f"compare has no format {name!r}",
            hint=f"did you mean `{meant}`?" if meant else f"one of {', '.join(EXTENSIONS)}",
        )
    return known[name](comparison)
