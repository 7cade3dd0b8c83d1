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
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    return value
