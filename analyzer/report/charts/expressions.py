"""Reporting: figures in the expression language of Vega, by the rules of ``analyzer.units``.

Page and picture draw the same specification, and what draws a picture knows none of the page's own functions:
labels in a drawing are told in functions that every Vega has (https://vega.github.io/vega/docs/expressions/),
whose ``format`` is D3's (https://d3js.org/d3-format).
"""

from __future__ import annotations

from typing import Literal

ColumnKind = Literal[
    "text", "count", "number", "seconds", "bytes", "flops", "rate", "share", "dollars", "factor", "per_second"
]

# What stands behind the prefix.
_UNITS: dict[ColumnKind, str] = {
    "seconds": "s",
    "bytes": "B",
    "flops": "FLOP",
    "rate": "FLOP/s",
    "per_second": "/s",
}


def tick(kind: ColumnKind, value: str = "datum.value") -> str:
    """The label of an axis: a round number with its unit and no padding zeros.

    Args:
        kind: How figures of the axis are shown.
        value: An expression for the number; from 1e-9 on and below 1e18, or 0.
    """
    whole = f"format({value}, ',.0f')"
    if kind == "share":
        return share(value)
    if kind == "dollars":
        return f"'$' + ({value} >= 1e3 ? {whole} : {_digits(value)})"
    if kind == "factor":
        return f"({_digits(value, 2)}) + 'x'"
    if kind == "number":
        return _digits(value)
    if kind not in _UNITS:
        return f"format({value}, ',')"
    prefixed = _with_prefix(value, _UNITS[kind])
    if kind == "seconds":
        return f"{value} >= 1e3 ? {whole} + ' s' : {prefixed}"
    if kind == "per_second":
        return f"{value} > 0 && {value} < 1 ? {_digits(value)} + ' /s' : {prefixed}"
    return prefixed


def share(value: str) -> str:
    """A percentage that reads 0 % or 100 % only when it is exactly that."""
    percent = f"({value}) * 100"
    # Halves to the even number, as Python rounds: half of it has no half left where the number is even.
    rounded = f"(abs({percent} % 1) === 0.5 ? 2 * round({percent} / 2) : round({percent}))"
    return (
        f"(({value}) > 0 && ({value}) < 0.01 ? '<1 %' : ({value}) > 0.99 && ({value}) < 1 ? '>99 %' : "
        f"{rounded} + ' %')"
    )


def _digits(value: str, significant: int = 3) -> str:
    """So many significant digits without an exponent; all of those before the point."""
    return f"(abs({value}) >= 100 ? format({value}, '.0f') : format({value}, '.{significant}~r'))"


def _with_prefix(value: str, unit: str) -> str:
    """``1.5 ms``: D3 writes 1.5m, whose last letter, if there is one, is set apart."""
    return f"replace(format({value}, '.3~s'), regexp('[^0-9.]*$'), ' $&{unit}')"
