"""Reporting: a fleet's cells as Parquet, the columns of the CSV with their types (the only user of pyarrow)."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from analyzer.record.fleet import Fleet
from analyzer.report.fleet import flat
from analyzer.run_folder import file_aside, umask


def write(fleet: Fleet, path: str | os.PathLike[str]) -> bool:
    """Writes the file whole or not at all; False, and no file, where pyarrow is not installed.

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
    schema = pyarrow.schema([(name, types[flat.kind(name)]) for name in flat.COLUMNS])
    columns: dict[str, list[Any]] = {name: [] for name in flat.COLUMNS}
    for row in flat.rows(fleet):
        for name, values in columns.items():
            values.append(_value(row[name], flat.kind(name)))
    target = Path(path)
    content = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), content)
    with file_aside(target.parent, content.getvalue()) as whole:
        whole.chmod(0o666 & ~umask())
        os.replace(whole, target)
    return True


def _value(value: Any, kind: flat.FlatKind) -> Any:
    if value is None:
        return None
    if kind == "text":
        # Parquet's texts are UTF-8, which has no halves of characters.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return float(value) if kind == "real" else value
