"""The fleet's own files: ``fleet.json``, ``.csv``, ``.md``, ``index.html``; ``.parquet`` where pyarrow is."""

from __future__ import annotations

from pathlib import Path

from analyzer.errors import OutputError
from analyzer.record.encoding import FLEET_FILE
from analyzer.record.fleet import Fleet
from analyzer.record.formats import HTML_MARK, Format, marked_by
from analyzer.record.output_files import Target, check_writable, write_all
from analyzer.report.fleet import flat

INDEX_FILE = "index.html"
_PARQUET_FILE = "fleet.parquet"
_FORMATS = (
    Format(
        name="json",
        extension=FLEET_FILE,
        writer="analyzer.record.encoding:fleet_to_json",
        mark=marked_by(r'\A\{\s*"schema_version":\s*\d+,\s*"tool":\s*\{\s*"name":\s*"analyze"'),
    ),
    Format(
        name="csv",
        extension="fleet.csv",
        writer="analyzer.report.fleet.flat:render",
        mark=marked_by(r"\Amodel,owner,tags,question,device,"),
    ),
    Format(
        name="markdown",
        extension="fleet.md",
        writer="analyzer.report.fleet.document:render_markdown",
        mark=marked_by(r"\A## Fleet: "),
    ),
    Format(name="html", extension=INDEX_FILE, writer="analyzer.report.fleet.page:render", mark=HTML_MARK),
)


def fleet_targets(folder: Path) -> tuple[Target, ...]:
    """Where each of them goes."""
    return tuple(Target(format=form, path=folder / form.extension) for form in _FORMATS)


def check_fleet_files(folder: Path, *, force: bool = False) -> None:
    """Says what cannot be written before any work is done.

    Raises:
        OutputError: A file there is not ours, or the folder cannot be written.
    """
    check_writable(fleet_targets(folder), force=force)


def write_fleet(fleet: Fleet, folder: Path, *, force: bool = False) -> None:
    """Writes all of them, or none.

    Raises:
        OutputError: One cannot be written.
    """
    write_all({target: target.format.write(fleet) for target in fleet_targets(folder)}, force=force)
    try:
        flat.write(fleet, folder / _PARQUET_FILE)
    except OSError as error:
        raise OutputError(f"{folder / _PARQUET_FILE} cannot be written: {error.strerror or error}.") from error
