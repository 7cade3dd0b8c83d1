"""Reporting: the answer in words, as every format for people shows it first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analyzer.checks.phrases import source_location, tensor_bytes
from analyzer.precision import peak_type
from analyzer.record.analysis import (
    LEFT_OUT,
    UNROLLED,
    Analysis,
    CpuTime,
    DeviceInfo,
    GpuTime,
    OperatorResult,
    OperatorVerdict,
    PlanResult,
    TensorInfo,
    VerdictResult,
)
from analyzer.record.batch_ranges import about, interval_words, who_wins
from analyzer.record.notes import DECIDE_SIZES, is_least, rests_on_fill, without_trips
from analyzer.text import first_few, listed, middle_cut, module_cut, plural
from analyzer.units import (
    UNKNOWN,
    byte_count,
    digits,
    dollars,
    factor,
    flop_count,
    rate,
    seconds,
    share,
    with_prefix,
)

Time = CpuTime | GpuTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How an origin is shown, and what it means."""

    name: str
    sign: str
    meaning: str


MARKS = {
    mark.name: mark
    for mark in (
        Mark(name="measured", sign="●", meaning="timed with ONNX Runtime on the machine named under Method"),
        Mark(
            name="predicted",
            sign="○",
            meaning="computed from the counts and the device's data sheet or calibration; nothing was run",
        ),
        Mark(
            name="mixed",
            sign="◐",
            meaning=(
                "made of measured and predicted parts; of an operator, its share of what a measured group "
                "took, or what it took in another session"
            ),
        ),
        Mark(
            name="modelled",
            sign="≈",
            meaning="a count that rests on an assumption, which the operator's note names",
        ),
    )
}
PLAN_TITLES = {"cpu": "CPU", "gpu": "GPU", "hybrid": "Best plan"}
SPLIT = "Split"
_NO_MACHINE_CODE = "It cannot run: ONNX Runtime's release wheel has no machine code for this GPU."
VERDICT_WORDS = {"cpu": "CPU", "gpu": "GPU", "hybrid": "CPU and GPU", "either": "Either"}
_DEVICES = {"cpu": "CPU", "gpu": "GPU", "either": "either"}
# Why an operator's verdict is another than its two times say, by ``decision.operator_verdicts.REASONS``.
_ASIDES = {
    "transfer-bound": "copies",
    "data-on-gpu": "neighbours",
    "gpu-memory": "no room",
    "energy": "energy",
    "fused": "neighbours",
    "pinned": "pinned",
    "no-session": "no session",
    "shape-arithmetic": "shapes",
    "no-cuda-kernel": "no kernel",
    "no-kernel-for-opset": "no kernel",
    "no-kernel-for-type": "no kernel",
    "capability": "no kernel",
}
# What runs nowhere, or in no time, or in a time that nobody knows, is on neither.
_NOWHERE = {"folded": "folded", "free": "free", "unknown": "not known", "no-kernel": "no kernel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCard:
    """A plan as people read it; every figure is text, ``–`` where it is not known."""

    name: str
    title: str
    device: str
    chosen: bool
    latency: str
    interval: str
    throughput: str
    memory: str
    fits: bool
    dollars: str
    dollars_interval: str
    dollars_origin: str
    instance: str
    rented: str
    energy: str
    energy_interval: str
    energy_of: str
    energy_origin: str
    origin: str
    copies: str
    operators: str
    why: str
    twin: bool


# Letters of the page's first column, and those of a place beside a long type.
_ROOM_OF_NAMES, _LEAST_ROOM = 28, 14


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOperator:
    """One of the operators that matter, or all of a type; ``share`` is of all operators' time in the best plan.

    ``count`` says how many they are; ``index`` is the first of them, ``share`` between 0 and 1.
    """

    count: int = 1
    index: int
    name: str
    op_type: str
    module: str
    where: str
    code: str
    cpu: str
    cpu_origin: str
    gpu: str
    gpu_origin: str
    share: float | None
    share_text: str
    bound: str
    placement: str
    device: str
    verdict_parts: tuple[str, str]
    speedup: str
    explanation: str

    @property
    def label(self) -> str:
        """``Gemm #7``, or ``Gemm`` of all of a type."""
        return self.op_type if self.count > 1 else f"{self.op_type} #{self.index}"

    @property
    def place(self) -> str:
        """Where it is in the model; of all of a type how many they are."""
        return f"{self.count:,} operators" if self.count > 1 else self.module or self.code or self.where

    @property
    def short_place(self) -> str:
        """The same in the room that the page has for it: layers have their beginnings in common."""
        room = max(_ROOM_OF_NAMES - len(self.op_type), _LEAST_ROOM)
        of_module = self.count == 1 and bool(self.module)
        return module_cut(self.place, room) if of_module else middle_cut(self.place, room)

    @property
    def verdict(self) -> str:
        """``GPU``, ``CPU (no room)``, ``folded``: the verdict in one piece; its row cannot contradict it."""
        word, aside = self.verdict_parts
        return f"{word} ({aside})" if aside else word


def bound_of(operator: OperatorResult, time: Time | None) -> str:
    """What limits an operator on one side; nothing limits what does not run or takes no time."""
    if time is None or time.time_s == 0 or operator.verdict.reason in _NOWHERE:
        return ""
    return time.bound or ""


def operator_words(verdict: OperatorVerdict) -> tuple[str, str]:
    """The verdict: the device, or that it runs nowhere; and why in spite of the times, or empty."""
    if verdict.reason in _NOWHERE:
        return _NOWHERE[verdict.reason], ""
    return _DEVICES[verdict.device], _ASIDES.get(verdict.reason, "")


def best_plan(analysis: Analysis) -> PlanResult | None:
    """The best plan that a record has: of ``gpu="none"`` it holds the CPU's alone; None where it cannot run."""
    plan = analysis.plan("hybrid") or analysis.plan("gpu") or analysis.plan("cpu")
    return plan if plan is not None and plan.fits else None


def whose_time(analysis: Analysis) -> str:
    """``the best plan's time``; of a model that has room nowhere no plan is the best."""
    return "the time" if analysis.plans and best_plan(analysis) is None else "the best plan's time"


def time_in_plan(operator: OperatorResult) -> float | None:
    """The operator's time where the best plan puts it."""
    time: Time | None = operator.cpu if operator.placement == "cpu" else operator.gpu
    return None if time is None else time.time_s


def top_operators(analysis: Analysis, count: int = 10) -> tuple[TopOperator, ...]:
    """The operators that take most of the best plan's time; by FLOPs where no time is known.

    Where so many of them together have less than half of it, or most of them are small and much of it is in
    none, the types that take most, each as a whole: rows of 1 % each would hide what the time goes to.
    """
    timed = [operator for operator in analysis.operators if time_in_plan(operator) is not None]
    # By index among equals: blocks of a network repeat, and the order must not depend on the sort.
    if timed:
        total = sum(time_in_plan(operator) or 0.0 for operator in timed)
        ranked = sorted(timed, key=lambda operator: (-(time_in_plan(operator) or 0.0), operator.index))
    else:
        total = 0.0
        ranked = sorted(analysis.operators, key=lambda operator: (-(operator.flops or 0), operator.index))
    if total and _hides_much([(time_in_plan(operator) or 0.0) / total for operator in ranked[:count]]):
        return _top_types(ranked, total)[:count]
    return tuple(_top_operator(operator, total) for operator in ranked[:count])


def _hides_much(shares: Sequence[float]) -> bool:
    """Whether rows of these shares say little about where the time goes."""
    shown, small = sum(shares), sum(one < _SMALL_ROW for one in shares)
    return shown < _MOST_SHOWN or (small > len(shares) / 2 and 1 - shown > _MUCH_HIDDEN)


# Of the time: what rows of operators must show, what a row is small below, and what is much to be in none.
# Judgements.
_MOST_SHOWN, _SMALL_ROW, _MUCH_HIDDEN = 0.5, 0.02, 0.1


def top_title(top: Sequence[TopOperator], analysis: Analysis) -> str:
    """``What takes the best plan's time``, and that its rows are of types where they are."""
    if not top or top[0].share is None:
        return "The operators that compute most"
    return f"What takes {whose_time(analysis)}{by_type_words(top)}"


def by_type_words(top: Sequence[TopOperator]) -> str:
    """What a heading says behind it where its rows are of types."""
    return ", by type of operator" if any(row.count > 1 for row in top) else ""


def _top_types(ranked: Sequence[OperatorResult], total_s: float) -> tuple[TopOperator, ...]:
    by_type: dict[tuple[str, str], list[OperatorResult]] = {}
    for operator in ranked:
        by_type.setdefault((operator.domain, operator.op_type), []).append(operator)
    rows = [_top_type(operators, total_s) for operators in by_type.values()]
    return tuple(sorted(rows, key=lambda row: (-(row.share or 0.0), row.index)))


def _top_type(operators: Sequence[OperatorResult], total_s: float) -> TopOperator:
    """All operators of a type as one row; a type of one operator is that operator."""
    first = _top_operator(operators[0], total_s)
    if len(operators) == 1:
        return first
    on_cpu = [each.cpu for each in operators if each.cpu.time_s is not None]
    on_gpu = [each.gpu for each in operators if each.gpu is not None and each.gpu.time_s is not None]
    cpu_s = sum(time.time_s or 0.0 for time in on_cpu) if on_cpu else None
    gpu_s = sum(time.time_s or 0.0 for time in on_gpu) if on_gpu else None
    of_total = sum(time_in_plan(each) or 0.0 for each in operators) / total_s
    # The verdict that most of the time has; how much of it where that is not all.
    by_verdict: dict[tuple[str, str], float] = {}
    for each in operators:
        words = operator_words(each.verdict)
        by_verdict[words] = by_verdict.get(words, 0.0) + (time_in_plan(each) or 0.0)
    words, spent = max(by_verdict.items(), key=lambda pair: pair[1])
    device = next(each.verdict.device for each in operators if operator_words(each.verdict) == words)
    of_type = of_total * total_s
    aside = "" if not of_type or spent >= of_type * (1 - 1e-9) else f"{share(spent / of_type)} of its time"
    return replace(
        first,
        count=len(operators),
        index=min(each.index for each in operators),
        name="",
        module="",
        where="",
        code="",
        cpu=seconds(cpu_s),
        cpu_origin=_origin_of(on_cpu),
        gpu=seconds(gpu_s),
        gpu_origin=_origin_of(on_gpu),
        share=of_total,
        share_text=share(of_total),
        bound="",
        device=device,
        verdict_parts=(words[0], aside or words[1]),
        speedup=factor(cpu_s / gpu_s if cpu_s is not None and gpu_s else None),
        explanation=f"{len(operators):,} operators of this type",
    )


def _origin_of(times: Sequence[Time]) -> str:
    origins = {time.origin for time in times}
    return next(iter(origins), "") if len(origins) < 2 else "mixed"


def _top_operator(operator: OperatorResult, total_s: float) -> TopOperator:
    time_s = time_in_plan(operator)
    of_total = None if time_s is None or not total_s else time_s / total_s
    time = operator.cpu if operator.placement == "cpu" or operator.gpu is None else operator.gpu
    return TopOperator(
        index=operator.index,
        name=operator.name,
        op_type=operator.op_type,
        module=operator.module,
        where=source_location(operator),
        code=operator.source.code if operator.source else "",
        cpu=seconds(operator.cpu.time_s),
        # A figure that is not known comes from nowhere.
        cpu_origin=operator.cpu.origin if operator.cpu.time_s is not None else "",
        gpu=seconds(operator.gpu.time_s) if operator.gpu else UNKNOWN,
        gpu_origin=operator.gpu.origin if operator.gpu and operator.gpu.time_s is not None else "",
        share=of_total,
        share_text=share(of_total),
        bound=bound_of(operator, time),
        placement=operator.placement,
        device=operator.verdict.device,
        verdict_parts=operator_words(operator.verdict),
        speedup=factor(operator.verdict.speedup),
        explanation=operator.verdict.explanation or operator.verdict.reason,
    )


def sentence(analysis: Analysis) -> str:
    """The verdict as a sentence."""
    verdict, devices = analysis.verdict, analysis.devices
    # Records of older versions hold no sentence: one without figures is made of what they do hold.
    if verdict.sentence:
        return verdict.sentence
    if not analysis.operators:
        return "The model has no operators: there is nothing to decide."
    gpu = devices.gpu.name if devices.gpu else "GPU"
    place = {"cpu": devices.cpu.name, "gpu": gpu, "hybrid": f"{devices.cpu.name} and {gpu} together"}
    if verdict.device == "either":
        return f"Either will do: {devices.cpu.name} and {gpu} are too close to call."
    return f"Run it on {place[verdict.device]}."


def measure_again(analysis: Analysis) -> str:
    """What goes before an answer that other processes have spoilt; empty where they have not."""
    measured = analysis.environment.measurement.get("cpu")
    busy = isinstance(measured, Mapping) and measured.get("busy") is True
    low, high = analysis.verdict.low, analysis.verdict.high
    if not busy or not low or not high:
        return ""
    # Which device it is may be clear all the same; a time that may be a third of what is said is not.
    if any(plan.low_s and (plan.high_s or 0.0) > _STILL_A_TIME * plan.low_s for plan in _timed(analysis)):
        return _MEASURE_AGAIN
    # What is clear in spite of them is.
    if low > 1 or high < 1:
        return "" if high <= _STILL_CLEAR * low else _MEASURE_AGAIN
    return _MEASURE_AGAIN


def rests_on_guesses(analysis: Analysis) -> str:
    """What goes before an answer for sizes that nobody knows; empty where all are known."""
    filled = any(rests_on_fill(operator.note) for operator in analysis.operators)
    return "Some sizes are guessed." if filled or open_sizes(analysis) else ""


def rented_cpu_is_better(analysis: Analysis) -> bool:
    """Whether a CPU that can be rented beats the GPU which the verdict is for: of two devices alone it is."""
    ranking = analysis.ranking
    if ranking is None or ranking.best is None or analysis.verdict.device not in ("gpu", "hybrid"):
        return False
    best = ranking.candidates[ranking.best]
    return best.kind == "cpu" and not best.named


def _timed(analysis: Analysis) -> Iterator[PlanResult]:
    """Plans that rest on a run of the CPU alone."""
    return (plan for plan in analysis.plans if plan.name == "cpu" and plan.origin == "measured")


_STILL_A_TIME = 2.5  # times, from one end of a measured time's interval to the other
_STILL_CLEAR = 10.0  # times, from one end of a speed-up's interval to the other
# Why stands in the message on the measurement.
_MEASURE_AGAIN = "Measure again on a quiet machine: this answer is rough."


def confidence(analysis: Analysis) -> str:
    """How much and how sure, in one line; empty without a GPU, or where a plan has no room to run."""
    verdict = analysis.verdict
    # A ratio to a plan that has no room to run would be one to nothing.
    if verdict.speedup is None or not all(plan.fits for plan in analysis.plans) or _nothing_on_gpu(analysis):
        return ""
    ratio = verdict.speedup if verdict.speedup >= 1 else 1 / verdict.speedup
    first, second = ("GPU", "CPU") if verdict.speedup >= 1 else ("CPU", "GPU")
    text = f"The {first} plan is {factor(ratio)} as fast as the {second} plan"
    if not verdict.low or not verdict.high:
        return f"{text}; no interval is known."
    # ``speedup`` is CPU over GPU, always: where the CPU wins, the reciprocal is said, its interval turned over.
    ends = sorted((verdict.low, verdict.high) if verdict.speedup >= 1 else (1 / verdict.high, 1 / verdict.low))
    interval = f"{factor(ends[0])} to {factor(ends[1])}"
    # The sentence above has it in brackets: it is named there and not said again.
    if interval in verdict.sentence:
        return "The range in brackets is a 90 % interval."
    return f"{text} (90 % interval {interval})."


def reasons(analysis: Analysis) -> tuple[str, ...]:
    """Why, in up to three sentences; the short reason where there are none."""
    verdict = analysis.verdict
    return verdict.because or ((verdict.reason,) if verdict.reason else ())


def errors(analysis: Analysis) -> str:
    """The findings that are errors, in a sentence or two beside the answer; empty where there is none.

    A note can wait until a reader comes to the findings. That a model computes something else in ONNX Runtime,
    or half of it beside the GPU, cannot.
    """
    found = [finding for finding in analysis.findings if finding.severity == "error"]
    if not found:
        return ""
    # A list of copies names every tensor: all of it stands in the finding.
    said = textwrap.shorten(found[0].message.rstrip("."), _LONGEST_ERROR, placeholder=" …")
    rest = len(found) - 1
    more = f" {plural(rest, 'more error')} {'is' if rest == 1 else 'are'} among the findings." if rest else ""
    return f"Error {found[0].code}: {said}.{more}"


_LONGEST_ERROR = 200


def subject(analysis: Analysis) -> str:
    """What the verdict is for: ``batch 64, tf32, for latency``."""
    batch = f"batch {analysis.model.batch}, " if analysis.model.batch is not None else ""
    if not has_batch(analysis):
        batch = "per call, "
    step = "training step, " if analysis.model.training else ""
    return f"{batch}{step}{in_precision(analysis)}decided for {analysis.verdict.objective}"


def in_precision(analysis: Analysis) -> str:
    """``tf32, ``; empty where nothing multiplies matrices on a GPU, which alone TF32 is about."""
    precision = analysis.model.precision
    rounded = any(
        operator.macs and operator.gpu is not None and operator.gpu.placed_on == "cuda"
        for operator in analysis.operators
    )
    # Without counts nobody knows.
    counted = any(operator.macs is not None for operator in analysis.operators)
    return "" if precision == "tf32" and counted and not rounded else f"{precision}, "


def crossover(analysis: Analysis) -> str:
    """From which batch the GPU wins, as far as known."""
    verdict = analysis.verdict
    if analysis.devices.gpu is None or _nothing_on_gpu(analysis):
        return ""
    if len(analysis.sweep) > 1 and verdict.ranges:
        return _hedged(who_wins(verdict.ranges, verdict.crossover_batch), analysis)
    if not has_batch(analysis):
        return "Its inputs have no batch: there is none from which the GPU wins."
    if len({row.batch for row in analysis.sweep}) < 2:
        unknown = "The batch from which the GPU wins is not known: only one batch was analysed"
        return f"{unknown}{_to_analyse_several(analysis)}."
    # A record of a version that kept no ranges.
    if verdict.crossover_batch is not None:
        return f"The GPU wins from batch {verdict.crossover_batch} on."
    # None has two more meanings in the record: no room at any batch, or slower at all of them.
    largest = max(row.batch for row in analysis.sweep)
    on_gpu = [row.plans["gpu"] for row in analysis.sweep if "gpu" in row.plans]
    if not on_gpu:  # no session of a GPU can be made: the verdict's sentence says why
        return ""
    if not any(plan.fits for plan in on_gpu):
        return f"At no batch up to {largest} does the model fit into the GPU's memory."
    return f"The GPU wins at no batch up to {largest}."


def _to_analyse_several(analysis: Analysis) -> str:
    """What to ask for more batches; empty where that was asked already, or the file has one alone."""
    asked = analysis.invocation.options.get("batch", ()) if analysis.invocation is not None else ()
    batch = analysis.model.batch
    if batch is None or analysis.model.exporter in _FIXED_IN_FILES or any("," in text for text in asked):
        return ""
    # The first is the report's.
    return f" (--batch {batch},{1 if batch > 1 else 32} analyses several)"


# Exporters of files, whose one batch cannot be another.
_FIXED_IN_FILES = ("onnx", "pt2")


def _hedged(text: str, analysis: Analysis) -> str:
    """Who wins at which batch, with what that rests on: no surer than the answer that it stands beside."""
    if {part.device for part in analysis.verdict.ranges} == {"either"}:
        return text
    hedges = (
        ("of the two", rented_cpu_is_better(analysis)),
        ("with guessed sizes", rests_on_guesses(analysis)),
        ("by this rough measurement", measure_again(analysis)),
    )
    said = ", ".join(words for words, holds in hedges if holds)
    return f"{said[:1].upper()}{said[1:]}, {text[:1].lower()}{text[1:]}" if said else text


def crossover_batch(verdict: VerdictResult) -> str:
    """``12 (3 to 64)``: the batch from which the GPU is expected to win, and between which ones that lies."""
    doubt = interval_words(verdict)
    batch = verdict.crossover_batch
    return f"{UNKNOWN if batch is None else about(batch)}{f' ({doubt})' if doubt else ''}"


def _nothing_on_gpu(analysis: Analysis) -> bool:
    """Whether a CUDA session would run every operator on the CPU: there is nothing to compare at any batch."""
    groups = [group for group in analysis.groups if group.session == "cuda"]
    return bool(groups) and all(group.provider == "cpu" for group in groups)


def uses_gpu(analysis: Analysis) -> bool:
    """Whether a CUDA session computes anything on the GPU that counts: moving data alone fills no GPU."""
    on_gpu = [
        operator
        for operator in analysis.operators
        if operator.gpu is not None and operator.gpu.placed_on == "cuda"
    ]
    every = sum(operator.flops or 0 for operator in analysis.operators)
    computed = sum(operator.flops or 0 for operator in on_gpu)
    return bool(on_gpu) and (not every or computed >= _COMPUTES * every)


# Of the model's FLOPs, what a GPU computes that is said to be saturated.
_COMPUTES = 0.01


def batches(analysis: Analysis) -> str:
    """What is known over the batch: the crossover, where the GPU is saturated, what fits into its memory."""
    verdict = analysis.verdict
    largest = max((row.batch for row in analysis.sweep), default=0)
    sentences = [crossover(analysis)]
    if verdict.saturation_batch and uses_gpu(analysis):
        sentences.append(f"The GPU is saturated from batch {verdict.saturation_batch} on.")
        sentences.append(_falling_throughput(analysis))
    if verdict.largest_batch and verdict.largest_batch < largest:
        # Between the last that fits and the first that does not the largest is looked for, where it can be.
        seen = any(row.batch == verdict.largest_batch for row in analysis.sweep)
        of = f"Of the batches looked at {verdict.largest_batch}" if seen else f"Batch {verdict.largest_batch}"
        sentences.append(f"{of} is the largest that fits its memory.")
    return " ".join(filter(None, sentences))


def _falling_throughput(analysis: Analysis) -> str:
    """Where a GPU does less at larger batches than at its best one; empty where it keeps that rate."""
    fitting = [(row.batch, row.plans["gpu"]) for row in analysis.sweep if "gpu" in row.plans]
    rates = [(batch, plan.throughput_per_s) for batch, plan in fitting if plan.fits]
    best_at, best = max(rates, key=lambda pair: pair[1], default=(0, 0.0))
    fallen = next(((batch, one) for batch, one in rates if batch > best_at and one < _KEPT * best), None)
    if fallen is None:
        return ""
    return (
        f"It does most at batch {best_at}, {per_second(best)}, and {per_second(fallen[1])} at batch "
        f"{fallen[0]}: what outgrows a GPU's cache is read from its memory."
    )


# Of the best throughput, below what a larger batch is said to do less. A judgement.
_KEPT = 0.8


def energy_of(analysis: Analysis) -> str:
    """Whose watts the joules of the plans are; empty where none are known or the record does not tell."""
    by_machine: dict[str, list[str]] = {}
    for plan in analysis.plans:
        if plan.energy_of:
            by_machine.setdefault(plan.energy_of, []).append(_title(analysis, plan))
    parts = [f"{listed(titles)}: {machine}" for machine, titles in by_machine.items()]
    return f"Energy counts, idle to full, {'; '.join(parts)}." if parts else ""


def priced_on(analysis: Analysis) -> str:
    """Whose dollars those of the plans are; empty where none are known."""
    by_instance: dict[str, list[str]] = {}
    for plan in analysis.plans:
        if plan.usd_per_million is not None and plan.instance:
            by_instance.setdefault(_rented(analysis, plan), []).append(_title(analysis, plan))
    parts = [f"{listed(titles)}: {instance}" for instance, titles in by_instance.items()]
    return f"Dollars are of rented machines: {'; '.join(parts)}." if parts else ""


def _rented(analysis: Analysis, plan: PlanResult) -> str:
    """The instance whose dollars a plan has, and the time there where it is another: ``c1 (1.2 ms there)``."""
    every = () if analysis.ranking is None else analysis.ranking.candidates
    batch = analysis.model.batch
    there = next(
        (
            one.latency_s
            for one in every
            # The best plan may be the CPU's own, whose instances have that plan.
            if one.asked
            and one.batch == batch
            and one.plan == (twin(analysis, plan) or plan.name)
            and one.instance == plan.instance
        ),
        None,
    )
    if not plan.instance or there is None or seconds(there) == seconds(plan.latency_s):
        return plan.instance
    return f"{plan.instance} ({seconds(there)} there)"


def plan_cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """The plans side by side, in the record's order."""
    return tuple(_card(analysis, plan) for plan in analysis.plans)


def _card(analysis: Analysis, plan: PlanResult) -> PlanCard:
    transfers, same = plan.transfers, twin(analysis, plan)
    dollars_range, joules_range = _dollars(plan), _joules(plan)
    copies = "no copies"
    if transfers.count:
        amount = plural(transfers.count, "copy")
        copies = f"{amount}, {byte_count(transfers.bytes)}, {seconds(transfers.time_s)}"
    return PlanCard(
        name=plan.name,
        title=_title(analysis, plan),
        device=_runs_on(analysis, plan),
        # With no plan that fits, the verdict still names the better one: no card is marked then.
        chosen=analysis.verdict.device == plan.name and plan.fits,
        latency=seconds(plan.latency_s),
        interval=span(seconds(plan.low_s), seconds(plan.high_s)),
        throughput=per_second(plan.throughput_per_s),
        memory=byte_count(plan.memory_bytes),
        fits=plan.fits,
        dollars=dollars(plan.usd_per_million),
        dollars_interval=dollars_range[0],
        dollars_origin=dollars_range[1],
        instance=plan.instance,
        rented=_rented(analysis, plan),
        energy=joules(plan.energy_j),
        energy_interval=joules_range[0],
        energy_of=plan.energy_of,
        energy_origin=joules_range[1],
        origin=plan.origin,
        copies=copies,
        operators=_split(plan),
        why=_NO_MACHINE_CODE
        if _lacks_machine_code(analysis, plan)
        else plan.why or (f"The same as the {PLAN_TITLES[same]} plan." if same else ""),
        twin=bool(same),
    )


def _title(analysis: Analysis, plan: PlanResult) -> str:
    # What cannot run is the best of nothing.
    runs = plan.fits and not _lacks_machine_code(analysis, plan)
    return PLAN_TITLES[plan.name] if runs or plan.name != "hybrid" else SPLIT


def _lacks_machine_code(analysis: Analysis, plan: PlanResult) -> bool:
    gpu = analysis.devices.gpu
    return gpu is not None and not gpu.runs_release_wheel and plan.operators_on_gpu > 0


def _dollars(plan: PlanResult) -> tuple[str, str]:
    """Interval and origin of a plan's dollars; empty where a record of an older version does not tell."""
    low, high, value = plan.usd_low_per_million, plan.usd_high_per_million, plan.usd_per_million
    if value is not None and low is not None and high is not None:
        return span(dollars(low), dollars(high)), plan.usd_origin
    if value is None or not plan.operators_on_gpu or not plan.latency_s:
        return "", ""
    # Those versions priced what uses a GPU by its own latency everywhere; a plan of the CPU alone they did not.
    ends = (dollars(value * end / plan.latency_s) for end in (plan.low_s, plan.high_s))
    return span(*ends), plan.origin


def _joules(plan: PlanResult) -> tuple[str, str]:
    """Interval and origin of a plan's joules; empty where a record of an older version does not tell."""
    low, high = plan.energy_low_j, plan.energy_high_j
    if plan.energy_j is None or low is None or high is None:
        return "", ""
    return span(joules(low), joules(high)), plan.energy_origin


def sign(origin: str) -> str:
    """The sign of an origin; empty where the record does not tell it."""
    return MARKS[origin].sign if origin in MARKS else ""


def signed(origin: str) -> str:
    """The origin with its sign: ``● measured``."""
    return f"{MARKS[origin].sign} {origin}" if origin in MARKS else origin


def marked(figure: str, origin: str) -> str:
    """A figure with the sign of its origin; as it is where the origin is not known."""
    return f"{figure} {MARKS[origin].sign}" if origin in MARKS and figure != UNKNOWN else figure


def _runs_on(analysis: Analysis, plan: PlanResult) -> str:
    gpu, same = analysis.devices.gpu, twin(analysis, plan)
    if plan.name == "cpu" or gpu is None or same == "cpu":
        return analysis.devices.cpu.name
    if plan.name == "gpu" or same == "gpu":
        return gpu.name
    return f"{analysis.devices.cpu.name} + {gpu.name}"


def twin(analysis: Analysis, plan: PlanResult) -> str:
    """Which single-device plan the best plan turns out to be: ``cpu``, ``gpu`` or empty."""
    if plan.name != "hybrid":
        return ""
    for name in ("cpu", "gpu"):
        other = analysis.plan(name)
        # Exactly equal: a best plan that gains nothing takes over the figures of the single device.
        if other and (plan.latency_s, plan.operators_on_gpu) == (other.latency_s, other.operators_on_gpu):
            return name
    return ""


def _split(plan: PlanResult) -> str:
    sides = (("GPU", plan.operators_on_gpu), ("CPU", plan.operators_on_cpu))
    return ", ".join(f"{number} {side}" for side, number in sides if number)


def at_least(analysis: Analysis) -> str:
    """``at least`` where a total leaves out what nobody can count before the run, else nothing."""
    least = analysis.totals.coverage.unknown > 0 or any(is_least(one.note) for one in analysis.operators)
    return "at least " if least else ""


# Of the FLOPs of a run, from where on what is folded is told: a count of the plain model differs by it.
_FOLDED_TOLD = 0.01


def folded(analysis: Analysis) -> str:
    """What is computed once in place of in every run, for behind a count of FLOPs; empty where it is little."""
    flops = analysis.totals.folded_flops or 0
    if not flops or flops < _FOLDED_TOLD * analysis.totals.flops:
        return ""
    return f"{flop_count(flops)} more once, when the session is made"


def fused_bytes(analysis: Analysis) -> str:
    """Bytes moved where fused operators write nothing between them; empty where that changes no figure."""
    totals = analysis.totals
    if totals.fused_bytes_read is None or totals.fused_bytes_written is None:
        return ""
    told = byte_count(totals.fused_bytes_read + totals.fused_bytes_written)
    return "" if told == byte_count(totals.bytes_read + totals.bytes_written) else told


def open_sizes(analysis: Analysis) -> str:
    """Which sizes and trips nobody knows, in a few sentences for the headline; empty where all are known."""
    said = []
    assumed = analysis.model.assumed_sizes
    if assumed:
        sizes = first_few(f"{name} = {size}" for name, size in assumed.items())
        said.append(f"Nothing says how large the inputs are: this is for {sizes} (--input sets sizes).")
    number = sum(any(map(_is_open, operator.outputs)) for operator in analysis.operators)
    if number:
        every = plural(len(analysis.operators), "operator")
        said.append(f"The data decide the size of what {number:,} of {every} write: their times are guesses.")
    endless = [operator for operator in analysis.operators if without_trips(operator.note)]
    if endless:
        names = first_few(f"{operator.op_type} #{operator.index}" for operator in endless)
        run = "runs its body" if len(endless) == 1 else "run their bodies"
        said.append(f"The data decide how often {names} {run}: predictions allow for 1 to 10,000 times.")
    return " ".join(said)


def decided_sizes(analysis: Analysis) -> str:
    """Which inputs decide sizes and how these are known, in a few sentences; empty where none does."""
    return " ".join(note for note in analysis.model.notes if DECIDE_SIZES in note)


def inputs(analysis: Analysis) -> str:
    """``z 144, pos 144x3, edge_index 2x2,448; y was left out (None)``; empty of a model without inputs."""
    stays = {pair.input for pair in analysis.model.state}
    told = [f"{tensor.name} {_sizes(tensor)}" for tensor in analysis.model.inputs if tensor.name not in stays]
    if analysis.model.training:
        # The step's graph reads parameters and the optimizer's state as well: names of modules.
        told = [words for words in told if "." not in words.partition(" ")[0]]
    left_out = [note.partition(";")[0] for note in analysis.model.notes if LEFT_OUT in note]
    more = [f"{len(told) - _INPUTS_NAMED:,} more"] if len(told) > _INPUTS_NAMED else []
    return "; ".join(filter(None, (", ".join((*told[:_INPUTS_NAMED], *more)), *left_out)))


# A line has room for so many.
_INPUTS_NAMED = 6


def _sizes(tensor: TensorInfo) -> str:
    if tensor.shape is None:
        return "of any shape"
    return "x".join("?" if size is None else f"{size:,}" for size in tensor.shape) or "(a number)"


def inputs_line(analysis: Analysis) -> str:
    """The inputs as a sentence; empty where one input was guessed, which is told with its shape."""
    few = len(analysis.model.inputs) < 2
    told = "" if few and analysis.model.guessed_inputs else inputs(analysis)
    return f"Inputs: {told}." if told else ""


def assumed(analysis: Analysis) -> str:
    """Whose a training step is, and what it takes for granted that no file says: loss and optimizer."""
    if analysis.training is None:
        return ""
    return " ".join((whose_step(analysis), *analysis.training.assumed))


def whose_step(analysis: Analysis) -> str:
    """What runs the training step whose times are told; empty of an inference."""
    if analysis.training is None:
        return ""
    if any(UNROLLED in note for note in analysis.model.notes):
        recurrences = f"its recurrences are {UNROLLED}; PyTorch's own kernels (cuDNN) take less"
        return f"The step is ONNX Runtime's: {recurrences}."
    return "The step is ONNX Runtime's, not PyTorch's eager mode."


def examples(analysis: Analysis) -> str:
    """Of what dollars and throughput count one for each row of the batch."""
    return "examples of training" if analysis.model.training else "inferences"


def has_batch(analysis: Analysis) -> bool:
    """Whether an input has as many rows as the batch says; one call of a graph network has no batch of one."""
    shapes = [tensor.shape for tensor in analysis.model.inputs if tensor.shape is not None]
    return analysis.model.batch != 1 or not shapes or any(1 in shape or None in shape for shape in shapes)


def guessed_inputs(analysis: Analysis) -> str:
    """Which inputs nobody gave, in a sentence; empty where somebody did."""
    guessed = analysis.model.guessed_inputs
    if not guessed:
        return ""
    return f"Inputs guessed: {', '.join(guessed)} (--input says others)."


def state(analysis: Analysis) -> str:
    """Which inputs were taken for state, in a sentence; empty where none was."""
    names = [pair.input for pair in analysis.model.state]
    if not names:
        return ""
    named = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    said = "is state: it stays" if len(names) == 1 else "are state: they stay"
    whose = "its" if len(names) == 1 else "their"
    return (
        f"{plural(len(names), 'input')} ({named}) {said} on the device from run to run "
        f"(--no-state counts {whose} copies)."
    )


def _is_open(tensor: TensorInfo) -> bool:
    # A sequence has no shape by its nature.
    return (tensor.shape is None or None in tensor.shape) and "(" not in tensor.dtype


def missing(analysis: Analysis) -> tuple[str, ...]:
    """What the record does not hold, one sentence each: a report says so instead of showing a gap."""
    gaps = []
    if not analysis.operators:
        gaps.append("The model has no operators.")
    elif all(time_in_plan(operator) is None for operator in analysis.operators):
        gaps.append("No operator has a time: the record is a count of work alone.")
    if analysis.devices.gpu is None:
        gaps.append("No GPU was asked for, so there is nothing to compare the CPU with.")
    uncounted = [operator for operator in analysis.operators if operator.basis == "unknown"]
    if uncounted:
        types = sorted({f"{operator.domain}::{operator.op_type}" for operator in uncounted})
        shown = ", ".join(types[:5]) + (" and others" if len(types) > 5 else "")
        gaps.append(
            f"{len(uncounted)} of {len(analysis.operators)} operators have no known cost ({shown}): "
            "totals are lower bounds."
        )
    if analysis.plans and all(plan.memory_bytes is None for plan in analysis.plans):
        gaps.append(_without_memory(analysis))
    if not analysis.plans:
        gaps.append("There is no plan: no latency is known.")
    return tuple(gaps)


def _without_memory(analysis: Analysis) -> str:
    """What is known of the memory where no sum is, and what is not."""
    tensors = (tensor for operator in analysis.operators for tensor in (*operator.inputs, *operator.outputs))
    of_open_size = dict.fromkeys(tensor.name for tensor in tensors if tensor_bytes(tensor) is None)
    why = f": the size of {first_few(of_open_size)} is open" if of_open_size else ""
    stored = f" beyond {byte_count(analysis.model.parameter_bytes)} of weights"
    return f"The memory that it needs is not known{stored}{why}.{_arena_held(analysis)}"


def _arena_held(analysis: Analysis) -> str:
    """What the session on the CPU held while it was timed: of open sizes it is all that is known."""
    measured = analysis.environment.measurement.get("cpu")
    held = measured.get("arena_peak_bytes") if isinstance(measured, Mapping) else None
    if not isinstance(held, int):
        return ""
    return f" When it was timed on the CPU, ONNX Runtime's arena held up to {byte_count(held)}."


def peak(side: Literal["cpu", "gpu"], device: DeviceInfo, precision: str) -> tuple[str, float] | None:
    """The type and the peak that products of this precision run at on a device."""
    dtype = peak_type(side, device.peak_flops_per_s, precision)
    return None if dtype is None else (dtype, device.peak_flops_per_s[dtype])


def per_second(value: float | None) -> str:
    """Inferences per second: ``4.12 k/s``, ``0.046 /s``; prefixes for many alone."""
    # "46.0 m/s" of an LLM's slow step reads as metres: milli is written out as a decimal.
    if value is None or not 0 < value < 1:
        return rate(value, "")
    return f"{digits(value)} /s"


def joules(value: float | None) -> str:
    """Energy: ``0.131 J``, ``75.3 mJ``."""
    return with_prefix(value, "J")


def span(low: str, high: str) -> str:
    """Two figures with their units as one range: ``1.2 to 1.5 ms``."""
    # Once where both have the same unit; dollars carry theirs in front and keep it twice.
    figure, _, unit = low.partition(" ")
    return f"{figure} to {high}" if unit and high.endswith(f" {unit}") else f"{low} to {high}"
