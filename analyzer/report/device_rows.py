"""Reporting: every device that was asked about: whether it fits, how long it takes, what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from analyzer.checks.device_answers import DeviceAnswer, device_answers
from analyzer.record.analysis import Analysis, PlanResult
from analyzer.record.outcome import RankedCandidate
from analyzer.report.document import Table
from analyzer.report.summary.figure_words import VERDICT_WORDS, marked, per_second
from analyzer.units import UNKNOWN, dollars, seconds

TITLE = "Every GPU that was asked about"
# Whether a limit is kept, by the 90 % interval.
KEPT = {"yes": "kept", "likely": "likely kept", "unlikely": "likely missed", "no": "missed"}
# The same before the limit itself.
_KEEPS = {
    "kept": "keeps the",
    "likely kept": "likely keeps the",
    "likely missed": "likely misses the",
    "missed": "misses the",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A GPU by one plan: the verdict's where that uses the GPU, else the CUDA session's.

    Attributes:
        device: Its name.
        verdict: Where to run it with this GPU; empty of the CPU's own row.
        runs: ``yes``, or why not.
        latency, interval, throughput: Host to host; the interval is of 90 %.
        origin: Of the latency.
        dollars, dollars_origin, instance: For a million inferences, and where.
        limit: Whether the plan keeps ``--slo``; ``–`` where none was asked for or it wants another build.
        time_s: The latency to sort by; None of what cannot run.
    """

    device: str
    verdict: str
    runs: str = "does not run"
    latency: str = UNKNOWN
    interval: str = UNKNOWN
    throughput: str = UNKNOWN
    origin: str = ""
    dollars: str = UNKNOWN
    dollars_origin: str = ""
    instance: str = ""
    limit: str = UNKNOWN
    time_s: float | None = None


def rows(analysis: Analysis) -> tuple[DeviceRow, ...]:
    """A row for each GPU, the verdict's first; none where only the CPU was looked at."""
    limit = analysis.verdict.slo_s
    return tuple(
        _priced(_row(answer, limit), _ranked(analysis, "gpu", answer.gpu.slug))
        for answer in device_answers(analysis)
        if answer.gpu is not None
    )


def quickest(every: tuple[DeviceRow, ...], most: int) -> tuple[DeviceRow, ...]:
    """Of more rows than can be shown the first, which is the verdict's, and those of least latency."""
    if len(every) <= most:
        return every
    timed = sorted(every[1:], key=lambda row: (row.time_s is None, row.time_s or 0.0))
    return (every[0], *timed[: most - 1])


_HEAD = ("GPU", "Fits", "Latency", "90 % interval", "Per second", "$ per million", "Instance")


def sheet(analysis: Analysis) -> Table:
    """The rows as a table; a column more where there is a limit."""
    limit = analysis.verdict.slo_s
    asked = () if limit is None else (f"Limit {seconds(limit)}",)
    return Table(
        title=TITLE,
        head=(*_HEAD, *asked, "Verdict"),
        rows=tuple(
            (
                row.device,
                row.runs,
                marked(row.latency, row.origin),
                row.interval,
                row.throughput,
                marked(row.dollars, row.dollars_origin),
                row.instance or UNKNOWN,
                *(() if limit is None else (row.limit,)),
                row.verdict,
            )
            for row in rows(analysis)
        ),
        figures=(2, 3, 4, 5),
    )


def sentences(shown: Iterable[DeviceRow], analysis: Analysis) -> Iterator[str]:
    """Every row in words, for places too narrow for the table."""
    limit = analysis.verdict.slo_s
    for row in shown:
        told = [f"{row.latency} ({row.interval}, {row.origin})" if row.origin else row.latency]
        told += [row.throughput] if row.throughput != UNKNOWN else []
        if row.dollars != UNKNOWN:
            where = f" on {row.instance}" if row.instance else ""
            told.append(f"{marked(row.dollars, row.dollars_origin)} per million{where}")
        told += [row.runs] if row.runs != "yes" else []
        told += (
            [f"{_KEEPS[row.limit]} limit of {seconds(limit)}"]
            if limit is not None and row.limit in _KEEPS
            else []
        )
        told += [f"verdict {row.verdict}"] if row.verdict else []
        yield f"{row.device}: {', '.join(told)}"


def cpu_row(analysis: Analysis) -> DeviceRow | None:
    """The CPU's row, which is the same beside every GPU; None of a record without plans.

    The dollars are those of an instance with this very CPU: the plan has those of the cheapest one, which may
    take another time.
    """
    plan = analysis.plan("cpu")
    if plan is None:
        return None
    cpu, answer = analysis.devices.cpu, device_answers(analysis)[0]
    row = _of_plan(cpu.name, answer, plan, "", analysis.verdict.slo_s)
    return _priced(replace(row, dollars=UNKNOWN, dollars_origin="", instance=""), _ranked(analysis, "cpu"))


def _priced(row: DeviceRow, own: RankedCandidate | None) -> DeviceRow:
    """With the dollars of the device as the ranking has them; as it is of a record that ranks nothing."""
    if own is None:
        return row
    return replace(
        row,
        dollars=dollars(own.usd_per_million),
        dollars_origin=own.usd_origin,
        instance=own.instance,
    )


def _ranked(analysis: Analysis, kind: Literal["cpu", "gpu"], slug: str = "") -> RankedCandidate | None:
    """The analysis's own CPU, or this GPU, at its batch; None of a record that ranks nothing."""
    batch = analysis.model.batch
    every = () if analysis.ranking is None else analysis.ranking.candidates
    return next(
        (
            one
            for one in every
            if one.kind == kind
            and one.named
            and one.asked
            and one.runs
            and one.batch == batch
            and slug in ("", one.device)
        ),
        None,
    )


def on_gpu(answer: DeviceAnswer) -> PlanResult | None:
    """The plan that tells how long a GPU takes; None where no session can be made for it."""
    decided = answer.decided
    if decided is not None and decided.name != "cpu" and decided.operators_on_gpu:
        return decided
    return answer.plan("gpu")


def _row(answer: DeviceAnswer, limit: float | None) -> DeviceRow:
    name = answer.gpu.name if answer.gpu is not None else ""
    plan = on_gpu(answer)
    verdict = VERDICT_WORDS[answer.verdict.device]
    if not any(other.fits for other in answer.plans):
        verdict = "neither fits"
    return (
        _of_plan(name, answer, plan, verdict, limit)
        if plan is not None
        else DeviceRow(device=name, verdict=verdict)
    )


def _of_plan(name: str, answer: DeviceAnswer, plan: PlanResult, verdict: str, limit: float | None) -> DeviceRow:
    another_build = answer.wants_another_build(plan)
    runs = "no release wheel" if another_build else "yes" if plan.fits else "does not fit"
    return DeviceRow(
        device=name,
        verdict=verdict,
        runs=runs,
        latency=seconds(plan.latency_s),
        interval=plan.latency.between(seconds),
        throughput=per_second(plan.throughput_per_s),
        origin=plan.origin,
        dollars=dollars(plan.usd_per_million),
        dollars_origin=plan.usd_origin,
        instance=plan.instance,
        limit=UNKNOWN if limit is None or another_build else KEPT[answer.keeps(plan, limit)],
        time_s=plan.latency_s if answer.can_run(plan) else None,
    )
