"""Reporting: how every format for people writes a figure: its origin's sign, its interval, its unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from analyzer.record.analysis import CpuTime, GpuTime
from analyzer.units import UNKNOWN, digits, rate, with_prefix

Time = CpuTime | GpuTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The mark of an origin, and its meaning."""

    name: str
    sign: str
    meaning: str


MARKS = {
    mark.name: mark
    for mark in (
        Mark(name="measured", sign="●", meaning="timed with ONNX Runtime on the machine named under Method"),
        Mark(
            name="predicted",
            sign="○",
            meaning="computed from the counts and the device's data sheet or calibration; nothing was run",
        ),
        Mark(
            name="mixed",
            sign="◐",
            meaning=(
                "made of measured and predicted parts; of an operator, its share of what a measured group "
                "took, or what it took in another session"
            ),
        ),
        Mark(
            name="modelled",
            sign="≈",
            meaning="a count that rests on an assumption, which the operator's note names",
        ),
    )
}
PLAN_TITLES = {"cpu": "CPU", "gpu": "GPU", "hybrid": "Best plan"}
SPLIT = "Split"
VERDICT_WORDS: Mapping[str | None, str] = MappingProxyType(
    {"cpu": "CPU", "gpu": "GPU", "hybrid": "CPU and GPU", "either": "Either", None: "No answer"}
)


def origin_note(place: str) -> tuple[Mark, ...]:
    """Return the marks of figures' origins where the machine is named in another place than under Method."""
    return tuple(
        replace(mark, meaning=mark.meaning.replace("under Method", place))
        for mark in MARKS.values()
        if mark.name != "modelled"
    )


def sign(origin: str) -> str:
    """Return the sign of an origin; empty where the record does not tell it."""
    return MARKS[origin].sign if origin in MARKS else ""


def signed(origin: str) -> str:
    """Return the origin with its sign: ``● measured``."""
    return f"{MARKS[origin].sign} {origin}" if origin in MARKS else origin


def marked(figure: str, origin: str) -> str:
    """Return a figure with the sign of its origin; as it is where the origin is not known."""
    return f"{figure} {MARKS[origin].sign}" if origin in MARKS and figure != UNKNOWN else figure


def per_second(value: float | None) -> str:
    """Inferences per second: ``4.12 k/s``, ``0.046 /s``; prefixes for many alone."""
    # "46.0 m/s" of an LLM's slow step reads as metres: milli is written out as a decimal.
    if value is None or not 0 < value < 1:
        return rate(value, "")
    return f"{digits(value)} /s"


def joules(value: float | None) -> str:
    """Energy: ``0.131 J``, ``75.3 mJ``."""
    return with_prefix(value, "J")
