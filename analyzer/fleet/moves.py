"""Where models would cost less than where they run today."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analyzer.devices.instances import Instance
from analyzer.fleet.renting import demand_of, device_key, instance_of, rentable, usable
from analyzer.fleet.row import limit_of
from analyzer.record.fleet import FleetModel, Move, Traffic
from analyzer.record.outcome import RankedWay
from analyzer.serving.packing import Packing, alone
from analyzer.units import HOURS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a model can run: a cell, its machine, how many, dollars a month; ``certain`` as a move is."""

    cell: int
    instance: str
    count: int
    usd_per_month: float
    certain: bool


def moves_of(models: Sequence[FleetModel], offers: Sequence[Instance]) -> tuple[Move, ...]:
    """What each model would save elsewhere, the most first; nothing of models whose place today is not told.

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
    """The cheapest answer of its own record."""
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
    """The fewest dollars of machines of one kind that carry the traffic."""
    found = rentable(model.cells, offers)
    demand, cells = demand_of(model, traffic, range(len(model.cells)))
    packing = alone(demand, found.kinds)
    if not packing.machines:
        return None
    first = packing.machines[0]
    cell = cells[first.devices[0][0].mode]
    same = [index for index in cells if device_key(model.cells[index]) == device_key(model.cells[cell])]
    slow = alone(demand_of(model, traffic, same, slow=True)[0], found.kinds)
    return _Place(
        cell=cell,
        instance=found.instances[first.kind].name,
        count=sum(machine.count for machine in packing.machines),
        usd_per_month=_usd(packing),
        certain=not slow.left_out and _usd(slow) < today_usd,
    )


def _usd(packing: Packing) -> float:
    return packing.usd_per_hour * HOURS_PER_MONTH


def _one_for_one(model: FleetModel, today: Instance, offers: Sequence[Instance]) -> _Place | None:
    """The cheapest instance that does for one of today's."""
    assert model.today is not None
    limit_s = limit_of(model, "slo") if model.question == "run" else None
    # The cell of today's machine: its GPU, or its CPU; the quickest of several batches.
    there = [cell for cell in model.cells if cell.device == (today.gpu or today.cpu) and usable(cell)]
    now = min(there, key=lambda cell: cell.latency_s or 0.0, default=None)
    best: _Place | None = None
    for index, cell in enumerate(model.cells):
        if not usable(cell) or (now is None and cell.meets is None):
            continue
        found = _cheapest_instance(model, cell, offers)
        if found is None:
            continue
        assert cell.latency is not None
        name, usd_per_hour = found
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
    """The cheapest machine on which a cell runs, and its dollars an hour."""
    if model.question == "generate":
        # Its GPUs may be several, and then not every machine with one of them will do.
        priced = cell.instance is not None and cell.usd_per_hour is not None
        return (cell.instance or "", cell.usd_per_hour or 0.0) if priced else None
    found = rentable([cell], offers)
    able = [(instance.usd_per_hour, instance.name) for instance in found.instances]
    usd, name = min(able, default=(0.0, ""))
    return (name, usd) if name else None
