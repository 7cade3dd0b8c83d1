"""What requests meet at one rate: how long they take, in which batches, and how busy the servers are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """Latencies from a request's arrival to its answer, in seconds; None where the queue grows without end.

    Attributes:
        rate_per_s: Requests a second.
        mean_s, p50_s, p90_s, p95_s, p99_s: Of the latency.
        mean_batch: Requests in a batch, each batch counted once.
        utilisation: Share of time in which a server is busy.
        saturated: Whether requests come as fast as full batches leave, or faster.
        requests: How many were looked at; 0 where nothing was simulated.
    """

    rate_per_s: float
    mean_s: float | None
    p50_s: float | None
    p90_s: float | None
    p95_s: float | None
    p99_s: float | None
    mean_batch: float | None
    utilisation: float
    saturated: bool
    requests: int

    def latency_s(self, percentile: Percentile | None) -> float | None:
        """A percentile of the latency; with None its mean."""
        by_percentile = {None: self.mean_s, 50: self.p50_s, 90: self.p90_s, 95: self.p95_s, 99: self.p99_s}
        return by_percentile[percentile]


Percentile = Literal[50, 90, 95, 99]
PERCENTILES: tuple[Percentile, ...] = (50, 90, 95, 99)
