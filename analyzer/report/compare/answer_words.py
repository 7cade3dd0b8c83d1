"""Reporting: how a comparison says which record is first, by how much and how surely."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analyzer.units import factor

# Two figures that differ by less read the same in the three digits that are printed.
SAME = 0.005


def times(ratio: float) -> str:
    """Return a ratio as in "a factor of 3.3": without the x that it is written with elsewhere."""
    return factor(ratio).removesuffix("x")


def certainty(apart: bool, other: str = "the next") -> str:
    """Say whether the first record's interval is apart from another's."""
    ends = f"its 90 % interval and that of {other} {'do not overlap' if apart else 'overlap'}"
    return f"That is {'' if apart else 'not '}certain: {ends}."


def least(
    labels: Sequence[str],
    values: Sequence[float | None],
    verb: str,
    say: Callable[[float], str],
    asides: Sequence[str] = (),
) -> str:
    """Say which record has least of something, and which most; empty where none stands out.

    Args:
        labels: By record its name.
        values: By record the figure, None where it is not known.
        verb: What the record with least does.
        say: The figure in words.
        asides: By record what follows its figure.
    """
    known = [(value, at) for at, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return ""
    # Among equals the first record, so that the same comparison gives the same bytes.
    (value, at), (most, of) = min(known), max(known, key=lambda each: (each[0], -each[1]))
    # Nothing is so many times as much as nothing.
    if not value or most / value - 1 < SAME:
        return ""
    one, other = (asides[at], asides[of]) if asides else ("", "")
    return f"{labels[at]} {verb}: {say(value)}{one}, against {say(most)} in {labels[of]}{other}."
