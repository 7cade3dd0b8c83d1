"""Entries of a device file (TOML) to values, every hole named: the catalogue's files and the user's."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from analyzer.devices.device import Device, DeviceKind, Link
from analyzer.devices.instances import Instance
from analyzer.errors import DeviceError
from analyzer.option_table import PRICINGS
from analyzer.precision import PEAK_TYPES
from analyzer.toml_file import read_toml as read_within_limits

CatalogueEntry = Mapping[str, Any]
TABLES = ("sources", "links")
# Fields that `Instance` takes as they stand in the file.
_INSTANCE_FIELDS = ("region", "price_date", "vcpus", "memory_bytes", "cpu_type", "cpu", "cpu_nearest")
_INSTANCE_OPTIONAL = ("threads_per_core", "gpu", "gpu_count", "accelerator", "notes", "pricing")
CURRENCY = "USD"


# What a value that is not read by a function of its own must be, by key, in words and by test.
_TEXT = ("a text", lambda value: isinstance(value, str))
_TEXTS = (
    "a list of texts",
    lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
)
_FLAG = ("true or false", lambda value: isinstance(value, bool))
_WHOLE = ("a whole number above 0", lambda value: isinstance(value, int) and value is not True and value > 0)
_TABLE = ("a table", lambda value: isinstance(value, dict))
_NUMBER = ("a number from 0", lambda value: isinstance(value, int | float) and 0 <= value < float("inf"))
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("vendor", "architecture", "compute_capability", "notes", "memory_type", "source"), _TEXT),
    **dict.fromkeys(("name", "link", "kind", "region", "price_date", "cpu_type", "cpu", "gpu", "like"), _TEXT),
    "accelerator": _TEXT,
    **dict.fromkeys(("assumed", "sources", "derived"), _TEXTS),
    **dict.fromkeys(("runs_release_wheel", "cpu_nearest"), _FLAG),
    **dict.fromkeys(("threads", "year", "vcpus", "threads_per_core"), _WHOLE),
    **dict.fromkeys(("sustained", "bus_bandwidth_bytes_per_s"), _TABLE),
    "pricing": (f"one of {', '.join(PRICINGS)}", lambda value: value in PRICINGS),
    **dict.fromkeys(("gpu_count", "units", "memory_bytes"), _NUMBER),
}
# Figures that have a reader of their own.
_FIGURES = (
    "peak_flops_per_s", "bandwidth_bytes_per_s", "cache_bytes", "clock_hz", "turbo_hz", "tdp_w",
    "usd_per_hour", "provider", "currency", "simd",
)  # fmt: skip
_KNOWN = (*_KINDS, *_FIGURES)
# Keys of an entry that are compared with ours; the largest of the catalogue has 20.
_MOST_KEYS = 200
# A key that is nearly one of ours is a slip, and the figure would be lost in silence.
_NEARLY = 0.87


def check_kinds(label: str, entry: CatalogueEntry, origin: str) -> None:
    """Refuses a value of another kind than its key has: the file may be a stranger's."""
    if len(entry) > _MOST_KEYS:
        raise DeviceError(f"{origin}: {label} has {len(entry):,} keys.", hint=f"{_MOST_KEYS} are the most.")
    for key, value in entry.items():
        words, holds = _KINDS.get(key, ("", None))
        if holds is not None and not holds(value):
            raise DeviceError(
                f"{origin}: {key} of {label} is {reprlib.repr(value)}.", hint=f"It must be {words}."
            )
        meant = [] if key in _KNOWN else difflib.get_close_matches(key, _KNOWN, n=1, cutoff=_NEARLY)
        if meant and meant[0] not in entry:
            raise DeviceError(
                f"{origin}: {label} has the unknown key {reprlib.repr(key)}.", hint=f"Did you mean {meant[0]}?"
            )


def table_of(tables: Mapping[str, Any], name: str, origin: str) -> Mapping[str, Any]:
    """A table of a parsed file, empty where it has none of this name."""
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise DeviceError(f"{origin}: {name} is no table.", hint=f"Write [{name}].")
    return table


def read_toml(path: Path) -> dict[str, Any]:
    """The parsed file.

    Raises:
        DeviceError: It is not there or is not TOML.
    """
    try:
        return read_within_limits(path)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise DeviceError(f"{path}: {reason}.", hint="Give the path of a TOML file.") from error
    except ValueError as error:
        raise DeviceError(f"{path} is not valid TOML: {error}.", hint="Mend the line it names.") from error


def entries(tables: Mapping[str, Any]) -> Iterator[tuple[str, CatalogueEntry]]:
    """The devices of a parsed file: ``(slug, entry)``."""
    return ((slug, entry) for slug, entry in tables.items() if slug not in TABLES and isinstance(entry, dict))


def to_device(
    slug: str, entry: CatalogueEntry, kind: DeviceKind, tables: Mapping[str, Any], origin: str
) -> Device:
    """One entry as a Device.

    Args:
        slug: Its key in the file.
        entry: Its table.
        kind: ``cpu`` or ``gpu``.
        tables: The parsed file, for its ``sources`` and ``links``.
        origin: Name of the file for messages.

    Raises:
        DeviceError: A figure is missing or is no number; the message names it.
    """
    check_kinds(slug, entry, origin)
    table_of(tables, "sources", origin)
    peaks = _peaks(slug, entry, origin)
    return Device(
        slug=slug,
        name=str(entry.get("name", slug)),
        kind=kind,
        vendor=str(entry.get("vendor", "")),
        architecture=str(entry.get("architecture", "")),
        peak_flops_per_s=peaks,
        bandwidth_bytes_per_s=_number(slug, entry, "bandwidth_bytes_per_s", origin),
        memory_bytes=_optional_int(slug, entry, "memory_bytes", origin) if kind == "gpu" else None,
        units=int(_number(slug, entry, "units", origin)),
        threads=int(entry.get("threads", entry.get("units", 1))),
        clock_hz=_optional(slug, entry, "clock_hz", origin),
        turbo_hz=_optional(slug, entry, "turbo_hz", origin),
        cache_bytes=_optional_int(slug, entry, "cache_bytes", origin),
        tdp_w=_optional(slug, entry, "tdp_w", origin),
        compute_capability=str(entry.get("compute_capability", "")),
        link=_link(slug, entry, tables, origin) if kind == "gpu" else None,
        runs_release_wheel=bool(entry.get("runs_release_wheel", True)),
        year=entry.get("year"),
        source=_sources(entry, tables) or origin,
        notes=str(entry.get("notes", "")),
        assumed=tuple(entry.get("assumed", ())),
        memory_type=str(entry.get("memory_type", "")),
        sustained={key: _number(slug, entry["sustained"], key, origin) for key in entry.get("sustained", {})},
        like=entry.get("like", ""),
        bus_bandwidth=_bus_bandwidth(slug, entry.get("bus_bandwidth_bytes_per_s", {}), origin),
    )


def to_instance(entry: CatalogueEntry, tables: Mapping[str, Any], origin: str) -> Instance:
    """One ``[[instances]]`` entry as an Instance; a missing price, name or provider is an error."""
    if not isinstance(entry, dict):
        raise DeviceError(f"{origin}: an instance is no table.", hint="Write [[instances]].")
    for key in ("provider", "name"):
        if not isinstance(entry.get(key), str):
            raise DeviceError(f"{origin}: an instance has no {key}.", hint=f'Add {key} = "...".')
    label = f"{entry['provider']} {entry['name']}"
    check_kinds(label, entry, origin)
    for table in (tables, entry):
        # Every figure is in dollars, and no rate of exchange holds for the day of every price.
        if table.get("currency", CURRENCY) != CURRENCY:
            raise DeviceError(
                f"{origin}: the currency of {label} is {reprlib.repr(table['currency'])}.",
                hint=f'Prices are in US dollars: convert them, and write currency = "{CURRENCY}" or nothing.',
            )
    sources = table_of(tables, "sources", origin)
    price = _number(label, entry, "usd_per_hour", origin)
    fields = {key: entry[key] for key in (*_INSTANCE_FIELDS, *_INSTANCE_OPTIONAL) if key in entry}
    fields.setdefault("region", "")
    if fields.get("gpu") and "gpu_count" not in fields:
        fields["gpu_count"] = 1.0
    return Instance(
        provider=entry["provider"],
        name=entry["name"],
        usd_per_hour=price,
        source=str(sources.get(entry.get("source", ""), entry.get("source", origin))),
        **fields,
    )


def _peaks(slug: str, entry: CatalogueEntry, origin: str) -> dict[str, float]:
    table = entry.get("peak_flops_per_s")
    if not isinstance(table, dict) or "fp32" not in table:
        hint = "Write peak_flops_per_s = { fp32 = 30.3e12, fp16 = 121e12 } (operations per second)."
        raise DeviceError(f"{origin}: {slug} has no peak_flops_per_s.fp32.", hint=hint)
    unknown = sorted(set(table) - set(PEAK_TYPES))
    if unknown:
        raise DeviceError(
            f"{origin}: {slug} has a peak for {unknown[0]!r}, which is no type.",
            hint="Types are " + ", ".join(PEAK_TYPES) + ".",
        )
    return {key: _number(slug, table, key, origin) for key in PEAK_TYPES if key in table}


_COUNT = re.compile("[1-9][0-9]{0,3}")
# The slowest way that was ever measured, eight GPUs through one host's memory, reaches 1.4e9.
_LEAST_BUS_BANDWIDTH = 1e8


def _bus_bandwidth(slug: str, table: Mapping[str, Any], origin: str) -> dict[int, float]:
    """By number of GPUs; TOML's keys are texts."""
    found: dict[int, float] = {}
    for key in table:
        if not _COUNT.fullmatch(key) or key == "1":
            raise DeviceError(
                f"{origin}: bus_bandwidth_bytes_per_s of {slug} is of {reprlib.repr(key)} GPUs.",
                hint="Write the number of GPUs before each figure: { 2 = 36.5e9, 8 = 23.5e9 }.",
            )
        found[int(key)] = _number(slug, table, key, origin)
        if found[int(key)] < _LEAST_BUS_BANDWIDTH:
            raise DeviceError(
                f"{origin}: bus_bandwidth_bytes_per_s of {slug} is {found[int(key)]:g} among {key} GPUs.",
                hint="It is in bytes per second; nccl-tests prints GB/s: write 23.5e9 for 23.5.",
            )
    return found


def _number(slug: str, entry: CatalogueEntry, key: str, origin: str) -> float:
    value = entry.get(key)
    if value is None:
        raise DeviceError(f"{origin}: {slug} has no {key}.", hint=f"Add {key} = NUMBER, in SI units.")
    # TOML has inf and nan, and Python's bool is an int.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise DeviceError(
            f"{origin}: {key} of {slug} is {reprlib.repr(value)}.", hint="It must be a number above 0."
        )
    return float(value)


def _optional(slug: str, entry: CatalogueEntry, key: str, origin: str) -> float | None:
    return _number(slug, entry, key, origin) if key in entry else None


def _optional_int(slug: str, entry: CatalogueEntry, key: str, origin: str) -> int | None:
    value = _optional(slug, entry, key, origin)
    return None if value is None else int(value)


def _link(slug: str, entry: CatalogueEntry, tables: Mapping[str, Any], origin: str) -> Link | None:
    name = entry.get("link")
    if name is None:
        raise DeviceError(f"{origin}: {slug} has no link.", hint='Add link = "PCIe 4.0 x16".')
    # Jetson: CPU and GPU share one memory, so that a "copy" reads and writes it once each.
    if name == "shared memory":
        half = _number(slug, entry, "bandwidth_bytes_per_s", origin) / 2
        source = "derived: a copy reads and writes the one memory"
        return Link(name=name, bandwidth_bytes_per_s=half, pageable_bytes_per_s=half, source=source)
    links = table_of(tables, "links", origin)
    table = links.get(name)
    if not isinstance(table, dict):
        known = ", ".join(links) or "none"
        raise DeviceError(f"{origin}: {slug} has the unknown link {name!r}.", hint=f"Known links: {known}.")
    bandwidth = _number(name, table, "bandwidth_bytes_per_s", origin)
    return Link(
        name=name,
        bandwidth_bytes_per_s=bandwidth,
        # A user's own file need not tell them apart: then both are the one figure that it gives.
        pageable_bytes_per_s=_optional(name, table, "pageable_bytes_per_s", origin) or bandwidth,
        latency_s=_optional(name, table, "latency_s", origin) or 10e-6,
        source=str(table.get("source", origin)),
    )


def _sources(entry: CatalogueEntry, tables: Mapping[str, Any]) -> str:
    known = tables.get("sources", {})
    return "; ".join(str(known.get(key, key)) for key in entry.get("sources", ()))
