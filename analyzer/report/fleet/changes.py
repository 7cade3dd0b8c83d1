"""Changes between two fleets, in sentences (``analyze fleet --compare OLD``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from analyzer.record.fleet import Fleet, FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.text import first_few, plural, printable
from analyzer.units import dollars, factor, seconds

# Of a predicted time: less is a change of the program's constants, or of nothing that anybody would act on.
CHANGED = 0.05
# Names that a sentence lists, and times that a model's line tells.
_NAMED = 10
_TIMES = 3


def changes(old: Fleet, new: Fleet) -> tuple[str, ...]:
    """Return what changed from ``old`` to ``new`` in sentences, the gravest first; one alone where nothing did.

    Models are the same by name. Dollars by another way of paying are not compared.
    """
    before, after = ({one.name: one for one in fleet.models} for fleet in (old, new))
    both = [(before[name], now) for name, now in after.items() if name in before]
    failed = [now.name for was, now in both if was.failure is None and now.failure is not None]
    mended = [now.name for was, now in both if was.failure is not None and now.failure is None]
    same_pricing = old.pricing == new.pricing
    names = {device.slug: device.name for fleet in (old, new) for device in fleet.devices}
    changed = {
        now.name: list(_parts(was, now, names, exact=old.tool.version == new.tool.version, priced=same_pricing))
        for was, now in both
        if was.failure is None and now.failure is None
    }
    lines = [f"{name}: {'; '.join(parts)}." for name, parts in changed.items() if parts]
    sentences = [
        *_named(failed, "fails now", "fail now"),
        *_named(mended, "failed before and no longer does", "failed before and no longer do"),
        *_named([name for name in after if name not in before], "is new", "are new"),
        *_named([name for name in before if name not in after], "is gone", "are gone"),
        *lines,
    ]
    if same_pricing:
        saved = [math.fsum(move.saved_usd_per_month for move in fleet.moves) for fleet in (old, new)]
        sentences += _sums("Moves would save", saved)
        packed = [one.usd_per_month for fleet in (old, new) if (one := fleet.consolidation) is not None]
        sentences += _sums("On shared machines models with traffic cost", packed)
    else:
        sentences.append(f"Dollars are not compared: {old.pricing} before, {new.pricing} now.")
    alike = len(both) - len(failed) - len(mended) - len(lines)
    if not sentences:
        return (f"Nothing changed: {plural(alike, 'model')} as before.",)
    if alike:
        sentences.append(f"{plural(alike, 'model')} {'is' if alike == 1 else 'are'} as before.")
    return tuple(map(printable, sentences))


def _sums(what: str, usd: Sequence[float]) -> Iterator[str]:
    """Yield a sum of dollars that both fleets have, where it is another now."""
    if len(usd) == 2 and abs(usd[0] - usd[1]) >= 1:
        yield f"{what} {dollars(usd[1])} a month; before it was {dollars(usd[0])}."


def _named(names: Sequence[str], one: str, many: str) -> Iterator[str]:
    if len(names) == 1:
        yield f"{names[0]} {one}."
    elif names:
        yield f"{plural(len(names), 'model')} {many}: {first_few(names, _NAMED)}."


def _parts(
    old: FleetModel, new: FleetModel, names: Mapping[str, str], *, exact: bool, priced: bool
) -> Iterator[str]:
    """Yield what changed of a model that both fleets have.

    ``exact``: one version of the program predicted both; ``priced``: dollars can be compared.
    """
    if old.digest != new.digest:
        yield "the model is another"
    if old.device != new.device:
        yield f"verdict {old.device or 'none'} -> {new.device or 'none'}"
    cells = [None if one.cheapest is None else one.cells[one.cheapest] for one in (old, new)]
    slugs = ["" if cell is None else cell.device for cell in cells]
    if priced and slugs[0] != slugs[1]:
        before, now = (names.get(slug, slug) or "none" for slug in slugs)
        yield f"costs least on {now}, before on {before}"

    def key(cell: RankedWay) -> tuple[str, int | None, str, str | None]:
        return (cell.device, cell.batch, cell.precision, cell.instance if cell.kind == "cpu" else None)

    earlier = {key(cell): cell for cell in old.cells}
    times = [
        (other.latency_s, cell.latency_s, cell)
        for cell in new.cells
        if (other := earlier.get(key(cell))) and other.latency_s and cell.latency_s
        if _differ(other, cell, exact=exact)
    ]
    times.sort(key=lambda time: -abs(math.log(time[1] / time[0])))
    for before_s, after_s, cell in times[:_TIMES]:
        at = f" at batch {cell.batch}" if cell.batch is not None else ""
        rise = after_s / before_s - 1
        # Two digits of a ratio would hide what is little above the 5 % that make a change.
        ratio = f"{rise * 100:+.0f} %" if -0.5 < rise < 1 else factor(rise + 1)
        device = names.get(cell.device, cell.device) or "none"
        yield f"{seconds(before_s)} -> {seconds(after_s)} on {device}{at} ({ratio})"
    if (more := len(times) - _TIMES) > 0:
        yield f"{plural(more, 'more time')} changed"
    usd = [None if cell is None else cell.usd_per_million for cell in cells]
    if priced and usd[0] is not None and usd[1] is not None and abs(usd[1] - usd[0]) > CHANGED * usd[0]:
        yield f"{dollars(usd[0])} -> {dollars(usd[1])} a million"


def _differ(old: RankedWay, new: RankedWay, *, exact: bool) -> bool:
    """Return whether a time is another: by its share of predictions of one version, else by the intervals."""
    before, after = old.latency, new.latency
    assert before
    assert after
    predicted = exact and old.origin == new.origin == "predicted"
    if predicted or not (before.low < before.high and after.low < after.high):
        return abs(after.value - before.value) > CHANGED * before.value
    return after.low > before.high or after.high < before.low
