"""How much a file may ask of this machine before it is refused: each limit once, with what it is for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from analyzer.errors import UsageError
from analyzer.text import did_you_mean, duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What reading one file may take.

    Attributes:
        memory: Bytes of private memory that the reading process may add to what it begins with, beside four
            times the file where its weights are read.
        time: Seconds of one step of reading: parsing, inference at one batch, writing a runnable model.
        nodes: Operators, bodies of control flow and of called functions included.
        bytes: Of the graph without its weights, functions put in their callers' places.
        functions: Functions that the model defines.
        depth: Graphs within graphs, and functions that call functions.
        attributes: Of one node.
        folded: Bytes of all values that are computed before the run.
    """

    memory: int = 2 * 2**30
    time: float = 40.0
    nodes: int = 200_000
    bytes: int = 512 * 2**20
    functions: int = 10_000
    depth: int = 64
    attributes: int = 1_000
    folded: int = 64 * 2**20

    def as_message(self) -> dict[str, float]:
        """The limits by name."""
        return dataclasses.asdict(self)


DEFAULT_LIMITS = Limits()

_NAMES = tuple(field.name for field in dataclasses.fields(Limits))
_IN_BYTES = ("memory", "bytes", "folded")
_BYTE_UNITS: Mapping[str, int] = MappingProxyType(
    {"": 1, "b": 1}
    | {f"{prefix}{ending}": 1000**power for power, prefix in enumerate("kmgt", 1) for ending in ("", "b")}
    | {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
)


def parse_limits(texts: Iterable[str]) -> Limits:
    """The limits that ``NAME=VALUE`` texts leave: those named have that value, others their default.

    Args:
        texts: ``memory=8GB``, ``time=5min``, ``nodes=2000000``; one text may hold several with commas.

    Raises:
        UsageError: No such limit, or a value that is none.
    """
    given: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",") if part.strip()):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or name not in _NAMES:
            form = f"NAME=VALUE, of {', '.join(_NAMES)}"
            if name in _NAMES:
                raise UsageError(f"--limit {part}: no value", hint=form)
            raise UsageError(f"--limit {part}: no such limit", hint=did_you_mean(name, _NAMES, form))
        given[name] = _number(name, value)
    return dataclasses.replace(DEFAULT_LIMITS, **given)  # type: ignore[arg-type]  # by name, checked above


def _number(name: str, text: str) -> float:
    where = f"--limit {name}"
    if name == "time":
        return duration(text, where=where)
    match = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", text.lower())
    units = _BYTE_UNITS if name in _IN_BYTES else {"": 1}
    if match is None or match[2] not in units or int(match[1]) < 1:
        example = "8GB" if name in _IN_BYTES else "1000000"
        raise UsageError(f"{where}: {text!r} is no size", hint=f"write --limit {name}={example}")
    return int(match[1]) * units[match[2]]
