"""The records' JSON Schemas, made from the dataclasses: ``python -m analyzer.record.schema`` writes them anew.

They say what a reader may rely on: keys, types, units by the key's name, values that are never negative. What
lies between two places (an index of an operator that is there) is checked on reading.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from analyzer.record.analysis import Analysis
from analyzer.record.fleet import Fleet

PATH = Path(__file__).with_name("record.schema.json")
FLEET_PATH = Path(__file__).with_name("fleet.schema.json")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNITS = (
    "Seconds, bytes, FLOPs, US dollars, joules, without prefixes; null is not known, never 0. low and high are "
    "ends of 90 % intervals. Keys that are not named here may come with a later version: leave them aside."
)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a record, as plain values."""
    return _schema_of(Analysis, "Record of analyze")


def fleet_schema() -> dict[str, Any]:
    """Return the JSON Schema of a fleet's record (``fleet.json``), as plain values."""
    return _schema_of(Fleet, "Record of analyze fleet")


def text(content: dict[str, Any]) -> str:
    """Return a schema as the file in the tree holds it."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the files."""
    for path, content in ((PATH, schema()), (FLEET_PATH, fleet_schema())):
        path.write_text(text(content), encoding="utf-8")
        print(path)


def _schema_of(kind: type, title: str) -> dict[str, Any]:
    (top,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    # Sorted: msgspec gives them in the order in which it meets the types, which an added field changes.
    described = {name: _with_meanings(_tidy(part)) for name, part in sorted(parts.items())}
    return {"$schema": _DIALECT, "title": title, "description": _UNITS, **top, "$defs": described}


def _with_meanings(part: dict[str, Any]) -> dict[str, Any]:
    """Give each key that the docstring's ``Attributes:`` name its entry there as a description."""
    prose, _, section = part["description"].partition(" Attributes: ")
    # Each entry begins with its keys, a colon behind the last.
    names = "|".join(part["properties"])
    entries = re.split(rf"(?:^|(?<=[.]) )((?:{names})(?:, (?:{names}))*): ", section)
    meanings = dict(zip(entries[1::2], entries[2::2], strict=True))
    for listed, meaning in meanings.items():
        for name in listed.split(", "):
            part["properties"][name]["description"] = meaning
    return {**part, "description": prose}


def _tidy(part: Any) -> Any:
    """Return a part with its description on one line in JSON's words, and short unions."""
    if isinstance(part, list):
        return [_tidy(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    tidied = {name: _tidy(entry) for name, entry in part.items()}
    if isinstance(tidied.get("description"), str):
        words = " ".join(tidied["description"].split()).replace("``", "`")
        for ours, theirs in (("None", "null"), ("True", "true"), ("False", "false")):
            words = re.sub(rf"\b{ours}\b", theirs, words)
        tidied["description"] = words
    return _short_union(tidied) if "anyOf" in tidied else tidied


def _short_union(union: dict[str, Any]) -> dict[str, Any]:
    """Return a number's two readings as the one that JSON has, and "or null" as a second type."""
    kinds = union.pop("anyOf")
    if {"array", "object"} <= {kind.get("type") for kind in kinds}:
        return union  # `quantities.Value`: any value of JSON's
    if any(kind.get("type") == "number" for kind in kinds):
        kinds = [kind for kind in kinds if kind.get("type") != "integer"]
    if len(kinds) == 2 and kinds[1] == {"type": "null"} and "type" in kinds[0]:
        kinds = [{**kinds[0], "type": [kinds[0]["type"], "null"]}]
    return {**kinds[0], **union} if len(kinds) == 1 else {"anyOf": kinds, **union}


if __name__ == "__main__":
    main()
