"""A model's record -> its row in the fleet's table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from analyzer.fleet.job import Job
from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.record.fleet import FleetModel
from analyzer.record.outcome import RankedWay, WhyNot
from analyzer.report import capacity_words, generation_words
from analyzer.text import latency_limit


def row_of(job: Job, analysis: Analysis) -> FleetModel:
    """The row of a model: its answer, and a cell for each device and batch of its record."""
    invocation = analysis.invocation
    cells, best = _cells(analysis)
    return FleetModel(
        name=job.name,
        reference=job.reference,
        question=job.question,
        options=dict(invocation.options) if invocation else {},
        digest=analysis.model.digest,
        parameters=analysis.model.parameters,
        device=analysis.verdict.device or "",
        sentence=_sentence(analysis),
        errors=sum(finding.severity == "error" for finding in analysis.findings),
        warnings=sum(finding.severity == "warning" for finding in analysis.findings),
        cells=cells,
        best=best,
        cheapest=cheapest_of(cells),
        notes=analysis.model.notes,
    )


def cheapest_of(cells: tuple[RankedWay, ...]) -> int | None:
    """The cell of the fewest dollars among those that run, fit and keep their limits; None where unknown."""

    def dollars(index: int) -> float:
        cell = cells[index]
        amount = cell.usd_per_month if cell.usd_per_month is not None else cell.usd_per_million
        return math.inf if amount is None or not cell.is_usable else amount

    index = min(range(len(cells)), key=dollars, default=None)
    return None if index is None or dollars(index) == math.inf else index


def limit_of(model: FleetModel, option: str) -> float | None:
    """Seconds that an option of a row's question limits (``slo``, ``ttft``, ``tpot``); None for none."""
    words = model.options.get(option, ())
    return latency_limit(words[0], where=f"--{option}") if words else None


def judged_anew(model: FleetModel, cell: RankedWay) -> RankedWay:
    """A cell whose times were corrected: whether it keeps its limits follows from the times that it shows."""
    if cell.meets is None:
        return cell
    if model.question == "run":
        pairs = [(cell.latency_s, limit_of(model, "slo"))]
    elif model.question == "generate":
        pairs = [(cell.ttft_s, limit_of(model, "ttft")), (cell.tpot_s, limit_of(model, "tpot"))]
    else:  # a queue's times are not corrected
        return cell
    known = [time_s <= limit_s for time_s, limit_s in pairs if time_s is not None and limit_s is not None]
    return replace(cell, meets=all(known)) if known else cell


def _sentence(analysis: Analysis) -> str:
    if analysis.capacity is not None:
        return capacity_words.sentence(analysis.capacity)
    if analysis.generation is not None:
        return generation_words.sentence(analysis, analysis.generation)
    return analysis.verdict.sentence


def _cells(analysis: Analysis) -> tuple[tuple[RankedWay, ...], int | None]:
    """Return all cells, and the index of the record's answer."""
    invocation = analysis.invocation
    chosen = invocation is not None and "gpu" in invocation.options
    if analysis.capacity is not None:
        return _served(analysis.capacity, chosen)
    answered = analysis.answer is not None and analysis.answer.meets is not False
    return _one_a_device(analysis.ranking), 0 if answered else None


def _one_a_device(ranking: Sequence[RankedWay]) -> tuple[RankedWay, ...]:
    """Return the ways in their order, of several instances with one CPU the cheapest; the first in any case."""
    index_of: dict[tuple[str, int | None], int] = {}
    for index, one in enumerate(ranking):
        if not one.requested:  # another precision is another model, whose accuracy must be checked
            continue
        other = index_of.setdefault((one.device, one.batch), index)
        if other not in (index, 0) and _dearer(ranking[other], one):
            index_of[one.device, one.batch] = index
    return tuple(ranking[index] for index in sorted(index_of.values()))


def _dearer(one: RankedWay, other: RankedWay) -> bool:
    if (one.runs and one.fits) != (other.runs and other.fits):
        return other.runs and other.fits
    return (one.usd_per_million or math.inf) > (other.usd_per_million or math.inf)


def _served(told: CapacityResult, chosen: bool) -> tuple[tuple[RankedWay, ...], int | None]:
    """The cheapest instances of each device; ``chosen``: whether somebody named the GPUs."""
    first: dict[str, CapacityOption] = {}
    for option in told.options:  # by dollars, those that keep the limit first
        first.setdefault(option.device, option)
    best = next((index for index, option in enumerate(first.values()) if option.feasible), None)
    return tuple(_served_by(option, told, chosen) for option in first.values()), best


def _served_by(option: CapacityOption, told: CapacityResult, chosen: bool) -> RankedWay:
    return RankedWay(
        device=option.device,
        device_name=option.device_name,
        kind=option.kind,
        plan=option.kind,
        batch=option.max_batch,
        gpus=option.width if option.kind == "gpu" else 0,
        precision=option.precision,
        named=chosen and option.kind == "gpu",
        meets=option.feasible,
        latency_s=option.latency_s(told.percentile),
        origin=option.origin,
        usd_per_million=option.usd_per_million_tokens or option.usd_per_million,
        usd_per_month=option.usd_per_month,
        usd_low_per_month=option.low_usd_per_month,
        usd_high_per_month=option.high_usd_per_month,
        count=option.count,
        provider=option.provider,
        instance=option.instance,
        usd_per_hour=option.usd_per_hour,
        region=option.region,
        why_not=WhyNot(reason="limit", sentence=option.reason),
    )
