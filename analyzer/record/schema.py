"""The records' JSON Schemas, made from the dataclasses: ``python -m analyzer.record.schema`` writes them anew.

They say what a reader may rely on: keys, types, units by the key's name, values that are never negative. What
lies between two places (an index of an operator that is there) is checked on reading.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

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
    types = {one.__name__: one for one in _types_in(kind)}
    # Sorted: msgspec gives them in the order in which it meets the types, which an added field changes.
    described = {name: _with_meanings(_tidy(part), types[name]) for name, part in sorted(parts.items())}
    return {"$schema": _DIALECT, "title": title, "description": _UNITS, **top, "$defs": described}


def _types_in(annotation: Any) -> Iterator[type]:
    """Yield the dataclasses of an annotation, and those of their fields."""
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        yield annotation
        for hint in get_type_hints(annotation).values():
            yield from _types_in(hint)
    for inner in get_args(annotation):
        yield from _types_in(inner)


def _with_meanings(part: dict[str, Any], kind: type) -> dict[str, Any]:
    """Give each key its entry under ``Attributes:`` in the docstring of its type or of a base."""
    names = "|".join(part["properties"])
    for base in reversed(kind.__mro__):
        # Each entry begins with its keys, a colon behind the last.
        section = _in_words(base.__doc__ or "").partition(" Attributes: ")[2]
        entries = re.split(rf"(?:^|(?<=[.]) )((?:{names})(?:, (?:{names}))*): ", section)
        for listed, meaning in zip(entries[1::2], entries[2::2], strict=True):
            for name in listed.split(", "):
                part["properties"][name]["description"] = meaning
    return {**part, "description": part["description"].partition(" Attributes: ")[0]}


def _in_words(docstring: str) -> str:
    """Return a docstring on one line, in JSON's words."""
    words = " ".join(docstring.split()).replace("``", "`")
    for ours, theirs in (("None", "null"), ("True", "true"), ("False", "false")):
        words = re.sub(rf"\b{ours}\b", theirs, words)
    return words


def _tidy(part: Any) -> Any:
    """Return a part with its description on one line in JSON's words, and short unions."""
    if isinstance(part, list):
        return [_tidy(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    tidied = {name: _tidy(entry) for name, entry in part.items()}
    # What msgspec adds from 0.23 on: the file is the same with older releases.
    tidied.pop("propertyNames", None)
    if tidied.get("default") == {}:
        del tidied["default"]
    if isinstance(tidied.get("description"), str):
        tidied["description"] = _in_words(tidied["description"])
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
