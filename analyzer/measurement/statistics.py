"""Summaries of repeated timings: robust, and honest about noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analyzer.figures import Figure
from analyzer.measurement.request import Latency

# Medians of a quiet machine come back within this share a few minutes later.
LEAST_HALF_WIDTH = 0.02
# One run tells nothing of the others: a tenth either way is assumed, shared by as many runs as there are.
_SINGLE_HALF_WIDTH = 0.1
# Where the cores shared no cache, nine models took 0.78 (a convolution that writes 100 MB) to 1.5 times as
# long, nine turns of ten within 4 % of that: 1 / 0.78 at most on cores that do.
_MOST_GAIN = 1.3


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile, linear between neighbours.

    Raises:
        ValueError: No values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)  # as numpy.quantile, which need not be loaded for it
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return quantile(values, 0.5)


def spread_around(middle: float, samples: Sequence[float]) -> Figure:
    """Return a middle of samples, in their unit, with their 5th and 95th percentile around it."""
    low, high = quantile(samples, 0.05), quantile(samples, 0.95)
    return Figure(value=middle, low=min(low, middle), high=max(high, middle), origin="measured")


def summarize(
    samples: Sequence[float],
    *,
    warmup_runs: int,
    method: str,
    contention: float = 0.0,
    threads: int = 1,
    sharing: float = 1.0,
    undisturbed: Sequence[float] = (),
) -> Latency:
    """A latency from timed runs: the median of the ``undisturbed``, else of all, in the interval of all.

    Two things widen the interval. ``contention`` is the share of the needed cores that other processes took; of
    several ``threads`` what one of them lost, all lost. ``sharing`` is how many times worse than at best the
    threads shared their work throughout (``core_distance``): the runs may be too long by as much, or too short.
    """
    middle = median(undisturbed or samples)
    least = max(LEAST_HALF_WIDTH, _SINGLE_HALF_WIDTH / len(samples))
    low = min(quantile(samples, 0.05), middle * (1 - least))
    high = max(quantile(samples, 0.95), middle * (1 + least))
    return Latency(
        value=middle,
        p10_s=quantile(samples, 0.1),
        p90_s=quantile(samples, 0.9),
        min_s=min(samples),
        # Models on two threads with one to two cores taken took 2.0 to 2.7 times as long as on the quiet
        # machine (defectnet 282 ms instead of 141, LayoutLM 360 instead of 137, ModernBERT 412 instead of 164).
        low=low / (1 + contention) ** (2 if threads > 1 else 1) / sharing,
        high=high * (1 + contention) * min(sharing, _MOST_GAIN),
        runs=len(samples),
        warmup_runs=warmup_runs,
        method=method,
    )


def is_steady(samples: Sequence[float]) -> bool:
    """Whether the last three runs are no faster than those before them, so that warm-up is over."""
    return len(samples) >= 6 and median(samples[-3:]) >= median(samples[-6:-3]) * 0.95
