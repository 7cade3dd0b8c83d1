"""What the record says of capacity: which instances, how many, at what latency and price; see ``analysis``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from analyzer.quantities import Amount, Count, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOption:
    """One instance type as the answer; without a figure where it cannot keep the limit at any count.

    Attributes:
        provider, instance, region, price_date: What is rented, where, and the day of its price.
        device, device_name, kind: What the model runs on there: its slug, what people call it, and on which
            side that is.
        precision: That the times are for.
        replicas: Copies of the model on one instance, behind one queue: one a GPU, or a part of the cores.
        count: Instances for the rate with growth, headroom and spare; ``low_count`` where the service times
            are as quick as their interval allows, ``high_count`` as slow; None where that end keeps no limit.
        max_batch, max_delay_s: How requests are batched on each.
        highest_rate_per_s: Requests a second that one instance takes within the limit; its ends are those of
            the service times' 90 % intervals.
        utilisation, mean_batch, mean_s, p50_s, p90_s, p95_s, p99_s: With all ``count`` instances up, at the
            rate with growth. The utilisation is the share of time in which a copy of the model is busy.
        tpot_p50_s, tpot_p99_s: Of a model that generates, the time of each further token; the latencies above
            are then those of the first token.
        tokens_per_s: Output tokens of all instances, at the rate with growth.
        width: GPUs that share one copy of the model.
        room: Share by which the rate with growth may still rise with the spare instances down; it counts the
            headroom.
        usd_per_hour: Of one instance.
        usd_per_month: Of all of them, in 730 hours.
        usd_per_million: Requests, at the rate with growth.
        usd_per_million_tokens: Output tokens, at the rate with growth, of a model that generates.
        feasible, reason: Whether it keeps the limit, and why or why not.
        origin: Of the service times.
    """

    provider: str
    instance: str
    region: str
    device: str
    kind: Literal["cpu", "gpu"]
    precision: str
    feasible: bool
    reason: str
    origin: Literal["measured", "predicted", "mixed"] = "predicted"
    price_date: str = ""
    device_name: str = ""
    replicas: Count | None = None
    count: Count | None = None
    low_count: Count | None = None
    high_count: Count | None = None
    max_batch: Count | None = None
    max_delay_s: Amount | None = None
    highest_rate_per_s: Amount | None = None
    low_rate_per_s: Amount | None = None
    high_rate_per_s: Amount | None = None
    utilisation: Amount | None = None
    mean_batch: Amount | None = None
    mean_s: Amount | None = None
    p50_s: Amount | None = None
    p90_s: Amount | None = None
    p95_s: Amount | None = None
    p99_s: Amount | None = None
    tpot_p50_s: Amount | None = None
    tpot_p99_s: Amount | None = None
    tokens_per_s: Amount | None = None
    width: Count = 1
    room: Amount | None = None
    usd_per_hour: Amount | None = None
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
class LoadPoint:
    """One instance at one rate: how full it is, the batch that forms, and its latencies.

    Of a model that generates latencies are those of the first token, ``tpot_s`` those of each further one, the
    batch is how many sequences run, and the utilisation the share of the highest rate that can be finished.
    """

    rate_per_s: Positive
    utilisation: Amount
    mean_batch: Amount
    mean_s: Amount
    p50_s: Amount
    p90_s: Amount
    p95_s: Amount
    p99_s: Amount
    tpot_p50_s: Amount | None = None
    tpot_p99_s: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPoint:
    """The highest rate of one instance at one limit, and the batching that has it."""

    limit_s: Positive
    rate_per_s: Amount
    max_batch: Count
    max_delay_s: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLoads:
    """What the page needs to answer other questions about one of ``options``, which it names by its index.

    ``limits`` are for the question's percentile, in rising order; ``usd_per_hour`` by way of paying. ``loads``
    are with the option's own batching, or the one nearest to keeping the limit.
    """

    option: Count
    service: tuple[ServicePoint, ...]
    loads: tuple[LoadPoint, ...]
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

    @property
    def best_option(self) -> CapacityOption | None:
        """The cheapest option that keeps the limit; None where none does."""
        return None if self.best is None else self.options[self.best]
