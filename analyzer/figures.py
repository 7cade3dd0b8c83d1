"""Represent a figure (a value with its 90 % interval and its origin), and a way to run with its figures.

The record's keys of a figure are flat (``latency_s``, ``low_s``, ``high_s``, ``origin``): the types below hold
them, and return them as one ``Figure``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, TypeVar, cast

from analyzer.options import Pricing
from analyzer.quantities import Amount, Count, Positive
from analyzer.units import span

Origin = Literal["measured", "predicted", "mixed"]
_View = TypeVar("_View")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A value in SI units or dollars; its holder's name says of what and in which unit.

    Attributes:
        value: The expected value.
        low, high: Ends of the 90 % interval.
        origin: ``measured``, ``predicted``, or ``mixed`` for a sum of both.

    Raises:
        ValueError: The value is negative, not a number, or outside of its interval.
    """

    value: float
    low: float
    high: float
    origin: Origin = "predicted"

    def __post_init__(self) -> None:
        """Refuse what nothing can take or cost: a fault of ours, which would decide a purchase unseen."""
        # Only an error of a part that has no value of its own goes below nothing.
        least = -math.inf if self.value == 0 else 0.0
        if not least <= self.low <= self.value <= self.high:
            raise ValueError(f"no figure with its interval: {self.low} <= {self.value} <= {self.high}")

    @classmethod
    def about(cls, value: float, low: float, high: float, origin: Origin = "predicted") -> Self:
        """Return a figure whose ends were worked out or saved apart from it: its interval holds the value."""
        # Dollars and rates follow from times by products, whose rounding may put an end past the value.
        return cls(value=value, low=min(low, value), high=max(high, value), origin=origin)

    @property
    def ends(self) -> tuple[float, float, float]:
        """The low end, the value and the high end."""
        return self.low, self.value, self.high

    def scaled(self, factor: float) -> Self:
        """Return the figure of a share or a multiple of the same thing, or in another unit."""
        if factor == 1:
            return self
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def widened(self, factor: float) -> Self:
        """Return the same value with an interval that is so many times as wide on either side."""
        return self if factor == 1 else replace(self, low=self.low / factor, high=self.high * factor)

    def keeps(self, limit: float | None) -> bool | None:
        """Tell whether the value is within a limit; None where there is none."""
        return None if limit is None else self.value <= limit

    def between(self, words: Callable[[float | None], str]) -> str:
        """Return the interval in words: ``1.2 to 1.5 ms``."""
        return span(words(self.low), words(self.high))

    def keys(self, name: str) -> dict[str, Any]:
        """Return the figure as the record's flat keys: ``latency_s``, ``low_s``, ``high_s`` and ``origin``."""
        unit = name[name.rindex("_") :]
        return {name: self.value, f"low{unit}": self.low, f"high{unit}": self.high, "origin": self.origin}


def total(parts: Iterable[Figure]) -> Figure:
    """Return the sum of figures whose errors are shared (one device), so that interval ends add as well."""
    items = tuple(parts)
    origins = {item.origin for item in items if item.value > 0}
    origin: Origin = origins.pop() if len(origins) == 1 else ("mixed" if origins else "predicted")
    return Figure(
        value=sum([item.value for item in items]),
        low=sum([item.low for item in items]),
        high=sum([item.high for item in items]),
        origin=origin,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Seconds of a part of a run; None where they are not known.

    Attributes:
        time_s: The expected seconds.
        low_s, high_s: Ends of the 90 % interval.
        origin: ``measured``, ``predicted``, or ``mixed`` where parts of both are in it.
    """

    time_s: Amount | None
    low_s: Amount | None
    high_s: Amount | None
    origin: Origin

    @property
    def time(self) -> Figure | None:
        """The seconds."""
        return figure(self, "time_s", "low_s", "high_s", self.origin)


NOT_TIMED: dict[str, Any] = {"time_s": None, "low_s": None, "high_s": None, "origin": "predicted"}
"""The keys of ``Timed`` where nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """The rented machine that runs a model for the least, and its price; empty and None where none is known.

    Attributes:
        provider: The cloud.
        instance: The machine, in the provider's words.
        usd_per_hour: Dollars of one machine, at the date ``price_date``, paid by ``pricing``.
        price_date: ISO date of the price; empty where the source does not say.
        pricing: How it is paid.
        region: Where the price holds.
        gpu_count: GPUs of that machine, all of which are paid; below 1 for a slice of one.
    """

    provider: str = ""
    instance: str = ""
    usd_per_hour: Amount | None = None
    price_date: str = ""
    pricing: Pricing = "on-demand"
    region: str = ""
    gpu_count: Amount = 0.0

    @property
    def machine(self) -> str:
        """The provider and its machine: ``AWS g6.xlarge``."""
        return " ".join(filter(None, (self.provider, self.instance)))


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Seconds of a run; None where it cannot run.

    Attributes:
        latency_s: The expected seconds, host to host.
        low_s, high_s: Ends of the 90 % interval.
        origin: ``measured``, ``predicted``, or ``mixed`` where parts of both are in it.
    """

    latency_s: Amount | None = None
    low_s: Amount | None = None
    high_s: Amount | None = None
    origin: Origin = "predicted"

    @property
    def latency(self) -> Figure | None:
        """The latency in seconds."""
        return figure(self, "latency_s", "low_s", "high_s", self.origin)

    def keeps(self, limit_s: float | None) -> bool | None:
        """Tell whether the expected latency is within a limit; None without a limit, or without a latency."""
        return None if self.latency is None else self.latency.keeps(limit_s)


@dataclass(frozen=True, kw_only=True)
class KnownLatency(Latency):
    """Seconds of what does run."""

    latency_s: Amount = field()
    low_s: Amount = field()
    high_s: Amount = field()

    @property
    def latency(self) -> Figure:
        """The latency in seconds."""
        return Figure.about(self.latency_s, self.low_s, self.high_s, self.origin)


@dataclass(frozen=True, kw_only=True)
class Run(Latency):
    """A run on a device.

    Attributes:
        throughput_per_s: Inferences, one run after the other.
        fits: Whether it fits the memory.
    """

    throughput_per_s: Amount | None = None
    fits: bool = True


@dataclass(frozen=True, kw_only=True)
class Way(Run, Price):
    """A way to run a model: on a device, by a plan, with its figures.

    Attributes:
        memory_bytes: That the plan needs on its device.
        usd_per_million, usd_low_per_million, usd_high_per_million, usd_origin: Of inferences on the machine
            that runs it for the least, with the 90 % interval and the origin of the time there; all rented
            hours are paid.
    """

    memory_bytes: Count | None = None
    usd_per_million: Amount | None = None
    usd_low_per_million: Amount | None = None
    usd_high_per_million: Amount | None = None
    usd_origin: str = ""

    @property
    def dollars(self) -> Figure | None:
        """The dollars of a million inferences."""
        origin: Any = self.usd_origin or self.origin
        return figure(self, "usd_per_million", "usd_low_per_million", "usd_high_per_million", origin)

    def priced_as(self, other: Way | None) -> Self:
        """Return this way at the price and the dollars of another."""
        return self if other is None else replace(self, **{key: getattr(other, key) for key in _PRICE_KEYS})


@dataclass(frozen=True, kw_only=True)
class OnDevice:
    """The device that runs a model, and the precision.

    Attributes:
        device, device_name, kind: The device: its slug, its name, and on which side it is.
        precision: Of its floats, or of the integer form; of a model that generates, of its weights.
    """

    device: str
    device_name: str = ""
    kind: Literal["cpu", "gpu"]
    precision: str = ""


@dataclass(frozen=True, kw_only=True)
class LoadedQueue:
    """A queue's requests at one rate; None where it grows without end.

    Attributes:
        utilisation: Share of time in which a server is busy; of a model that generates, of the highest rate
            that can be finished.
        mean_batch: Requests in a batch, each batch counted once; of a model that generates, sequences that run.
        mean_s, p50_s, p90_s, p95_s, p99_s: From a request's arrival to its answer; of a model that generates,
            to its first token.
        tpot_p50_s, tpot_p99_s: Of a model that generates, the time of each further token.
    """

    utilisation: Amount | None = None
    mean_batch: Amount | None = None
    mean_s: Amount | None = None
    p50_s: Amount | None = None
    p90_s: Amount | None = None
    p95_s: Amount | None = None
    p99_s: Amount | None = None
    tpot_p50_s: Amount | None = None
    tpot_p99_s: Amount | None = None

    def latency_s(self, percentile: float | None) -> float | None:
        """Return a percentile of the latency, its mean for None; None for one that is not known."""
        return getattr(self, "mean_s" if percentile is None else f"p{percentile:g}_s", None)


@dataclass(frozen=True, kw_only=True)
class QueueLoad(LoadedQueue):
    """A queue at one rate.

    Attributes:
        rate_per_s: Requests a second.
        saturated: Whether requests come as fast as full batches leave, or faster.
        requests: How many were simulated; 0 where nothing was.
    """

    rate_per_s: Amount
    saturated: bool = False
    requests: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPoint:
    """The highest rate of one instance at one limit, and the batching that has it."""

    limit_s: Positive
    rate_per_s: Amount
    max_batch: Count
    max_delay_s: Amount


def seen_as(view: type[_View], way: object, **changes: Any) -> _View:
    """Return another view of a way to run: all of its fields that the way has, and these changes."""
    shared = {each.name: getattr(way, each.name) for each in fields(cast(Any, view)) if hasattr(way, each.name)}
    return view(**{**shared, **changes})


def figure(holder: Any, value: str, low: str, high: str, origin: Origin) -> Figure | None:
    """Return three flat keys as a figure; None where the value is not known."""
    known = getattr(holder, value)
    if known is None:
        return None
    first, last = (known if end is None else end for end in (getattr(holder, low), getattr(holder, high)))
    return Figure.about(known, first, last, origin)


_PRICE_KEYS = (
    *(each.name for each in fields(Price)),
    *("usd_per_million", "usd_low_per_million", "usd_high_per_million", "usd_origin"),
)
