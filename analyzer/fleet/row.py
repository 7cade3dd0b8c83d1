"""A model's record -> its row in the fleet's table."""

from __future__ import annotations

import math
from dataclasses import replace

from analyzer.fleet.job import Job
from analyzer.record.analysis import Analysis
from analyzer.record.fleet import FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.report import capacity_words, generation_words
from analyzer.report.ranking import words as ranking_words
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
        device=_side(analysis),
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


def _side(analysis: Analysis) -> str:
    """Return what the answer runs on: ``cpu``, ``gpu``, ``hybrid`` or ``either``; empty where there is none."""
    answer = analysis.answer
    if answer is not None and (ranking_words.of_run(analysis) is None or ranking_words.is_elsewhere(analysis)):
        return answer.plan
    return analysis.verdict.device or ""


def _sentence(analysis: Analysis) -> str:
    """Return the answer, or why there is none."""
    if analysis.answer is not None:
        return analysis.answer.sentence
    if analysis.capacity is not None:
        return capacity_words.sentence(analysis.capacity)
    if analysis.generation is not None:
        return generation_words.sentence(analysis, analysis.generation)
    return analysis.verdict.sentence


def _cells(analysis: Analysis) -> tuple[tuple[RankedWay, ...], int | None]:
    """Return a way for each device and batch, of a service for each device, and the index of the answer.

    Of several instances with one CPU it is the cheapest; the answer's in any case.
    """
    ranking = analysis.ranking
    index_of: dict[tuple[str, int | None], int] = {}
    for index, one in enumerate(ranking):
        if not one.requested:  # another precision is another model, whose accuracy must be checked
            continue
        place = (one.device, one.batch if analysis.capacity is None else None)
        other = index_of.setdefault(place, index)
        if other not in (index, 0) and _dearer(ranking[other], one):
            index_of[place] = index
    answered = analysis.answer is not None and analysis.answer.meets is not False
    return tuple(ranking[index] for index in sorted(index_of.values())), 0 if answered else None


def _dearer(one: RankedWay, other: RankedWay) -> bool:
    if one.is_usable != other.is_usable:
        return other.is_usable
    return (one.usd_per_million or math.inf) > (other.usd_per_million or math.inf)
