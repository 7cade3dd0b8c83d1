"""Figures and prices as reports write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from analyzer.figures import Price
from analyzer.options import PRICINGS, Pricing
from analyzer.record.analysis import Analysis, CpuTime, GpuTime
from analyzer.text import listed, plural
from analyzer.units import UNKNOWN, digits, dollars, rate, seconds, with_prefix

Time = CpuTime | GpuTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The mark of an origin, and its meaning."""

    name: str
    sign: str
    meaning: str


MARKS = {
    mark.name: mark
    for mark in (
        Mark(name="measured", sign="●", meaning="timed with ONNX Runtime on the machine named under Method"),
        Mark(
            name="predicted",
            sign="○",
            meaning="computed from the counts and the device's data sheet or calibration; nothing was run",
        ),
        Mark(
            name="mixed",
            sign="◐",
            meaning=(
                "made of measured and predicted parts; of an operator, its share of what a measured group "
                "took, or what it took in another session"
            ),
        ),
        Mark(
            name="modelled",
            sign="≈",
            meaning="a count that rests on an assumption, which the operator's note names",
        ),
    )
}
PLAN_TITLES = {"cpu": "CPU", "gpu": "GPU", "hybrid": "Best plan"}
SPLIT = "Split"
VERDICT_WORDS: Mapping[str | None, str] = MappingProxyType(
    {"cpu": "CPU", "gpu": "GPU", "hybrid": "CPU and GPU", "either": "Either", None: "No answer"}
)


def origin_note(place: str) -> tuple[Mark, ...]:
    """Return the marks of figures' origins where the machine is named in another place than under Method."""
    return tuple(
        replace(mark, meaning=mark.meaning.replace("under Method", place))
        for mark in MARKS.values()
        if mark.name != "modelled"
    )


def sign(origin: str) -> str:
    """Return the sign of an origin; empty where the record does not tell it."""
    return MARKS[origin].sign if origin in MARKS else ""


def signed(origin: str) -> str:
    """Return the origin with its sign: ``● measured``."""
    return f"{MARKS[origin].sign} {origin}" if origin in MARKS else origin


def marked(figure: str, origin: str) -> str:
    """Return a figure with the sign of its origin; as it is where the origin is not known."""
    return f"{figure} {MARKS[origin].sign}" if origin in MARKS and figure != UNKNOWN else figure


def per_second(value: float | None) -> str:
    """Return inferences per second: ``4.12 k/s``, ``0.046 /s``; prefixes for many alone."""
    # "46.0 m/s" of an LLM's slow step reads as metres: milli is written out as a decimal.
    if value is None or not 0 < value < 1:
        return rate(value, "")
    return f"{digits(value)} /s"


def joules(value: float | None) -> str:
    """Energy: ``0.131 J``, ``75.3 mJ``."""
    return with_prefix(value, "J")


WAYS: dict[Pricing, str] = {
    "on-demand": "on demand",
    "reserved-1y": "reserved for one year",
    "reserved-3y": "reserved for three years",
    "spot": "spot",
}
KINDS: dict[Pricing, str] = {
    "on-demand": "on-demand list prices",
    "reserved-1y": "prices of machines reserved for one year",
    "reserved-3y": "prices of machines reserved for three years",
    "spot": "prices of spot machines",
}
UNDATED = "an unknown date"
REMARKS: dict[Pricing, str] = {
    "on-demand": "",
    "reserved-1y": " The whole year is paid, used or not.",
    "reserved-3y": " All three years are paid, used or not.",
    "spot": " The provider may take a spot machine away at any time, and its price changes from day to day.",
}


def whole(price: Price, width: int = 1) -> str:
    """Return how many GPUs of a machine copies of the model use: ``8 GPUs, 6 used by 2 copies``."""
    number = int(price.gpu_count)
    copies = number // max(1, width)
    return f"{number} GPUs, {copies * width} used by {plural(copies, 'copy')}" if number > 1 else ""


def rented(way: Price, width: int = 1, *, hourly: bool = False) -> str:
    """Return the machine, how much of its GPUs is used, and the time of a run there where it is another."""
    there, here = (getattr(way, key, None) for key in ("instance_latency_s", "latency_s"))
    details = (
        f"{dollars(way.usd_per_hour)} an hour" if hourly and way.usd_per_hour is not None else "",
        whole(way, width),
        f"{seconds(there)} there" if there is not None and seconds(there) != seconds(here) else "",
    )
    return f"{way.machine} ({', '.join(filter(None, details))})" if any(details) else way.machine


def statement(analysis: Analysis) -> str:
    """Return the prices, where they are not the usual ones: on demand in the catalogue's own regions."""
    rows = _priced(analysis)
    options = analysis.invocation.options if analysis.invocation is not None else {}
    regions, way = options.get("region", ()), tuple(options.get("pricing", ()))
    # One way of paying is asked for.
    pricing = rows[0].pricing if rows else next((one for one in PRICINGS if (one,) == way), PRICINGS[0])
    if pricing == PRICINGS[0] and not regions:
        return ""
    where = listed(sorted({row.region for row in rows if row.region})) if rows else ", ".join(regions)
    there = f" in {where}" if where else ""
    if not rows:
        return f"No price {WAYS[pricing]}{there} is known of an instance that can run it."
    return f"Dollars follow from {KINDS[pricing]}{there}, of {dates(rows)}.{REMARKS[pricing]}"


def dates(rows: Iterable[Price]) -> str:
    """Return the days of prices, from the oldest to the newest."""
    result = {row.price_date for row in rows}
    known = sorted(result - {""})
    words = [known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}"] if known else []
    return " and ".join([*words, *([UNDATED] if "" in result else [])])


def _priced(analysis: Analysis) -> tuple[Price, ...]:
    """Everything with dollars whose price is told."""
    generation = analysis.generation
    options = (*generation.devices, *generation.types, *generation.widths) if generation is not None else ()
    others = analysis.alternatives
    plans = (*analysis.plans, *(plan for one in others for plan in one.plans))
    rows = (*analysis.costs, *(row for one in others for row in one.costs))
    return (
        *rows,
        *analysis.instances,
        *(plan for plan in plans if plan.instance),
        *(row for row in options if row.instance),
    )
