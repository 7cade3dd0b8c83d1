"""Capacity in the record: instances, their number, latency and price; see ``analysis``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from analyzer.figures import LimitPoint, LoadedQueue, OnDevice, Origin, Price, QueueLoad
from analyzer.quantities import Amount, Count, Positive


@dataclass(frozen=True, kw_only=True)
class CapacityOption(OnDevice, Price, LoadedQueue):
    """One instance type as the answer; without a figure where it cannot keep the limit at any count.

    Its load is that of each with all ``count`` instances up, at the rate with growth.

    Attributes:
        replicas: Copies of the model on one instance, behind one queue: one a GPU, or a part of the cores.
        count: Instances for the rate with growth, headroom and spare; ``low_count`` where the service times
            are as quick as their interval allows, ``high_count`` as slow; None where that end keeps no limit.
        max_batch, max_delay_s: How requests are batched on each.
        highest_rate_per_s: Requests a second that one instance takes within the limit; its ends are those of
            the service times' 90 % intervals.
        tokens_per_s: Output tokens of all instances, at the rate with growth.
        width: GPUs that share one copy of the model.
        room: Share by which the rate with growth may still rise with the spare instances down; it counts the
            headroom.
        usd_per_month: Of all of them, in 730 hours.
        usd_per_million: Requests, at the rate with growth.
        usd_per_million_tokens: Output tokens, at the rate with growth, of a model that generates.
        feasible, reason: Whether it keeps the limit, and why or why not.
        origin: Of the service times.
    """

    feasible: bool
    reason: str
    origin: Origin = "predicted"
    replicas: Count | None = None
    count: Count | None = None
    low_count: Count | None = None
    high_count: Count | None = None
    max_batch: Count | None = None
    max_delay_s: Amount | None = None
    highest_rate_per_s: Amount | None = None
    low_rate_per_s: Amount | None = None
    high_rate_per_s: Amount | None = None
    tokens_per_s: Amount | None = None
    width: Count = 1
    room: Amount | None = None
    usd_per_month: Amount | None = None
    low_usd_per_month: Amount | None = None
    high_usd_per_month: Amount | None = None
    usd_per_million: Amount | None = None
    usd_per_million_tokens: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePoint:
    """The time of one batch on a device; ends of its 90 % interval."""

    batch: Count
    time_s: Positive
    low_s: Amount
    high_s: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLoads:
    """Loads by which the page answers other questions about one of ``options``, by its index.

    ``limits`` are for the question's percentile, in rising order; ``usd_per_hour`` by way of paying. ``loads``
    are with the option's own batching, or the one nearest to keeping the limit.
    """

    option: Count
    service: tuple[ServicePoint, ...]
    loads: tuple[QueueLoad, ...]
    limits: tuple[LimitPoint, ...]
    usd_per_hour: Mapping[str, Amount] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPoint:
    """Instances and dollars from this rate on, up to the next one's.

    The rate is what is planned for: growth is in it, headroom is not.
    """

    rate_per_s: Amount
    count: Count
    usd_per_month: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityResult:
    """From traffic and a limit to instances.

    Attributes:
        requests: ``inference``: a request is one; ``generation``: it is a prompt that is answered.
        rate_per_s: Requests a second.
        percentile: Of the latency that is limited; None where its mean is.
        limit_s: From a request's arrival to its answer, waiting included; of generation to its first token.
        tpot_limit_s: Of generation, of the same percentile of the time of each further token; None for none.
        prompt_tokens, output_tokens: Of a request that generates, on average.
        arrivals: ``poisson``, or the trace's file.
        headroom: Share of the rate that must be free beside it.
        growth: Times the rate that is planned for.
        spare: Instances that may fail.
        pricing: Way of paying that the dollars are for.
        max_batch, max_delay_s: As asked; None where they were chosen.
        options: By dollars, those that keep the limit first.
        best: Index of the cheapest that does; None where none does.
        low_latency_s, high_latency_s: The latency that is limited, of that one, at the ends of its times' 90 %
            intervals; None where requests come faster than they are answered.
        instances: What other questions are answered from.
        traffic: The steps of the best option's count and dollars.
        notes: What the figures rest on, in sentences.
    """

    rate_per_s: Positive
    percentile: Positive | None
    limit_s: Positive
    arrivals: str
    headroom: Amount
    growth: Positive
    spare: Count
    pricing: str
    options: tuple[CapacityOption, ...]
    best: Count | None
    requests: Literal["inference", "generation"] = "inference"
    tpot_limit_s: Amount | None = None
    prompt_tokens: Amount | None = None
    output_tokens: Amount | None = None
    max_batch: Count | None = None
    max_delay_s: Amount | None = None
    instances: tuple[InstanceLoads, ...] = ()
    traffic: tuple[TrafficPoint, ...] = ()
    notes: tuple[str, ...] = ()
    low_latency_s: Amount | None = None
    high_latency_s: Amount | None = None

    @property
    def best_option(self) -> CapacityOption | None:
        """The cheapest option that keeps the limit; None where none does."""
        return None if self.best is None else self.options[self.best]
