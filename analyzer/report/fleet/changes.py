"""What changed between two fleets, in sentences (``analyze fleet --compare OLD``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.record.fleet import Fleet
from analyzer.report.fleet.comparison import CellChange, ModelChange, compare_fleets
from analyzer.text import first_few, plural, printable
from analyzer.units import dollars, factor, seconds

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
