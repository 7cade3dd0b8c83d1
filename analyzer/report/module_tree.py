"""Reporting: the user's own structure, the modules of the model as a tree with sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.summary.leading_operators import time_in_plan

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
