"""Values of a model's configuration, each checked where it is read: a stranger may have written the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from analyzer.errors import UsageError
from analyzer.text import listed, printable

# Far above every model; a count of layers is a number of objects here.
_LARGEST = 2**32
_MOST_LAYERS = 1_000
_Kind = TypeVar("_Kind", bool, str)
_PUBLISHED = "compare it with the config.json that the model was published with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A configuration under the keys of its family.

    ``names`` has the family's key for each word of ours, ``{"hidden": "n_embd"}``: ``values["hidden"]`` reads
    it.
    """

    given: Mapping[str, Any]
    names: Mapping[str, str]

    def __getitem__(self, word: str) -> int:
        return self.count(self.names[word])

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number above zero; the default where there is none, or null."""
        value = self.given.get(key)
        if value is None:
            value = default
        # A bool is an int in Python.
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise _wrong(key, value, "no whole number above zero")
        most = _MOST_LAYERS if "layer" in key else _LARGEST
        if value > most:
            raise _wrong(key, value, f"more than {most:,}")
        return value

    def count_or_none(self, key: str, default: int = 0) -> int:
        """Return same and 0 where null or 0 say that there is no such thing; the default where no key is."""
        value = self.given.get(key, default)
        return 0 if value is None or value == 0 else self.count(key, default)

    def flag(self, key: str, default: bool) -> bool:
        """Yes or no; the default where there is neither, or null."""
        return self._of_type(bool, key, default, "neither true nor false")

    def word(self, key: str, default: str) -> str:
        """Return a text; the default where there is none, or null."""
        return self._of_type(str, key, default, "no text")

    def _of_type(self, kind: type[_Kind], key: str, default: _Kind, what: str) -> _Kind:
        value = self.given.get(key)
        if value is not None and not isinstance(value, kind):
            raise _wrong(key, value, what)
        return default if value is None else value

    def share(self, key: str, default: float) -> float:
        """Return a share above 0 and up to 1, of the configuration or of its table for rotary positions."""
        value = None
        for table in (self.given.get("rope_parameters"), self.given.get("rope_scaling"), self.given):
            value = table.get(key) if value is None and isinstance(table, Mapping) else value
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise _wrong(key, value, "no share above 0 and up to 1")
        return value

    def kinds(self, key: str, known: Sequence[str]) -> tuple[str, ...] | None:
        """Return a word for each layer, of those that are known; None where there are none."""
        value = self.given.get(key)
        if value is None:
            return None
        count = self["layers"]
        if not isinstance(value, list | tuple) or len(value) != count:
            raise refusal(
                f"`{key}` of the configuration has no word for each of {count} layers", hint=_PUBLISHED
            )
        for word in value:
            if word not in known:
                raise _wrong(key, word, f"none of {listed(known)}")
        return tuple(value)

    def numbers(self, key: str) -> frozenset[int]:
        """Return numbers of layers; none where there are none, or null."""
        value = self.given.get(key)
        if value is None:
            return frozenset()
        if not isinstance(value, list | tuple) or not all(isinstance(one, int) for one in value):
            raise _wrong(key, value, "no list of layers")
        return frozenset(value)


def check_sizes(values: Mapping[str, Any]) -> None:
    """Raise where a number is so large that what is built of it would fill the memory."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            check_sizes(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            # Some layers and experts are modules of their own.
            modules = any(word in key for word in ("layer", "expert", "block"))
            most = _MOST_MODULES if modules and "size" not in key and "dim" not in key else _LARGEST
            if value > most:
                raise _wrong(key, value, f"more than {most:,}")


# Experts of a layer, or layers: each may be several objects.
_MOST_MODULES = 10_000


def _wrong(key: str, value: object, what: str) -> UsageError:
    given = printable(repr(value))
    given = given if len(given) <= 40 else f"{given[:40]}..."
    return refusal(f"`{key}` of the configuration is {given}, {what}", hint=_PUBLISHED)


def refusal(message: str, *, hint: str) -> UsageError:
    """Return the error for a configuration: two sentences, each with a capital and a full stop."""
    return UsageError(_sentence(message), hint=_sentence(hint))


def _sentence(text: str) -> str:
    ended = text if text.endswith((".", "?", "!")) else f"{text}."
    return ended[:1].upper() + ended[1:] if ended[:4].islower() else ended
