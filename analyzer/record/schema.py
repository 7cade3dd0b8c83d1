"""The records' JSON Schemas, made from the dataclasses: ``python -m analyzer.record.schema`` writes them anew.

It says what a reader may rely on: keys, types, units by the key's name, values that are never negative. What
lies between two places (an index of an operator that is there, tables of one length) is checked on reading.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from analyzer.record.analysis import SCHEMA_VERSION, Analysis
from analyzer.record.fleet import FLEET_SCHEMA_VERSION, Fleet

PATH = Path(__file__).with_name("record.schema.json")
FLEET_PATH = Path(__file__).with_name("fleet.schema.json")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TITLE = "Record of analyze"
_UNITS = (
    "Seconds, bytes, FLOPs, US dollars, joules, without prefixes; null is not known, never 0. Keys that are "
    "not named here may come with a later version and are to be left aside."
)


def schema() -> dict[str, Any]:
    """The JSON Schema of a record, as plain values."""
    return _schema_of(Analysis, SCHEMA_VERSION, _TITLE)


def fleet_schema() -> dict[str, Any]:
    """The JSON Schema of a fleet's record (``fleet.json``), as plain values."""
    return _schema_of(Fleet, FLEET_SCHEMA_VERSION, "Record of analyze fleet")


def text(content: dict[str, Any] | None = None) -> str:
    """A schema, by default that of a record, as the file in the tree holds it."""
    return json.dumps(content or schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Writes the files."""
    for path, content in ((PATH, schema()), (FLEET_PATH, fleet_schema())):
        path.write_text(text(content), encoding="utf-8")
        print(path)


def _schema_of(kind: type, version: int, title: str) -> dict[str, Any]:
    (top,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    # Sorted: msgspec gives them in the order in which it meets the types, which an added field changes.
    parts = {name: _tidy(part) for name, part in sorted(parts.items())}
    # A default makes a key optional to msgspec; every record that was ever written has this one.
    parts[kind.__name__]["properties"]["schema_version"] = {"const": version}
    parts[kind.__name__]["required"].append("schema_version")
    return {"$schema": _DIALECT, "title": title, "description": _UNITS, **top, "$defs": parts}


def _tidy(part: Any) -> Any:
    """Descriptions on one line in JSON's words; unions as short as JSON Schema lets them be."""
    if isinstance(part, list):
        return [_tidy(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    tidied = {name: _tidy(entry) for name, entry in part.items()}
    if isinstance(part.get("description"), str):
        tidied["description"] = _in_json_words(part["description"])
    return _short_union(tidied) if "anyOf" in tidied else tidied


def _in_json_words(docstring: str) -> str:
    text = " ".join(docstring.split()).replace("``", "`")
    for ours, theirs in (("None", "null"), ("True", "true"), ("False", "false")):
        text = re.sub(rf"\b{ours}\b", theirs, text)
    return text


def _short_union(union: dict[str, Any]) -> dict[str, Any]:
    """A number's two readings (whole or not) as the one that JSON has; "or null" as a second type."""
    kinds = union.pop("anyOf")
    if any(kind.get("type") == "number" for kind in kinds):
        # JSON Schema's "number" holds the whole numbers; `quantities` tells them apart for Python's sake alone.
        kinds = [kind for kind in kinds if kind.get("type") != "integer"]
    if len(kinds) == 2 and kinds[1] == {"type": "null"} and "type" in kinds[0]:
        kinds = [{**kinds[0], "type": [kinds[0]["type"], "null"]}]
    return {**kinds[0], **union} if len(kinds) == 1 else {"anyOf": kinds, **union}


if __name__ == "__main__":
    main()
