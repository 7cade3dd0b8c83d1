"""TOML files that a stranger may have written, read within limits (leaf: imports nothing of ours)."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

# Settings and price lists take a few thousand bytes; Python's reader needs up to 8 s for a million.
LARGEST_BYTES = 2**20
# The tables of other tools are a few deep; what walks through values may be recursive.
_DEEPEST = 50
_ENDING = ".toml"
_TOO_DEEP = "its values are nested too deeply"
# Keys of over 100 parts: Python's reader takes a time that grows with the square of their number.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")


def split_entry(text: str) -> tuple[str, str]:
    """``FILE.toml`` and ``FILE.toml:NAME`` as the file and the name; the name is empty where none is given.

    A text without ``.toml`` is all file.
    """
    # The last one: folders may be called so too.
    position = text.lower().rfind(_ENDING)
    if position < 0:
        return text, ""
    position += len(_ENDING)
    return text[:position], text[position:].removeprefix(":")


def is_toml(text: str) -> bool:
    """Return whether a device is named by a file of the user's own."""
    return _ENDING in text.lower()


def read_within(path: Path, most_bytes: int) -> bytes:
    """Return the content of a file that a stranger may have put there.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no file, or larger; says which.
    """
    # What is no file may never end, and a pipe be waited for.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes:,} bytes")
    return content


def read_toml(path: Path) -> dict[str, Any]:
    """Return the parsed file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no TOML, no file, or beyond a limit; says which.
    """
    text = read_within(path, LARGEST_BYTES).decode("utf-8")
    if _LONG_KEY.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        parsed = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_values(parsed)
    return parsed


def _check_values(parsed: dict[str, Any]) -> None:
    # Without recursion: dotted keys make tables inside each other without any.
    level: list[Any] = [parsed]
    for _ in range(_DEEPEST):
        inner = [one for value in level for one in (value.values() if isinstance(value, dict) else value)]
        if any(isinstance(one, int) and not -(2**63) <= one < 2**63 for one in inner):
            raise ValueError("a whole number has more than 64 bits")  # which TOML does not promise to hold
        level = [one for one in inner if isinstance(one, (dict, list))]
        if not level:
            return
    raise ValueError(_TOO_DEEP)
