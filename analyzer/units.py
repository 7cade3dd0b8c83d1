"""Conversions and figures for human eyes; SI base units everywhere else (leaf: imports nothing of ours)."""

from __future__ import annotations

import math

KILO, MEGA, GIGA, TERA, PETA = 1e3, 1e6, 1e9, 1e12, 1e15
MILLI, MICRO, NANO = 1e-3, 1e-6, 1e-9
SECONDS_PER_HOUR = 3600.0
HOURS_PER_MONTH = 730.0  # 365 days of 24 hours, over 12
UNKNOWN = "–"  # never 0, which would be a figure

_PREFIXES = (
    (PETA, "P"),
    (TERA, "T"),
    (GIGA, "G"),
    (MEGA, "M"),
    (KILO, "k"),
    (1.0, ""),
    (MILLI, "m"),
    (MICRO, "µ"),
    (NANO, "n"),
)


def digits(value: float, significant: int = 3) -> str:
    """Return a number with this many significant digits and no exponent: 0.0123, 4.56, 789, 12345.

    Never shows 0 for what is not 0.
    """
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:  # -0.0 too
        return "0"
    rounded = float(f"{value:.{significant - 1}e}")  # 0.9999 is written as 1.00
    decimals = max(0, significant - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text and decimals > significant else text


def with_prefix(value: float | None, unit: str, significant: int = 3) -> str:
    """Return a figure with an SI prefix: ``with_prefix(8.178e9, "FLOP")`` is ``8.18 GFLOP``.

    A dash is what is not known: None, and a ratio of foreign figures that is not finite.
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return f"0 {unit}".rstrip()
    for index, (factor, prefix) in enumerate(_PREFIXES):
        # A hair below the factor: 999.9 MB is rounded to 1000, which reads better as 1.00 GB.
        if abs(value) >= factor * (1 - 0.5 * 10.0**-significant) or index == len(_PREFIXES) - 1:
            return f"{digits(value / factor, significant)} {prefix}{unit}".rstrip()
    raise AssertionError("unreachable: the last prefix always answers")


def seconds(value: float | None) -> str:
    """Return a duration: ``1.23 ms``; thousands of seconds keep their unit, ``3,170 s``."""
    # Below infinity, which is not known.
    return f"{value:,.0f} s" if value is not None and KILO <= value < math.inf else with_prefix(value, "s")


def byte_count(value: float | None) -> str:
    """Return a size with decimal prefixes: ``154 MB``."""
    return with_prefix(value, "B")


def flop_count(value: float | None) -> str:
    """Return a count of operations: ``8.18 GFLOP``."""
    return with_prefix(value, "FLOP")


def rate(value: float | None, unit: str) -> str:
    """Return a rate: ``rate(3e11, "B")`` is ``300 GB/s``."""
    return with_prefix(value, f"{unit}/s")


def count(value: int | None) -> str:
    """Return a whole number with separators: ``25,557,032``."""
    return UNKNOWN if value is None else f"{value:,}"


def factor(value: float | None) -> str:
    """Return a ratio: ``3.4x``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    # Two digits: a ratio of predictions is not known to three.
    return f"{digits(value, 2 if value < 10 else 3)}x"


def share(value: float | None) -> str:
    """Return a percentage that reads 0 % or 100 % only when it is exactly that."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if 0 < value < 0.01:
        return "<1 %"
    if 0.99 < value < 1:
        return ">99 %"
    return f"{value * 100 + 0.0:.0f} %"  # -0.0 + 0.0 is 0.0


def dollars(value: float | None) -> str:
    """US dollars: ``$0.526``, ``$12,300``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"${value:,.0f}" if value >= KILO else f"${digits(value, 3)}"


def comparable(price: float) -> float:
    """Return dollars of a unit of work without the noise of rounding: eight GPUs often cost eight times one."""
    return float(f"{price:.9g}")


def span(low: str, high: str) -> str:
    """Return two figures with their units as one range: ``1.2 to 1.5 ms``."""
    # Once where both have the same unit; dollars carry theirs in front and keep it twice.
    figure, _, unit = low.partition(" ")
    return f"{figure} to {high}" if unit and high.endswith(f" {unit}") else f"{low} to {high}"
