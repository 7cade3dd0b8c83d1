"""What JSON lets through and a record does not hold: whatever is deeper, larger or other than any figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# A record is ten deep; an operator's attributes are lists of lists at most. Far below Python's own limit of
# 1,000 calls: what walks a record after this needs no guard of its own.
_DEEPEST = 32
# Counts of the largest models times the largest batches stay below 1e20. Neither JSON nor Python sets a limit:
# a number of 400 digits would end in an OverflowError wherever it meets a float.
_LARGEST_INTEGER = 10**30
# In characters. Nothing that this program writes comes near: no line of code, no message, no path. Tables are
# as wide as their longest cell.
_LONGEST_TEXT = 1_000_000
_PLAIN = frozenset({dict, list, tuple, str, int, float, bool, type(None)})
# Of a key in a message: a hostile one may be as long as the file.
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong in a record, and where: ``operators[3].flops``."""

    place: str
    reason: str


class RepeatedKeyError(Exception):
    """An object has a key twice, so that readers may differ about which of the two they take."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's keys and values.

    Raises:
        RepeatedKeyError: A key stands in it twice.
    """
    # JSON leaves open what a repeated key means (RFC 8259, section 4); Python's reader would take the last one.
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise RepeatedKeyError(next(key for key in values if keys.count(key) > 1))
    return values


def first_unfit(value: Any) -> Fault | None:
    """The first value, in the record's order, that no record holds at any place; None where there is none."""
    # A record of 100,000 operators has seven million values: one by one they are looked at where any is unfit.
    return None if _are_fit(value) else _first_unfit(value, "", 0)


def _are_fit(value: Any) -> bool:
    """Whether a record can hold this value and all within it, level by level; False where it is not known."""
    level = [value]
    for _ in range(_DEEPEST + 1):
        if not set(map(type, level)) <= _PLAIN:
            return False
        mappings = [entry for entry in level if type(entry) is dict]
        texts = [entry for entry in level if type(entry) is str]
        floats = [entry for entry in level if type(entry) is float]
        integers = [entry for entry in level if type(entry) is int]
        # Of a sum that overflows each is looked at.
        if not math.isfinite(sum(map(abs, floats))) or max(map(abs, integers), default=0) > _LARGEST_INTEGER:
            return False
        if any(map(_reason_of_text, texts)) or any(_reason(key) for mapping in mappings for key in mapping):
            return False
        lists = [entry for entry in level if type(entry) in (list, tuple)]
        level = [entry for mapping in mappings for entry in mapping.values()]
        level += [entry for entries in lists for entry in entries]
        if not level:
            return True
    return False


def _first_unfit(value: Any, place: str, depth: int) -> Fault | None:
    if isinstance(value, (Mapping, list, tuple)):
        return _first_unfit_within(value, place, depth)
    reason = _reason(value)
    return Fault(place=place or "the top", reason=reason) if reason else None


def _first_unfit_within(value: Any, place: str, depth: int) -> Fault | None:
    if depth > _DEEPEST:
        return Fault(place=place, reason="it is nested too deeply")
    named = isinstance(value, Mapping)
    for key, entry in value.items() if named else enumerate(value):
        reason = _reason(key) if named else ""
        if reason:
            return Fault(place=place or "the top", reason=f"a key: {reason}")
        # Nearly all entries are plain and sound: only what is entered or wrong gets its place spelled out.
        if isinstance(entry, (Mapping, list, tuple)) or _reason(entry):
            fault = _first_unfit(entry, _within(place, key), depth + 1)
            if fault is not None:
                return fault
    return None


def _reason(value: Any) -> str:
    """Why a record cannot hold this plain value; empty where it can."""
    if isinstance(value, float):  # Python's reader takes NaN, Infinity and 1e999, which JSON has not
        return "" if math.isfinite(value) else "the number is not finite"
    if isinstance(value, int):
        return "" if abs(value) <= _LARGEST_INTEGER else "the number is too large"
    if isinstance(value, str):
        return _reason_of_text(value)
    return ""


def _reason_of_text(text: str) -> str:
    """Why a record cannot hold this text; empty where it can."""
    if len(text) > _LONGEST_TEXT:
        return f"the text is longer than {_LONGEST_TEXT:,} characters"
    return "" if text.isascii() or not _has_surrogate(text) else "the text is no valid Unicode"


def _has_surrogate(text: str) -> bool:
    """Whether half a character stands alone, which no file can be written with."""
    # JSON's escapes allow it (RFC 8259, section 8.2), UTF-8 does not.
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _within(place: str, key: object) -> str:
    """The place of an entry: ``operators[3].flops``, with what is no plain name in quotes."""
    if isinstance(key, str) and key.isidentifier() and len(key) <= _LONGEST_NAME:
        return f"{place}.{key}" if place else key
    return f"{place}[{repr(key)[:_LONGEST_NAME]}]"
