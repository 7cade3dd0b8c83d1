"""A plan's time by what is uncertain about it, so that what two plans share cancels when they are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from analyzer.prediction.estimate import Estimate, Origin, total

# `launch` is time in which the GPU waits for the host to hand it the next kernel.
Resource = Literal["cpu", "gpu", "launch", "link"]
RESOURCES: tuple[Resource, ...] = ("cpu", "gpu", "launch", "link")
_WIDEST = 1000.0  # an interval that reaches 0 counts as this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Time that one resource is busy.

    Attributes:
        resource: Who is busy while everything else waits.
        source: Whose error it carries: parts of one source are wrong together, different ones independently.
        time: How long.
    """

    resource: Resource
    source: str
    time: Estimate


Parts = tuple[Part, ...]
EVEN: Mapping[Resource, float] = dict.fromkeys(RESOURCES, 1.0)


def part(resource: Resource, times: Iterable[Estimate]) -> Part:
    """The sum of a resource's times; its errors are shared, so interval ends add."""
    return Part(resource=resource, source="gpu" if resource == "launch" else resource, time=total(times))


def rescaled(parts: Parts, whole: Estimate) -> Parts:
    """The same parts as shares of a run that was timed as a whole."""
    spent = sum(item.time.time_s for item in parts)
    if not spent:
        return (Part(resource="cpu", source="run", time=whole),)
    return tuple(
        Part(resource=item.resource, source="run", time=whole.scaled(item.time.time_s / spent))
        for item in parts
    )


def summed(parts: Parts, weights: Mapping[Resource, float] = EVEN) -> Estimate:
    """The weighted sum with its 90 % interval: ends add inside a source, sources are independent."""
    middle = sum(weights[item.resource] * item.time.time_s for item in parts)
    below = above = 0.0
    for source in dict.fromkeys(item.source for item in parts):
        mine = [item for item in parts if item.source == source]
        below += sum(weights[i.resource] * (i.time.time_s - i.time.low_s) for i in mine) ** 2
        above += sum(weights[i.resource] * (i.time.high_s - i.time.time_s) for i in mine) ** 2
    origins = {item.time.origin for item in parts if item.time.time_s > 0}
    origin: Origin = origins.pop() if len(origins) == 1 else "mixed" if origins else "predicted"
    return Estimate(
        time_s=middle,
        low_s=max(0.0, middle - math.sqrt(below)),
        high_s=middle + math.sqrt(above),
        origin=origin,
    )


def ratio(
    over: Parts,
    under: Parts,
    over_weights: Mapping[Resource, float] = EVEN,
    under_weights: Mapping[Resource, float] = EVEN,
) -> tuple[float, float, float] | None:
    """``over / under`` with its 90 % interval; None where either is nothing.

    Each source goes to either end of its interval on both sides at once; what that does to the logarithm of
    the ratio adds in squares over the sources.
    """

    def value(moved: str | None, end: Literal["low_s", "high_s"]) -> float:
        def side(parts: Parts, weights: Mapping[Resource, float]) -> float:
            return sum(
                weights[item.resource] * (getattr(item.time, end) if item.source == moved else item.time.time_s)
                for item in parts
            )

        bottom = side(under, under_weights)
        return side(over, over_weights) / bottom if bottom > 0 else math.inf

    middle = value(None, "low_s")
    if not 0 < middle < math.inf:
        return None
    down = up = 0.0
    for source in dict.fromkeys(item.source for item in (*over, *under)):
        ends = [value(source, "low_s"), value(source, "high_s")]
        logs = [math.log(min(max(end / middle, 1 / _WIDEST), _WIDEST)) for end in ends]
        down += min(0.0, *logs) ** 2
        up += max(0.0, *logs) ** 2
    return middle, middle * math.exp(-math.sqrt(down)), middle * math.exp(math.sqrt(up))
