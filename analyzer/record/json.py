"""Analysis <-> the versioned JSON record, field by field from the dataclasses themselves."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from analyzer import __version__
from analyzer.errors import RecordError
from analyzer.record.analysis import SCHEMA_VERSION, Analysis


def to_dict(analysis: Analysis) -> dict[str, Any]:
    """The record as plain dicts, lists, numbers and strings; keys in the order of the dataclasses."""
    found = _plain(analysis)
    head = {"schema_version": found.pop("schema_version"), "tool": found.pop("tool")}
    return {**head, **found}


def to_json(analysis: Analysis) -> str:
    """The record as JSON; the same analysis gives the same text."""
    return json.dumps(to_dict(analysis), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_dict(values: Mapping[str, Any], *, name: str = "the record") -> Analysis:
    """The analysis that a record holds; keys that this version does not know are left aside.

    Raises:
        RecordError: It is no record, of a newer schema, or damaged; the message names the place.
    """
    version = values.get("schema_version") if isinstance(values, Mapping) else None
    if not isinstance(version, int) or "operators" not in values:
        raise RecordError(
            f"{name} is no report of analyze.", hint="A report is the .json file that analyze writes."
        )
    if version > SCHEMA_VERSION:
        made_by = (values.get("tool") or {}).get("version", "a newer version")
        raise RecordError(
            f"{name} has schema {version}; analyze {__version__} reads up to {SCHEMA_VERSION}.",
            hint=f"Read it with analyze {made_by} or newer.",
        )
    analysis = _parse(Analysis, values, name)
    assert isinstance(analysis, Analysis)
    return analysis


def from_json(text: str, *, name: str = "the record") -> Analysis:
    """The analysis that a JSON text holds.

    Raises:
        RecordError: It is no JSON or no record.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise RecordError(f"{name} is no valid JSON: {error}.", hint="The file may be cut short.") from error
    return from_dict(values, name=name)


def load_report(path: str | os.PathLike[str]) -> Analysis:
    """Reads a saved report.

    Raises:
        RecordError: There is no such file, or it holds no record that can be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RecordError(f"No such file: {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} cannot be read: {error}.") from error
    return from_json(text, name=str(path))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _parse(kind: Any, value: Any, where: str) -> Any:
    """A JSON value as the type that a dataclass declares."""
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _parse(next(item for item in arguments if item is not type(None)), value, where)
    if dataclasses.is_dataclass(kind):
        return _parse_dataclass(kind, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise RecordError(f"{where} should be a list, not {type(value).__name__}.", hint=_DAMAGED)
        return tuple(_parse(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(_class(origin), Mapping):
        if not isinstance(value, dict):
            raise RecordError(f"{where} should be an object, not {type(value).__name__}.", hint=_DAMAGED)
        return {key: _parse(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    return _parse_plain(kind, value, where)


_DAMAGED = "The record is damaged, or edited by hand."


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else object


def _parse_plain(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return value
    expected = kind if isinstance(kind, type) else str  # a Literal of strings
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise RecordError(
            f"{where} should be {expected.__name__}, not {json.dumps(value)[:40]}.", hint=_DAMAGED
        )
    return value


def _parse_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise RecordError(f"{where} should be an object, not {type(value).__name__}.", hint=_DAMAGED)
    hints = _hints(kind)
    found = {}
    for item in dataclasses.fields(kind):
        if item.name in value:
            found[item.name] = _parse(hints[item.name], value[item.name], f"{where}.{item.name}")
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise RecordError(f"{where} lacks {item.name}.", hint=_DAMAGED)
    return kind(**found)
