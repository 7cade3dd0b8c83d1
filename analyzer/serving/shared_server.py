"""A device that several models share: how long their requests wait for one another.

Each device does one run at a time, in the order in which runs are asked for; runs of each model come as a
Poisson stream and always take the same time. That is an M/G/1 queue whose service times are a mixture of
fixed ones. A run waits for W, whatever its model (Poisson arrivals see time averages).

W is a sum of N independent residual service times, P(N >= n) = load^n, and a residual one is uniform between
0 and the service time of a model, drawn by the models' shares of the load (Pollaczek and Khinchine; Beneš,
1957). Hence, in the order of what they cost:

* P(W > 0) is the load: a lightly loaded device keeps any limit that one run keeps.
* P(W > t) >= sum of rate * max(0, time - t): that often a run is under way that lasts longer than t from now
  on.
* P(W > t) <= exp(-a t) for every a at which sum of rate * (exp(a * time) - 1) <= a (Lundberg's inequality, in
  the form that Kingman gave it for queues).
* Residual times rounded up to a lattice make W longer, and then its distribution follows exactly, by Panjer's
  recursion. What is told is never too short, and too long by about the lattice's step for each run waited for.

A further stream makes W longer, never shorter: at each moment more work is left undone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.arrays import Floats

# Steps between no wait and the longest that is allowed: figures are at most some 2 % too long.
_STEPS = 512
# Of probabilities that are summed up to here: rounding must not make a limit seem kept.
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
    """Share of time in which the device is busy."""
    return math.fsum(stream.share for stream in streams)


def mean_wait_s(streams: Sequence[RunStream]) -> float:
    """Mean of W (Pollaczek and Khinchine); infinite where more is asked for than can be served."""
    load = load_of(streams)
    if load >= 1:
        return math.inf
    return math.fsum(stream.share * stream.time_s for stream in streams) / (2 * (1 - load))


def waits_at_most(streams: Sequence[RunStream], wait_s: float, tail: float) -> bool:
    """Whether W is above ``wait_s`` with a probability of at most ``tail``; said only where it is certain."""
    load = load_of(streams)
    if load >= 1 or wait_s < 0 or tail <= 0:
        return False
    if load <= tail:
        return True
    if wait_s == 0 or sum(one.runs_per_s * max(0.0, one.time_s - wait_s) for one in streams) > tail:
        return False
    exponent = -math.log(tail) / wait_s
    if exponent * max(one.time_s for one in streams) < _LARGEST_EXPONENT and (
        sum(one.runs_per_s * math.expm1(exponent * one.time_s) for one in streams) <= exponent
    ):
        return True
    return bool(_within(streams, wait_s)[-1] >= 1 - tail + _ROUNDING)


def wait_percentile_s(streams: Sequence[RunStream], tail: float, *, longest_s: float) -> float:
    """What W exceeds with a probability of ``tail`` or less; ``longest_s`` where it lies above that."""
    if longest_s <= 0 or load_of(streams) <= tail:
        return 0.0
    enough = np.flatnonzero(_within(streams, longest_s) >= 1 - tail + _ROUNDING)
    return float(enough[0]) * longest_s / _STEPS if len(enough) else longest_s


def _within(streams: Sequence[RunStream], longest_s: float) -> Floats:
    """A lower bound of P(W <= t) at ``_STEPS`` + 1 times t from 0 to ``longest_s``."""
    from scipy.signal import lfilter

    step = longest_s / _STEPS
    before = np.arange(_STEPS) * step
    # Probability that one more residual time is added and that it lies in a step, taken at the step's end.
    added = np.zeros(_STEPS)
    for stream in streams:
        added += stream.runs_per_s * np.clip(stream.time_s - before, 0.0, step)
    start = np.zeros(_STEPS + 1)
    start[0] = 1 - load_of(streams)
    # w[n] = start[n] + sum of added[k] w[n - k]: a filter that hears itself.
    return np.cumsum(lfilter([1.0], np.concatenate(([1.0], -added)), start))


def runs_per_s(rate_per_s: float, batch: int, delay_s: float | None) -> float:
    """Runs a second of requests that wait for a batch to fill, the oldest of them ``delay_s`` at most.

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
