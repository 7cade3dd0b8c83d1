"""How well predictions meet measurements of a device left out: errors, intervals, and how the data agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from measurements import STEADY, Array, Sample
from scipy.optimize import linear_sum_assignment

# Shapes are alike where no dimension differs by more.
ALIKE = 1.25


@dataclass
class Verdict:
    """A device left out.

    Attributes:
        name: The device.
        width: Its entry in ``WIDTHS``.
        error: Logarithms of predicted over measured.
        session: By operator, which measurement it is of; empty where there is only one.
        sheet, one: Median errors of the data sheet's roofline and of one with a fitted efficiency.
        unsteady: By what factor the card's own sustained rate differs between measurements.
    """

    name: str
    width: str
    error: Array
    session: Array
    sheet: float
    one: float
    unsteady: float = 1.0

    @property
    def beyond(self) -> Array:
        """The errors' size beyond what the card itself varies by."""
        found: Array = np.maximum(0.0, np.abs(self.error) - np.log(self.unsteady))
        return found


def judged(verdicts: Sequence[Verdict]) -> None:
    """A line for each device and one for all."""
    print(f"  {'device left out':32}     n  median   bias     x2   90 %    by   naive   one k")
    inside = []
    for verdict in verdicts:
        alike = [other for other in verdicts if other.width == verdict.width and other is not verdict]
        width = interval(alike or [verdict]) * verdict.unsteady
        inside.append(np.abs(verdict.error) <= np.log(width))
        line(verdict, inside[-1], width)
    whole, found = together(verdicts), np.concatenate(inside)
    line(whole, found, interval(verdicts))
    steady = np.concatenate([in_step(verdict) for verdict in verdicts])
    if not steady.all() and by_device(verdicts):
        line(replace(whole, name="all but a session out of step", error=whole.error[steady]), found[steady])


def in_step(verdict: Verdict) -> Array:
    """The operators whose session is one to learn from."""
    if not verdict.session.size or verdict.name not in STEADY:
        return np.ones(verdict.error.size, dtype=np.bool_)
    found: Array = verdict.session == STEADY[verdict.name]
    return found


def together(verdicts: Sequence[Verdict]) -> Verdict:
    sheets = np.concatenate([np.full(verdict.error.size, verdict.sheet) for verdict in verdicts])
    ones = np.concatenate([np.full(verdict.error.size, verdict.one) for verdict in verdicts])
    error = np.concatenate([verdict.error for verdict in verdicts])
    return Verdict("all", "", error, np.array([]), float(np.median(sheets)), float(np.median(ones)))


def interval(verdicts: Sequence[Verdict]) -> float:
    """The factor within which nine tenths of errors lie, beyond what a card itself varies by.

    A device is judged by the errors of the others when these were left out (a conformal interval): its own
    say nothing about its width, but for the part by which the card varies. Each operator counts the same; where
    a part is the device's, each device does.
    """
    each = [verdict.beyond for verdict in verdicts]
    same = not by_device(verdicts)
    weights = np.concatenate([np.full(one.size, 1.0 if same else 1 / one.size) for one in each])
    beyond = np.concatenate(each)
    order = np.argsort(beyond)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(np.exp(beyond[order][min(int(np.searchsorted(reached, 0.9)), beyond.size - 1)]))


def by_device(verdicts: Sequence[Verdict]) -> bool:
    """Whether a part of the interval is the device's own."""
    return any(verdict.unsteady > 1.0 for verdict in verdicts)


def line(verdict: Verdict, inside: Array, width: float = float("nan")) -> None:
    error = verdict.error
    print(
        f"  {verdict.name:32} {error.size:5d} {median_error(error):7.3f} {np.exp(np.median(error)):6.2f} "
        f"{np.mean(np.abs(error) < np.log(2)):6.1%} {np.mean(inside):6.1%} {width:5.2f} "
        f"{verdict.sheet:7.3f} {verdict.one:7.3f}"
    )


def median_error(logarithms: Array) -> float:
    return float(np.median(np.abs(np.expm1(logarithms))))


def agreement(samples: Sequence[Sample], least_s: float) -> None:
    """How far a card's two sessions are apart where they measured about the same shape.

    A model knows the shape alone: of two measurements more than a factor of 4 apart it misses one by 2.
    """
    print(f"\nsessions of the same card, products alike within {ALIKE - 1:.0%} in every dimension")
    for sample in samples:
        ratio = pairs(sample, least_s)
        if ratio.size:
            apart, wide = np.abs(np.median(ratio)), float(np.mean(np.abs(ratio) > np.log(4)))
            print(
                f"  {sample.name:24} {ratio.size:4d} pairs, {np.exp(apart):.2f} x apart at the median,"
                f" {np.mean(np.abs(ratio) > np.log(2)):.0%} over 2 x, {wide:.0%} over 4 x:"
                f" within 2 x at most {1 - wide / 2:.0%}"
            )


def pairs(sample: Sample, least_s: float) -> Array:
    """Logarithms of the ratios of the rates of shapes that both sessions measured, each used once."""
    names = np.unique(sample.session)
    long_enough = sample.seconds > least_s
    first, second = (np.flatnonzero(long_enough & (sample.session == name)) for name in (names[0], names[-1]))
    if names.size < 2 or not first.size or not second.size:
        return np.array([])
    shape = np.log(np.stack([sample.work[name] for name in ("batch", "m", "n", "k")], axis=1))
    apart = np.abs(shape[first][:, None] - shape[second][None]).max(axis=2)
    left, right = linear_sum_assignment(np.where(apart < np.log(ALIKE), apart, 1e3))
    near = apart[left, right] < np.log(ALIKE)
    rate = np.log(sample.flops / sample.seconds)
    found: Array = rate[first[left[near]]] - rate[second[right[near]]]
    return found


def by_columns(sample: Sample, error: Array, columns: Sequence[int]) -> None:
    """Predicted over measured by the columns of what products over 1 ms write, for each session of a card."""
    n = sample.work["n"]
    for name in np.unique(sample.session):
        found = []
        for low, high in pairwise(columns):
            chosen = (sample.session == name) & (sample.seconds > 1e-3) & (n >= low) & (n < high)
            if chosen.sum() > 3:
                found.append(f"{low} {np.exp(np.median(error[chosen])):.2f}")
        print(f"  {sample.name:24} {name}: predicted over measured from", ", ".join(found))
