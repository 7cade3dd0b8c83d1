"""Reporting: what of a fleet is said in words and figures, the same on the page, a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from analyzer.record.fleet import Fleet, FleetDevice, FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.report import price_words
from analyzer.report.generation_words import short
from analyzer.text import listed, plural
from analyzer.units import UNKNOWN, digits, dollars, seconds, with_prefix

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
    """Names of all devices by slug, those of the columns first."""
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
    """Dollars with what they are for: ``$0.420 /M inferences``; a dash where no price is known."""
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
    return f"Dollars follow from {price_words.KINDS[fleet.pricing]}.{price_words.REMARKS[fleet.pricing]}"


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
