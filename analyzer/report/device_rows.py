"""Reporting: every device of a check in a row: whether it fits, how long it takes, what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from analyzer.checks.device_answers import DeviceAnswer, device_answers
from analyzer.record.analysis import Analysis, PlanResult
from analyzer.record.outcome import RankedWay
from analyzer.report.document import Table
from analyzer.report.summary.figure_words import VERDICT_WORDS, marked, per_second
from analyzer.units import UNKNOWN, dollars, seconds

# Whether a limit is kept, by the 90 % interval.
_LIMIT_WORDS = {"yes": "kept", "likely": "likely kept", "unlikely": "likely missed", "no": "missed"}
_HEAD = ("Device", "Runs", "Latency", "90 % interval", "Per second", "$ per million", "Instance")
# The columns of a device without a plan.
_NONE = ("does not run", *(UNKNOWN for _ in _HEAD[2:]))


def table(analysis: Analysis) -> Table:
    """Return the CPU, then each GPU by one plan: the verdict's where that uses it, else the CUDA session's."""
    limit = analysis.verdict.slo_s
    return Table(
        title="Devices",
        head=(*_HEAD, *(() if limit is None else (f"Limit {seconds(limit)}",)), "Verdict"),
        rows=tuple(_rows(analysis)),
        figures=(2, 3, 4, 5),
        drop=(0, 3, 0, 0, 4, 1, 2, *(() if limit is None else (0,)), 0),
    )


def _rows(analysis: Analysis) -> Iterator[tuple[str, ...]]:
    answers, limit = device_answers(analysis), analysis.verdict.slo_s
    cpu = analysis.plan("cpu")
    if cpu is not None:
        # The plan's dollars are the cheapest instance's, which may have another CPU; the ranking's are not.
        own = _ranked(analysis, "cpu")
        yield (analysis.devices.cpu.name, *_cells(answers[0], cpu, own, limit, of_plan=False), "")
    for answer in answers:
        if answer.gpu is None:
            continue
        # The plan that says how long the GPU takes; None where no session can be made for it.
        plan, verdict = answer.decided, VERDICT_WORDS[answer.verdict.device]
        if plan is None or plan.name == "cpu" or not plan.operators_on_gpu:
            plan = answer.plan("gpu")
        if not any(other.fits for other in answer.plans):
            verdict = "neither fits"
        if plan is None:
            yield (answer.gpu.name, *_NONE, *(() if limit is None else (UNKNOWN,)), verdict)
        else:
            own = _ranked(analysis, "gpu", answer.gpu.slug)
            yield (answer.gpu.name, *_cells(answer, plan, own, limit), verdict)


def _cells(
    answer: DeviceAnswer,
    plan: PlanResult,
    own: RankedWay | None,
    limit: float | None,
    *,
    of_plan: bool = True,
) -> tuple[str, ...]:
    """Return a plan's cells; dollars are the ranking's, else the plan's own where it is ``of_plan``."""
    another_build = answer.wants_another_build(plan)
    usd, origin, instance = (
        (own.usd_per_million, own.usd_origin, own.instance)
        if own is not None
        else (plan.usd_per_million, plan.usd_origin, plan.instance)
        if of_plan
        else (None, "", "")
    )
    word = "" if limit is None else UNKNOWN if another_build else _LIMIT_WORDS[answer.keeps(plan, limit)]
    return (
        "no machine code" if another_build else "yes" if plan.fits else "does not fit",
        marked(seconds(plan.latency_s), plan.origin),
        plan.latency.between(seconds),
        per_second(plan.throughput_per_s),
        marked(dollars(usd), origin),
        instance or UNKNOWN,
        *((word,) if word else ()),
    )


def _ranked(analysis: Analysis, kind: Literal["cpu", "gpu"], slug: str = "") -> RankedWay | None:
    """Return the analysis's own CPU, or this GPU, at its batch; None of a record that ranks nothing."""
    return next(
        (
            one
            for one in analysis.ranking
            if one.kind == kind
            and one.named
            and one.requested
            and one.runs
            and one.batch == analysis.model.batch
            and slug in ("", one.device)
        ),
        None,
    )
