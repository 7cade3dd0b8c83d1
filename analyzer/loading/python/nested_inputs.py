"""``--input batch.user_id=...``: inputs inside dicts and lists, by the way to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from analyzer.errors import InputError

_STEP = re.compile(r"[^.\[\]'\"]+")


def steps_of(name: str) -> tuple[str, ...]:
    """The parameter, and the keys or positions behind it: of ``batch.tags`` and ``batch['tags']`` the same."""
    return tuple(_STEP.findall(name)) or (name,)


def parameter_of(name: str) -> str:
    """The parameter of ``forward`` to which an input belongs."""
    return steps_of(name)[0]


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """By parameter, what is given for it; dicts of what stands behind dots, lists where those are 0, 1 and on.

    Raises:
        InputError: Something is given as a tensor and by its parts.
    """
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *way, last = steps_of(name)
        place = tree
        for step in way:
            place = place.setdefault(step, _Parts())
            if not isinstance(place, _Parts):
                raise _twice(name, step)
        if last in place:
            raise _twice(name, last)
        place[last] = value
    return {name: _built(item) for name, item in tree.items()}


class _Parts(dict[str, Any]):
    """A dict of ours, told from one that is a value."""


def _built(item: Any) -> Any:
    if not isinstance(item, _Parts):
        return item
    if set(item) == {str(position) for position in range(len(item))}:
        return [_built(item[str(position)]) for position in range(len(item))]
    return {key: _built(value) for key, value in item.items()}


def _twice(name: str, part: str) -> InputError:
    return InputError(
        f"--input {name}=...: {part} is given twice, whole or by its parts.",
        hint="Give a tensor (--input x=...) or what a dict holds (--input x.key=...), not both.",
    )


def names_in_order(names: Iterable[str]) -> list[str]:
    """These names in the order in which their values are found in what ``nested`` makes of them."""

    def leaves(item: Any) -> list[str]:
        parts = item.values() if isinstance(item, dict) else item
        return [item] if isinstance(item, str) else [leaf for part in parts for leaf in leaves(part)]

    return leaves(nested({name: name for name in names}))
