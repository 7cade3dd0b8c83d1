"""Models with traffic on shared machines: ``serving.packing`` asked with cells and prices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from analyzer.devices.instances import Instance
from analyzer.fleet.renting import Rentable, demand_of, instance_of, rentable, usable
from analyzer.record.fleet import Consolidation, FleetModel, PackedInstance, PackedModel
from analyzer.serving.packing import MOST_BUSY, Packing, pack
from analyzer.units import HOURS_PER_MONTH, share


def consolidation_of(models: Sequence[FleetModel], offers: Sequence[Instance]) -> Consolidation | None:
    """Return the fewest dollars of machines on which all models with traffic keep their limits.

    None where no model has traffic. ``offers`` can be rented in the way of paying that all dollars are by.

    Raises:
        UsageError: Where a model runs today is not on the price list.
    """
    asked = [model for model in models if model.traffic is not None]
    if not asked:
        return None
    left_out = {model.name: reason for model in asked if (reason := _why_not(model))}
    able = [model for model in asked if model.name not in left_out]
    found = rentable((cell for model in able for cell in model.cells), offers)
    demands, of_cell = [], []
    for model in able:
        assert model.traffic is not None
        demand, cells = demand_of(model, model.traffic, range(len(model.cells)))
        demands.append(demand)
        of_cell.append(cells)
    packing = pack(demands, found.kinds)
    left_out |= {able[index].name: reason for index, reason in packing.left_out.items()}
    packed = [model for model in able if model.name not in left_out]
    return Consolidation(
        instances=tuple(_instances(packing, found, able, of_cell)),
        usd_per_month=packing.usd_per_hour * HOURS_PER_MONTH,
        least_usd_per_month=packing.least_usd_per_hour * HOURS_PER_MONTH,
        apart_usd_per_month=packing.apart_usd_per_hour * HOURS_PER_MONTH,
        today_usd_per_month=_today(packed, offers),
        left_out=dict(sorted(left_out.items())),
        notes=tuple(_notes(packed)),
    )


def _why_not(model: FleetModel) -> str:
    """Why a model is no part of the question; empty where it is."""
    if model.failure is not None:
        return "it could not be analysed"
    if model.question != "run":
        return f"its question is `{model.question}`, whose requests are no single runs"
    if not any(usable(cell) for cell in model.cells):
        return "no device that was asked about runs it, has room for it and keeps its limit"
    return ""


def _instances(
    packing: Packing, found: Rentable, models: Sequence[FleetModel], of_cell: Sequence[tuple[int, ...]]
) -> Iterator[PackedInstance]:
    for machine in packing.machines:
        instance = found.instances[machine.kind]
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
    """What these models cost where they run now; None where that is not told of all."""
    usd = []
    for model in models:
        if model.today is None:
            return None
        usd.append(instance_of(model.today, offers).usd_per_hour * model.today.count)
    return math.fsum(usd) * HOURS_PER_MONTH if usd else None


def _notes(models: Sequence[FleetModel]) -> Iterator[str]:
    yield (
        "Requests come at random (Poisson), each at its model's rate; a device does one run at a time, in the "
        f"order in which they are asked for, and is busy at most {share(MOST_BUSY)} of the time."
    )
    yield (
        "All models of a device lie in its memory at once. A larger batch waits to fill for half of what the "
        "limit leaves, at most."
    )
    if any(cell.origin == "predicted" for model in models for cell in model.cells if usable(cell)):
        yield "Times are the middle of their 90 % intervals: a slower device needs more machines."
    if any(cell.memory_bytes is None for model in models for cell in model.cells if usable(cell)):
        yield "Where a model's need of memory is not known it counts as none."
