"""Reporting: everything that was asked about, ranked, as words and a table for every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analyzer.figures import Figure
from analyzer.record.analysis import Analysis
from analyzer.record.batch_axis import has_batch
from analyzer.record.outcome import RankedCandidate, RankingResult
from analyzer.report.document import SCREEN, WHOLE, AnswerFigure, Column, Table, table
from analyzer.report.ranking.words import leads
from analyzer.report.summary.figure_words import PLAN_TITLES, joules, marked, per_second
from analyzer.text import listed, plural
from analyzer.units import UNKNOWN, byte_count, count, dollars, seconds

# On a terminal: what was named, and beside it the best of what was not.
_MOST_NAMED, _MOST_RENTED = 8, 2
_BY = {"latency": "latency", "throughput": "throughput", "cost": "dollars", "energy": "energy"}


def title(ranking: RankingResult) -> str:
    """The table's heading."""
    limit = "" if ranking.slo_s is None else f" under a limit of {seconds(ranking.slo_s)}"
    compared = ranking.candidates[ranking.best].batch if ranking.best is not None else None
    several = len({one.batch for one in ranking.candidates if one.named and one.asked}) > 1
    # A larger batch takes longer everywhere: only latencies of one batch can be compared.
    first = f", batch {compared} first" if several and compared and ranking.objective == "latency" else ""
    return f"Ranked by {_BY[ranking.objective]}{limit}{first}"


def best_by(analysis: Analysis) -> tuple[AnswerFigure, ...]:
    """The winner under each objective; none where nothing runs in time."""
    ranking = analysis.ranking
    if ranking is None:
        return ()
    batched = has_batch(analysis)
    return tuple(
        _best_by(name, ranking.candidates[at], batched=batched) for name, at in ranking.best_by.items()
    )


def _best_by(name: str, one: RankedCandidate, *, batched: bool) -> AnswerFigure:
    what, figure, origin = {
        "latency": ("latency", seconds(one.latency_s), one.origin),
        "throughput": ("throughput", per_second(one.throughput_per_s), one.origin),
        "cost": ("dollars", dollars(one.usd_per_million), one.usd_origin),
        "energy": ("energy", joules(one.energy_j), _energy_origin(one)),
    }[name]
    rented = _instance(one) if name == "cost" and one.named else ""
    at = f"batch {one.batch}" if one.batch is not None and batched else ""
    note = ", ".join(filter(None, (at, rented)))
    return AnswerFigure(title=f"Best for {what}", name=_who(one), figure=figure, origin=origin, note=note)


def sheet(analysis: Analysis) -> Table | None:
    """Return all candidates; None where the record ranks nothing.

    A terminal shows what was named in the requested precision, and the best of the rented CPUs.
    """
    ranking = analysis.ranking
    if ranking is None or not ranking.candidates:
        return None
    chosen, mark = _answer(analysis, ranking)
    requested = [at for at, one in enumerate(ranking.candidates) if one.asked]
    named = [at for at in requested if ranking.candidates[at].named][:_MOST_NAMED]
    rented = [at for at in requested if not ranking.candidates[at].named][:_MOST_RENTED]
    shown = tuple(sorted({*named, *rented}))
    return table(
        ranking.candidates,
        _columns(ranking),
        name="ranking",
        title=title(ranking),
        chosen=chosen,
        mark=mark,
        pale=tuple(at for at, one in enumerate(ranking.candidates) if not one.runs),
        lead=_lead(ranking) if leads(analysis) else " ".join((*ranking.notes, _lead(ranking))),
        below=tuple(_remarks([ranking.candidates[at] for at in shown])),
        shown=shown,
        most=0,
        detail=SCREEN if leads(analysis) else WHOLE,
    )


def _remarks(shown: list[RankedCandidate]) -> Iterator[str]:
    """Say why a device is where it is; that it misses the limit, order and figure say."""
    remarks: dict[str, str] = {}
    for one in shown:
        if one.reason and not one.reason.startswith("misses"):
            remarks.setdefault(_who(one), one.reason.partition("; misses")[0])
    return (f"{name}: {reason}." for name, reason in remarks.items())


def _answer(analysis: Analysis, ranking: RankingResult) -> tuple[int | None, str]:
    """The row of the answer that stands above, and its mark: no second row may look like an answer."""
    if leads(analysis):
        return (ranking.best, "best") if ranking.best is not None else (ranking.nearest, "nearest")
    kind = "cpu" if analysis.verdict.device == "cpu" else "gpu"
    rows = (
        at
        for at, one in enumerate(ranking.candidates)
        if one.named and one.asked and one.runs and one.kind == kind and one.batch == analysis.model.batch
    )
    return (None if analysis.verdict.device == "either" else next(rows, None)), "the verdict"


def _lead(ranking: RankingResult) -> str:
    asked = [one for one in ranking.candidates if one.asked]
    gpus = len({one.device for one in asked if one.kind == "gpu"})
    rented = sum(1 for one in asked if not one.named)
    batches = len({one.batch for one in asked if one.named})
    parts = [plural(gpus, "GPU")] if gpus else []
    parts += ["the CPU"] + ([plural(rented, "CPU instance")] if rented else [])
    at = f" at {batches} batches" if batches > 1 else ""
    text = f"{listed(parts)}{at}, each with its best plan and the instance that runs it for the least."
    if batches > 1 and ranking.objective == "latency" and ranking.best is not None:
        compared = ranking.candidates[ranking.best].batch
        text += f" Latencies are compared at one batch, {compared}: a larger one takes longer everywhere."
    elif rented and batches > 1:
        text += " Of a CPU instance one batch is shown, its best."
    if any(not ranking.candidates[at].named for at in ranking.as_good) and ranking.objective != "cost":
        text += " A CPU instance, which nobody named, is the best only where it wins by more than the error."
    if ranking.best is not None and ranking.best_by.get(ranking.objective, ranking.best) != ranking.best:
        text += " A gain within the error is not worth dollars: of what is as good the cheapest is the best."
    if len(asked) < len(ranking.candidates):
        text += " Other precisions stand last: each is another model, whose accuracy must be checked."
    return text


def _columns(ranking: RankingResult) -> tuple[Column, ...]:
    # What is the same in every row tells nothing.
    batches = len({one.batch for one in ranking.candidates}) > 1
    return (
        _text("Device", _who),
        _text("Precision", lambda one: one.precision, drop=4),
        *([_figure("Batch", "batch", lambda one: count(one.batch))] if batches else []),
        _figure("Latency", "latency_s", lambda one: marked(seconds(one.latency_s), one.origin)),
        _figure("90 % interval", "low_s", lambda one: _between(one.latency, seconds)),
        _figure("Per second", "throughput_per_s", lambda one: per_second(one.throughput_per_s), drop=2),
        _figure(
            "$/million", "usd_per_million", lambda one: marked(dollars(one.usd_per_million), one.usd_origin)
        ),
        _figure("$ interval", "usd_low_per_million", lambda one: _between(one.dollars, dollars), drop=6),
        # Of a rented CPU it is the device.
        _text("On", lambda one: _instance(one) if one.named else "", drop=1),
        _figure("Memory", "memory_bytes", lambda one: byte_count(one.memory_bytes), drop=7),
        _figure("Energy", "energy_j", lambda one: marked(joules(one.energy_j), _energy_origin(one)), drop=5),
        _text("Plan", lambda one: "Split" if one.plan == "hybrid" else PLAN_TITLES[one.plan], drop=3),
        _text("Note", lambda one: one.reason, drop=8),
    )


def _text(head: str, text: Callable[[RankedCandidate], str], *, drop: int = 0) -> Column:
    return Column(head, text, lambda one: text(one) or None, drop=drop, figure=False)


def _figure(head: str, key: str, text: Callable[[RankedCandidate], str], *, drop: int = 0) -> Column:
    def value(one: RankedCandidate) -> float | None:
        # What cannot run is sorted behind what can: its figures are as if it did.
        found: float | None = getattr(one, key)
        return found if one.runs else None

    return Column(head, text, value, drop=drop)


def _who(one: RankedCandidate) -> str:
    return one.name if one.named else f"{one.provider} {one.instance}: {one.name}"


def _energy_origin(one: RankedCandidate) -> str:
    """As a plan's: joules are a time, which may be measured, at a power that is modelled."""
    return "mixed" if one.origin == "measured" else one.origin


def _instance(one: RankedCandidate) -> str:
    return f"{one.provider} {one.instance}".strip()


def _between(figure: Figure | None, written: Callable[[float | None], str]) -> str:
    return UNKNOWN if figure is None else figure.between(written)
