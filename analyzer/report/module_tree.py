"""The operators and modules that take most of the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from analyzer.checks.device_answers import source_location
from analyzer.record.analysis import Analysis, OperatorResult, OperatorVerdict
from analyzer.report.figure_text import Time
from analyzer.report.plan_cards import copies_apart, whose_time
from analyzer.text import middle_cut, module_cut
from analyzer.units import factor, seconds, share

_DEVICES = {"cpu": "CPU", "gpu": "GPU", "either": "either"}
# Why an operator's verdict is another than its two times say, by ``decision.operator_verdicts.REASONS``.
_ASIDES = {
    "transfer-bound": "copies",
    "data-on-gpu": "neighbours",
    "gpu-memory": "no room",
    "energy": "energy",
    "fused": "neighbours",
    "pinned": "pinned",
    "no-machine-code": "no machine code",
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
    """One of the operators that matter, or all of a type; ``total_s`` is the best plan's time of all."""

    operators: tuple[OperatorResult, ...]
    total_s: float

    @property
    def count(self) -> int:
        """Return how many operators it is."""
        return len(self.operators)

    @property
    def index(self) -> int:
        """The first of them."""
        return min(one.index for one in self.operators)

    @property
    def op_type(self) -> str:
        """Their type."""
        return self.operators[0].op_type

    @property
    def alone(self) -> OperatorResult | None:
        """The operator; None of all of a type."""
        return self.operators[0] if self.count == 1 else None

    @property
    def place(self) -> str:
        """Return where it is in the model; of all of a type how many they are."""
        one = self.alone
        if one is None:
            return f"{self.count:,} operators"
        return one.module or (one.source.code if one.source else "") or source_location(one)

    @property
    def short_place(self) -> str:
        """The same in the room that the page has for it: layers have their beginnings in common."""
        room = _ROOM_OF_NAMES - len(self.op_type)
        if self.alone is None:  # a number of operators is never cut
            return self.place if len(self.place) <= room else f"× {self.count:,}"
        cut = module_cut if self.alone.module else middle_cut
        return cut(self.place, max(room, _LEAST_ROOM))

    @property
    def share(self) -> float | None:
        """The share of the best plan's time, between 0 and 1; None where no time is known."""
        times = [time for one in self.operators if (time := time_in_plan(one)) is not None]
        return sum(times) / self.total_s if self.total_s and times else None

    @property
    def share_text(self) -> str:
        """The same as text."""
        return share(self.share)

    @property
    def cpu(self) -> tuple[str, str]:
        """The time on the CPU as text, and its origin; empty where it is not known."""
        time_s, origin = self._time("cpu")
        return seconds(time_s), origin

    @property
    def gpu(self) -> tuple[str, str]:
        """The same on the GPU."""
        time_s, origin = self._time("gpu")
        return seconds(time_s), origin

    def _time(self, side: Literal["cpu", "gpu"]) -> tuple[float | None, str]:
        sides: list[Time | None] = [one.cpu if side == "cpu" else one.gpu for one in self.operators]
        known = [time for time in sides if time is not None and time.time_s is not None]
        if not known:
            return None, ""
        origins = {time.origin for time in known}
        return sum(time.time_s or 0.0 for time in known), origins.pop() if len(origins) == 1 else "mixed"

    @property
    def speedup(self) -> str:
        """Return how many times as fast as on the CPU it is on the GPU."""
        if self.alone:
            return factor(self.alone.verdict.speedup)
        (cpu_s, _), (gpu_s, _) = self._time("cpu"), self._time("gpu")
        return factor(cpu_s / gpu_s if cpu_s is not None and gpu_s else None)

    @property
    def verdict(self) -> tuple[str, str, str]:
        """Device, word and aside of the verdict that most of the time has; how much of it where not all."""
        spent: dict[tuple[str, str], float] = {}
        for one in self.operators:
            words = operator_words(one.verdict)
            spent[words] = spent.get(words, 0.0) + (time_in_plan(one) or 0.0)
        words, most = max(spent.items(), key=lambda pair: pair[1])
        device = next(one.verdict.device for one in self.operators if operator_words(one.verdict) == words)
        whole = sum(spent.values())
        part = "" if not whole or most >= whole * (1 - 1e-9) else f"{share(most / whole)} of its time"
        return device, words[0], part or words[1]

    @property
    def explanation(self) -> str:
        """Return why one operator's verdict is what it is; of all of a type how many they are."""
        one = self.alone
        if one is None:
            return f"{self.count:,} operators of this type"
        return one.verdict.explanation or one.verdict.reason


def bound_of(operator: OperatorResult, time: Time | None) -> str:
    """Return an operator's limit on one side; none where it does not run or takes no time."""
    if time is None or time.time_s == 0 or operator.verdict.reason in _NOWHERE:
        return ""
    return time.bound or ""


def operator_words(verdict: OperatorVerdict) -> tuple[str, str]:
    """Return the verdict: the device, or that it runs nowhere; and why in spite of the times, or empty."""
    if verdict.reason in _NOWHERE:
        return _NOWHERE[verdict.reason], ""
    return _DEVICES[verdict.device], _ASIDES.get(verdict.reason, "")


def time_in_plan(operator: OperatorResult) -> float | None:
    """Return the operator's time where the best plan puts it."""
    time: Time | None = operator.cpu if operator.placement == "cpu" else operator.gpu
    return None if time is None else time.time_s


def top_operators(analysis: Analysis, count: int = 10) -> tuple[TopOperator, ...]:
    """Return the operators that take most of the best plan's time; by FLOPs where no time is known.

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
    rows = [TopOperator(operators=(operator,), total_s=total) for operator in ranked]
    if total and _hides_much([row.share or 0.0 for row in rows[:count]]):
        by_type: dict[tuple[str, str], list[OperatorResult]] = {}
        for operator in ranked:
            by_type.setdefault((operator.domain, operator.op_type), []).append(operator)
        rows = [TopOperator(operators=tuple(every), total_s=total) for every in by_type.values()]
        rows.sort(key=lambda row: (-(row.share or 0.0), row.index))
    return tuple(rows[:count])


def _hides_much(shares: Sequence[float]) -> bool:
    """Return whether rows of these shares say little about where the time goes."""
    shown, small = sum(shares), sum(one < _SMALL_ROW for one in shares)
    return shown < _MOST_SHOWN or (small > len(shares) / 2 and 1 - shown > _MUCH_HIDDEN)


# Of the time: what rows of operators must show, what a row is small below, and what is much to be in none.
# Judgements.
_MOST_SHOWN, _SMALL_ROW, _MUCH_HIDDEN = 0.5, 0.02, 0.1


def top_title(top: Sequence[TopOperator], analysis: Analysis) -> str:
    """Return the title of the table, and whether its rows are types."""
    if not top or top[0].share is None:
        return "The operators that compute most"
    by_type = "by type of operator" if any(row.count > 1 for row in top) else ""
    return ", ".join(filter(None, (f"What takes {whose_time(analysis)}", by_type, copies_apart(analysis))))


# Characters of a path and the modules in it. Deeper ones are their parent's: a path of nothing but dots would
# be a module for each, with all before it in its name.
_LONGEST_PATH, _DEEPEST = 1000, 32
MEASURES = ("best", "cpu", "gpu", "flops", "bytes")


# Not frozen, alone in this room: sums grow while the tree is built, in one pass over thousands of operators.
@dataclass(slots=True, kw_only=True)
class Module:
    """One module; ``own`` counts the operators directly in it, ``total`` those below it as well.

    Both are keyed by ``MEASURES``: seconds in the best plan, on the CPU and on the GPU, FLOPs, bytes; a
    measure that no operator has is None. ``on_gpu`` counts those of the ``timed`` operators, which take
    time in the best plan, that it puts on the GPU: what is folded away or free runs nowhere.
    """

    number: int
    parent: int | None
    path: str
    name: str
    class_name: str = ""
    own: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(MEASURES))
    total: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(MEASURES))
    operators: int = 0
    timed: int = 0
    on_gpu: int = 0
    unknown: int = 0


def measures(operator: OperatorResult) -> dict[str, float | None]:
    """Return one operator's summed quantities."""
    read, written = operator.bytes_read, operator.bytes_written
    return {
        "best": time_in_plan(operator),
        "cpu": operator.cpu.time_s,
        "gpu": operator.gpu.time_s if operator.gpu else None,
        "flops": operator.flops,
        "bytes": None if read is None or written is None else read + written,
    }


def tree(analysis: Analysis) -> tuple[tuple[Module, ...], tuple[int, ...]]:
    """Return the modules, parents before their children, and for each operator the number of its module."""
    modules = [Module(number=0, parent=None, path="", name=analysis.model.name)]
    numbers = {"": 0}
    paths = _module_paths(analysis.operators)
    module_of_operator = tuple(
        _place(operator, path, modules, numbers)
        for operator, path in zip(analysis.operators, paths, strict=True)
    )
    for operator, number in zip(analysis.operators, module_of_operator, strict=True):
        _count(operator, number, modules)
    return tuple(modules), module_of_operator


def _module_paths(operators: Sequence[OperatorResult]) -> list[str]:
    """Return the path of each operator's module; one without joins its neighbours', where they agree.

    A Split that an exporter makes of a ``chunk`` names no module, yet stands between operators of one.
    """
    producers = {tensor.name: each.index for each in operators for tensor in each.outputs if tensor.name}
    neighbours: dict[int, list[str]] = {each.index: [] for each in operators if not each.module}
    for operator in operators:
        for name in {tensor.name for tensor in operator.inputs} & producers.keys():
            producer = operators[producers[name]]
            if operator.index in neighbours:
                neighbours[operator.index].append(producer.module)
            if producer.index in neighbours:
                neighbours[producer.index].append(operator.module)
    return [each.module or _common(path for path in neighbours[each.index] if path) for each in operators]


def _common(paths: Iterable[str]) -> str:
    """Return the innermost module that holds all of these; empty where there is none but the model."""
    parts = [path.split(".") for path in paths]
    shared = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))]
    return ".".join(shared)


def _place(operator: OperatorResult, module_path: str, modules: list[Module], numbers: dict[str, int]) -> int:
    number, path = 0, ""
    for part in module_path[:_LONGEST_PATH].split(".")[:_DEEPEST] if module_path else ():
        path = f"{path}.{part}" if path else part
        if path not in numbers:
            numbers[path] = len(modules)
            modules.append(Module(number=len(modules), parent=number, path=path, name=part))
        number = numbers[path]
    # Of an operator that is here for its neighbours' sake the class is not that of this module.
    if operator.module and operator.module_class and not modules[number].class_name:
        modules[number].class_name = operator.module_class
    return number


def _count(operator: OperatorResult, number: int, modules: list[Module]) -> None:
    amounts = measures(operator)
    _add(modules[number].own, amounts)
    at: int | None = number
    while at is not None:
        module = modules[at]
        _add(module.total, amounts)
        module.operators += 1
        module.timed += bool(amounts["best"])
        module.on_gpu += bool(amounts["best"]) and operator.placement == "gpu"
        module.unknown += operator.basis == "unknown"
        at = module.parent


def _add(sums: dict[str, float | None], amounts: dict[str, float | None]) -> None:
    # None plus None stays None: a module of which nothing is known must not read as one that takes 0.
    for name, value in amounts.items():
        if value is not None:
            sums[name] = (sums[name] or 0) + value
