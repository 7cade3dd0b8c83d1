"""The fleet's own files: ``fleet.json``, ``fleet.csv``, ``index.html``; ``fleet.parquet`` where pyarrow is."""

from __future__ import annotations

from pathlib import Path

from analyzer.record.fleet import Fleet
from analyzer.record.fleet_json import FLEET_FILE, fleet_to_json
from analyzer.record.formats import Format, marked_by
from analyzer.record.output_files import Target, write_all

_RECORD = Format(
    name="json",
    extension=".json",
    writer="analyzer.record.fleet_json:fleet_to_json",
    mark=marked_by(r'\A\{\s*"schema_version":\s*\d+,\s*"tool":\s*\{\s*"name":\s*"analyze"'),
)
INDEX_FILE = "index.html"


def fleet_targets(folder: Path) -> dict[str, Target]:
    """The files by name."""
    return {FLEET_FILE: Target(format=_RECORD, path=folder / FLEET_FILE)}


def write_fleet(fleet: Fleet, folder: Path, *, force: bool = False) -> None:
    """Writes all of them, or none.

    Raises:
        OutputError: One cannot be written.
    """
    targets = fleet_targets(folder)
    write_all({targets[FLEET_FILE]: fleet_to_json(fleet)}, force=force)
