"""Reporting: the user's own structure, the modules of the model as a tree with sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from analyzer.record.analysis import Analysis, OperatorResult
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
    homes = _homes(analysis.operators)
    home = tuple(
        _place(item, path, modules, numbers) for item, path in zip(analysis.operators, homes, strict=True)
    )
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


def _homes(items: Sequence[OperatorResult]) -> list[str]:
    """Each operator's module; one that the exporter left without goes where all its neighbours are.

    A Split that an exporter makes of a ``chunk`` names no module, yet stands between operators of one.
    """
    maker = {tensor.name: item.index for item in items for tensor in item.outputs if tensor.name}
    around: dict[int, list[str]] = {item.index: [] for item in items if not item.module}
    for item in items:
        for name in {tensor.name for tensor in item.inputs} & maker.keys():
            source = items[maker[name]]
            if item.index in around:
                around[item.index].append(source.module)
            if source.index in around:
                around[source.index].append(item.module)
    return [item.module or _common(path for path in around[item.index] if path) for item in items]


def _common(paths: Iterable[str]) -> str:
    """The innermost module that holds all of these; empty where there is none but the model."""
    parts = [path.split(".") for path in paths]
    shared = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))]
    return ".".join(shared)


def _place(item: OperatorResult, home: str, modules: list[Module], numbers: dict[str, int]) -> int:
    number, path = 0, ""
    for part in home.split(".") if home else ():
        path = f"{path}.{part}" if path else part
        if path not in numbers:
            numbers[path] = len(modules)
            modules.append(_module(len(modules), number, path, part, ""))
        number = numbers[path]
    if item.module and item.module_class and not modules[number].class_name:
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
