"""Cells of models -> what packing takes: demands, ways to run them, machines that can be rented."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analyzer.devices import catalogue
from analyzer.devices.instances import Instance
from analyzer.errors import DeviceError, UsageError
from analyzer.memory.fit import room
from analyzer.record.fleet import FleetModel, Today, Traffic
from analyzer.record.outcome import RankedWay
from analyzer.serving.packing import MachineKind, ServiceDemand, ServiceMode
from analyzer.text import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Rentable:
    """Machines on which cells run: the same index in both."""

    instances: tuple[Instance, ...]
    kinds: tuple[MachineKind, ...]


def usable(cell: RankedWay) -> bool:
    """Whether a cell runs, fits, keeps the limit that was asked for, and has a time."""
    return cell.is_usable and bool(cell.latency_s)


def device_key(cell: RankedWay) -> str:
    """What machines must have for a cell's time to hold: a kind of GPU; of a CPU the very instance."""
    return cell.device if cell.kind == "gpu" else f"{cell.provider} {cell.instance}"


def rentable(cells: Iterable[RankedWay], offers: Sequence[Instance]) -> Rentable:
    """What can be rented for any of these cells.

    A slice of a GPU does not have the device. Of a CPU machine a run takes all cores: the time is that of the
    whole machine, and several models take turns on it.
    """
    wanted = {device_key(cell) for cell in cells if usable(cell)}
    memory = {key: _memory(key) for key in wanted}
    found: list[tuple[Instance, MachineKind]] = []
    for offer in offers:
        whole = f"{offer.provider} {offer.name}"
        if offer.gpu is not None and offer.gpu in wanted and offer.gpu_count >= 1:
            kind = MachineKind(
                device=offer.gpu,
                usd_per_hour=offer.usd_per_hour,
                devices=offer.replicas,
                memory_bytes=memory[offer.gpu],
            )
        elif offer.gpu is None and whole in wanted:
            kind = MachineKind(
                device=whole, usd_per_hour=offer.usd_per_hour, memory_bytes=offer.memory_bytes or None
            )
        else:
            continue
        found.append((offer, kind))
    return Rentable(instances=tuple(instance for instance, _ in found), kinds=tuple(kind for _, kind in found))


def demand_of(
    model: FleetModel, traffic: Traffic, cells: Iterable[int], *, slow: bool = False
) -> tuple[ServiceDemand, tuple[int, ...]]:
    """Return a model's traffic and the ways to serve it by these cells, with the index of each way's cell.

    ``slow``: times are the slow ends of their intervals.
    """
    modes, of_cell = [], []
    for index in cells:
        cell = model.cells[index]
        if not usable(cell):
            continue
        assert cell.latency is not None
        time_s = cell.latency.high if slow else cell.latency.value
        modes.append(
            ServiceMode(
                device=device_key(cell),
                batch=cell.batch or 1,
                time_s=time_s,
                memory_bytes=cell.memory_bytes or 0,
            )
        )
        of_cell.append(index)
    demand = ServiceDemand(
        rate_per_s=traffic.rate, modes=tuple(modes), limit_s=traffic.limit_s, percentile=traffic.percentile
    )
    return demand, tuple(of_cell)


def instance_of(today: Today, offers: Sequence[Instance]) -> Instance:
    """The offer that a manifest names: ``g5.xlarge``, or ``AWS g5.xlarge``, in any case.

    Raises:
        UsageError: The price list has none of this name; the hint names the nearest.
    """
    asked = today.instance.strip().lower()
    named = {offer.name.lower(): offer for offer in reversed(offers)}
    named |= {f"{offer.provider} {offer.name}".lower(): offer for offer in offers}
    if asked not in named:
        own = "`--prices` adds instances of your own."
        raise UsageError(
            f"No instance is called {today.instance!r} on the price list.",
            hint=did_you_mean(asked, named, own, spelled=lambda name: repr(named[name].name)),
        )
    return named[asked]


def _memory(device: str) -> int | None:
    try:
        return room(catalogue.device(device))
    except DeviceError:  # an instance, or a device of the user's own file
        return None
