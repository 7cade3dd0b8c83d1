"""Analysis -> the versioned JSON record, field by field from the dataclasses themselves.

Knows no field by name but the first two, and imports none of the record's types: they import this.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analyzer.text import json_escaped

if TYPE_CHECKING:
    from analyzer.record.analysis import Analysis


def to_dict(analysis: Analysis) -> dict[str, Any]:
    """The record as plain dicts, lists, numbers and strings; keys in the order of the dataclasses."""
    values = plain(analysis)
    # First, whatever the order of the fields: a reader must know the version before it believes any other key.
    head = {"schema_version": values.pop("schema_version"), "tool": values.pop("tool")}
    return {**head, **values}


def to_json(analysis: Analysis) -> str:
    """The record as JSON; the same analysis gives the same text."""
    # Indented, so that records can be compared line by line; by one space, as they are deep. JSON has no NaN.
    return json_escaped(json.dumps(to_dict(analysis), indent=1, ensure_ascii=False, allow_nan=False)) + "\n"


def plain(value: Any) -> Any:
    """A part of the record as JSON's own kinds of values.

    Not msgspec's: it would leave tuples as they are, and write 1e-05 as 1e-5, so that records changed.
    """
    kind = type(value)
    if kind in _LEAVES:  # nearly all values of a record
        return value
    names = _fields_of(kind)
    if names:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    return value


_LEAVES = frozenset((str, int, float, bool, type(None)))


_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields_of(kind: type[Any]) -> tuple[str, ...]:
    """Names of a dataclass's fields; none of any other type."""
    known = _FIELDS.get(kind)
    if known is None:
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        known = _FIELDS[kind] = tuple(field.name for field in fields)
    return known
