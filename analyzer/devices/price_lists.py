"""What the catalogue's instances cost elsewhere and paid otherwise: ``prices.toml``, read when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from analyzer.devices.instances import Price
from analyzer.devices.toml_entries import read_toml

FILE = Path(__file__).parent / "prices.toml"


def areas() -> Mapping[str, tuple[str, ...]]:
    """The regions of all providers by area: ``us``, ``europe``, ``asia``."""
    return {name: tuple(regions) for name, regions in _tables()["areas"].items()}


@cache
def listed_prices() -> Mapping[tuple[str, str], tuple[Price, ...]]:
    """All prices by provider and name of the instance, in small letters; in the order of the file."""
    sources: Mapping[str, str] = _tables()["sources"]
    prices: dict[tuple[str, str], list[Price]] = {}
    for listed in _tables()["price_lists"]:
        for name, usd_per_hour in listed["usd_per_hour"].items():
            price = Price(
                pricing=listed["pricing"],
                region=listed["region"],
                usd_per_hour=float(usd_per_hour),
                price_date=listed["price_date"],
                source=sources[listed["source"]],
            )
            prices.setdefault((listed["provider"].lower(), name.lower()), []).append(price)
    return {key: tuple(found) for key, found in prices.items()}


@cache
def _tables() -> Mapping[str, Any]:
    return read_toml(FILE)
