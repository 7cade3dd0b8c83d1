"""Two fleets -> what changed between them, model by model.

A latency has changed

* where either was measured or the program was another version: if the two 90 % intervals do not touch;
* where both are predicted by one version, from exact counts, and so have no noise: if it is over 5 % off.

Which is which stands in a cell's ``origin`` and the fleets' ``tool``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from analyzer.record.fleet import Fleet, FleetCell, FleetModel

# Of a predicted time: less is a change of the program's constants, or of nothing that anybody would act on.
CHANGED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChange:
    """A time that changed: on which device, at which batch."""

    device: str
    batch: int | None
    before_s: float
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """What changed of a model that both fleets have.

    Attributes:
        name: Its name.
        edited: Whether the model itself is another (its digest).
        failed, mended: Whether it fails only now, or failed only before.
        verdict, cheapest: Before and after, where they differ: the verdict's device, and the device on which it
            costs least (empty where there was none).
        latencies: Times that changed, the largest ratio first.
        usd_per_million: At the cheapest cell, before and after, where both are known and over 5 % apart.
    """

    name: str
    edited: bool = False
    failed: bool = False
    mended: bool = False
    verdict: tuple[str, str] | None = None
    cheapest: tuple[str, str] | None = None
    latencies: tuple[CellChange, ...] = ()
    usd_per_million: tuple[float, float] | None = None

    @property
    def any(self) -> bool:
        """Whether anything changed."""
        return bool(
            self.edited
            or self.failed
            or self.mended
            or self.verdict
            or self.cheapest
            or self.latencies
            or self.usd_per_million
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetComparison:
    """What changed from one fleet to another.

    Attributes:
        new, gone: Names of models that only one of them has.
        changed: Models of both of which something changed, by name.
        alike: How many models are as they were.
        saved_usd_per_month: What all moves save, before and after.
        packed_usd_per_month: What models with traffic cost on shared machines, before and after; None where
            either has none.
        other_pricing: Whether dollars are by another way of paying, and so are not compared.
    """

    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    changed: tuple[ModelChange, ...] = ()
    alike: int = 0
    saved_usd_per_month: tuple[float, float] = (0.0, 0.0)
    packed_usd_per_month: tuple[float, float] | None = None
    other_pricing: bool = False


def compare_fleets(old: Fleet, new: Fleet) -> FleetComparison:
    """What changed from ``old`` to ``new``; models are the same by name."""
    before, after = {one.name: one for one in old.models}, {one.name: one for one in new.models}
    common = [name for name in after if name in before]
    same_program = old.tool.version == new.tool.version
    same_pricing = old.pricing == new.pricing
    changes = [
        _change(before[name], after[name], same_program=same_program, dollars=same_pricing) for name in common
    ]
    packed = None
    if same_pricing and old.consolidation is not None and new.consolidation is not None:
        packed = (old.consolidation.usd_per_month, new.consolidation.usd_per_month)
    return FleetComparison(
        new=tuple(name for name in after if name not in before),
        gone=tuple(name for name in before if name not in after),
        changed=tuple(change for change in changes if change.any),
        alike=sum(not change.any for change in changes),
        saved_usd_per_month=(_saved(old), _saved(new)) if same_pricing else (0.0, 0.0),
        packed_usd_per_month=packed,
        other_pricing=not same_pricing,
    )


def _saved(fleet: Fleet) -> float:
    return math.fsum(move.saved_usd_per_month for move in fleet.moves)


def _change(old: FleetModel, new: FleetModel, *, same_program: bool, dollars: bool) -> ModelChange:
    if old.failure is not None or new.failure is not None:
        return ModelChange(
            name=new.name,
            failed=old.failure is None and new.failure is not None,
            mended=old.failure is not None and new.failure is None,
        )
    before, after = _cheapest(old), _cheapest(new)
    devices = tuple("" if cell is None else cell.device for cell in (before, after))
    return ModelChange(
        name=new.name,
        edited=old.digest != new.digest,
        verdict=(old.device, new.device) if old.device != new.device else None,
        cheapest=(devices[0], devices[1]) if dollars and devices[0] != devices[1] else None,
        latencies=tuple(_latencies(old, new, same_program=same_program)),
        usd_per_million=_dollars(before, after) if dollars else None,
    )


def _cheapest(model: FleetModel) -> FleetCell | None:
    return None if model.cheapest is None else model.cells[model.cheapest]


def _dollars(before: FleetCell | None, after: FleetCell | None) -> tuple[float, float] | None:
    if before is None or after is None or before.usd_per_million is None or after.usd_per_million is None:
        return None
    old, new = before.usd_per_million, after.usd_per_million
    return (old, new) if abs(new - old) > CHANGED * old else None


def _latencies(old: FleetModel, new: FleetModel, *, same_program: bool) -> Iterator[CellChange]:
    def key(cell: FleetCell) -> tuple[str, int | None, str, str]:
        return (cell.device, cell.batch, cell.precision, cell.instance if cell.kind == "cpu" else "")

    before = {key(cell): cell for cell in old.cells}
    found = []
    for cell in new.cells:
        other = before.get(key(cell))
        if other is None or not cell.latency_s or not other.latency_s:
            continue
        if _differ(other, cell, exact=same_program):
            found.append(
                CellChange(
                    device=cell.device, batch=cell.batch, before_s=other.latency_s, after_s=cell.latency_s
                )
            )
    yield from sorted(found, key=lambda one: -abs(math.log(one.after_s / one.before_s)))


def _differ(old: FleetCell, new: FleetCell, *, exact: bool) -> bool:
    assert old.latency_s
    assert new.latency_s
    if exact and old.origin == new.origin == "predicted":
        return abs(new.latency_s - old.latency_s) > CHANGED * old.latency_s
    before, after = old.latency, new.latency
    if not (before and after and before.low < before.high and after.low < after.high):
        return abs(new.latency_s - old.latency_s) > CHANGED * old.latency_s
    return after.low > before.high or after.high < before.low
