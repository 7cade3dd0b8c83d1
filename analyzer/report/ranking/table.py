"""Reporting: everything that was asked about, ranked, as words and a table for every format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from analyzer.figures import Figure
from analyzer.options import Objective
from analyzer.record.analysis import Analysis
from analyzer.record.batch_ranges import has_batch
from analyzer.record.outcome import Answer, RankedWay
from analyzer.report import price_words
from analyzer.report.document import SCREEN, WHOLE, AnswerFigure, Column, Table, table
from analyzer.report.ranking.words import leads, name, of_run
from analyzer.report.summary.figure_words import PLAN_TITLES, joules, marked, per_second
from analyzer.text import listed, plural
from analyzer.units import UNKNOWN, byte_count, count, dollars, seconds

# On a terminal: what was named, and beside it the best of what was not.
_MOST_NAMED, _MOST_RENTED = 8, 2
_BY: Mapping[Objective, str] = {
    "latency": "latency",
    "throughput": "throughput",
    "cost": "dollars",
    "energy": "energy",
}
# The key of each objective, 1 where less is better, and its figure as text.
_BEST_BY: Mapping[Objective, tuple[str, int, Callable[[float], str]]] = {
    "latency": ("latency_s", 1, seconds),
    "throughput": ("throughput_per_s", -1, per_second),
    "cost": ("usd_per_million", 1, dollars),
    "energy": ("energy_j", 1, joules),
}


def title(analysis: Analysis, answer: Answer | None) -> str:
    """Return the table's heading."""
    objective = analysis.verdict.objective if answer is None else answer.objective
    limit_s = analysis.verdict.slo_s
    limit = "" if limit_s is None else f" under a limit of {seconds(limit_s)}"
    several = len({one.batch for one in analysis.ranking if one.named and one.requested}) > 1
    # A larger batch takes longer everywhere: only latencies of one batch can be compared.
    first = f", batch {answer.batch} first" if several and answer and objective == "latency" else ""
    return f"Ranked by {_BY[objective]}{limit}{first}"


def best_by(analysis: Analysis) -> tuple[AnswerFigure, ...]:
    """Return the best under each objective; none where nothing runs in time."""
    answer, batched = of_run(analysis), has_batch(analysis)
    usable = [one for one in analysis.ranking if one.requested and one.is_usable]
    if answer is None or not usable:
        return ()
    figures = []
    for objective, (key, sign, text) in _BEST_BY.items():
        # Latencies are compared at one batch.
        rows = [one for one in usable if objective != "latency" or one.batch == answer.batch]
        known = [one for one in rows if getattr(one, key) is not None]
        if known:
            one = min(known, key=lambda one: sign * getattr(one, key))
            rented = price_words.rented(one, one.gpus) if objective == "cost" and one.named else ""
            at = f"batch {one.batch}" if one.batch is not None and batched else ""
            origins = {"cost": one.usd_origin, "energy": _energy_origin(one)}
            figures.append(
                AnswerFigure(
                    title=f"Best for {_BY[objective]}",
                    name=name(one),
                    figure=text(getattr(one, key)),
                    origin=origins.get(objective, one.origin),
                    note=", ".join(filter(None, (at, rented))),
                )
            )
    return tuple(figures)


def sheet(analysis: Analysis) -> Table | None:
    """Return all ways to run; None where the record ranks nothing.

    A terminal shows what was named in the requested precision, and the best of the rented CPUs.
    """
    answer, ranking = of_run(analysis), analysis.ranking
    if not ranking or analysis.generation is not None or analysis.capacity is not None:
        return None
    requested = [at for at, one in enumerate(ranking) if one.requested]
    named = [at for at in requested if ranking[at].named][:_MOST_NAMED]
    rented = [at for at in requested if not ranking[at].named][:_MOST_RENTED]
    return table(
        ranking,
        _columns(ranking),
        name="ranking",
        title=title(analysis, answer),
        chosen=None if answer is None else 0,
        mark="nearest" if answer is not None and answer.meets is False else "best",
        pale=tuple(at for at, one in enumerate(ranking) if not one.runs),
        lead=_lead(ranking),
        shown=tuple(sorted({*named, *rented})),
        most=0,
        detail=SCREEN if leads(analysis) else WHOLE,
    )


def _lead(ranking: Sequence[RankedWay]) -> str:
    requested = [one for one in ranking if one.requested]
    gpus = len({one.device for one in requested if one.kind == "gpu"})
    rented = sum(1 for one in requested if not one.named)
    batches = len({one.batch for one in requested if one.named})
    parts = [plural(gpus, "GPU")] if gpus else []
    parts += ["the CPU"] + ([plural(rented, "CPU instance")] if rented else [])
    at = f" at {batches} batches" if batches > 1 else ""
    text = f"{listed(parts)}{at}, each with its best plan and the instance that runs it for the least."
    if rented and batches > 1:
        text += " Of a CPU instance one batch is shown, its best."
    if len(requested) < len(ranking):
        text += " Other precisions stand last: each is another model, whose accuracy must be checked."
    return text


def _columns(ranking: Sequence[RankedWay]) -> tuple[Column, ...]:
    # A value that is the same in every row says nothing.
    batches = len({one.batch for one in ranking}) > 1
    return (
        _text("Device", name),
        _text("Why not", lambda one: one.remark, drop=2),
        _text("Precision", lambda one: one.precision, drop=5),
        *([_figure("Batch", "batch", lambda one: count(one.batch))] if batches else []),
        _figure("Latency", "latency_s", lambda one: marked(seconds(one.latency_s), one.origin)),
        _figure("90 % interval", "low_s", lambda one: _between(one.latency, seconds), drop=1),
        _figure("Per second", "throughput_per_s", lambda one: per_second(one.throughput_per_s), drop=4),
        _figure(
            "$/million", "usd_per_million", lambda one: marked(dollars(one.usd_per_million), one.usd_origin)
        ),
        _figure("$ interval", "usd_low_per_million", lambda one: _between(one.dollars, dollars), drop=7),
        # Of a rented CPU it is the device.
        _text("On", lambda one: price_words.rented(one, one.gpus) if one.named else "", drop=3),
        _figure("Memory", "memory_bytes", lambda one: byte_count(one.memory_bytes), drop=8),
        _figure("Energy", "energy_j", lambda one: marked(joules(one.energy_j), _energy_origin(one)), drop=6),
        _text("Plan", lambda one: "Split" if one.plan == "hybrid" else PLAN_TITLES[one.plan], drop=4),
    )


def _text(head: str, text: Callable[[RankedWay], str], *, drop: int = 0) -> Column:
    return Column(head, text, lambda one: text(one) or None, drop=drop, figure=False)


def _figure(head: str, key: str, text: Callable[[RankedWay], str], *, drop: int = 0) -> Column:
    def value(one: RankedWay) -> float | None:
        # What cannot run is sorted behind what can: its figures are as if it did.
        result: float | None = getattr(one, key)
        return result if one.runs else None

    return Column(head, text, value, drop=drop)


def _energy_origin(one: RankedWay) -> str:
    """As a plan's: joules are a time, which may be measured, at a power that is modelled."""
    return "mixed" if one.origin == "measured" else one.origin


def _between(figure: Figure | None, written: Callable[[float | None], str]) -> str:
    return UNKNOWN if figure is None else figure.between(written)
