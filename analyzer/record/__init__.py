"""The record: an ``Analysis`` as JSON that is read back as the same ``Analysis``; imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer.record.serialization import from_dict, from_json, load_report, to_dict, to_json

__all__ = ["from_dict", "from_json", "load_report", "to_dict", "to_json"]


def __getattr__(name: str) -> Any:
    """Imports a public function when it is first used: the record's types import this package themselves."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from analyzer.record import serialization

    return getattr(serialization, name)
