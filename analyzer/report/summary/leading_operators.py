"""Reporting: the operators that take most of the best plan's time, in the words of every format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analyzer.checks.phrases import source_location
from analyzer.record.analysis import Analysis, OperatorResult, OperatorVerdict
from analyzer.report.summary.figure_words import Time
from analyzer.report.summary.plan_cards import whose_time
from analyzer.text import middle_cut, module_cut
from analyzer.units import UNKNOWN, factor, seconds, share

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
# Letters of the page's first column, and those of a place beside a long type.
_ROOM_OF_NAMES, _LEAST_ROOM = 26, 14


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
        if self.count > 1:
            return self.place_in(_ROOM_OF_NAMES - len(self.op_type))
        return self.place_in(max(_ROOM_OF_NAMES - len(self.op_type), _LEAST_ROOM))

    def place_in(self, room: int) -> str:
        """The same in so many letters; a number of operators is never cut: ``× 53``."""
        if self.count > 1:
            return self.place if len(self.place) <= room else f"× {self.count:,}"
        return module_cut(self.place, room) if self.module else middle_cut(self.place, room)

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
    by_type = ", by type of operator" if any(row.count > 1 for row in top) else ""
    return f"What takes {whose_time(analysis)}{by_type}"


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
