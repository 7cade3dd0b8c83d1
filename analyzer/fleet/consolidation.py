"""Places where models would cost less, and models with traffic packed on shared machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analyzer.devices import catalogue
from analyzer.devices.device import Instance
from analyzer.errors import DeviceError, UsageError
from analyzer.fleet.work import limit_of
from analyzer.memory.fit import room
from analyzer.record.fleet import Consolidation, FleetModel, Move, PackedInstance, PackedModel, Today, Traffic
from analyzer.record.outcome import RankedWay
from analyzer.serving.packing import MOST_BUSY, MachineKind, Packing, ServiceDemand, ServiceMode, alone, pack
from analyzer.text import did_you_mean
from analyzer.units import HOURS_PER_MONTH, share


@dataclass(frozen=True, slots=True, kw_only=True)
class Rentable:
    """Machines on which cells run: the same index in both."""

    instances: tuple[Instance, ...]
    kinds: tuple[MachineKind, ...]


def usable(cell: RankedWay) -> bool:
    """Return whether a cell runs, fits, keeps the limit that was asked for, and has a time."""
    return cell.is_usable and bool(cell.latency_s)


def device_key(cell: RankedWay) -> str:
    """Return the device that a cell's time requires: a kind of GPU, or the very instance of a CPU."""
    return cell.device if cell.kind == "gpu" else f"{cell.provider} {cell.instance}"


def rentable(cells: Iterable[RankedWay], offers: Sequence[Instance]) -> Rentable:
    """Return the machines that can be rented for any of these cells.

    A slice of a GPU does not have the device. Of a CPU machine a run takes all cores: the time is that of the
    whole machine, and several models take turns on it.
    """
    wanted = {device_key(cell) for cell in cells if usable(cell)}
    memory = {key: _memory(key) for key in wanted}
    offered: list[tuple[Instance, MachineKind]] = []
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
        offered.append((offer, kind))
    return Rentable(
        instances=tuple(instance for instance, _ in offered), kinds=tuple(kind for _, kind in offered)
    )


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
    """Return the offer that a manifest names: ``g5.xlarge``, or ``AWS g5.xlarge``, in any case.

    Raises:
        UsageError: The price list has none of this name; the hint names the nearest.
    """
    wanted = today.instance.strip().lower()
    named = {offer.name.lower(): offer for offer in reversed(offers)}
    named |= {f"{offer.provider} {offer.name}".lower(): offer for offer in offers}
    if wanted not in named:
        own = "`--prices` adds instances of your own."
        raise UsageError(
            f"No instance is called {today.instance!r} on the price list.",
            hint=did_you_mean(wanted, named, own, spelled=lambda name: repr(named[name].name)),
        )
    return named[wanted]


def _memory(device: str) -> int | None:
    try:
        return room(catalogue.device(device))
    except DeviceError:  # an instance, or a device of the user's own file
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A place for a model: a cell, its machine, how many, dollars a month; ``certain`` as a move is."""

    cell: int
    instance: str
    count: int
    usd_per_month: float
    certain: bool


def moves_of(models: Sequence[FleetModel], offers: Sequence[Instance]) -> tuple[Move, ...]:
    """Return the savings of each model elsewhere, the most first; none where its place today is unknown.

    * With traffic: as many machines of its own as carry its rate within its limit (see ``serving.packing``).
      Certain where they still cost less with times at the slow ends of their intervals.
    * Without traffic: one instance for each of today's. How much work they have is not known; so the limit of
      ``--slo`` must be kept there, or, without one, a run may take no longer than on today's device. Certain
      where the slow end of the interval does so too.
    * What capacity was asked of: as its record sizes it, certain by the dear end of its own interval.

    Raises:
        UsageError: Today's instance is not on the price list.
    """
    moves = [move for model in models for move in _moves(model, offers)]
    return tuple(sorted(moves, key=lambda move: (-move.saved_usd_per_month, move.model)))


def _moves(model: FleetModel, offers: Sequence[Instance]) -> Iterator[Move]:
    if model.today is None:
        return
    today = instance_of(model.today, offers)
    usd = today.usd_per_hour * model.today.count * HOURS_PER_MONTH
    place = _cheapest_place(model, today, usd, offers)
    if place is None or place.usd_per_month >= usd:
        return
    yield Move(
        model=model.name,
        today_instance=today.name,
        today_count=model.today.count,
        today_usd_per_month=usd,
        today_kind="cpu" if today.gpu is None else "gpu",
        cell=place.cell,
        instance=place.instance,
        count=place.count,
        usd_per_month=place.usd_per_month,
        saved_usd_per_month=usd - place.usd_per_month,
        certain=place.certain,
    )


def _cheapest_place(
    model: FleetModel, today: Instance, today_usd: float, offers: Sequence[Instance]
) -> _Place | None:
    if model.question == "capacity":
        return _sized(model, today_usd)
    if model.traffic is not None and model.question == "run":
        return _for_traffic(model, model.traffic, today_usd, offers)
    # A request of a model that generates is many runs: traffic is `analyze capacity`'s question there.
    return None if model.traffic is not None else _one_for_one(model, today, offers)


def _sized(model: FleetModel, today_usd: float) -> _Place | None:
    """Return the cheapest answer of its own record."""
    index = model.cheapest
    if index is None:
        return None
    cell = model.cells[index]
    if cell.usd_per_month is None or cell.count is None:
        return None
    dear = cell.usd_high_per_month
    return _Place(
        cell=index,
        instance=cell.instance or "",
        count=cell.count,
        usd_per_month=cell.usd_per_month,
        # Without a dear end slow times keep no limit at any count.
        certain=dear is not None and dear < today_usd,
    )


def _for_traffic(
    model: FleetModel, traffic: Traffic, today_usd: float, offers: Sequence[Instance]
) -> _Place | None:
    """Return the fewest dollars of machines of one kind that carry the traffic."""
    machines = rentable(model.cells, offers)
    demand, cells = demand_of(model, traffic, range(len(model.cells)))
    packing = alone(demand, machines.kinds)
    if not packing.machines:
        return None
    first = packing.machines[0]
    cell = cells[first.devices[0][0].mode]
    same = [index for index in cells if device_key(model.cells[index]) == device_key(model.cells[cell])]
    slow = alone(demand_of(model, traffic, same, slow=True)[0], machines.kinds)
    return _Place(
        cell=cell,
        instance=machines.instances[first.kind].name,
        count=sum(machine.count for machine in packing.machines),
        usd_per_month=_usd(packing),
        certain=not slow.left_out and _usd(slow) < today_usd,
    )


def _usd(packing: Packing) -> float:
    return packing.usd_per_hour * HOURS_PER_MONTH


def _one_for_one(model: FleetModel, today: Instance, offers: Sequence[Instance]) -> _Place | None:
    """Return the cheapest instance that does for one of today's."""
    assert model.today is not None
    limit_s = limit_of(model, "slo") if model.question == "run" else None
    # The cell of today's machine: its GPU, or its CPU; the quickest of several batches.
    there = [cell for cell in model.cells if cell.device == (today.gpu or today.cpu) and usable(cell)]
    now = min(there, key=lambda cell: cell.latency_s or 0.0, default=None)
    best: _Place | None = None
    for index, cell in enumerate(model.cells):
        if not usable(cell) or (now is None and cell.meets is None):
            continue
        cheapest = _cheapest_instance(model, cell, offers)
        if cheapest is None:
            continue
        assert cell.latency is not None
        name, usd_per_hour = cheapest
        slow_s = cell.latency.high
        if cell.meets is not None:
            certain = limit_s is not None and slow_s <= limit_s
        else:
            assert now is not None
            assert now.latency is not None
            if cell.latency.value > now.latency.value:
                continue
            certain = slow_s <= (now.latency.low or now.latency.value) or cell == now
        usd = usd_per_hour * model.today.count * HOURS_PER_MONTH
        if best is None or (usd, not certain) < (best.usd_per_month, not best.certain):
            best = _Place(
                cell=index, instance=name, count=model.today.count, usd_per_month=usd, certain=certain
            )
    return best


def _cheapest_instance(
    model: FleetModel, cell: RankedWay, offers: Sequence[Instance]
) -> tuple[str, float] | None:
    """Return the cheapest machine on which a cell runs, and its dollars an hour."""
    if model.question == "generate":
        # Its GPUs may be several, and then not every machine with one of them will do.
        priced = cell.instance is not None and cell.usd_per_hour is not None
        return (cell.instance or "", cell.usd_per_hour or 0.0) if priced else None
    machines = rentable([cell], offers)
    able = [(instance.usd_per_hour, instance.name) for instance in machines.instances]
    usd, name = min(able, default=(0.0, ""))
    return (name, usd) if name else None


def consolidation_of(models: Sequence[FleetModel], offers: Sequence[Instance]) -> Consolidation | None:
    """Return the fewest dollars of machines on which all models with traffic keep their limits.

    None where no model has traffic. ``offers`` can be rented in the way of paying that all dollars are by.

    Raises:
        UsageError: Where a model runs today is not on the price list.
    """
    with_traffic = [model for model in models if model.traffic is not None]
    if not with_traffic:
        return None
    left_out = {model.name: reason for model in with_traffic if (reason := _why_not(model))}
    able = [model for model in with_traffic if model.name not in left_out]
    machines = rentable((cell for model in able for cell in model.cells), offers)
    demands, of_cell = [], []
    for model in able:
        assert model.traffic is not None
        demand, cells = demand_of(model, model.traffic, range(len(model.cells)))
        demands.append(demand)
        of_cell.append(cells)
    packing = pack(demands, machines.kinds)
    left_out |= {able[index].name: reason for index, reason in packing.left_out.items()}
    packed = [model for model in able if model.name not in left_out]
    return Consolidation(
        instances=tuple(_instances(packing, machines, able, of_cell)),
        usd_per_month=packing.usd_per_hour * HOURS_PER_MONTH,
        least_usd_per_month=packing.least_usd_per_hour * HOURS_PER_MONTH,
        apart_usd_per_month=packing.apart_usd_per_hour * HOURS_PER_MONTH,
        today_usd_per_month=_today(packed, offers),
        left_out=dict(sorted(left_out.items())),
        notes=tuple(_notes(packed)),
    )


def _why_not(model: FleetModel) -> str:
    """Return why a model is no part of the question; empty where it is."""
    if model.failure is not None:
        return "it could not be analysed"
    if model.question != "run":
        return f"its question is `{model.question}`, whose requests are no single runs"
    if not any(usable(cell) for cell in model.cells):
        return "no requested device runs it, has room for it and keeps its limit"
    return ""


def _instances(
    packing: Packing, machines: Rentable, models: Sequence[FleetModel], of_cell: Sequence[tuple[int, ...]]
) -> Iterator[PackedInstance]:
    for machine in packing.machines:
        instance = machines.instances[machine.kind]
        yield PackedInstance(
            provider=instance.provider,
            instance=instance.name,
            device=instance.gpu or instance.cpu,
            count=machine.count,
            usd_per_month=instance.usd_per_hour * machine.count * HOURS_PER_MONTH,
            models=tuple(
                PackedModel(
                    model=models[run.demand].name,
                    cell=of_cell[run.demand][run.mode],
                    share=run.share,
                    rate=run.rate_per_s,
                    memory_bytes=models[run.demand].cells[of_cell[run.demand][run.mode]].memory_bytes or 0,
                    latency_s=run.latency_s,
                    position=position,
                )
                for position, runs in enumerate(machine.devices)
                for run in runs
            ),
        )


def _today(models: Sequence[FleetModel], offers: Sequence[Instance]) -> float | None:
    """Return the dollars of these models where they run now; None where one place is unknown."""
    usd = []
    for model in models:
        if model.today is None:
            return None
        usd.append(instance_of(model.today, offers).usd_per_hour * model.today.count)
    return math.fsum(usd) * HOURS_PER_MONTH if usd else None


def _notes(models: Sequence[FleetModel]) -> Iterator[str]:
    yield (
        "Requests come at random (Poisson), each at its model's rate; a device does one run at a time, in the "
        f"order of arrival, and is busy at most {share(MOST_BUSY)} of the time."
    )
    yield (
        "All models of a device lie in its memory at once. A larger batch waits to fill for half of what the "
        "limit leaves, at most."
    )
    if any(cell.origin == "predicted" for model in models for cell in model.cells if usable(cell)):
        yield "Times are the middle of their 90 % intervals: a slower device needs more machines."
    if any(cell.memory_bytes is None for model in models for cell in model.cells if usable(cell)):
        yield "Where a model's need of memory is not known it counts as none."
