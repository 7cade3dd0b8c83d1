"""Reporting: the operators, their tensors' edges and the groups they run in, column by column for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyzer.record.analysis import Analysis, OperatorResult, TensorInfo
from analyzer.report.charts.chart import coded, compact
from analyzer.report.summary import Time, best_plan, time_in_plan

_ATTRIBUTE_LIMIT = 160


def columns(analysis: Analysis, home: Sequence[int]) -> dict[str, Any]:
    """Columns by name: plain lists for figures; for text a list of distinct values and the index of each.

    Args:
        analysis: Whose operators.
        home: For each operator the number of its module.
    """
    items = analysis.operators
    total = sum(time_in_plan(item) or 0.0 for item in items)
    best = [time_in_plan(item) for item in items]
    return {
        **_texts(items),
        **_figures(items),
        **_times("cpu", [item.cpu for item in items]),
        **_times("gpu", [item.gpu for item in items]),
        "best": [compact(value) for value in best],
        "share": [compact(value / total) if value is not None and total else None for value in best],
        "module_number": list(home),
        "group_cpu": _membership(analysis, "cpu"),
        "group_gpu": _membership(analysis, "cuda"),
    }


def groups(analysis: Analysis) -> list[list[Any]]:
    """The executed groups: session, name, type, provider, time, origin, number of members."""
    return [
        [
            item.session,
            item.name,
            item.op_type,
            item.provider,
            compact(item.time_s),
            item.origin,
            len(item.members),
        ]
        for item in analysis.groups
    ]


def edges(analysis: Analysis) -> list[list[int]]:
    """Producer, consumer and whether the best plan copies the tensor between devices (1) or not (0)."""
    plan = best_plan(analysis)
    copied = {copy.tensor for copy in plan.transfers.items if copy.where == "inside"} if plan else set()
    maker: dict[str, int] = {}
    found = []
    for item in analysis.operators:
        for name in dict.fromkeys(tensor.name for tensor in item.inputs):
            if name in maker:
                crosses = analysis.operators[maker[name]].placement != item.placement
                found.append([maker[name], item.index, int(name in copied and crosses)])
        maker.update((tensor.name, item.index) for tensor in item.outputs if tensor.name)
    return found


def _texts(items: Sequence[OperatorResult]) -> dict[str, Any]:
    return {
        "name": coded(item.name for item in items),
        "type": coded(item.op_type for item in items),
        "domain": coded(item.domain for item in items),
        "module": coded(item.module for item in items),
        "class": coded(item.module_class for item in items),
        "file": coded(f"{item.source.file}:{item.source.line}" if item.source else "" for item in items),
        "code": coded(item.source.code if item.source else "" for item in items),
        "inputs": coded(_shapes(item.inputs) for item in items),
        "outputs": coded(_shapes(item.outputs) for item in items),
        "attributes": coded(_attributes(item) for item in items),
        "basis": coded(item.basis for item in items),
        "note": coded(item.note for item in items),
        "placement": coded(item.placement for item in items),
        "verdict": coded(item.verdict.device for item in items),
        "reason": coded(item.verdict.reason for item in items),
        "explanation": coded(item.verdict.explanation for item in items),
        "placed_on": coded(item.gpu.placed_on if item.gpu else "" for item in items),
        "why": coded(item.gpu.why if item.gpu else "" for item in items),
        "phase": coded(item.phase or "" for item in items),
    }


def _figures(items: Sequence[OperatorResult]) -> dict[str, Any]:
    return {
        "flops": [item.flops for item in items],
        "macs": [item.macs for item in items],
        "bytes_read": [item.bytes_read for item in items],
        "bytes_written": [item.bytes_written for item in items],
        "intensity": [compact(item.intensity) for item in items],
        "speedup": [compact(item.verdict.speedup) for item in items],
    }


def _times(side: str, times: Sequence[Time | None]) -> dict[str, Any]:
    return {
        f"{side}": [compact(time.time_s) if time else None for time in times],
        f"{side}_low": [compact(time.low_s) if time else None for time in times],
        f"{side}_high": [compact(time.high_s) if time else None for time in times],
        f"{side}_origin": coded((time.origin if time and time.time_s is not None else "") for time in times),
        f"{side}_bound": coded((time.bound or "" if time else "") for time in times),
    }


def _membership(analysis: Analysis, session: str) -> list[int | None]:
    """For each operator the number of its group in this session, None where it is folded away."""
    found: list[int | None] = [None] * len(analysis.operators)
    for number, group in enumerate(analysis.groups):
        if group.session == session:
            for member in group.members:
                found[member] = number
    return found


def _shapes(tensors: Sequence[TensorInfo]) -> str:
    """``8x3x224x224 float32, 64x3x7x7 float32 (constant)``."""
    return ", ".join(shape(tensor) for tensor in tensors)


def shape(tensor: TensorInfo) -> str:
    """A tensor's shape and type; ``?`` for a dimension that stays open."""
    if tensor.shape is None:
        return tensor.dtype
    size = "x".join("?" if dim is None else str(dim) for dim in tensor.shape) or "scalar"
    return f"{size} {tensor.dtype}{' (constant)' if tensor.constant else ''}"


def _attributes(item: OperatorResult) -> str:
    text = ", ".join(f"{name}={value}" for name, value in sorted(item.attributes.items()))
    return text if len(text) <= _ATTRIBUTE_LIMIT else text[: _ATTRIBUTE_LIMIT - 1] + "…"
