"""The records' JSON Schemas, made from the dataclasses: ``python -m analyzer.record.schema`` writes them anew.

It says what a reader may rely on: keys, types, units by the key's name, values that are never negative. What
lies between two places (an index of an operator that is there, tables of one length) is checked on reading.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from analyzer.record.analysis import SCHEMA_VERSION, Analysis
from analyzer.record.fleet import FLEET_SCHEMA_VERSION, Fleet
from analyzer.record.key_words import KEY_WORDS

PATH = Path(__file__).with_name("record.schema.json")
FLEET_PATH = Path(__file__).with_name("fleet.schema.json")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TITLE = "Record of analyze"
_UNITS = (
    "Seconds, bytes, FLOPs, US dollars, joules, without prefixes; null is not known, never 0. Keys that are "
    "not named here may come with a later version and are to be left aside."
)
# A docstring's prose, sentence by sentence.
_SENTENCE = re.compile(r"(?<=[.]) (?=[A-Z`])")


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
    kinds = _kinds(kind)
    described = {name: _described(kinds[name]) for name in parts}
    parts = {name: _with_words(part, name, described) for name, part in parts.items()}
    return {"$schema": _DIALECT, "title": title, "description": _UNITS, **top, "$defs": parts}


def _kinds(top: type) -> Mapping[str, type]:
    """A record's types by name: the topmost, and what its fields hold all the way down."""
    found: dict[str, type] = {}
    waiting: list[Any] = [top]
    while waiting:
        kind = waiting.pop()
        if not is_dataclass(kind):
            waiting += get_args(kind)  # of a tuple, a mapping, a union
        elif isinstance(kind, type) and kind.__name__ not in found:
            found[kind.__name__] = kind
            waiting += get_type_hints(kind).values()
    return found


def _described(kind: type) -> tuple[str, dict[str, str]]:
    """What a docstring says of a type, and what of those of its keys that it names."""
    prose, _, section = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")
    names = set(kind.__annotations__)
    words: dict[str, str] = {}
    for entry in re.split(r"\n(?= {4}\S)", section):
        listed, _, meaning = _in_json_words(entry).strip().partition(": ")
        words |= {name: meaning for name in listed.split(", ") if name in names}
    about = _in_json_words(prose)
    for sentence in _SENTENCE.split(about)[1:]:
        for name in names.intersection(re.findall(r"`(\w+)`", sentence)):
            words[name] = " ".join(filter(None, (words.get(name), sentence)))
    # Of the first sentence, which is about the type, what begins with a key.
    for clause in re.split("[;,] ", _SENTENCE.split(about)[0]):
        begins = re.match(r"`(\w+)`", clause)
        if begins and begins[1] in names:
            words.setdefault(begins[1], clause)
    return about, words


def _with_words(
    part: dict[str, Any], name: str, described: Mapping[str, tuple[str, Mapping[str, str]]]
) -> dict[str, Any]:
    """A type of the schema with what it is and what each key means.

    Raises:
        LookupError: Nothing says what a key means.
    """
    about, words = described[name]
    keys = {}
    for key, value in part["properties"].items():
        held = re.search(r"#/\$defs/(\w+)", str(value))
        meaning = words.get(key) or (
            re.split("; |: ", _SENTENCE.split(described[held[1]][0])[0])[0] if held else KEY_WORDS.get(key)
        )
        if not meaning:
            raise LookupError(f"{name}.{key}: say in the docstring, or in KEY_WORDS, what it means")
        keys[key] = {**value, "description": meaning[0].upper() + meaning[1:].rstrip(".")}
    return {**part, "description": about, "properties": keys}


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
