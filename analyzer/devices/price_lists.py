"""What the catalogue's instances cost elsewhere and paid otherwise: ``prices.toml``, read when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from analyzer.devices.entries import read_toml

FILE = Path(__file__).parent / "prices.toml"


def areas() -> Mapping[str, tuple[str, ...]]:
    """Return the regions of all providers by area: ``us``, ``europe``, ``asia``."""
    return {name: tuple(regions) for name, regions in _tables()["areas"].items()}


@cache
def listed_prices() -> Mapping[tuple[str, str], tuple[Mapping[str, Any], ...]]:
    """Return all prices by provider and name of the instance, in small letters; in the order of the file.

    Each has the fields of an ``Instance`` that are its price.
    """
    prices: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for listed in _tables()["price_lists"]:
        same = {key: listed[key] for key in ("pricing", "region", "price_date")}
        source = _tables()["sources"][listed["source"]]
        for name, usd_per_hour in listed["usd_per_hour"].items():
            price = {**same, "usd_per_hour": float(usd_per_hour), "source": source}
            prices.setdefault((listed["provider"].lower(), name.lower()), []).append(price)
    return {key: tuple(found) for key, found in prices.items()}


@cache
def _tables() -> Mapping[str, Any]:
    return read_toml(FILE)
