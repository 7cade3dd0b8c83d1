"""Reporting: a fleet as one flat table, a row for each cell, as CSV and Parquet (the only user of pyarrow)."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from analyzer.record.fleet import Fleet, FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.report.csv_table import table
from analyzer.report.fleet import words
from analyzer.run_folder import file_aside, umask

FlatKind = Literal["text", "whole", "real", "truth"]

# Of why a cell is not the answer its remark has the sentence.
_CELL = (*(item.name for item in fields(RankedWay) if item.name not in ("note", "why_not")), "remark")
_WHOLE = ("batch", "gpus", "memory_bytes", "count", "parameters", "errors", "warnings", "today_count")
_TRUTH = ("named", "requested", "runs", "fits", "meets", "best", "cheapest", "move", "move_certain")
# By the unit that ends its name.
_REAL = re.compile(r"rate|percentile|gpu_count|\w+_(s|j|per_million|per_month|per_hour)")
# Names first, then the cell, then what is the model's.
COLUMNS = (
    *("model", "owner", "tags", "question", "device", "device_name"),
    *(name for name in _CELL if name not in ("device", "device_name")),
    *("usd_per_million_of", "best", "cheapest", "move", "saved_usd_per_month", "move_certain"),
    *("verdict", "sentence", "reference", "parameters", "digest", "rate", "limit_s", "percentile"),
    *("today_instance", "today_count", "errors", "warnings", "failure", "message", "hint", "notes"),
)
_OF = {False: "inferences", True: "output tokens"}


def kind(column: str) -> FlatKind:
    """Return the type of a column."""
    if column in _WHOLE:
        return "whole"
    return "truth" if column in _TRUTH else "real" if _REAL.fullmatch(column) else "text"


def rows(fleet: Fleet) -> Iterator[Mapping[str, Any]]:
    """Yield a row per cell, by ``COLUMNS``; a model without cells has one row, without a cell's values."""
    names, moves = words.device_names(fleet), {move.model: move for move in fleet.moves}
    for model in fleet.models:
        own = _of_model(model)
        move = moves.get(model.name)
        for index, cell in enumerate(model.cells):
            moved = move if move is not None and move.cell == index else None
            yield {
                **own,
                **{name: getattr(cell, name) for name in _CELL},
                "device_name": cell.device_name or names[cell.device],
                "usd_per_million_of": _OF[words.generates(model, cell)],
                "best": index == model.best,
                "cheapest": index == model.cheapest,
                "move": moved is not None,
                "saved_usd_per_month": moved.saved_usd_per_month if moved else None,
                "move_certain": moved.certain if moved else None,
            }
        if not model.cells:
            yield {**dict.fromkeys(COLUMNS), **own}


def _of_model(model: FleetModel) -> dict[str, Any]:
    traffic, today, failure = model.traffic, model.today, model.failure
    return {
        "model": model.name,
        "owner": model.owner,
        "tags": "; ".join(model.tags),
        "question": model.question,
        "verdict": "" if failure else words.VERDICTS.get(model.device, model.device),
        "sentence": model.sentence,
        "reference": model.reference,
        "parameters": model.parameters,
        "digest": model.digest,
        "rate": traffic.rate if traffic else None,
        "limit_s": traffic.limit_s if traffic else None,
        "percentile": traffic.percentile if traffic else None,
        "today_instance": today.instance if today else "",
        "today_count": today.count if today else None,
        "errors": model.errors,
        "warnings": model.warnings,
        "failure": failure.kind if failure else "",
        "message": failure.message if failure else "",
        "hint": failure.hint if failure else "",
        "notes": "; ".join(model.notes),
    }


def render(fleet: Fleet) -> str:
    """Return the rows; see ``report.csv_table``."""
    return table(COLUMNS, rows(fleet))


def write(fleet: Fleet, path: str | os.PathLike[str]) -> bool:
    """Write the file whole or not at all; False, and no file, where pyarrow is not installed.

    Raises:
        OSError: The folder cannot be written.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return False
    types = {
        "text": pyarrow.string(),
        "whole": pyarrow.int64(),
        "real": pyarrow.float64(),
        "truth": pyarrow.bool_(),
    }
    schema = pyarrow.schema([(name, types[kind(name)]) for name in COLUMNS])
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row in rows(fleet):
        for name, values in columns.items():
            values.append(_value(row[name], kind(name)))
    target = Path(path)
    content = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), content)
    with file_aside(target.parent, content.getvalue()) as whole:
        whole.chmod(0o666 & ~umask())
        os.replace(whole, target)
    return True


def _value(value: Any, kind: FlatKind) -> Any:
    if value is None:
        return None
    if kind == "text":
        # Parquet's texts are UTF-8, which has no halves of characters.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return float(value) if kind == "real" else value
