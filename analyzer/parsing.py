"""Reading what people write: durations, shares, and the word that was meant (leaf: imports only errors)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from analyzer.errors import UsageError

_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(ns|us|µs|ms|s|min)?\s*")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_SHARE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*%\s*")
_NUMBER = re.compile(r"\s*[0-9]*\.?[0-9]+\s*")


def is_duration(value: object) -> bool:
    """Whether a text reads as a duration."""
    return isinstance(value, str) and _DURATION.fullmatch(value) is not None


def duration(value: object, *, where: str) -> float:
    """Seconds from ``"20ms"``, ``"1.5 s"`` or a number of seconds.

    Raises:
        UsageError: It is no duration, or not above zero.
    """
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        result = float(value)
    elif found:
        result = float(found[1]) * _UNITS[found[2] or "s"]
    else:
        raise UsageError(f"{where}: {value!r} is no duration", hint='write it like "20ms" or "1.5s"')
    if not 0 < result < float("inf"):
        raise UsageError(f"{where}: a duration must be above zero, not {value!r}", hint='write it like "20ms"')
    return result


def share(value: object, *, where: str) -> float:
    """A share from ``"5%"`` or ``0.05``."""
    found = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if found:
        return float(found[1]) / 100
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    raise UsageError(f"{where}: {value!r} is no share", hint='write it like "5%" or 0.05')


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word that was probably meant, None where none is close."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return close[0] if close else None
