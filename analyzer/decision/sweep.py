"""The same model over batches: who is faster from which batch, where the GPU saturates, what still fits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Literal

from analyzer.decision.choice import Ratio, nothing_on_gpu
from analyzer.decision.decision_input import DecisionInput, Sweep, all_fits_gpu
from analyzer.decision.error_components import ratio
from analyzer.decision.plans import Name, Plan, Plans, plan_all
from analyzer.decision.reasons import capital, cpu_name, gpu_name
from analyzer.memory.fit import largest_between
from analyzer.record.analysis import BatchRange, SweepPlan, SweepRow
from analyzer.record.batch_ranges import who_wins

BATCHES = tuple(2**power for power in range(13))  # 1 to 4096
# Share of the best throughput from which a larger batch is latency for little gain. A judgement.
SATURATED = 0.9
Winner = Literal["cpu", "gpu", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchSeen:
    """The results at a batch: its plans, and the CPU's time over the GPU's with its interval."""

    row: SweepRow
    ratio: Ratio | None
    nothing_on_gpu: bool
    nothing_on_cpu: bool

    @property
    def batch(self) -> int:
        return self.row.batch

    @property
    def fits(self) -> bool:
        return self.row.plans["gpu"].fits

    @property
    def gpu_wins(self) -> bool:
        """Return whether the GPU plan is expected to be faster, and fits."""
        # By the middle, not by the interval: a curve needs a crossing, and the ranges tell the doubt.
        gpu, cpu = self.row.plans["gpu"], self.row.plans["cpu"]
        return self.fits and (self.nothing_on_cpu or gpu.latency_s < cpu.latency_s)

    @property
    def winner(self) -> Winner:
        """The faster device as the verdict has it: either where the interval of their ratio holds 1."""
        if self.nothing_on_gpu:
            return "cpu"
        if self.nothing_on_cpu:
            return "gpu"
        if self.ratio is None or self.ratio[1] <= 1 <= self.ratio[2]:
            return "either"
        return "gpu" if self.ratio[0] > 1 else "cpu"


def sweep(
    questions: Mapping[int, DecisionInput],
    *,
    at: Callable[[int], DecisionInput] | None = None,
    has_room: Callable[[int], bool] | None = None,
    planned: Mapping[int, Plans] = MappingProxyType({}),
    plan: Callable[[DecisionInput], Plans] = plan_all,
) -> Sweep:
    """Return every plan at every batch, and what follows.

    ``at`` asks at a batch between two of them: with it crossovers are exact to one inference, without it they
    are batches of ``questions``. ``has_room`` says whether the GPU holds the model at such a batch, where that
    is known without asking all. ``plan`` makes plans that are not ``planned``, those of both sessions at least.
    """
    by_batch = dict(sorted(questions.items()))
    seen = tuple(
        _seen(question, batch, planned.get(batch) or plan(question)) for batch, question in by_batch.items()
    )
    rows = tuple(one.row for one in seen)
    if not rows or "gpu" not in rows[0].plans:
        return Sweep(rows=rows, note="Only the CPU was looked at." if rows else "No batch was looked at.")
    any_question = next(iter(by_batch.values()))
    if len(rows) == 1 and not any_question.has_batch:
        return Sweep(rows=rows)
    # The crossover and both ends of its interval are searched between the same batches.
    between = None if at is None else cache(lambda batch: _seen(question := at(batch), batch, plan(question)))
    if has_room is None and at is not None:
        has_room = partial(_has_room, at)
    fitting = [one for one in seen if one.fits]
    crossovers = _crossovers(fitting, between)
    crossover_batch = _crossover_batch(fitting, crossovers)
    ranges = tuple(_ranges(fitting, between))
    # Without the peak every batch seems to fit: then no largest one is told.
    known = any_question.peak_memory_bytes is not None
    largest = max((one.batch for one in fitting), default=None) if known else None
    return Sweep(
        rows=rows,
        crossover_batch=crossover_batch,
        crossovers=tuple(crossovers),
        saturation_batch=_saturation_batch(fitting),
        largest_batch=_largest_batch(rows, largest, has_room),
        note=_note(rows, ranges, crossover_batch, any_question),
        ranges=ranges,
    )


def throughput(question: DecisionInput, plan: Plan) -> float:
    """Return inferences per second, one run after the other; 0 where a run takes no time at all."""
    spent = plan.latency.value
    return question.inferences / spent if spent > 0 else 0.0


def _seen(question: DecisionInput, batch: int, planned: Plans) -> _BatchSeen:
    plans: dict[Name, SweepPlan] = {
        plan.name: SweepPlan(
            **plan.latency.keys("latency_s"), throughput_per_s=throughput(question, plan), fits=plan.fits
        )
        for plan in planned
    }
    return _BatchSeen(
        row=SweepRow(batch=batch, plans=plans),
        ratio=ratio(planned.cpu.components, planned.gpu.components) if planned.gpu is not None else None,
        nothing_on_gpu=nothing_on_gpu(question),
        nothing_on_cpu=bool(question.cpu_refuses),
    )


def _crossovers(fitting: Sequence[_BatchSeen], between: Callable[[int], _BatchSeen] | None) -> list[int]:
    """Return every batch from which the other device is expected to be the faster one."""
    crossovers = []
    for before, after in itertools.pairwise(fitting):
        if before.gpu_wins != after.gpu_wins:
            result = _first_change(before, after, between, lambda one: one.gpu_wins) if between else after
            crossovers.append(result.batch)
    return crossovers


def _first_change(
    before: _BatchSeen,
    after: _BatchSeen,
    between: Callable[[int], _BatchSeen],
    value: Callable[[_BatchSeen], object],
) -> _BatchSeen:
    """Bisection between two batches of different values: the first that has not the value of ``before``."""
    # Where the value changes several times in between, bisection still ends at one of the changes.
    low, high = before, after
    while high.batch - low.batch > 1:
        middle = between((low.batch + high.batch) // 2)
        if value(middle) == value(before):
            low = middle
        else:
            high = middle
    return high


def _ranges(fitting: Sequence[_BatchSeen], between: Callable[[int], _BatchSeen] | None) -> Iterator[BatchRange]:
    """Return who is faster from which batch to which; one after the other, from the first batch to the last."""
    if not fitting:
        return
    first, winner = fitting[0].batch, fitting[0].winner
    for batch, other in _changes(fitting, between):
        yield BatchRange(first=first, last=batch - 1, device=winner)
        first, winner = batch, other
    yield BatchRange(first=first, last=fitting[-1].batch, device=winner)


def _changes(
    fitting: Sequence[_BatchSeen], between: Callable[[int], _BatchSeen] | None
) -> Iterator[tuple[int, Winner]]:
    """Each batch from which the winner is another, and the winner."""
    for before, after in itertools.pairwise(fitting):
        here = before
        while between and here.winner != after.winner:
            here = _first_change(here, after, between, lambda one: one.winner)
            yield here.batch, here.winner
        if between or before.winner == after.winner:
            continue
        # No batch in between can be asked about: each of them may be either's.
        if before.winner != "either" and (after.winner == "either" or after.batch - before.batch > 1):
            yield before.batch + 1, "either"
        if after.winner != "either":
            yield after.batch, after.winner


def _has_room(at: Callable[[int], DecisionInput], batch: int) -> bool:
    return all_fits_gpu(at(batch))


def _largest_batch(
    rows: Sequence[SweepRow], fitting: int | None, has_room: Callable[[int], bool] | None
) -> int | None:
    """Return largest batch that fits: exact where one that does not was looked at and others can be asked."""
    above = next((row.batch for row in rows if fitting is not None and row.batch > fitting), None)
    if fitting is None or above is None or has_room is None:
        return fitting
    return largest_between(has_room, fitting, above)


def _crossover_batch(fitting: Sequence[_BatchSeen], crossovers: Sequence[int]) -> int | None:
    # "Wins from this batch on": where the GPU loses again at the largest batch there is no such batch.
    if not fitting or not fitting[-1].gpu_wins:
        return None
    if len(fitting) == 1 and fitting[0].batch > 1:
        return None  # nothing says what smaller batches do
    return crossovers[-1] if crossovers else fitting[0].batch


def _saturation_batch(fitting: Sequence[_BatchSeen]) -> int | None:
    """None where the largest batch is the first to get there: the throughput may still grow."""
    rates = [one.row.plans["gpu"].throughput_per_s for one in fitting]
    if len(rates) < 2:
        return None  # one point is no curve
    first = next(position for position, rate in enumerate(rates) if rate >= SATURATED * max(rates))
    return fitting[first].batch if first < len(fitting) - 1 else None


def _note(
    rows: Sequence[SweepRow], ranges: Sequence[BatchRange], even: int | None, question: DecisionInput
) -> str:
    gpu = gpu_name(question)
    if not ranges:
        smallest, largest = rows[0].batch, rows[-1].batch
        return f"{capital(gpu)} has no room for the model at any batch from {smallest} to {largest}."
    text, last = who_wins(ranges, even, cpu=cpu_name(question), gpu=gpu), ranges[-1].last
    more = "" if last == rows[-1].batch else f" Batch {last} is the largest that fits of those looked at."
    return text + more
