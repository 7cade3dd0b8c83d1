"""A fleet as flat rows, its words, and changes between two fleets."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from analyzer.record.fleet import Fleet, FleetDevice, FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.report import figure_text
from analyzer.report.generation_text import short
from analyzer.report.operator_columns import table
from analyzer.run_folder import file_aside, umask
from analyzer.text import first_few, listed, plural, printable
from analyzer.units import UNKNOWN, digits, dollars, factor, seconds, with_prefix

PLANS: Mapping[str, str] = {"cpu": "CPU", "gpu": "GPU", "hybrid": "CPU and GPU"}
VERDICTS: Mapping[str, str] = {**PLANS, "either": "either"}
FAILURES: Mapping[str, str] = {
    "error": "error",
    "timeout": "timed out",
    "killed": "killed",
    "memory": "out of memory",
    "fault": "fault of the program",
}
QUESTIONS: Mapping[str, str] = {"run": "inference", "generate": "generation", "capacity": "capacity"}
# What a model's dollars are for: never the same for two questions, so that each figure says it.
PER: Mapping[str, str] = {
    "run": "per million inferences",
    "generate": "per million output tokens",
    "capacity": "a month",
}
PER_SHORT: Mapping[str, str] = {"run": "/M inferences", "generate": "/M tokens", "capacity": "/month"}


def device_names(fleet: Fleet) -> dict[str, str]:
    """Return names of all devices by slug, those of the columns first."""
    names = {device.slug: short(device.name) for device in fleet.devices}
    for model in fleet.models:
        for cell in model.cells:
            names.setdefault(cell.device, cell.device)
    return names


def failed(fleet: Fleet) -> tuple[FleetModel, ...]:
    """Return the models without a record."""
    return tuple(model for model in fleet.models if model.failure is not None)


def requested(fleet: Fleet) -> tuple[FleetDevice, ...]:
    """Return the devices that were asked for: without CPUs that stand on the price list alone."""
    return tuple(device for device in fleet.devices if device.named)


def title(fleet: Fleet) -> str:
    """``Fleet: 200 models on 30 devices``."""
    return f"Fleet: {_size(fleet)}"


def _size(fleet: Fleet) -> str:
    return f"{plural(len(fleet.models), 'model')} on {plural(len(requested(fleet)), 'device')}"


def left(fleet: Fleet) -> str:
    """Return that it was interrupted, in a sentence; empty where all models are done."""
    if not fleet.left:
        return ""
    verb = "is" if fleet.left == 1 else "are"
    return f"{plural(fleet.left, 'model')} {verb} not done yet: the same command goes on."


def answer(fleet: Fleet) -> tuple[str, ...]:
    """Return the answer in sentences, the most important first; what it counts where nothing else is said."""
    return fleet.sentences or (f"{counted(fleet)}.",)


def counted(fleet: Fleet) -> str:
    """``200 models on 30 devices, 12 failed``."""
    missing = len(failed(fleet))
    return f"{_size(fleet)}, {missing:,} failed" if missing else _size(fleet)


def page_of(name: str) -> str:
    """Return where a model's own page lies, as an address relative to the fleet's."""
    # "./" and quoted throughout: no name is read as a scheme or as another folder.
    return f"./{quote(name, safe='', errors='replace')}.html"


def amount(cell: RankedWay) -> float | None:
    """Return the dollars of a cell, in its model's unit."""
    return cell.usd_per_million if cell.usd_per_month is None else cell.usd_per_month


def money(model: FleetModel, cell: RankedWay) -> str:
    """Return dollars with what they are for: ``$0.420 /M inferences``; a dash where no price is known."""
    value = amount(cell)
    return UNKNOWN if value is None else f"{dollars(value)} {PER_SHORT[unit(model, cell)]}"


def unit(model: FleetModel, cell: RankedWay) -> str:
    """Return which of the units of dollars a cell's are in: a key of ``PER``."""
    if cell.usd_per_month is not None:
        return "capacity"
    return "generate" if generates(model, cell) else "run"


def generates(model: FleetModel, cell: RankedWay) -> bool:
    """Return whether its million is of output tokens: a service may generate too."""
    return model.question == "generate" or cell.tpot_s is not None


def latency(model: FleetModel, cell: RankedWay) -> str:
    """Return times of a cell, with names where there are several: ``12.3 ms``, ``TTFT 180 ms, TPOT 12 ms``."""
    if cell.ttft_s is not None or cell.tpot_s is not None:
        return f"TTFT {seconds(cell.ttft_s)}, TPOT {seconds(cell.tpot_s)}"
    statistic = percentile(model)
    shown = seconds(cell.latency_s)
    return (
        f"{shown} ({statistic})" if statistic and model.question == "capacity" and shown != UNKNOWN else shown
    )


def percentile(model: FleetModel) -> str:
    """Of which a service's limit holds: ``p99``, ``mean``; empty where nobody said."""
    # The service's own question goes before what the manifest says of its traffic.
    named = [name for name in ("p50", "p90", "p95", "p99", "mean") if name in model.options]
    if named and model.question == "capacity":
        return named[0]
    if model.traffic is None:
        return ""
    return f"p{model.traffic.percentile:g}" if model.traffic.percentile else "mean"


def plan(cell: RankedWay) -> str:
    """Return the plan's devices: ``GPU``, ``CPU and GPU``, ``2 GPUs``."""
    return f"{cell.gpus} GPUs" if cell.gpus > 1 else PLANS[cell.plan]


def where(cell: RankedWay, names: Mapping[str, str]) -> str:
    """Device, batch and how it runs there: ``L4, batch 64``."""
    batch = f", batch {cell.batch:,}" if cell.batch is not None else ""
    return f"{names[cell.device]}{batch}"


def machine(cell: RankedWay) -> str:
    """``3 x g6.xlarge (AWS, us-east-1)``; empty where no price is known."""
    if not cell.instance:
        return ""
    count = f"{cell.count:,} x " if cell.count is not None else ""
    place = ", ".join(filter(None, (cell.provider, cell.region)))
    return f"{count}{cell.instance}" + (f" ({place})" if place else "")


def instances(count: int, instance: str) -> str:
    """``2 x g5.xlarge``."""
    return f"{count:,} x {instance}"


def shown_cell(model: FleetModel) -> RankedWay | None:
    """Return the cell that stands for a model where there is room for one: its cheapest, else its best."""
    at = model.best if model.cheapest is None else model.cheapest
    return None if at is None else model.cells[at]


def note(model: FleetModel, names: Mapping[str, str]) -> str:
    """Return a model's note: why it failed, that it has no answer, its record's notes."""
    if model.failure is not None:
        return f"{FAILURES[model.failure.kind]}: {model.failure.message}"
    parts = [] if shown_cell(model) or not model.cells else ["no device keeps its limits"]
    best = None if model.best is None else model.cells[model.best]
    if best is not None and model.cheapest is not None and best is not model.cells[model.cheapest]:
        parts.append(f"best of its own record: {where(best, names)}")
    if model.errors:
        parts.append(plural(model.errors, "error"))
    return "; ".join((*parts, *model.notes))


def pricing(fleet: Fleet) -> str:
    """By which prices the dollars are."""
    return f"Dollars follow from {figure_text.KINDS[fleet.pricing]}.{figure_text.REMARKS[fleet.pricing]}"


def traffic(model: FleetModel) -> str:
    """``120 requests/s, p99 within 50 ms``; empty where the manifest does not say."""
    requested = model.traffic
    if requested is None:
        return ""
    limit = (
        f", {percentile(model)} within {seconds(requested.limit_s)}" if requested.limit_s is not None else ""
    )
    return f"{requests(requested.rate)}{limit}"


def requests(rate: float) -> str:
    """``120 requests/s``."""
    return f"{with_prefix(rate, '') if rate >= 1 else digits(rate)} requests/s"


def consolidated(fleet: Fleet) -> tuple[str, ...]:
    """Return the sums of a packing, one a sentence; nothing where no model has traffic."""
    packed = fleet.consolidation
    if packed is None:
        return ()
    models = {one.model for machine in packed.instances for one in machine.models}
    number = sum(machine.count for machine in packed.instances)
    sums = [
        f"{dollars(packed.apart_usd_per_month)} with instances of its own for each model",
        *([f"{dollars(packed.today_usd_per_month)} today"] if packed.today_usd_per_month is not None else []),
    ]
    return (
        f"{plural(len(models), 'model')} on {plural(number, 'instance')}: "
        f"{dollars(packed.usd_per_month)} a month, against {listed(sums)}.",
        f"No packing costs less than {dollars(packed.least_usd_per_month)} a month.",
    )


FlatKind = Literal["text", "whole", "real", "truth"]

# Of why a cell is not the answer its remark has the sentence.
_CELL = (*(item.name for item in fields(RankedWay) if item.name not in ("note", "why_not")), "remark")
_WHOLE = ("batch", "gpus", "memory_bytes", "count", "parameters", "errors", "warnings", "today_count")
_TRUTH = ("named", "requested", "runs", "fits", "meets", "best", "cheapest", "move", "move_certain")
# By the unit that ends its name.
_REAL = re.compile(r"rate|percentile|gpu_count|\w+_(s|j|per_million|per_month|per_hour)")
# Names first, then the cell, then what is the model's.
COLUMNS = (
    *("model", "owner", "tags", "question", "device", "device_name"),
    *(name for name in _CELL if name not in ("device", "device_name")),
    *("usd_per_million_of", "best", "cheapest", "move", "saved_usd_per_month", "move_certain"),
    *("verdict", "sentence", "reference", "parameters", "digest", "rate", "limit_s", "percentile"),
    *("today_instance", "today_count", "errors", "warnings", "failure", "message", "hint", "notes"),
)
_OF = {False: "inferences", True: "output tokens"}


def kind(column: str) -> FlatKind:
    """Return the type of a column."""
    if column in _WHOLE:
        return "whole"
    return "truth" if column in _TRUTH else "real" if _REAL.fullmatch(column) else "text"


def rows(fleet: Fleet) -> Iterator[Mapping[str, Any]]:
    """Yield a row per cell, by ``COLUMNS``; a model without cells has one row, without a cell's values."""
    names, moves = device_names(fleet), {move.model: move for move in fleet.moves}
    for model in fleet.models:
        own = _of_model(model)
        move = moves.get(model.name)
        for index, cell in enumerate(model.cells):
            moved = move if move is not None and move.cell == index else None
            yield {
                **own,
                **{name: getattr(cell, name) for name in _CELL},
                "device_name": cell.device_name or names[cell.device],
                "usd_per_million_of": _OF[generates(model, cell)],
                "best": index == model.best,
                "cheapest": index == model.cheapest,
                "move": moved is not None,
                "saved_usd_per_month": moved.saved_usd_per_month if moved else None,
                "move_certain": moved.certain if moved else None,
            }
        if not model.cells:
            yield {**dict.fromkeys(COLUMNS), **own}


def _of_model(model: FleetModel) -> dict[str, Any]:
    traffic, today, failure = model.traffic, model.today, model.failure
    return {
        "model": model.name,
        "owner": model.owner,
        "tags": "; ".join(model.tags),
        "question": model.question,
        "verdict": "" if failure else VERDICTS.get(model.device, model.device),
        "sentence": model.sentence,
        "reference": model.reference,
        "parameters": model.parameters,
        "digest": model.digest,
        "rate": traffic.rate if traffic else None,
        "limit_s": traffic.limit_s if traffic else None,
        "percentile": traffic.percentile if traffic else None,
        "today_instance": today.instance if today else "",
        "today_count": today.count if today else None,
        "errors": model.errors,
        "warnings": model.warnings,
        "failure": failure.kind if failure else "",
        "message": failure.message if failure else "",
        "hint": failure.hint if failure else "",
        "notes": "; ".join(model.notes),
    }


def render(fleet: Fleet) -> str:
    """Return the rows; see ``report.operator_columns``."""
    return table(COLUMNS, rows(fleet))


def write(fleet: Fleet, path: str | os.PathLike[str]) -> bool:
    """Write the file whole or not at all; False, and no file, where pyarrow is not installed.

    Raises:
        OSError: The folder cannot be written.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return False
    types = {
        "text": pyarrow.string(),
        "whole": pyarrow.int64(),
        "real": pyarrow.float64(),
        "truth": pyarrow.bool_(),
    }
    schema = pyarrow.schema([(name, types[kind(name)]) for name in COLUMNS])
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row in rows(fleet):
        for name, values in columns.items():
            values.append(_value(row[name], kind(name)))
    target = Path(path)
    content = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), content)
    with file_aside(target.parent, content.getvalue()) as whole:
        whole.chmod(0o666 & ~umask())
        os.replace(whole, target)
    return True


def _value(value: Any, kind: FlatKind) -> Any:
    if value is None:
        return None
    if kind == "text":
        # Parquet's texts are UTF-8, which has no halves of characters.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return float(value) if kind == "real" else value


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
