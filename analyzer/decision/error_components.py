"""A plan's time by what is uncertain about it, so that what two plans share cancels when they are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from analyzer.figures import Figure, Origin, total

# `launch` is time in which the GPU waits for the host to hand it the next kernel.
Resource = Literal["cpu", "gpu", "launch", "link"]
RESOURCES: tuple[Resource, ...] = ("cpu", "gpu", "launch", "link")
# An interval that reaches 0 has no logarithm: it counts as this factor, beyond any that a prediction states.
_WIDEST = 1000.0
# What a plan with a GPU may spend its time on besides kernels.
BURDENS: Mapping[str, Resource] = {"copies": "link", "launches": "launch", "fallback": "cpu"}
# Share of a plan's time from where a part is named as the cause. A judgement, no measurement.
_LARGE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorComponent:
    """Time that one resource is busy.

    Attributes:
        resource: Who is busy while everything else waits.
        source: Whose error it carries: parts of one source are wrong together, different ones independently.
        time: How long; of a part whose size alone is in doubt 0, with an interval about it.
    """

    resource: Resource
    source: str
    time: Figure


ErrorComponents = tuple[ErrorComponent, ...]
EVEN: Mapping[Resource, float] = dict.fromkeys(RESOURCES, 1.0)


def component(resource: Resource, times: Iterable[Figure]) -> ErrorComponent:
    """Return the sum of a resource's times; its errors are shared, so interval ends add."""
    # Launches and kernels of a GPU are predicted by one model: they err together.
    source = "gpu" if resource == "launch" else resource
    return ErrorComponent(resource=resource, source=source, time=total(times))


def busy_s(components: ErrorComponents, resource: Resource) -> float:
    """Return for how long a resource is busy."""
    return sum(component.time.value for component in components if component.resource == resource)


def largest_burden(components: ErrorComponents) -> str:
    """Return what a plan with a GPU spends most on besides kernels, if it is a large part; else empty."""
    spent = {name: busy_s(components, resource) for name, resource in BURDENS.items()}
    largest = max(spent, key=spent.__getitem__)
    whole = sum(component.time.value for component in components)
    return largest if whole and spent[largest] >= _LARGE * whole else ""


def of_measured_run(resource: Resource, times: Iterable[Figure], run: Figure) -> ErrorComponents:
    """Return the sum of times parts of a run that was timed as a whole, of which other plans hold the whole.

    What the run's own time erred by, all of its parts share, so that it cancels between such plans. How the
    run divides is in doubt by what is known of the parts, yet only as far as there is something else that
    could have taken the rest: what is the whole run is as certain as the run.
    """
    part = total(times)
    if not part.value or not run.value:
        return (component(resource, (part,)),)
    rest_s = max(0.0, run.value - part.value)
    whole = replace(run.scaled(part.value / run.value), origin=part.origin)
    shared = ErrorComponent(resource=resource, source=resource, time=whole)
    if not rest_s:
        return (shared,)
    low, high = (end / (end + rest_s) * (part.value + rest_s) - part.value for end in (part.low, part.high))
    # No time of its own: by how much the part's may be off.
    doubt = Figure(value=0.0, low=low, high=high, origin=part.origin)
    return (shared, ErrorComponent(resource=resource, source=f"share of the {resource}", time=doubt))


def rescaled(components: ErrorComponents, whole: Figure) -> ErrorComponents:
    """Return the same parts as shares of a run that was timed as a whole."""
    spent = sum(component.time.value for component in components)
    if not spent:
        return (ErrorComponent(resource="cpu", source="run", time=whole),)
    # One clock timed the whole run: whatever it erred by, all parts share.
    return tuple(
        ErrorComponent(
            resource=component.resource, source="run", time=whole.scaled(component.time.value / spent)
        )
        for component in components
    )


def summed(components: ErrorComponents, weights: Mapping[Resource, float] = EVEN) -> Figure:
    """Return the weighted sum with its 90 % interval: ends add inside a source, sources are independent."""
    middle = sum(weights[component.resource] * component.time.value for component in components)
    # Half-widths of independent errors add in squares, the two sides apart, since intervals are not symmetric.
    below = above = 0.0
    for source in dict.fromkeys(component.source for component in components):
        same_source = [component for component in components if component.source == source]
        below += sum(weights[i.resource] * (i.time.value - i.time.low) for i in same_source) ** 2
        above += sum(weights[i.resource] * (i.time.high - i.time.value) for i in same_source) ** 2
    origins = {component.time.origin for component in components if component.time.value > 0}
    origin: Origin = origins.pop() if len(origins) == 1 else "mixed" if origins else "predicted"
    return Figure(
        value=middle,
        low=max(0.0, middle - math.sqrt(below)),
        high=middle + math.sqrt(above),
        origin=origin,
    )


def ratio(
    over: ErrorComponents,
    under: ErrorComponents,
    over_weights: Mapping[Resource, float] = EVEN,
    under_weights: Mapping[Resource, float] = EVEN,
) -> tuple[float, float, float] | None:
    """``over / under`` with its 90 % interval; None where either is nothing.

    Each source goes to either end of its interval on both sides at once; what that does to the logarithm of
    the ratio adds in squares over the sources.
    """

    # Logarithms, for a ratio errs by factors: 2x and 0.5x are equally far from 1.
    def value(moved: str | None, end: Literal["low", "high"]) -> float:
        def side(components: ErrorComponents, weights: Mapping[Resource, float]) -> float:
            times: list[float] = [getattr(i.time, end if i.source == moved else "value") for i in components]
            return sum([weights[i.resource] * time for i, time in zip(components, times, strict=True)])

        bottom = side(under, under_weights)
        return side(over, over_weights) / bottom if bottom > 0 else math.inf

    middle = value(None, "low")
    if not 0 < middle < math.inf:
        return None
    down = up = 0.0
    for source in dict.fromkeys(component.source for component in (*over, *under)):
        ends = [value(source, "low"), value(source, "high")]
        logs = [math.log(min(max(end / middle, 1 / _WIDEST), _WIDEST)) for end in ends]
        down += min(0.0, *logs) ** 2
        up += max(0.0, *logs) ** 2
    return middle, middle * math.exp(-math.sqrt(down)), middle * math.exp(math.sqrt(up))


def in_other_kernels(before: ErrorComponents, after: ErrorComponents, form: str) -> ErrorComponents:
    """Return the parts of a run in another form of numbers: kernels that take other times err by themselves."""
    return tuple(part if part in before else replace(part, source=f"{part.source} in {form}") for part in after)


def over(one: Figure, other: Figure) -> tuple[float, float, float] | None:
    """Return one time over another, with the interval of errors that have nothing in common."""
    if min(one.low, other.low) <= 0:
        return None
    middle = one.value / other.value
    down = math.hypot(math.log(one.value / one.low), math.log(other.high / other.value))
    up = math.hypot(math.log(one.high / one.value), math.log(other.value / other.low))
    return middle, middle * math.exp(-down), middle * math.exp(up)
