"""Reporting: the user's own structure, the modules of the model as a tree with sums."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.analysis import Analysis, OperatorResult
from analyzer.report.summary import time_in_plan

MEASURES = ("best", "cpu", "gpu", "flops", "bytes")


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
    class_name: str
    own: dict[str, float | None]
    total: dict[str, float | None]
    operators: int = 0
    timed: int = 0
    on_gpu: int = 0
    unknown: int = 0


def measures(item: OperatorResult) -> dict[str, float | None]:
    """What is summed for one operator."""
    moved = (
        None if item.bytes_read is None or item.bytes_written is None else item.bytes_read + item.bytes_written
    )
    return {
        "best": time_in_plan(item),
        "cpu": item.cpu.time_s,
        "gpu": item.gpu.time_s if item.gpu else None,
        "flops": item.flops,
        "bytes": moved,
    }


def tree(analysis: Analysis) -> tuple[tuple[Module, ...], tuple[int, ...]]:
    """The modules, parents before their children, and for each operator the number of its module."""
    modules = [_module(0, None, "", analysis.model.name, "")]
    numbers = {"": 0}
    home = tuple(_place(item, modules, numbers) for item in analysis.operators)
    for item, number in zip(analysis.operators, home, strict=True):
        _count(item, number, modules)
    return tuple(modules), home


def _module(number: int, parent: int | None, path: str, name: str, class_name: str) -> Module:
    empty: dict[str, float | None] = dict.fromkeys(MEASURES)
    return Module(
        number=number,
        parent=parent,
        path=path,
        name=name,
        class_name=class_name,
        own=dict(empty),
        total=dict(empty),
    )


def _place(item: OperatorResult, modules: list[Module], numbers: dict[str, int]) -> int:
    number, path = 0, ""
    for part in item.module.split(".") if item.module else ():
        path = f"{path}.{part}" if path else part
        if path not in numbers:
            numbers[path] = len(modules)
            modules.append(_module(len(modules), number, path, part, ""))
        number = numbers[path]
    if item.module_class and number and not modules[number].class_name:
        modules[number].class_name = item.module_class
    return number


def _count(item: OperatorResult, number: int, modules: list[Module]) -> None:
    values = measures(item)
    _add(modules[number].own, values)
    at: int | None = number
    while at is not None:
        module = modules[at]
        _add(module.total, values)
        module.operators += 1
        module.timed += bool(values["best"])
        module.on_gpu += bool(values["best"]) and item.placement == "gpu"
        module.unknown += item.basis == "unknown"
        at = module.parent


def _add(sums: dict[str, float | None], values: dict[str, float | None]) -> None:
    for name, value in values.items():
        if value is not None:
            sums[name] = (sums[name] or 0) + value
