"""Parts of a record that contradict others: what a type cannot say, since it lies between two fields.

Checked is what a reader would crash on or be misled by: indices, plans that every report reads, lines that
ascend, totals that are sums, times inside their own intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from analyzer.figures import seen_as
from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityResult
from analyzer.record.fleet import Fleet
from analyzer.record.generation import GenerationResult
from analyzer.record.outcome import PlanResult, RankedWay

Fault = tuple[str, str]
"""A place (``operators[3].flops``) and what is wrong there."""

# Times are split and added up again in another order.
_ROUNDING = 1e-6
# Every saved batch is decided anew, operator by operator. A record of 100,000 operators has seven.
_MOST_DECIDED = 2_000_000


def faults_of_analysis(analysis: Analysis) -> Iterator[Fault]:
    """Yield the contradictions in a model's record."""
    operators = analysis.operators
    if analysis.model.training != (analysis.training is not None):
        yield "model.training", "a training step has `training`, and nothing else has it"
    for position, operator in enumerate(operators):
        # Every other part names an operator by its position: an index that differs would point at two.
        if operator.index != position:
            yield f"operators[{position}].index", f"expected {position}, got {operator.index}"
    named = (
        ("groups[{}].members", [group.members for group in analysis.groups]),
        ("bodies[{}].operator", [[body.operator] for body in analysis.bodies]),
        ("opportunities[{}].operators", [one.operators for one in analysis.opportunities]),
        ("findings[{}].operator", [[finding.operator] for finding in analysis.findings]),
        ("ignored[{}].operator", [[finding.operator] for finding in analysis.ignored]),
    )
    for place, rows in named:
        yield from _outside(place, rows, len(operators), "operator")
    for position, group in enumerate(analysis.groups):
        if len(set(group.members)) < len(group.members):  # its time would be split over one twice
            yield f"groups[{position}].members", "an operator stands in it twice"
    yield from _faults_of_plans(analysis)
    yield from _faults_of_sums(analysis)
    yield from _faults_of_intervals(analysis)
    if analysis.capacity is not None:
        yield from _faults_of_capacity(analysis.capacity)
    if analysis.generation is not None:
        yield from _faults_of_generation(analysis.generation)
    batches = analysis.kept.batches if analysis.kept is not None else None
    if batches is not None and len(batches.looked_at) * max(len(operators), 1) > _MOST_DECIDED:
        yield "kept.batches.looked_at", f"they are too many for {len(operators)} operators"


def faults_of_fleet(fleet: Fleet) -> Iterator[Fault]:
    """Yield indices of cells that are not there, and names of models that no model has."""
    cells = {model.name: len(model.cells) for model in fleet.models}
    if len(cells) < len(fleet.models):
        yield "models", "two have one name"
    for position, model in enumerate(fleet.models):
        for key in ("best", "cheapest"):
            yield from _outside(f"models[{position}].{key}", [[getattr(model, key)]], len(model.cells), "cell")
    packed = fleet.consolidation.instances if fleet.consolidation else ()
    named = [(move.model, move.cell) for move in fleet.moves]
    named += [(one.model, one.cell) for machine in packed for one in machine.models]
    for name, cell in named:
        if cell >= cells.get(name, 0):
            yield f"the cell of {name!r}", "there is no such model or cell"


def _faults_of_plans(analysis: Analysis) -> Iterator[Fault]:
    for place, plans in _plans(analysis):
        names = [plan.name for plan in plans]
        if "cpu" not in names:  # reports read it without a test: a CPU plan is always there
            yield place, "it lacks cpu"
        if len(set(names)) < len(names):
            yield place, "a plan stands in it twice"
    for position, row in enumerate(analysis.sweep):
        if "cpu" not in row.plans:
            yield f"sweep[{position}].plans", "it lacks cpu"
    if analysis.answer is not None:
        if not analysis.ranking or seen_as(RankedWay, analysis.answer) != analysis.ranking[0]:
            yield "answer", "it is not the first of the ranking"
        if not analysis.answer.runs:
            yield "answer", "it cannot run"


def _faults_of_sums(analysis: Analysis) -> Iterator[Fault]:
    totals, operators = analysis.totals, analysis.operators
    if totals.operators != len(operators):
        yield "totals.operators", f"there are {len(operators)} operators"
    for name in ("flops", "macs", "bytes_read", "bytes_written"):
        whole = sum([getattr(operator, name) or 0 for operator in operators])
        if getattr(totals, name) != whole:
            yield f"totals.{name}", f"the operators' sum is {whole}"
    for session, side in (("cpu", "cpu"), ("cuda", "gpu")):
        # A constant that a session shares among several operators is a group of no operator.
        times = [group.time_s for group in analysis.groups if group.session == session and group.members]
        shares = [getattr(operator, side) for operator in operators]
        parts = math.fsum([share.time_s or 0.0 for share in shares if share is not None])
        whole_s = math.fsum([time for time in times if time is not None])
        known = times and None not in times
        if known and not math.isclose(whole_s, parts, rel_tol=_ROUNDING, abs_tol=1e-12):
            yield "groups", f"their times on {side} are not those of their operators"
    for place, plans in _plans(analysis):
        for position, plan in enumerate(plans):
            copies = plan.transfers
            if copies.items and copies.bytes != sum([item.bytes for item in copies.items]):
                yield f"{place}[{position}].transfers.bytes", "it is not the sum of its items"


def _faults_of_intervals(analysis: Analysis) -> Iterator[Fault]:
    rows: list[tuple[str, str, Sequence[Any]]] = [
        (place, "latency_s", plans) for place, plans in _plans(analysis)
    ]
    rows += [("costs", "latency_s", analysis.costs), ("ranking", "latency_s", analysis.ranking)]
    for place, name, estimates in [*rows, ("groups", "time_s", analysis.groups)]:
        for position, one in enumerate(estimates):
            low, value, high = one.low_s, getattr(one, name), one.high_s
            if value is None or low is None or high is None:
                continue
            if not low * (1 - _ROUNDING) <= value <= high * (1 + _ROUNDING):
                yield f"{place}[{position}].{name}", "it lies outside its own interval"


def _faults_of_generation(generation: GenerationResult) -> Iterator[Fault]:
    ways: dict[str, Sequence[object]] = {
        "": [generation],
        ".cpu": [generation.cpu],
        ".split": [generation.split],
        ".sweep[{}]": generation.sweep,
    }
    ways |= {f".{key}[{{}}]": getattr(generation, key) for key in ("devices", "types", "widths")}
    for place, rows in ways.items():
        for position, row in enumerate(rows):
            for name in ("ttft", "tpot", "request"):
                low, value, high = (getattr(row, f"{name}{end}_s", 1.0) for end in ("_low", "", "_high"))
                if not 0 < low <= value <= high:
                    yield f"generation{place.format(position)}.{name}_s", "it lies outside its own interval"


def _faults_of_capacity(capacity: CapacityResult) -> Iterator[Fault]:
    options = capacity.options
    for position, option in enumerate(options):
        place = f"capacity.options[{position}]"
        if option.feasible and option.highest_rate_per_s is None:
            yield f"{place}.highest_rate_per_s", "expected that of what keeps the limit"
        if option.feasible and (option.count is None or option.count <= capacity.spare):
            yield f"{place}.count", f"expected more than the {capacity.spare} that may fail"
    yield from _outside("capacity.best", [[capacity.best]], len(options), "option")
    if capacity.best is not None and capacity.best < len(options) and not options[capacity.best].feasible:
        yield "capacity.best", f"option {capacity.best} keeps no limit"
    yield from _outside(
        "capacity.instances[{}].option", [[one.option] for one in capacity.instances], len(options), "option"
    )
    if len({one.option for one in capacity.instances}) < len(capacity.instances):
        yield "capacity.instances", "two are of one option"  # the page would answer by one of the two
    # Lines are drawn through them, and figures read between two of them.
    lines = {"capacity.traffic": [point.rate_per_s for point in capacity.traffic]}
    for position, one in enumerate(capacity.instances):
        place = f"capacity.instances[{position}]"
        lines[f"{place}.service"] = [point.batch for point in one.service]
        lines[f"{place}.loads"] = [point.rate_per_s for point in one.loads]
        lines[f"{place}.limits"] = [point.limit_s for point in one.limits]
    for place, values in lines.items():
        if any(after <= before for before, after in pairwise(values)):
            yield place, "it does not ascend"


def _plans(analysis: Analysis) -> Iterator[tuple[str, Sequence[PlanResult]]]:
    yield "plans", analysis.plans
    for position, other in enumerate(analysis.alternatives):
        yield f"alternatives[{position}].plans", other.plans


def _outside(place: str, rows: Iterable[Sequence[int | None]], count: int, what: str) -> Iterator[Fault]:
    """Yield indices beyond the last of ``count`` things."""
    for position, row in enumerate(rows):
        for index in row:
            if index is not None and index >= count:  # none is below 0: `Count` holds that
                yield place.format(position), f"there is no {what} {index}, only {count}"
