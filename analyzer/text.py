"""Words for people and from them: lists, plurals, durations, shares, the word that was meant.

Figures are in ``analyzer.units`` (leaf: imports only errors).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from analyzer.errors import UsageError

_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(ns|us|µs|ms|s|min)?\s*")
# Both signs for micro: "us" is what keyboards have, "µs" what this program prints.
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
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    # A bool is an int in Python: `true` is no second.
    if isinstance(value, int | float) and not isinstance(value, bool):
        result = float(value)
    elif match:
        result = float(match[1]) * _UNITS[match[2] or "s"]
    else:
        raise UsageError(f"{where}: {value!r} is no duration", hint='write it like "20ms" or "1.5s"')
    if not 0 < result < float("inf"):
        raise UsageError(f"{where}: a duration must be above zero, not {value!r}", hint='write it like "20ms"')
    return result


def share(value: object, *, where: str) -> float:
    """A share from ``"5%"`` or ``0.05``.

    Raises:
        UsageError: It is none, or below 0.
    """
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if match:
        return float(match[1]) / 100
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    raise UsageError(f"{where}: {value!r} is no share", hint='write it like "5%" or 0.05')


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word that was probably meant, None where none is close."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return close[0] if close else None


def plural(number: int, noun: str, nouns: str = "") -> str:
    """``1 copy``, ``2 copies``, ``1,234 operators``; ``nouns`` where more than the ending changes."""
    # "copy" becomes "copies", "array" only "arrays".
    many = nouns or (f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s")
    return f"{number:,} {noun if number == 1 else many}"


def listed(words: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    every = tuple(words)
    return " and ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


def first_few(words: Iterable[str], most: int = 3) -> str:
    """``a, b and c``; of more words ``a, b, c and 4 more``."""
    every = tuple(words)
    rest = len(every) - most
    return f"{', '.join(every[:most])} and {rest:,} more" if rest > 0 else listed(every)
