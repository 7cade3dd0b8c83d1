"""Reporting: what the records of a comparison say side by side: facts, figures, environment, notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any

from analyzer.checks.placement import copies_inside
from analyzer.record.analysis import Analysis, PlanResult, TransferItem
from analyzer.record.batch_ranges import has_batch
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.report import capacity_words as words
from analyzer.report.compare.comparison import Better, ComparedFact, ComparedFigure, ErrorParts
from analyzer.units import UNKNOWN, count, seconds, share

PLANS = {"cpu": "on the CPU", "gpu": "on the GPU", "hybrid": "of the best plan"}
_Facts = Sequence[tuple[str, str, Callable[[Any], object]]]

# --- facts: key, label, and how the part of a record says it ---------------------------------------------


def _runs(analysis: Analysis) -> str:
    if analysis.generation is not None:
        return "generation"
    return "training step" if analysis.model.training else "inference"


def _tokens(plan: CapacityResult) -> str:
    if plan.prompt_tokens is None or plan.output_tokens is None:
        return ""
    return f"{words.requested(plan.prompt_tokens)} and {words.requested(plan.output_tokens)}"


def _of_best(plan: CapacityResult, say: Callable[[CapacityOption], str]) -> str:
    return "none keeps the limit" if plan.best_option is None else say(plan.best_option)


_MODEL: _Facts = (
    ("model.name", "model", lambda one: one.model.name),
    ("model.opset", "opset", lambda one: one.model.opset),
    ("model.batch", "batch", lambda one: one.model.batch if has_batch(one) else "none"),
    ("model.precision", "precision", lambda one: one.model.precision),
    ("model.training", "runs", _runs),
)
_REQUESTS = {"inference": "one inference", "generation": "a prompt that is answered"}
_CAPACITY: _Facts = (
    ("capacity.rate_per_s", "requests/s", lambda plan: words.requested(plan.rate_per_s)),
    ("capacity.requests", "a request is", lambda plan: _REQUESTS[plan.requests]),
    ("capacity.tokens", "tokens in and out", _tokens),
    ("capacity.tpot_limit_s", "limit of each further token", lambda plan: seconds(plan.tpot_limit_s)),
    ("capacity.limit_s", "limit", lambda plan: f"{words.limited_name(plan)} within {seconds(plan.limit_s)}"),
    ("capacity.arrivals", "arrivals", lambda plan: plan.arrivals),
    ("capacity.growth", "growth", lambda plan: f"{words.requested(plan.growth)}x"),
    ("capacity.headroom", "headroom", lambda plan: share(plan.headroom)),
    ("capacity.spare", "instances that may fail", lambda plan: plan.spare),
    ("capacity.pricing", "paid", lambda plan: words.way(plan.pricing)),
    ("capacity.best", "cheapest instance", lambda plan: _of_best(plan, words.where)),
    ("capacity.batching", "batching", lambda plan: _of_best(plan, lambda best: words.formed(plan, best))),
)
_GENERATION: _Facts = (
    ("generation.prompt_tokens", "tokens in", lambda request: count(request.prompt_tokens)),
    ("generation.output_tokens", "tokens out", lambda request: count(request.output_tokens)),
    ("generation.gpus", "GPUs", lambda request: request.gpus),
    ("generation.weights", "weights", lambda request: request.weights),
    ("generation.kv", "cache", lambda request: request.kv),
    ("generation.launch", "launch", lambda request: request.launch),
    ("generation.fits", "fits in memory", lambda request: "yes" if request.memory.fits else "no"),
)
_DEVICES: _Facts = (
    ("devices.cpu", "CPU", lambda one: one.devices.cpu.name),
    ("devices.gpu", "GPU", lambda one: one.devices.gpu.name if one.devices.gpu else "none"),
    ("verdict.objective", "decided for", lambda one: one.verdict.objective),
    ("verdict.device", "verdict", lambda one: one.verdict.device or "none"),
)
_ENVIRONMENT: _Facts = (
    ("tool.version", "analyze", lambda one: one.tool.version),
    ("environment.platform", "system", lambda one: one.environment.platform),
    ("environment.cpu", "processor", lambda one: one.environment.cpu),
    ("environment.threads", "threads", lambda one: one.environment.threads),
    ("environment.warmup_runs", "warm-up runs", lambda one: one.environment.warmup_runs),
    ("environment.runs", "runs", lambda one: one.environment.runs),
    ("onnxruntime", "placed by ONNX Runtime", lambda one: one.onnxruntime),
    ("model.exporter", "exporter", lambda one: one.model.exporter),
    ("devices.cpu.origin", "CPU's figures", lambda one: one.devices.cpu.origin),
    ("environment.date", "date", lambda one: one.environment.date),
)


def facts(analyses: Sequence[Analysis]) -> tuple[ComparedFact, ...]:
    """Return what was asked and answered; what no record knows is left out."""
    return (
        *_facts(analyses, _MODEL),
        *_facts([one.capacity for one in analyses], _CAPACITY),
        *_facts([one.generation for one in analyses], _GENERATION),
        *_facts(analyses, _DEVICES),
    )


def environment(analyses: Sequence[Analysis]) -> tuple[ComparedFact, ...]:
    """Return versions, machines and how was measured; what no record knows is left out."""
    # The program's own version has a row already.
    packages = sorted({name for one in analyses for name in one.environment.versions} - {"analyzer"})
    versions = [one.environment.versions for one in analyses]
    return (
        *_facts(analyses, _ENVIRONMENT),
        *_facts(
            versions,
            [(f"environment.versions.{name}", name, methodcaller("get", name)) for name in packages],
        ),
    )


def _facts(parts: Sequence[object | None], named: _Facts) -> Iterator[ComparedFact]:
    for key, label, read in named:
        result = [None if part is None else read(part) for part in parts]
        values = tuple(UNKNOWN if value in (None, "") else str(value) for value in result)
        if set(values) != {UNKNOWN}:
            yield ComparedFact(key=key, label=label, values=values)


# --- which records answer the same question, so that more or less of a figure is better -------------------


def one_batch(analyses: Sequence[Analysis]) -> bool:
    """Return whether latencies can be compared: of different batches there is more work in the one."""
    return len({one.model.batch for one in analyses}) < 2


def same_request(analyses: Sequence[Analysis]) -> bool:
    """Return whether all records that generate were asked for the same tokens."""
    questions = {
        (one.prompt_tokens, one.output_tokens, one.batch) for one in _known(one.generation for one in analyses)
    }
    return len(questions) < 2


def same_service(analyses: Sequence[Analysis]) -> bool:
    """Return whether all plans are for the same traffic within the same limit."""
    questions = {
        (
            words.planned(one),
            one.percentile,
            one.limit_s,
            (one.requests, one.tpot_limit_s, one.prompt_tokens, one.output_tokens),
            one.arrivals,
            one.headroom,
            one.spare,
        )
        for one in _known(one.capacity for one in analyses)
    }
    return len(questions) < 2


def _same_limit(analyses: Sequence[Analysis]) -> bool:
    limits = {(one.percentile, one.limit_s) for one in _known(one.capacity for one in analyses)}
    return len(limits) < 2 and _one_kind(analyses)


def _one_kind(analyses: Sequence[Analysis]) -> bool:
    # Of two kinds of instances neither more nor fewer are better, nor is what one of them takes.
    rented = {
        (one.provider, one.instance, one.device, one.width) for one in _known(map(_best_option, analyses))
    }
    return len(rented) < 2


def _best_option(analysis: Analysis) -> CapacityOption | None:
    return None if analysis.capacity is None else analysis.capacity.best_option


def _known(parts: Any) -> list[Any]:
    return [part for part in parts if part is not None]


# --- figures ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """A figure of a comparison.

    Attributes:
        key, label, unit: As in ``ComparedFigure``.
        better: Whether ``less`` or ``more`` of it is, ...
        among: ... and among which records that can be said.
        read: Its name in its part of a record, or how it is read there; empty for the key's last word.
        ends: The name of both ends of its interval, ``{}`` for ``low`` and ``high``; empty where it has none.
        origin: The name of its origin; where no record knows it, there is no interval either.
        time: Of a rate the name of the time that these are the ends of.
        like: The name of a figure in whose ratio it is, and whose ends these are.
        shared: What plans must have in common so that predictions for the same devices err in it together.
    """

    key: str
    label: str
    unit: str = ""
    better: Better = ""
    among: Callable[[Sequence[Analysis]], bool] = bool
    read: str | Callable[[Any], float | None] = ""
    ends: str = ""
    origin: str = ""
    time: str = ""
    like: str = ""
    shared: Callable[[PlanResult], object] | None = None

    def compared(self, analyses: Sequence[Analysis], parts: Sequence[object | None]) -> ComparedFigure:
        """Return the figure of these parts, None where a record has no such part."""

        def by_record(read: str | Callable[[Any], Any]) -> tuple[Any, ...]:
            get = attrgetter(read) if isinstance(read, str) else read
            return tuple(None if part is None else get(part) for part in parts)

        values = by_record(self.read or self.key.rpartition(".")[2])
        origins = tuple(each or "" for each in by_record(self.origin)) if self.origin else ()
        low: tuple[Any, ...] = ()
        high: tuple[Any, ...] = ()
        if self.ends and (not self.origin or any(origins)):
            low, high = (by_record(self.ends.format(end)) for end in ("low", "high"))
        # A rate times its time is the amount, which the record may not know by itself.
        if self.time and low:
            low, high = (tuple(map(_in_ratio, values, by_record(self.time), end)) for end in (high, low))
        if self.like and low:
            low, high = (tuple(map(_in_ratio, values, end, by_record(self.like))) for end in (low, high))
        return ComparedFigure(
            key=self.key,
            label=self.label,
            unit=self.unit,
            values=values,
            origins=origins if any(origins) else (),
            low=low,
            high=high,
            better=self.better if self.among(analyses) else "",
            parts=() if self.shared is None else _error_parts(analyses, parts, self.shared),
        )


def _error_parts(
    analyses: Sequence[Analysis], plans: Sequence[Any], shared: Callable[[PlanResult], object]
) -> tuple[tuple[object, ErrorParts] | None, ...]:
    """Return what predicted times are made of, each with the devices and machine that two must share."""
    return tuple(
        ((one.devices.cpu.name, one.devices.gpu and one.devices.gpu.name, shared(plan)), _parts_of(one, plan))
        if plan is not None and plan.origin == "predicted"
        else None
        for one, plan in zip(analyses, plans, strict=True)
    )


def _parts_of(analysis: Analysis, plan: PlanResult) -> ErrorParts:
    parts: dict[tuple[str, ...], tuple[float, float]] = {}

    def add(kind: tuple[str, ...], time_s: float, low_s: float | None, high_s: float | None) -> None:
        before, error = parts.get(kind, (0.0, 0.0))
        own = math.log(high_s / low_s) / 2 if low_s and high_s else math.log(10)
        parts[kind] = (before + time_s, max(error, own))

    for operator in analysis.operators:
        side = operator.placement if plan.name == "hybrid" else plan.name
        time = operator.cpu if side == "cpu" else operator.gpu
        if time is not None and time.time_s:
            add((side, operator.op_type, time.bound or ""), time.time_s, time.low_s, time.high_s)
    rest = plan.latency_s - sum(time for time, _ in parts.values())
    if rest > 0:
        add(("rest",), rest, plan.low_s, plan.high_s)
    return parts


def _in_ratio(value: float | None, one: float | None, other: float | None) -> float | None:
    """Return a value in the ratio of two others."""
    if value is None or one is None or not other:
        return None
    result = value * one / other
    return result if math.isfinite(result) else None  # of a foreign record, whose interval has no end


def _inside(read: Callable[[Sequence[TransferItem]], int]) -> Callable[[Analysis], int | None]:
    # Without a CUDA session there is no graph to copy inside of: not known, and not 0.
    return lambda one: None if one.plan("gpu") is None else read(copies_inside(one))


def _service(waiting: str) -> Iterator[_Row]:
    """Yield number, dollars, latencies and rate of the cheapest instances that keep a record's limit."""
    less: dict[str, Any] = {"better": "less", "among": same_service, "origin": "origin"}
    million = "dollars per million"
    yield _Row("capacity.usd_per_month", "dollars a month", "$", ends="{}_usd_per_month", **less)
    month: dict[str, Any] = {"ends": "{}_usd_per_month", "like": "usd_per_month"}
    yield _Row("capacity.usd_per_million", f"{million} requests", "$", **month, **less)
    yield _Row("capacity.usd_per_million_tokens", f"{million} output tokens", "$", **less)
    yield _Row(
        "capacity.count",
        "instances",
        ends="{}_count",
        **less | {"among": lambda all_: same_service(all_) and _one_kind(all_)},
    )
    yield _Row(
        *("capacity.highest_rate_per_s", "highest rate of one instance", "/s", "more", _same_limit),
        ends="{}_rate_per_s",
        origin="origin",
    )
    yield _Row("capacity.p50_s", f"p50 {waiting} under load", "s", **less)
    yield _Row("capacity.p99_s", f"p99 {waiting} under load", "s", **less)
    yield _Row("capacity.tpot_p99_s", "p99 of each further token", "s", **less)
    yield _Row("capacity.tokens_per_s", "tokens per second of all", "/s", origin="origin")


def _request() -> Iterator[_Row]:
    """Yield times, tokens a second, dollars, joules, memory and room of a model that generates."""
    for key, label in (
        ("ttft", "time to first token"),
        ("tpot", "time of each further token"),
        ("request", "whole request"),
    ):
        ends = f"{key}_{{}}_s"
        yield _Row(f"generation.{key}_s", label, "s", "less", same_request, ends=ends, origin="origin")
    rate: dict[str, Any] = {"ends": "request_{}_s", "origin": "origin", "time": "request_s"}
    yield _Row("generation.tokens_per_s", "tokens per second", "/s", "more", **rate)
    yield _Row("generation.usd_per_million_tokens", "dollars per million tokens", "$", "less")
    yield _Row("generation.joules_per_token", "energy per token", "J", "less")
    yield _Row("generation.memory_bytes", "memory of the request", "B", "less", read="memory.total_bytes")
    yield _Row("generation.largest_batch", "largest batch", "", "more")
    yield _Row("generation.longest_context", "longest context", "", "more")


def _plan(name: str) -> Iterator[_Row]:
    """Yield a plan's latency, throughput, memory, dollars and joules.

    Dollars and joules have intervals of their own: they may be of another machine, or of parts of different
    power.
    """
    key, where = f"plans.{name}.", PLANS[name]
    time: dict[str, Any] = {"ends": "{}_s", "origin": "origin", "shared": lambda _: None}
    yield _Row(f"{key}latency_s", f"latency {where}", "s", "less", one_batch, **time)
    yield _Row(f"{key}throughput_per_s", f"throughput {where}", "/s", "more", time="latency_s", **time)
    yield _Row(f"{key}memory_bytes", f"memory {where}", "B", "less")
    dollars: dict[str, Any] = {
        "ends": "usd_{}_per_million",
        "origin": "usd_origin",
        "shared": lambda plan: plan.machine,
    }
    yield _Row(f"{key}usd_per_million", f"dollars per million {where}", "$", "less", **dollars)
    joules: dict[str, Any] = {"ends": "energy_{}_j", "origin": "energy_origin", "shared": lambda _: None}
    yield _Row(f"{key}energy_j", f"energy for each {where}", "J", "less", **joules)


_VERDICT = (
    _Row("verdict.speedup", "speed-up of the GPU", "x", ends="{}"),
    # Neither more nor less is better: it says where the question tips, not how fast anything is.
    _Row("verdict.crossover_batch", "GPU wins from batch"),
)
_WORK = (
    _Row("copies", "copies inside the graph", "", "less", read=_inside(len)),
    _Row(
        *("copy_bytes", "bytes of these copies", "B", "less"),
        read=_inside(lambda copies: sum(copy.bytes or 0 for copy in copies)),
    ),
    # Less work is no gain by itself: another model, precision or batch may be what was wanted.
    _Row("totals.flops", "FLOPs", "FLOP", read="totals.flops"),
    _Row("totals.bytes", "bytes moved", "B", read=lambda one: one.totals.bytes_read + one.totals.bytes_written),
    _Row("totals.peak_memory_bytes", "peak of activations", "B", "less", read="totals.peak_memory_bytes"),
    _Row("model.parameter_bytes", "weights", "B", read="model.parameter_bytes"),
    _Row("totals.operators", "operators", read="totals.operators"),
    _Row("findings", "findings", "", "less", read=lambda one: len(one.findings)),
)


def figures(analyses: Sequence[Analysis]) -> tuple[ComparedFigure, ...]:
    """Return services, requests, plans, verdict and work; a figure that no record knows is left out."""
    # Of models that generate alone: else it is not the same latency on both sides.
    generate = all(one.capacity is not None and words.generates(one.capacity) for one in analyses)
    groups: tuple[tuple[Iterable[_Row], Callable[[Analysis], object | None]], ...] = (
        (_service("to the first token" if generate else "latency"), _best_option),
        (_request(), lambda one: one.generation),
        *((_plan(name), methodcaller("plan", name)) for name in PLANS),
        (_VERDICT, lambda one: one.verdict),
        (_WORK, lambda one: one),
    )
    result = (row.compared(analyses, [part(one) for one in analyses]) for rows, part in groups for row in rows)
    return tuple(each for each in result if any(value is not None for value in each.values))


def of_plans(analyses: Sequence[Analysis], plans: Sequence[PlanResult | None], name: str) -> ComparedFigure:
    """Return the figure of this name (``latency_s``) of one plan of each record."""
    row = next(row for row in _plan("hybrid") if row.key.endswith(f".{name}"))
    return row.compared(analyses, plans)


def worth_a_row(figure: ComparedFigure) -> bool:
    """Return whether a table for people needs it: the bytes of no copies at all are none."""
    return figure.key != "copy_bytes" or any(figure.values)


def notes(analyses: Sequence[Analysis]) -> tuple[str, ...]:
    """Return what a reader must know before comparing."""
    base = analyses[0]
    capacity, generation = ([getattr(one, name) for one in analyses] for name in ("capacity", "generation"))
    # Of the CPU's plan alone, which is measured or predicted as a whole; the table tells each figure's origin.
    origins = {plan.origin for one in analyses for plan in one.plans if plan.name == "cpu"}
    sentences = {
        "the records are of different models; operators are matched where module path and type agree": any(
            one.model.name != base.model.name for one in analyses
        ),
        "the batches differ: a latency is that of a whole batch, so compare throughput, dollars and energy; "
        "operators' times are those of one inference": not one_batch(analyses),
        "the precisions differ: the records may not compute the same numbers": any(
            one.model.precision != base.model.precision for one in analyses
        ),
        f"CPU times are {' in one record and '.join(sorted(origins))} in another": len(origins) > 1,
        "operators, plans and verdict are those of one decode step": any(generation),
        "the requests differ in tokens or batch: compare tokens per second and dollars, not times": (
            not same_request(analyses)
        ),
        "not every record is of a model that generates": any(generation) and not all(generation),
        # Of a model that generates they are a decode step's, which is said already.
        "operators, plans and verdict are those of one batch": any(
            one.capacity and not one.generation for one in analyses
        ),
        "the plans differ in traffic or limit: compare dollars per million requests, not dollars a month": (
            not same_service(analyses)
        ),
        "not every record plans a capacity": any(capacity) and not all(capacity),
    }
    return tuple(text for text, holds in sentences.items() if holds)
