"""A device that several models share: how long their requests wait for one another.

Each device does one run at a time, in the order of the requests; runs of each model come as a Poisson stream
and always take the same time. That is an M/G/1 queue whose service times are a mixture of fixed ones. A run
waits for W, whatever its model (Poisson arrivals see time averages).

W is a sum of N independent residual service times, P(N >= n) = load^n, and a residual one is uniform between
0 and the service time of a model, drawn by the models' shares of the load (Pollaczek and Khinchine; Beneš,
1957). Residual times rounded up to a lattice make W longer, and then its distribution follows exactly, by
Panjer's recursion: a reported wait is never too short, and too long by about the lattice's step for each run
waited for. A further stream makes W longer, never shorter: at each moment more work is left undone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Steps between no wait and the longest that is allowed: figures are at most some 2 % too long.
_STEPS = 512
# Of probabilities that are summed up to here: rounding must not make a limit seem satisfied.
_ROUNDING = 1e-12
# exp() of more overflows.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStream:
    """Runs of one model on a device: how many a second, and seconds of each."""

    runs_per_s: float
    time_s: float

    @property
    def share(self) -> float:
        """Share of time in which they keep the device busy."""
        return self.runs_per_s * self.time_s


def load_of(streams: Sequence[RunStream]) -> float:
    """Return the share of time in which the device is busy."""
    return math.fsum(stream.share for stream in streams)


def waits_at_most(streams: Sequence[RunStream], tail: float | None, longest_s: float) -> bool:
    """Return whether ``wait_s`` is at most ``longest_s``."""
    if tail is not None and tail > 0 and longest_s > 0:
        # P(W > t) <= exp(-a t) for every a at which sum of rate * (exp(a * time) - 1) <= a (Lundberg's
        # inequality, in the form that Kingman gave it for queues): it spares most of the sums.
        exponent = -math.log(tail) / longest_s
        rises = (one.runs_per_s * math.expm1(min(exponent * one.time_s, _LARGEST_EXPONENT)) for one in streams)
        if sum(rises) <= exponent:
            return load_of(streams) < 1
    return wait_s(streams, tail, longest_s=longest_s) <= longest_s


def wait_s(streams: Sequence[RunStream], tail: float | None, *, longest_s: float) -> float:
    """Return what W exceeds with a probability of ``tail`` at most, in seconds; its mean without a ``tail``.

    Infinite where that percentile is above ``longest_s``, or where the streams are more than the device serves.
    """
    load = load_of(streams)
    if load >= 1:
        return math.inf
    if tail is None:
        return math.fsum(stream.share * stream.time_s for stream in streams) / (2 * (1 - load))
    if load <= tail:  # P(W > 0) is the load
        return 0.0
    # Some run is under way for longer than that from now on: a cheap lower bound of P(W > longest).
    if longest_s <= 0 or sum(one.runs_per_s * max(0.0, one.time_s - longest_s) for one in streams) > tail:
        return math.inf
    from scipy.signal import lfilter

    step = longest_s / _STEPS
    before = np.arange(_STEPS) * step
    # Probability that one more residual time is added and that it lies in a step, taken at the step's end.
    times = np.array([[stream.time_s] for stream in streams])
    added = np.array([stream.runs_per_s for stream in streams]) @ np.clip(times - before, 0.0, step)
    start = np.zeros(_STEPS + 1)
    start[0] = 1 - load
    # w[n] = start[n] + sum of added[k] w[n - k]: a recursive filter. Its sums are lower bounds of P(W <= t).
    within = np.cumsum(lfilter([1.0], np.concatenate(([1.0], -added)), start))
    step_number = int(np.searchsorted(within, 1 - tail + _ROUNDING))
    return step_number * longest_s / _STEPS if step_number <= _STEPS else math.inf


def runs_per_s(rate_per_s: float, batch: int, delay_s: float | None) -> float:
    """Return runs a second of requests that wait for a batch to fill, the oldest of them ``delay_s`` at most.

    From one run's forming to the next: until a request comes, and then until the others have come or the delay
    is over. The time between runs varies less than that of a Poisson stream as fast (it is new better than
    used), so that to take them for one lengthens the wait.
    """
    if batch == 1:
        return rate_per_s
    if delay_s is None:
        return rate_per_s / batch
    from scipy.special import gammainc

    # The mean of min(delay, Erlang of n stages) is the integral of P(Erlang > t) up to the delay.
    stages = np.arange(1, batch)
    filling_s = float(gammainc(stages, rate_per_s * delay_s).sum()) / rate_per_s
    return 1 / (1 / rate_per_s + filling_s)
