"""Words for people and from them: lists, plurals, durations, shares, the word that was meant.

Names of a model are a stranger's text: what is printed of them drives no terminal and commands no CI server.

Figures are in ``analyzer.units`` (leaf: imports only errors).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from analyzer.errors import UsageError

_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(ns|us|µs|ms|s|min)?\s*")
# Both signs for micro: "us" is what keyboards have, "µs" what this program prints.
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
# As `_DURATION` reads a number, with a sign and without a leading figure too.
_NUMBER_ALONE = re.compile(r"\s*[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")
# Of a longer one not all is repeated.
_LONGEST_NUMBER = 20
_SHARE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*%\s*")
_NUMBER = re.compile(r"\s*[0-9]*\.?[0-9]+\s*")
# C0 but tab and line feed, DEL, C1; what turns the direction of writing (Unicode's Bidi_Control); the line and
# paragraph separators; halves of characters, which no file can be written with.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# GitHub's runner takes a line for a command that begins with "::" after blanks, and "##[" anywhere in it
# (actions/runner, src/Runner.Common/ActionCommand.cs); Azure Pipelines "##vso[", TeamCity "##teamcity[".
_COMMAND = re.compile(r"(?m)^([^\S\n]*+[\ufeff\u200b]*+[^\S\n]*+:)(?=:)|(#)(?=#\w*\[)")


def latency_limit(value: object, *, where: str) -> float:
    """Seconds from ``"20ms"`` or ``"1.5 s"``; of Python's own numbers, which are seconds as everywhere in SI.

    Raises:
        UsageError: It is no duration, not above zero, or a text without a unit: whoever writes ``50`` where
            ``50ms`` is meant would be told of fifty seconds that every limit is kept.
    """
    if isinstance(value, str) and _NUMBER_ALONE.fullmatch(value):
        number = value.strip()
        if len(number) > _LONGEST_NUMBER:
            raise UsageError(f"{where}: a limit needs a unit", hint='write it like "20ms" or "1.5s"')
        raise UsageError(
            f"{where} {number}: a limit needs a unit",
            hint=f"write {number.lstrip('+-')}ms or {number.lstrip('+-')}s",
        )
    return duration(value, where=where)


def duration(value: object, *, where: str) -> float:
    """Return seconds from ``"20ms"``, ``"1.5 s"`` or a number of seconds.

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
    """Return a share from ``"5%"`` or ``0.05``.

    Raises:
        UsageError: It is none, below 0, or without a sign 1 or more.
    """
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if match:
        return float(match[1]) / 100
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        if value >= 1:  # 20 without a sign is meant as 20 %
            hint = f"Write {value:g}%; or {value:.0%} where that is meant."
            raise UsageError(f"{where}: {value:g} is {value:.0%}.", hint=hint)
        return float(value)
    raise UsageError(f"{where}: {value!r} is no share", hint='write it like "5%" or 0.05')


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the word that was probably meant, None where none is close."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(
    word: str, words: Iterable[str], otherwise: str = "", *, spelled: Callable[[str], str] = str
) -> str:
    """Return the hint for an unknown word: the one that was probably meant, else ``otherwise``."""
    meant = nearest(word, words)
    return f"Did you mean {spelled(meant)}?" if meant else otherwise


def plural(number: int, noun: str, nouns: str = "") -> str:
    """``1 copy``, ``2 copies``, ``1,234 operators``; ``nouns`` where more than the ending changes."""
    # "copy" becomes "copies", "array" only "arrays".
    many = nouns or (f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s")
    return f"{number:,} {noun if number == 1 else many}"


def listed(words: Iterable[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    every = tuple(words)
    return " and ".join(filter(None, (", ".join(every[:-1]), *every[-1:])))


def first_few(words: Iterable[str], most: int = 3) -> str:
    """Return ``a, b and c``; of more words ``a, b, c and 4 more``."""
    every = tuple(words)
    rest = len(every) - most
    return f"{', '.join(every[:most])} and {rest:,} more" if rest > 0 else listed(every)


def middle_cut(text: str, limit: int) -> str:
    """Return a text of at most this many characters; both ends stay, which tell one name from the next."""
    if len(text) <= limit:
        return text
    length = max(limit - 1, 0)
    return f"{text[: length - length // 2]}…{text[len(text) - length // 2 :]}"


def module_cut(path: str, limit: int) -> str:
    """Return a module's path of at most this many characters: its end and the number of its layer stay."""
    if len(path) <= limit:
        return path
    *around, last = path.split(".")
    layer = next((name for name in reversed(around) if name.isdigit()), "")
    if layer:
        # Layers have their beginnings in common: as many whole names of the end as have room, else the number.
        tail = path[len(path) - limit + 1 :]
        whole = tail if path[len(path) - limit] == "." else tail.partition(".")[2]
        if layer in whole.split("."):
            return f"…{whole}"
        # Of what lies between as much of the end as has room.
        room = limit - len(layer) - 2
        ends = (".".join([*around[at:], last]) for at in range(len(around) + 1))
        end = next((one for one in ends if len(one) <= room), "")
        if end:
            return f"…{layer}…{end}"
    # The beginning says where, the last name what: gate and up projections differ there alone.
    room = limit - len(last) - 1
    return f"{path[:room]}…{last}" if room > 0 else middle_cut(last, limit)


def without_controls(text: str) -> str:
    """Return text that steers no terminal; line feeds and tabs stay."""
    # A mark and not a blank: a reader sees that something was there.
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def printable(text: str) -> str:
    """Return text on one line, without what would steer a terminal or cannot be seen."""
    # The method alone is fast, and most text is printable.
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def loggable(text: str) -> str:
    """Text of several lines for a terminal or a log, without control characters and commands to a CI server."""
    return _COMMAND.sub(r"\1\2 ", without_controls(text))


def json_escaped(json_text: str) -> str:
    """Return JSON text of the same value with control characters escaped, in that no line commands a CI server.

    Half a character, which JSON allows and no file holds, is written as the six characters of its escape.
    """
    # Outside of its strings JSON has none of these characters.
    return re.sub(r"#(?=#\w*\[)", r"\\u0023", _CONTROL.sub(_json_escape, json_text))


def _json_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    # C0 stands in the text between tokens alone, as "\r\n" does: inside of strings JSON's writers escape it.
    if code < 0x20:
        return match[0]
    # Two backslashes are one in the value: the escape itself would be read as the half character again.
    return ("\\\\u" if 0xD800 <= code <= 0xDFFF else "\\u") + f"{code:04x}"
