"""Reporting: which prices the dollars are: the way of paying, where, of which day."""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.figures import Price
from analyzer.options import PRICINGS, Pricing
from analyzer.record.analysis import Analysis
from analyzer.text import listed, plural

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
UNDATED = "a day that is not recorded"
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


def rented(price: Price, width: int = 1) -> str:
    """Return the machine, and how much of its GPUs is used."""
    return " ".join(filter(None, (price.machine, f"({whole(price, width)})" if whole(price, width) else "")))


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
