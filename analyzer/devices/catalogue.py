"""The hardware catalogue: devices and cloud instances by name, from the TOML files in this folder."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from analyzer.decoding import convert
from analyzer.devices.device import Device, DeviceKind, Instance
from analyzer.devices.entries import LikeEntry, Shared, entries, read_toml, shared, to_device, to_instance
from analyzer.errors import DeviceError
from analyzer.options import PRICINGS, Pricing
from analyzer.text import did_you_mean
from analyzer.toml_file import is_toml, split_entry

FOLDER = Path(__file__).parent
FILES: Mapping[DeviceKind, str] = {"gpu": "gpus.toml", "cpu": "cpus.toml"}
# What `check` decides for where no CPU is named: a two-socket-class server CPU all of whose figures were read.
DEFAULT_CPU = "xeon-platinum-8260"
# Words before a model's own name.
_MAKERS = frozenset({"nvidia", "amd", "intel", "geforce", "tesla", "instinct", "ampere", "aws", "gpu", "cpu"})
# Fields of an instance that are its price.
_PRICE = ("pricing", "region", "usd_per_hour", "price_date", "source")
# Entries of a device that are no figures.
_WORDS = frozenset(
    {
        "name", "aliases", "sources", "notes", "derived", "assumed", "peak_flops_per_s", "runs_release_wheel",
        "sustained", "kind", "like", "bus_bandwidth_bytes_per_s",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigure:
    """One figure of a device as ``analyze devices NAME`` shows it.

    Attributes:
        key: The figure's name in the file.
        value: As in the file, SI units.
        basis: ``read`` in a source, ``derived`` from other figures by a formula, ``assumed`` from a sibling, or
            ``given`` by a user's own file.
    """

    key: str
    value: Any
    basis: str


def device(name: str) -> Device:
    """Return a device by slug or alias, in any case, or from the user's own file.

    ``l4``, ``A100``, ``NVIDIA A100-SXM4-80GB``, ``my-devices.toml`` (with one device),
    ``my-devices.toml:NAME``.

    Raises:
        DeviceError: It is unknown; the hint names the nearest ones.
    """
    if is_toml(name):
        return _from_file(name)
    key = _key(name)
    # As it is written; "NVIDIA A100-SXM4-80GB", as a driver says, with the words of an alias in another order;
    # "rtx4090", "a100 80 gb", with or without hyphens.
    for spelling in (str, _telling_words, _letters):
        for kind in FILES:
            slug = _slugs(kind, spelling).get(spelling(key))
            if slug is not None:
                return _load(kind, slug)
    raise DeviceError(f"No device is called {name!r}.", hint=_nearest_names(key))


def device_of_kind(name: str, kind: DeviceKind) -> Device:
    """Return a device that was named as a CPU or as a GPU; a user's own file is taken at its word.

    Raises:
        DeviceError: It is unknown, or it is the other kind.
    """
    result = device(name)
    if result.kind != kind and not is_toml(name):
        other = result.kind
        raise DeviceError(
            f"--{kind} {name}: the {result.name} is a {other.upper()}.",
            hint=f"--{other} {result.slug} names it; `analyze devices` lists both kinds.",
        )
    return result


@cache
def gpus() -> tuple[Device, ...]:
    """Return all GPUs of the catalogue, in the order of the file."""
    return tuple(_load("gpu", slug) for slug, _ in entries(_tables("gpu")))


@cache
def cpus() -> tuple[Device, ...]:
    """Return all CPUs of the catalogue, in the order of the file."""
    return tuple(_load("cpu", slug) for slug, _ in entries(_tables("cpu")))


def instances(
    prices: str | Path | None = None,
    *,
    pricing: Pricing = PRICINGS[0],
    regions: Sequence[str] = (),
    own: Iterable[Instance] = (),
) -> tuple[Instance, ...]:
    """Return all cloud instances that have a price of the requested kind, at that price.

    Args:
        prices: The user's own TOML file of ``[[instances]]``: a price for a known provider and name replaces
            the catalogue's, anything else is added.
        pricing: The way of paying.
        regions: Of the providers, or areas (``us``, ``europe``, ``asia``): an instance is listed once, where it
            costs least. None for the region that the catalogue has it in. A price of the user's own that names
            no region holds in every one.
        own: Offers of a price list that was read before (see ``own_offers``).

    Raises:
        DeviceError: The file has a hole or names a GPU or CPU that is unknown, no price is known in a region,
            or no instance has such a price.
    """
    offers = own_offers(prices, own=own)
    wanted = _regions_named(regions, offers)
    by_name: dict[tuple[str, str], Instance] = {}
    for item in _catalogue_instances():
        result = _offered(item, pricing, wanted)
        if result is not None:
            by_name[_offer_key(item)] = result
    for offer in offers:
        if offer.pricing == pricing and (not wanted or not offer.region or offer.region.lower() in wanted):
            by_name[_offer_key(offer)] = offer
    if not by_name:
        raise _without_price(pricing, regions, wanted)
    return tuple(by_name.values())


def prices_of(instance: Instance) -> tuple[Instance, ...]:
    """Return an instance at each price in every way of paying and region that is known; its own comes first."""
    usual = _usual_offers().get(_offer_key(instance))
    listed = [replace(instance, **price) for price in listed_prices().get(_offer_key(instance), ())]
    if usual is not None:
        listed.insert(0, replace(instance, **{name: getattr(usual, name) for name in _PRICE}))
    others = [one for one in listed if (one.pricing, one.region) != (instance.pricing, instance.region)]
    return (instance, *sorted(others, key=lambda one: PRICINGS.index(one.pricing)))


def areas() -> Mapping[str, tuple[str, ...]]:
    """Return the regions of all providers by area: ``us``, ``europe``, ``asia``."""
    return {name: tuple(regions) for name, regions in _price_lists()["areas"].items()}


@cache
def listed_prices() -> Mapping[tuple[str, str], tuple[Mapping[str, Any], ...]]:
    """Return all prices by provider and name of the instance, in small letters; in the order of the file.

    Each has the fields of an ``Instance`` that are its price.
    """
    prices: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for listed in _price_lists()["price_lists"]:
        same = {key: listed[key] for key in ("pricing", "region", "price_date")}
        source = _price_lists()["sources"][listed["source"]]
        for name, usd_per_hour in listed["usd_per_hour"].items():
            price = {**same, "usd_per_hour": float(usd_per_hour), "source": source}
            prices.setdefault((listed["provider"].lower(), name.lower()), []).append(price)
    return {key: tuple(result) for key, result in prices.items()}


@cache
def _price_lists() -> Mapping[str, Any]:
    return read_toml(FOLDER / "prices.toml")


def own_offers(prices: str | Path | None = None, *, own: Iterable[Instance] = ()) -> tuple[Instance, ...]:
    """Return where a user's price list differs from the catalogue, each offer with its machine.

    The file (see ``instances``) may give one machine a price in each way of paying. Its offers replace ``own``,
    those of a list that was read before.

    Raises:
        DeviceError: As for ``instances``.
    """
    offers = {(*_offer_key(item), item.pricing): item for item in own}
    machines = {_offer_key(item): item for item in (*_catalogue_instances(), *offers.values())}
    for item, overrides in _own_instances(prices) if prices is not None else ():
        key = (*_offer_key(item), item.pricing)
        listed = offers.get(key, machines.get(_offer_key(item)))
        offers[key] = item if listed is None else replace(listed, **overrides)
        machines.setdefault(_offer_key(item), item)
    of_the_catalogue = frozenset(_catalogue_instances())
    return tuple(item for item in offers.values() if item not in of_the_catalogue)


def _offered(item: Instance, pricing: Pricing, wanted: Collection[str]) -> Instance | None:
    """Return the instance at its lowest price among these; as it is where that is the catalogue's own."""
    if not wanted and pricing == item.pricing:
        return item  # the usual request waits for no second file
    within = wanted or (item.region.lower(),)
    result = [one for one in prices_of(item) if one.pricing == pricing and one.region.lower() in within]
    if not result:
        return None
    return min(result, key=lambda one: one.usd_per_hour)


def _regions_named(regions: Sequence[str], offers: Iterable[Instance]) -> Collection[str]:
    """Return the regions that are meant, in small letters; none where none was requested."""
    if not regions:
        return ()
    known = {one.region.lower(): one.region for item in _catalogue_instances() for one in prices_of(item)}
    known |= {offer.region.lower(): offer.region for offer in offers if offer.region}
    wanted: set[str] = set()
    for name in regions:
        # Before the regions: one provider calls its own "US".
        area = areas().get(name.lower())
        if area is None and name.lower() not in known:
            listed = f"Known are {', '.join((*areas(), *sorted(known.values())))}."
            hint = f"{did_you_mean(name.lower(), known, spelled=known.__getitem__)} {listed}".lstrip()
            raise DeviceError(f"--region {name}: no price is known there.", hint=hint)
        wanted.update((name.lower(),) if area is None else map(str.lower, area))
    return wanted


def _without_price(pricing: Pricing, regions: Sequence[str], wanted: Collection[str]) -> DeviceError:
    every = [one for item in _catalogue_instances() for one in prices_of(item)]
    elsewhere = sorted({one.region for one in every if one.pricing == pricing})
    there = {one.pricing for one in every if one.region.lower() in wanted}
    ways = [way for way in PRICINGS if way in there]
    hint = f"{pricing} prices are known in {', '.join(elsewhere)}."
    if ways:
        hint += f" There is {', '.join(ways)} in {', '.join(regions)}."
    return DeviceError(f"No {pricing} price is known in {', '.join(regions)}.", hint=hint)


@cache
def _usual_offers() -> Mapping[tuple[str, str], Instance]:
    return {_offer_key(item): item for item in _catalogue_instances()}


def _offer_key(item: Instance) -> tuple[str, str]:
    return item.provider.lower(), item.name.lower()


def instance_cpu(instance: Instance) -> Device | None:
    """Return the CPU that an instance gives its user: its share of the whole one. None where it is not known.

    Peaks, bandwidth, cache and power are shared by cores; a machine with several sockets has several shares.
    """
    if not instance.cpu or not instance.vcpus:
        return None
    whole = device(instance.cpu)
    # Clouds sell hardware threads: two vCPUs are one core of most x86 instances, while those of Graviton, AWS
    # c7a and Google t2d are whole cores.
    cores = max(1, instance.vcpus // instance.threads_per_core)
    share = cores / whole.units
    return replace(
        whole,
        slug=f"{whole.slug}@{instance.name}",
        name=f"{whole.name}, {cores} cores",
        peak_flops_per_s={key: peak * share for key, peak in whole.peak_flops_per_s.items()},
        bandwidth_bytes_per_s=whole.bandwidth_bytes_per_s * share,
        units=cores,
        threads=instance.vcpus,
        cache_bytes=None if whole.cache_bytes is None else int(whole.cache_bytes * share),
        tdp_w=None if whole.tdp_w is None else whole.tdp_w * share,
        assumed=(*whole.assumed, "model") if instance.cpu_nearest else whole.assumed,
    )


def model_of(cpu: Device) -> str:
    """Return catalogue's slug of a CPU, by its name where it is this machine's as calibrated; else its own."""
    if cpu.slug in [known.slug for known in cpus()]:
        return cpu.slug
    known = match_cpu(cpu.name)
    return cpu.slug if known is None else known.slug


@cache
def match_cpu(brand: str) -> Device | None:
    """Return the CPU of the catalogue whose model number stands in what the processor calls itself."""
    # "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz" and "AMD EPYC 9654 96-Core Processor": the model number
    # is what they share with the catalogue's names.
    words = set(brand.lower().replace("(r)", "").replace("(tm)", "").replace("-", " ").split())
    for cpu in cpus():
        name_words = {word.strip("()") for word in cpu.name.lower().replace("-", " ").split()}
        model_numbers = {word for word in name_words if any(sign.isdigit() for sign in word)}
        if model_numbers and model_numbers <= words:
            return cpu
    return None


def aliases(slug: str) -> tuple[str, ...]:
    """Return further names of a device."""
    return tuple(_entry_of(slug)[1].get("aliases", ()))


def figures(name: str) -> tuple[DeviceFigure, ...]:
    """Return each figure of a device, named as ``device`` takes it, with its basis, for ``analyze devices``."""
    given: Collection[str] = ()
    if is_toml(name):
        _, entry, _, _, given = _own_entry(name)
    else:
        _, entry = _entry_of(name)
    derived, assumed = entry.get("derived", ()), entry.get("assumed", ())

    def basis(key: str) -> str:
        if key in assumed:
            return "assumed"
        return "given" if key in given else "derived" if key in derived else "read"

    rows = [*entry["peak_flops_per_s"].items(), *(row for row in entry.items() if row[0] not in _WORDS)]
    return tuple(DeviceFigure(key=key, value=value, basis=basis(key)) for key, value in rows)


@cache
def _tables(kind: DeviceKind) -> dict[str, Any]:
    return read_toml(FOLDER / FILES[kind])


@cache
def _shared(kind: DeviceKind) -> Shared:
    return shared(_tables(kind), FILES[kind])


@cache
def _slugs(kind: DeviceKind, spelling: Callable[[str], Hashable]) -> Mapping[Hashable, str]:
    """Return slugs by a spelling of the devices' names; names that are spelled alike are left out."""
    slugs: dict[Hashable, set[str]] = {}
    for slug, entry in entries(_tables(kind)):
        for name in (slug, *entry.get("aliases", ())):
            slugs.setdefault(spelling(name), set()).add(slug)
    return {spelled: next(iter(result)) for spelled, result in slugs.items() if len(result) == 1 and spelled}


def _key(name: str) -> str:
    return name.strip().lower().replace(" ", "-").replace("_", "-")


def _telling_words(name: str) -> frozenset[str]:
    """Return the words of a name that tell devices apart, in any order."""
    # Drivers number the socket (SXM4), people do not.
    words = (re.sub(r"^sxm\d$", "sxm", word) for word in name.split("-"))
    return frozenset(word for word in words if word not in _MAKERS)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name)


@cache
def _load(kind: DeviceKind, slug: str) -> Device:
    return to_device(slug, _tables(kind)[slug], kind, _shared(kind), FILES[kind])


def _entry_of(slug: str) -> tuple[DeviceKind, Mapping[str, Any]]:
    for kind in FILES:
        if slug in _tables(kind):
            return kind, _tables(kind)[slug]
    raise DeviceError(f"No device is called {slug!r}.", hint=_nearest_names(slug))


def _nearest_names(name: str) -> str:
    for one in _catalogue_instances():
        chips = [f"--{kind} {slug}" for kind, slug in (("gpu", one.gpu), ("cpu", one.cpu)) if slug]
        if _key(one.name) == name and chips:
            return f"{one.name} is an instance: name its chip, {' or '.join(chips)}."
    every = tuple(str(known) for kind in FILES for known in _slugs(kind, str))
    # Looser than difflib's 0.6: a slug (a100-80gb-sxm) is long compared with what people type (a100).
    near = difflib.get_close_matches(name, every, n=3, cutoff=0.5)
    near += [other for other in every if name and name in other and other not in near][: 3 - len(near)]
    meant = f"Did you mean {', '.join(near)}? " if near else ""
    return f"{meant}`analyze devices` lists all."


def _from_file(name: str) -> Device:
    slug, entry, kind, tables, _ = _own_entry(name)
    return to_device(slug, entry, kind, tables, split_entry(name)[0])


def _own_entry(name: str) -> tuple[str, Mapping[str, Any], DeviceKind, Shared, frozenset[str]]:
    """Return an entry of a user's file as ``to_device`` takes it, and the keys, of peaks too, that it gives.

    It is completed by the catalogue's device that it is like.
    """
    file, slug = split_entry(name)
    path = Path(file)
    content = read_toml(path)
    own = shared(content, str(path))
    devices = dict(entries(content))
    if not slug and len(devices) == 1:
        slug = next(iter(devices))
    if slug not in devices:
        problem = f"has no device {slug!r}" if slug else f"has {len(devices)} devices"
        listed = ", ".join(devices) or "none"
        raise DeviceError(f"{path} {problem}.", hint=f"Write {path}:NAME; it has {listed}.")
    entry = devices[slug]
    checked = convert(entry, LikeEntry, f"{path}: {slug}", error=DeviceError)
    kind, sources = checked.kind or "gpu", own.sources
    given = frozenset(entry) | frozenset(checked.peak_flops_per_s)
    if checked.like:
        if is_toml(checked.like):
            raise DeviceError(
                f"{path}: {slug} is like {checked.like!r}.",
                hint="Name one of the catalogue: `analyze devices`.",
            )
        known = device(checked.like)
        kind, theirs = _entry_of(known.slug)
        if checked.kind not in (None, kind):
            raise DeviceError(f"{path}: {slug} is no {kind}, as {known.slug} is.", hint="Leave kind out.")
        entry = _completed(entry, theirs, known.slug, given)
        sources = {**_shared(kind).sources, **sources}
    # A user's file may use the catalogue's links without repeating them.
    tables = Shared(sources=sources, links={**_shared("gpu").links, **own.links})
    return slug, entry, kind, tables, given


# What was measured elsewhere says nothing of a device whose figure is another.
_MEASURED_OF = {"bandwidth": "bandwidth_bytes_per_s", "fp16": "peak_flops_per_s"}


def _completed(
    entry: Mapping[str, Any], theirs: Mapping[str, Any], like: str, given: Collection[str]
) -> dict[str, Any]:
    """Return an entry with what it does not give itself from the one of the catalogue that it is like."""
    marked = {
        key: [*entry.get(key, ()), *(one for one in theirs.get(key, ()) if one not in given)]
        for key in ("derived", "assumed")
    }
    measured = {
        key: value for key, value in theirs.get("sustained", {}).items() if _MEASURED_OF.get(key) not in given
    }
    return {
        **theirs,
        **entry,
        **marked,
        "like": like,
        "peak_flops_per_s": {**theirs["peak_flops_per_s"], **entry.get("peak_flops_per_s", {})},
        "sustained": {**measured, **entry.get("sustained", {})},
        "sources": [*entry.get("sources", ()), *theirs["sources"]],
    }


@cache
def _catalogue_instances() -> tuple[Instance, ...]:
    content = read_toml(FOLDER / "instances.toml")
    tables = shared(content, "instances.toml")
    return tuple(to_instance(entry, tables, "instances.toml") for entry in content["instances"])


def _own_instances(prices: str | Path) -> Iterable[tuple[Instance, dict[str, Any]]]:
    content = read_toml(Path(prices))
    tables, listed = shared(content, str(prices)), content.get("instances")
    if not isinstance(listed, list) or not listed:
        hint = 'Write [[instances]] with provider = "AWS", name = "g6.xlarge", usd_per_hour = 0.80.'
        raise DeviceError(f"{prices} has no [[instances]].", hint=hint)
    for entry in listed:
        instance = to_instance(entry, tables, str(prices))
        for slug in (instance.gpu, instance.cpu):
            if slug:
                device(slug)  # raises at once, not when the instance would be ranked
        # A price of one's own keeps neither the catalogue's date nor its region.
        names = {name for name in entry if hasattr(instance, name)} - {"provider", "name"} | set(_PRICE)
        yield instance, {name: getattr(instance, name) for name in names}
