"""Reporting: the method section, everything a reviewer needs to repeat the analysis, in sections of facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from analyzer.devices.device import Device
from analyzer.record.analysis import Analysis
from analyzer.record.batch_ranges import batch_of, has_batch
from analyzer.record.invocation import Texts, applied, command_line
from analyzer.report import figure_text, operator_columns, plan_cards, summary
from analyzer.report.ranking_text import is_elsewhere, of_run
from analyzer.units import UNKNOWN, byte_count, digits, rate, seconds, share

# A command without --cpu asks for the CPU of the machine that it is typed on, which is the reader's.
_ANOTHER_CPU = "no --cpu was named, so that CPU times are this machine's; on another they differ"
_THIS_CPU = {
    "calibrated": "calibrated: on another machine, or after another `analyze calibrate`, CPU times differ",
}
_TIMES = {
    "measured": (
        "the median of runs of ONNX Runtime without its profiler; an operator's time is its share of what runs "
        "with the profiler give for the group that it was executed in, mixed where that group has several"
    ),
    "predicted": (
        "on a GPU the longer of a kernel's arithmetic, at the rate that the card sustains in tiles of its "
        "library, and its bytes over the memory's bandwidth; on a CPU what calibration measured for matrix "
        "multiplications, copies and functions, else a reference core scaled by the catalogue's figures; "
        "dispatch and launches are added"
    ),
    "copies": "a fixed time for each, and the bytes over the link's bandwidth",
    "interval": (
        "90 %: of a measurement the 5th to 95th percentile of the runs, at least 2 % to each side; of a "
        "prediction the error that the fitted constants left on published measurements of other devices; what "
        "two plans share cancels when they are compared"
    ),
}


Fact = tuple[str, str]
"""A figure or a statement of the method, behind its name."""


def sections(analysis: Analysis) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    """Title and facts of each section that has any."""
    devices = (analysis.devices.cpu, analysis.devices.gpu, *(one.device for one in analysis.alternatives))
    titled = (
        ("Repeat it", _repeat(analysis)),
        ("Model", _model(analysis)),
        ("How times come about", _times(analysis)),
        ("Conventions of counting", _flatten(analysis.conventions)),
        ("Devices", [fact for device in devices if device is not None for fact in _device(device)]),
        ("Dollars and joules", _money(analysis)),
        ("Coverage", _coverage(analysis)),
        ("Measurement", _measurement(analysis)),
        (
            "Versions",
            sorted(analysis.environment.versions.items()),
        ),
        ("Messages", [("", text) for text in analysis.environment.messages]),
    )
    return tuple((title, tuple(facts)) for title, facts in titled if facts)


def command(analysis: Analysis) -> str:
    """Return the command line that asks the same again, on one line.

    Empty for a model that no command line can name, and for a record that does not hold what was asked.
    """
    return command_line(analysis.invocation) if analysis.invocation is not None else ""


def apply_command(analysis: Analysis, change: Texts = MappingProxyType({})) -> str:
    """Return command that makes a session of the recommended plan, on one line; empty where none is to be made.

    ``change`` are options in place of those that were given.
    """
    invocation, model = analysis.invocation, analysis.model
    other = analysis.training is not None or analysis.generation is not None or analysis.capacity is not None
    answered = analysis.verdict.device is not None
    if invocation is None or other or not answered or model.training or not model.can_be_applied:
        return ""
    gpu, batch = analysis.devices.gpu, batch_of(analysis)
    slug = gpu.slug if gpu is not None else None
    best = of_run(analysis)
    # Of two that tie, `apply` itself takes the one of less latency.
    tied = analysis.verdict.device == "either"
    plan = best.plan if best is not None and best.kind == "gpu" and tied else ""
    if best is not None and (is_elsewhere(analysis) or tied):
        slug = best.device if best.kind == "gpu" else None
        batch = best.batch if has_batch(analysis) else None
    folder = f"deployed/{re.sub(r'[^A-Za-z0-9._-]+', '-', model.name).strip('-.') or 'model'}"
    return applied(invocation, gpu=slug, batch=batch, folder=folder, plan=plan, change=change)


def apply_words(analysis: Analysis) -> str:
    """Return the introduction of that command."""
    best = of_run(analysis)
    if best is None or not is_elsewhere(analysis):
        return "To run this plan"
    at = f" at batch {best.batch}" if best.batch is not None and has_batch(analysis) else ""
    return f"To run it on the {best.device_name}{at}"


def _repeat(analysis: Analysis) -> list[Fact]:
    line = command(analysis)
    if not line or analysis.invocation is None:
        return []
    facts = [("Command", line)]
    # Paths of a record are relative, so that it is the same on every machine of a team.
    if not PurePath(analysis.model.source).is_absolute():
        text = "the root of the model's repository; where it is in none, the folder of the first run"
        facts.append(("To be run in", text))
    if analysis.invocation.uses_this_cpu:
        facts.append(("This CPU", _THIS_CPU.get(analysis.devices.cpu.origin, _ANOTHER_CPU)))
    return facts


def _model(analysis: Analysis) -> list[Fact]:
    model = analysis.model
    facts = [
        ("Source", model.source),
        ("SHA-256 of graph and shapes", model.digest),
        ("Opset", str(model.opset)),
        ("Placed by ONNX Runtime", analysis.onnxruntime),
        ("Exporter", model.exporter),
        ("Export from cache", "yes" if analysis.environment.export_cached else "no"),
        ("Precision decided for", model.precision),
        ("Inputs come from", model.inputs_origin),
    ]
    facts += [(f"Input {item.name}", operator_columns.shape(item)) for item in model.inputs]
    facts += [(f"Output {item.name}", operator_columns.shape(item)) for item in model.outputs]
    facts += [("Note", note) for note in model.notes]
    return [fact for fact in facts if fact[1]]


def _times(analysis: Analysis) -> list[Fact]:
    origins: set[str] = {plan.origin for plan in analysis.plans}
    origins |= {operator.cpu.origin for operator in analysis.operators}
    # A sum of both is explained by its parts.
    if "mixed" in origins:
        origins |= {"measured", "predicted"}
    if any(plan.transfers.count for plan in analysis.plans):
        origins.add("copies")
    if not origins:
        return []
    return [(name, text) for name, text in _TIMES.items() if name in {*origins, "interval"}]


def _device(device: Device) -> list[Fact]:
    peaks = ", ".join(f"{dtype} {rate(value, 'FLOP')}" for dtype, value in device.peak_flops_per_s.items())
    way = device.link
    link = f"; {way.name}, {rate(way.bandwidth_bytes_per_s, 'B')}" if way else ""
    memory = f"; {byte_count(device.memory_bytes)}" if device.memory_bytes else ""
    power = f"; {digits(device.tdp_w)} W" if device.tdp_w else ""
    figures = f"{peaks}; {rate(device.bandwidth_bytes_per_s, 'B')}{memory}{link}{power}"
    facts = [
        (device.name, figures),
        ("", f"{device.origin}: {device.source}"),
    ]
    return facts + ([("", device.notes)] if device.notes else [])


def _money(analysis: Analysis) -> list[Fact]:
    facts = []
    dates: dict[str, set[str]] = {}
    priced = (*analysis.costs, *analysis.instances)
    for row in priced:
        dates.setdefault(row.provider, set()).add(row.price_date or "date not recorded")
    if dates:
        way = priced[0].pricing
        listed = [f"{provider} of {', '.join(sorted(days))}" for provider, days in sorted(dates.items())]
        facts.append(("Prices", f"{figure_text.KINDS[way]}: {'; '.join(listed)}"))
    if any(plan.usd_per_million is not None for plan in analysis.plans):
        text = (
            f"the instance's price for the time that a million {summary.examples(analysis)} take at its "
            "throughput; origin and range are those of the latency on that instance, which is measured only "
            "where it is the machine that the plan was measured on, else predicted. In a machine with a GPU "
            "its own CPU launches the kernels and computes what stays on it; where its price list names none, "
            "one in the middle of those rented with GPUs is assumed, with wider intervals"
        )
        facts.append(("Dollars per million", text))
    if any(plan.energy_j is not None for plan in analysis.plans):
        each = "example" if analysis.model.training else "inference"
        text = (
            "power of the whole machine, idle and full by its devices' design power, over the time that each "
            f"device works, for one {each}; power is never measured, and its own error is not in the range, "
            "which is that of the times. A plan with the GPU counts its host too, of which one thread waits. "
            f"{plan_cards.energy_of(analysis)}"
        ).strip()
        facts.append(("Joules", text))
    return facts


def _coverage(analysis: Analysis) -> list[Fact]:
    facts = []
    for name, coverage in (
        ("Of the operators", analysis.totals.coverage),
        ("Of the time", analysis.totals.coverage_time),
    ):
        if coverage is not None:
            parts = [f"{share(getattr(coverage, basis))} {basis}" for basis in ("exact", "modelled", "unknown")]
            facts.append((name, ", ".join(parts)))
    for side in ("cpu", "gpu"):
        times = [operator.cpu if side == "cpu" else operator.gpu for operator in analysis.operators]
        tally = Counter(time.origin for time in times if time is not None and time.time_s is not None)
        if tally:
            numbers = ", ".join(f"{number} {origin}" for origin, number in sorted(tally.items()))
            facts.append((f"Operator times on the {side.upper()}", numbers))
    return facts


def _measurement(analysis: Analysis) -> list[Fact]:
    env = analysis.environment
    load = " and ".join(filter(None, (_plain(env.load_before), _plain(env.load_after))))
    facts = (
        ("Date", env.date),
        ("Machine", env.platform),
        ("Processor", env.cpu),
        ("Threads", _plain(env.threads)),
        ("Warm-up runs", _plain(env.warmup_runs)),
        ("Runs", _plain(env.runs)),
        ("Load before and after", load),
        *((f"Time to {name}", seconds(value)) for name, value in env.timings_s.items() if value),
    )
    return [(name, text) for name, text in facts if text] + _flatten(env.measurement)


def _plain(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else digits(value)


def _flatten(nested: Mapping[str, Any], prefix: str = "") -> list[Fact]:
    """Nested mappings, and lists of them, as named facts; what is not known is left out."""
    facts: list[Fact] = []
    # What a measurement writes down grows with each version: whatever is there is shown, by its own name.
    for name, value in nested.items():
        if isinstance(value, Mapping):
            facts += _flatten(value, f"{prefix}{_spoken(name)}: ")
        elif isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value):
            facts += [fact for part in value for fact in _flatten(part, f"{prefix}{_spoken(name)}: ")]
        elif value is not None:
            facts.append((f"{prefix}{_spoken(name)}", _written(str(name), value)))
    return facts


def _spoken(name: object) -> str:
    """``median_s`` as ``median``, ``flops_per_mac`` as ``FLOPs per mac``: the unit stands with the figure."""
    text = str(name).removesuffix("_s").removesuffix("_bytes").replace("_", " ")
    return {"cpu": "CPU", "cuda": "CUDA", "flops per mac": "FLOPs per multiply-accumulate"}.get(text, text)


def _written(name: str, value: Any) -> str:
    # Before the numbers: in Python True is an int.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(one) if isinstance(one, float) else str(one) for one in value)
    if isinstance(value, int | float) and value < 0:
        return UNKNOWN  # no fact of a run is: sizes, times and counts
    if isinstance(value, int | float) and name.endswith("_s"):
        return seconds(value)
    if isinstance(value, int | float) and name.endswith("_bytes"):
        return byte_count(value)
    return digits(value) if isinstance(value, float) else str(value)
