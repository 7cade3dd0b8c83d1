"""Entries of device files and price lists (TOML) as values: the catalogue's own and a stranger's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from analyzer.decoding import convert
from analyzer.devices.device import Device, DeviceKind, Instance, Link
from analyzer.errors import DeviceError
from analyzer.options import Pricing
from analyzer.precision import PEAK_TYPES
from analyzer.toml_file import read_toml as read_within_limits

AboveZero = Annotated[float, Meta(gt=0, le=1e30)]  # TOML has inf and nan
Whole = Annotated[int, Meta(gt=0, le=10**18)]
Peaks = Annotated[
    dict[Literal["fp64", "fp32", "tf32", "fp16", "bf16", "int8", "fp8", "fp4"], AboveZero],
    Meta(examples=["{ fp32 = 30.3e12, fp16 = 121e12 } (operations per second)"]),
]
# The slowest way that was ever measured, eight GPUs through one host's memory, reaches 1.4e9.
BusBandwidth = Annotated[
    dict[Annotated[int, Meta(ge=2, le=9999)], Annotated[float, Meta(ge=1e8, le=1e30)]],
    Meta(examples=["{ 2 = 36.5e9, 8 = 23.5e9 }: bytes per second (nccl-tests prints GB/s) by number of GPUs"]),
]


class LikeEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A device of a file. What it lacks is that of the catalogue's device that it is ``like``."""

    name: str = ""
    aliases: tuple[str, ...] = ()
    kind: DeviceKind | None = None
    like: str = ""
    vendor: str = ""
    architecture: str = ""
    segment: str = ""
    simd: str = ""
    compute_capability: str = ""
    units: Annotated[Whole, Meta(examples=["40"])] | None = None
    fast_units: Whole | None = None
    threads: Whole | None = None
    peak_flops_per_s: Peaks = {}
    bandwidth_bytes_per_s: Annotated[AboveZero, Meta(examples=["400e9"])] | None = None
    memory_bytes: AboveZero | None = None
    memory_type: str = ""
    memory_channels: Whole | None = None
    memory_transfers_per_s: AboveZero | None = None
    cache_bytes: AboveZero | None = None
    clock_hz: AboveZero | None = None
    turbo_hz: AboveZero | None = None
    tdp_w: AboveZero | None = None
    link: Annotated[str, Meta(examples=['"PCIe 4.0 x16"'])] | None = None
    runs_release_wheel: bool = True
    year: Whole | None = None
    notes: str = ""
    derived: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sustained: dict[str, AboveZero] = {}
    bus_bandwidth_bytes_per_s: BusBandwidth = {}


class DeviceEntry(LikeEntry, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A device of a file, complete."""

    units: Annotated[Whole, Meta(examples=["40"])]
    peak_flops_per_s: Peaks
    bandwidth_bytes_per_s: Annotated[AboveZero, Meta(examples=["400e9"])]


class LinkEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A way between a host's memory and a GPU's."""

    bandwidth_bytes_per_s: AboveZero
    # A user's own file need not tell them apart: then both are the one figure that it gives.
    pageable_bytes_per_s: AboveZero | None = None
    latency_s: AboveZero = 10e-6
    source: str = ""


class InstanceEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A machine of a price list. Every figure is in dollars: no rate of exchange holds for each price's day."""

    provider: Annotated[str, Meta(examples=['"AWS"'])]
    name: Annotated[str, Meta(examples=['"g6.xlarge"'])]
    usd_per_hour: Annotated[AboveZero, Meta(examples=["0.80"])]
    region: str = ""
    price_date: str = ""
    vcpus: Whole | None = None
    memory_bytes: AboveZero | None = None
    cpu_type: str = ""
    cpu: str = ""
    cpu_nearest: bool = False
    threads_per_core: Whole = 2
    gpu: str | None = None
    gpu_count: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    accelerator: str = ""
    notes: str = ""
    pricing: Pricing = "on-demand"
    source: str = ""
    currency: Annotated[Literal["USD"], Meta(examples=['"USD"; convert prices to US dollars'])] = "USD"


class Shared(msgspec.Struct, kw_only=True, frozen=True):
    """The tables of a file that its entries refer to."""

    sources: dict[str, str] = {}
    links: dict[str, LinkEntry] = {}
    currency: Annotated[Literal["USD"], Meta(examples=['"USD"; convert prices to US dollars'])] = "USD"


# Fields that a Device has as the file has them.
_SAME = {field.name for field in fields(Device)} & set(DeviceEntry.__struct_fields__)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the parsed file.

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


def shared(tables: Mapping[str, Any], origin: str) -> Shared:
    """Return the tables of a file that its entries refer to."""
    return convert(tables, Shared, origin, error=DeviceError)


def entries(tables: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the devices of a parsed file: ``(slug, entry)``."""
    return (
        (slug, entry)
        for slug, entry in tables.items()
        if slug not in Shared.__struct_fields__ and isinstance(entry, dict)
    )


def to_device(slug: str, table: Mapping[str, Any], kind: DeviceKind, tables: Shared, origin: str) -> Device:
    """Return one entry, by its key in a file that messages call ``origin``, as a Device.

    Raises:
        DeviceError: A figure is missing or is none; the message names it.
    """
    place = f"{origin}: {slug}"
    entry = convert(table, DeviceEntry, place, error=DeviceError)
    if "fp32" not in entry.peak_flops_per_s:
        raise DeviceError(
            f"{place}: peak_flops_per_s lacks fp32.", hint="Write peak_flops_per_s = { fp32 = 30.3e12 }."
        )
    same = {name: getattr(entry, name) for name in _SAME}
    return Device(
        **{
            **same,
            "slug": slug,
            "name": entry.name or slug,
            "kind": kind,
            "peak_flops_per_s": dict(
                sorted(entry.peak_flops_per_s.items(), key=lambda peak: PEAK_TYPES.index(peak[0]))
            ),
            "memory_bytes": int(entry.memory_bytes) if entry.memory_bytes and kind == "gpu" else None,
            "cache_bytes": int(entry.cache_bytes) if entry.cache_bytes else None,
            "threads": entry.threads or entry.units,
            "link": _link(entry, tables, place) if kind == "gpu" else None,
            "source": "; ".join(tables.sources.get(key, key) for key in entry.sources) or origin,
            "bus_bandwidth": entry.bus_bandwidth_bytes_per_s,
        }
    )


def to_instance(table: Any, tables: Shared, origin: str) -> Instance:
    """Return one ``[[instances]]`` entry as an Instance.

    Raises:
        DeviceError: A price, name or provider is missing, or a value is none.
    """
    name = f": {table.get('provider')} {table.get('name')}" if isinstance(table, dict) else ""
    entry = convert(table, InstanceEntry, f"{origin}{name}", error=DeviceError)
    values = msgspec.structs.asdict(entry)
    del values["currency"]
    return Instance(
        **{
            **values,
            "memory_bytes": int(entry.memory_bytes) if entry.memory_bytes else None,
            "gpu_count": entry.gpu_count if entry.gpu_count is not None else float(bool(entry.gpu)),
            "source": tables.sources.get(entry.source, entry.source or origin),
        }
    )


def _link(entry: DeviceEntry, tables: Shared, place: str) -> Link:
    # Jetson: CPU and GPU share one memory, so that a "copy" reads and writes it once each.
    if entry.link == "shared memory":
        half = entry.bandwidth_bytes_per_s / 2
        source = "derived: a copy reads and writes the one memory"
        return Link(name=entry.link, bandwidth_bytes_per_s=half, pageable_bytes_per_s=half, source=source)
    table = tables.links.get(entry.link or "")
    if entry.link is None or table is None:
        unknown = "it lacks the key `link`" if entry.link is None else f"link: unknown value {entry.link!r}"
        raise DeviceError(f"{place}: {unknown}.", hint=f"Choose among {', '.join(tables.links) or 'none'}.")
    return Link(
        name=entry.link,
        bandwidth_bytes_per_s=table.bandwidth_bytes_per_s,
        pageable_bytes_per_s=table.pageable_bytes_per_s or table.bandwidth_bytes_per_s,
        latency_s=table.latency_s,
        source=table.source or place.partition(": ")[0],
    )
