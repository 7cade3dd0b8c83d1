"""Plain values to typed ones by msgspec, each fault one error with its place and the nearest right key.

Records, TOML files and saved facts go through here (leaf: imports errors and text alone).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from analyzer.errors import AnalyzerError, UsageError
from analyzer.text import did_you_mean, printable

if TYPE_CHECKING:
    import msgspec

T = TypeVar("T")

# msgspec's words for types, as a reader of JSON or TOML knows them.
_WORDS = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "a table",
    "`null`": "nothing",
    "Object missing required field": "It lacks the key",
    "Object contains unknown field": "It has the unknown key",
    "Invalid enum value": "Unknown value",
}
# Characters of a message: a hostile file's own texts stand in it.
_LONGEST = 200


def convert(
    values: Any, kind: type[T], place: str | Callable[[str], str], *, error: type[AnalyzerError] = UsageError
) -> T:
    """Return the values as an instance of ``kind``.

    A field's ``Meta(examples=[...])`` is shown in the hint of what is wrong there.

    Args:
        values: What a reader of JSON or TOML returned.
        kind: A dataclass, or a ``msgspec.Struct``, which with ``forbid_unknown_fields`` refuses unknown keys.
        place: What the message begins with: a file and, where it has several tables, the table; or what returns
            that for the key that is wrong.
        error: The class of the error.

    Raises:
        AnalyzerError: Of class ``error``. A value is not of its type or bounds, a key is missing or unknown.
    """
    import msgspec

    try:
        return msgspec.convert(values, kind, str_keys=True)
    except msgspec.ValidationError as fault:
        path, reason = described(fault)
        named = re.search("(unknown|required) field `(.*?)`", str(fault), re.DOTALL)
        key = named[2] if named else re.sub(r"\[[^]]*\]", "", path).rpartition(".")[2]
        where = place if isinstance(place, str) else place(key)
        hint = _hint(key, kind, unknown=named is not None and named[1] == "unknown")
        raise error(f"{where}: {path}{': ' * bool(path)}{reason}.", hint=hint) from fault


def described(fault: msgspec.ValidationError) -> tuple[str, str]:
    """Return the place inside the values (``operators[3].flops``) and the reason, each on one line."""
    # "Expected `int`, got `str` - at `$.a[3].b`"; of a key "... - at `key` in `$.a`"; at the top no place.
    reason, _, path = re.sub(" - at (`key` in )?`\\$", "\0", str(fault)).partition("\0")
    for word, meaning in _WORDS.items():
        reason = reason.replace(word, meaning)
    return _short(path.strip("`.")), _short(reason[:1].lower() + reason[1:])


def _short(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _hint(key: str, kind: Any, *, unknown: bool) -> str:
    fields: dict[str, Any] = {}
    for name, annotation in _fields(kind):
        fields.setdefault(name, annotation)
    if unknown:
        # A key is spelled with underscores or hyphens by its file; the other is the first thing that is tried.
        words = {name.replace("-", "_"): name for name in fields}
        known = f"It knows: {', '.join(fields)}."
        return did_you_mean(key.replace("-", "_").lower(), words, known, spelled=words.__getitem__)
    examples = [one for meta in _parts(fields.get(key)) for one in getattr(meta, "examples", None) or ()]
    literals = [part for part in _parts(fields.get(key)) if get_origin(part) is Literal]
    choices = [str(choice) for literal in literals for choice in get_args(literal)]
    if len(choices) > 1:
        return f"Choose among {', '.join(choices)}."
    return f"Write {key} = {examples[0]}." if examples else f"Correct {key or 'it'} there."


def _fields(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys of all tables within a type, each with its annotation, the outermost first."""
    waiting = [*_parts(kind)]
    seen = set()
    for part in waiting:
        if not (is_dataclass(part) or hasattr(part, "__struct_fields__")) or part in seen:
            continue
        seen.add(part)
        # A Struct's keys may be spelled otherwise than its fields (`rename="kebab"`).
        fields = getattr(part, "__struct_fields__", ())
        spelled = dict(zip(fields, getattr(part, "__struct_encode_fields__", ()), strict=True))
        hints = get_type_hints(part, include_extras=True)
        yield from ((spelled.get(name, name), hint) for name, hint in hints.items())
        waiting += [inner for hint in hints.values() for inner in _parts(hint)]


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and everything in it: the members of a union, what a list holds, metadata."""
    yield annotation
    if get_origin(annotation) is not Literal:
        for part in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
            yield from _parts(part)
