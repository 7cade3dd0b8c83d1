"""What changed between two fleets, in sentences (``analyze fleet --compare OLD``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analyzer.record.fleet import Fleet, FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.text import first_few, plural, printable
from analyzer.units import dollars, factor, seconds

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


def _cheapest(model: FleetModel) -> RankedWay | None:
    return None if model.cheapest is None else model.cells[model.cheapest]


def _dollars(before: RankedWay | None, after: RankedWay | None) -> tuple[float, float] | None:
    if before is None or after is None or before.usd_per_million is None or after.usd_per_million is None:
        return None
    old, new = before.usd_per_million, after.usd_per_million
    return (old, new) if abs(new - old) > CHANGED * old else None


def _latencies(old: FleetModel, new: FleetModel, *, same_program: bool) -> Iterator[CellChange]:
    def key(cell: RankedWay) -> tuple[str, int | None, str, str]:
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


def _differ(old: RankedWay, new: RankedWay, *, exact: bool) -> bool:
    assert old.latency_s
    assert new.latency_s
    if exact and old.origin == new.origin == "predicted":
        return abs(new.latency_s - old.latency_s) > CHANGED * old.latency_s
    before, after = old.latency, new.latency
    if not (before and after and before.low < before.high and after.low < after.high):
        return abs(new.latency_s - old.latency_s) > CHANGED * old.latency_s
    return after.low > before.high or after.high < before.low


# Names that a sentence lists, and times that a model's line tells.
_NAMED = 10
_TIMES = 3


def changes(old: Fleet, new: Fleet) -> tuple[str, ...]:
    """Sentences on what changed from ``old`` to ``new``, the gravest first; one alone where nothing did."""
    found = compare_fleets(old, new)
    changed = found.changed
    told = [
        *_named([one.name for one in changed if one.failed], "fails now", "fail now"),
        *_named(
            [one.name for one in changed if one.mended],
            "failed before and no longer does",
            "failed before and no longer do",
        ),
        *_named(found.new, "is new", "are new"),
        *_named(found.gone, "is gone", "are gone"),
    ]
    names = {device.slug: device.name for fleet in (old, new) for device in fleet.devices}
    told += [_line(one, names) for one in changed if not (one.failed or one.mended)]
    if found.other_pricing:
        told.append(f"Dollars are not compared: {old.pricing} before, {new.pricing} now.")
    before, after = found.saved_usd_per_month
    if abs(before - after) >= 1:
        told.append(f"Moves would save {dollars(after)} a month; before it was {dollars(before)}.")
    if found.packed_usd_per_month is not None:
        before, after = found.packed_usd_per_month
        if abs(before - after) >= 1:
            told.append(
                f"On shared machines models with traffic cost {dollars(after)} a month; "
                f"before it was {dollars(before)}."
            )
    if not told:
        return (f"Nothing changed: {plural(found.alike, 'model')} as before.",)
    if found.alike:
        told.append(f"{plural(found.alike, 'model')} {'is' if found.alike == 1 else 'are'} as before.")
    return tuple(printable(sentence) for sentence in told)


def _named(names: Sequence[str], one: str, many: str) -> Iterator[str]:
    if len(names) == 1:
        yield f"{names[0]} {one}."
    elif names:
        yield f"{plural(len(names), 'model')} {many}: {first_few(names, _NAMED)}."


def _line(change: ModelChange, names: dict[str, str]) -> str:
    def called(slug: str) -> str:
        return names.get(slug, slug) or "none"

    parts = []
    if change.edited:
        parts.append("the model is another")
    if change.verdict is not None:
        parts.append(f"verdict {change.verdict[0] or 'none'} -> {change.verdict[1] or 'none'}")
    if change.cheapest is not None:
        parts.append(f"costs least on {called(change.cheapest[1])}, before on {called(change.cheapest[0])}")
    parts += [_time(time, called(time.device)) for time in change.latencies[:_TIMES]]
    if (more := len(change.latencies) - _TIMES) > 0:
        parts.append(f"{plural(more, 'more time')} changed")
    if change.usd_per_million is not None:
        before, after = change.usd_per_million
        parts.append(f"{dollars(before)} -> {dollars(after)} a million")
    return f"{change.name}: {'; '.join(parts)}."


def _time(time: CellChange, device: str) -> str:
    batch = f" at batch {time.batch}" if time.batch is not None else ""
    rise = time.after_s / time.before_s - 1
    # Two digits of a ratio would hide what is little above the 5 % that make a change.
    ratio = f"{rise * 100:+.0f} %" if -0.5 < rise < 1 else factor(rise + 1)
    return f"{seconds(time.before_s)} -> {seconds(time.after_s)} on {device}{batch} ({ratio})"
