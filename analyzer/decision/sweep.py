"""The same model over batches: who is faster from which batch, where the GPU saturates, what still fits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from analyzer.decision.decision_input import DecisionInput, Sweep
from analyzer.decision.phrases import capital, gpu_name
from analyzer.decision.plan_memory import all_fits_gpu
from analyzer.decision.plans import Name, Plan, Plans, plan_all
from analyzer.memory.fit import largest_between
from analyzer.record.analysis import SweepPlan, SweepRow

BATCHES = tuple(2**power for power in range(13))  # 1 to 4096
# Share of the best throughput from which a larger batch is latency for little gain. A judgement.
SATURATED = 0.9


def sweep(
    questions: Mapping[int, DecisionInput],
    *,
    at: Callable[[int], DecisionInput] | None = None,
    has_room: Callable[[int], bool] | None = None,
    planned: Mapping[int, Plans] = MappingProxyType({}),
) -> Sweep:
    """Every plan at every batch, and what follows.

    Args:
        questions: The question at each batch.
        at: Asks at a batch between two of them: with it crossovers are exact to one inference, without it
            they are batches of ``questions``.
        has_room: Whether the GPU holds the model at such a batch, where that is known without asking all.
        planned: Plans of some of the questions, which are not worked out again.
    """
    by_batch = dict(sorted(questions.items()))
    rows = tuple(_rows(by_batch, planned))
    if not rows or "gpu" not in rows[0].plans:
        return Sweep(rows=rows, note="Only the CPU was looked at." if rows else "No batch was looked at.")
    crossovers = _crossovers(rows, at)
    fitting = [row.batch for row in rows if row.plans["gpu"].fits]
    # Without the peak every batch seems to fit: then no largest one is told.
    known = next(iter(by_batch.values())).peak_memory_bytes is not None
    largest = max(fitting, default=None) if known else None
    return Sweep(
        rows=rows,
        crossover_batch=_crossover_batch(rows, crossovers),
        crossovers=tuple(crossovers),
        saturation_batch=_saturation_batch(rows),
        largest_batch=_largest_batch(rows, largest, has_room or _room_at(at)),
        note=_note(rows, crossovers, capital(gpu_name(next(iter(by_batch.values()))))),
    )


def throughput(question: DecisionInput, plan: Plan) -> float:
    """Inferences per second, one run after the other; 0 where a run takes no time at all."""
    spent = plan.latency.time_s
    return question.inferences / spent if spent > 0 else 0.0


def _rows(by_batch: Mapping[int, DecisionInput], planned: Mapping[int, Plans]) -> Iterator[SweepRow]:
    # Mostly a model has the same units and edges at every batch: those of the first are found for all.
    similar = next(((by_batch[batch], plans) for batch, plans in planned.items() if batch in by_batch), None)
    for batch, question in by_batch.items():
        plans = planned.get(batch) or plan_all(question, similar)
        similar = similar or (question, plans)
        yield _row_of(batch, question, plans)


def _row(batch: int, question: DecisionInput) -> SweepRow:
    return _row_of(batch, question, plan_all(question))


def _row_of(batch: int, question: DecisionInput, found: Plans) -> SweepRow:
    plans: dict[Name, SweepPlan] = {plan.name: _sweep_plan(question, plan) for plan in found}
    return SweepRow(batch=batch, plans=plans)


def _sweep_plan(question: DecisionInput, plan: Plan) -> SweepPlan:
    return SweepPlan(
        latency_s=plan.latency.time_s,
        low_s=plan.latency.low_s,
        high_s=plan.latency.high_s,
        throughput_per_s=throughput(question, plan),
        origin=plan.latency.origin,
        fits=plan.fits,
    )


def gpu_wins(row: SweepRow) -> bool:
    """Whether the GPU plan is expected to be faster, and fits."""
    gpu = row.plans["gpu"]
    # By the middle, not by the interval: a curve needs a crossing, and the verdict tells the doubt.
    return gpu.fits and gpu.latency_s < row.plans["cpu"].latency_s


def _fitting(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """The rows in which a comparison makes sense: those that fit the GPU."""
    return [row for row in rows if row.plans["gpu"].fits]


def _crossovers(rows: Sequence[SweepRow], at: Callable[[int], DecisionInput] | None) -> list[int]:
    """Every batch from which the other device is the faster one."""
    fitting = _fitting(rows)
    crossovers = []
    for before, after in itertools.pairwise(fitting):
        if gpu_wins(before) != gpu_wins(after):
            crossovers.append(_bisected(before, after, at) if at is not None else after.batch)
    return crossovers


def _bisected(before: SweepRow, after: SweepRow, at: Callable[[int], DecisionInput]) -> int:
    """Bisection between two batches at which different devices win."""
    # Where the winner changes several times in between, bisection still ends at one of the changes.
    low, high = before.batch, after.batch
    while high - low > 1:
        middle = (low + high) // 2
        if gpu_wins(_row(middle, at(middle))) == gpu_wins(before):
            low = middle
        else:
            high = middle
    return high


def _room_at(at: Callable[[int], DecisionInput] | None) -> Callable[[int], bool] | None:
    return None if at is None else lambda batch: all_fits_gpu(at(batch))


def _largest_batch(
    rows: Sequence[SweepRow], fitting: int | None, has_room: Callable[[int], bool] | None
) -> int | None:
    """The largest batch that fits: exact where one that does not was looked at and others can be asked."""
    above = next((row.batch for row in rows if fitting is not None and row.batch > fitting), None)
    if fitting is None or above is None or has_room is None:
        return fitting
    return largest_between(has_room, fitting, above)


def _crossover_batch(rows: Sequence[SweepRow], crossovers: Sequence[int]) -> int | None:
    fitting = _fitting(rows)
    # "Wins from this batch on": where the GPU loses again at the largest batch there is no such batch.
    if not fitting or not gpu_wins(fitting[-1]):
        return None
    if len(fitting) == 1 and fitting[0].batch > 1:
        return None  # nothing says what smaller batches do
    return crossovers[-1] if crossovers else fitting[0].batch


def _saturation_batch(rows: Sequence[SweepRow]) -> int | None:
    """None where the largest batch is the first to get there: the throughput may still grow."""
    fitting = _fitting(rows)
    rates = [row.plans["gpu"].throughput_per_s for row in fitting]
    if len(rates) < 2:
        return None  # one point is no curve
    first = next(position for position, rate in enumerate(rates) if rate >= SATURATED * max(rates))
    return fitting[first].batch if first < len(fitting) - 1 else None


def _note(rows: Sequence[SweepRow], crossovers: Sequence[int], gpu: str) -> str:
    fitting = _fitting(rows)
    if not fitting:
        return f"{gpu} has no room for the model at any batch from {rows[0].batch} to {rows[-1].batch}."
    first, last = fitting[0].batch, fitting[-1].batch
    more = "" if last == rows[-1].batch else ", the largest that fits of those looked at"
    if not crossovers:
        if first == last:
            wins = "faster" if gpu_wins(fitting[0]) else "not faster"
            return f"{gpu} is {wins} at batch {first}, the only one that could be looked at."
        if gpu_wins(fitting[0]):
            return f"{gpu} is faster at every batch from {first} to {last}{more}."
        return f"No batch from {first} to {last} is faster on {gpu[0].lower()}{gpu[1:]}."
    winner = "faster" if gpu_wins(fitting[-1]) else "no longer faster"
    text = f"{gpu} is {winner} from batch {crossovers[-1]} up to {last}{more}."
    if len(crossovers) > 1:
        before = ", ".join(str(batch) for batch in crossovers[:-1])
        text += f" The faster device also changes at batch {before}."
    return text
