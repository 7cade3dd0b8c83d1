"""Columns of operators, and tables as CSV.

Of a record that was asked for instances, these: they are its answer.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyzer.checks.device_answers import source_location
from analyzer.record.analysis import Analysis, OperatorResult, TensorInfo
from analyzer.record.operator_rows import COLUMNS, row
from analyzer.report.charts.chart import coded, compact
from analyzer.report.figure_text import Time
from analyzer.report.module_tree import bound_of, operator_words, time_in_plan
from analyzer.report.plan_cards import best_plan
from analyzer.text import loggable, printable

# What a spreadsheet begins a formula with, in full width too (OWASP, "CSV Injection"): names of a model are a
# stranger's text. A blank before it does not hold some of them back, nor does what `printable` makes one of: a
# tab, a line break, a blank of no width.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(analysis: Analysis) -> str:
    """RFC 4180 with one heading line; an empty cell is "not known"."""
    if analysis.capacity is not None:
        options = analysis.capacity.options
        return table(INSTANCES, ({name: getattr(option, name) for name in INSTANCES} for option in options))
    return table(COLUMNS, (row(operator) for operator in analysis.operators))


def table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """RFC 4180 with one heading line; an empty cell is "not known"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([cell(cells[name]) for name in columns] for cells in rows)
    return text.getvalue()


def cell(value: Any) -> Any:
    """Return a value as a cell: text that a spreadsheet would take for a formula is marked as text."""
    if isinstance(value, str):
        # On one line: a file of one row for each operator is read line by line too.
        text = loggable(printable(value))
        return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
    if isinstance(value, float) and value == 0:
        return 0.0  # never "-0.0", which a record of somebody else's may hold
    # None is not known; a 0 in its place would be a figure.
    return "" if value is None else value


INSTANCES = (
    *("provider", "instance", "region", "device", "kind", "precision", "feasible", "reason", "origin"),
    *("price_date", "device_name", "replicas", "count", "low_count", "high_count", "max_batch", "max_delay_s"),
    *(
        "highest_rate_per_s",
        "low_rate_per_s",
        "high_rate_per_s",
        "utilisation",
        "mean_batch",
        "mean_s",
        "p50_s",
    ),
    *("p90_s", "p95_s", "p99_s", "tpot_p50_s", "tpot_p99_s", "tokens_per_s", "width", "room", "gpu_count"),
    "usd_per_hour",
    *("usd_per_month", "low_usd_per_month", "high_usd_per_month", "usd_per_million", "usd_per_million_tokens"),
)


# Characters: enough to tell what is meant; a list of indices may have thousands.
_ATTRIBUTE_LIMIT = 160


def columns(analysis: Analysis, module_of_operator: Sequence[int]) -> dict[str, Any]:
    """Columns by name: plain lists for figures; for text a list of distinct values and the index of each."""
    operators = analysis.operators
    best = [time_in_plan(operator) for operator in operators]
    total_s = sum(time_s or 0.0 for time_s in best)
    return {
        **_texts(operators),
        **_figures(operators),
        **_times("cpu", [(operator, operator.cpu) for operator in operators]),
        **_times("gpu", [(operator, operator.gpu) for operator in operators]),
        "best": [compact(time_s) for time_s in best],
        "share": [compact(time_s / total_s) if time_s is not None and total_s else None for time_s in best],
        "module_number": list(module_of_operator),
        "group_cpu": _membership(analysis, "cpu"),
        "group_gpu": _membership(analysis, "cuda"),
    }


def groups(analysis: Analysis) -> list[list[Any]]:
    """Return the executed groups: session, name, type, provider, time, origin, number of members."""
    return [
        [
            group.session,
            group.name,
            group.op_type,
            group.provider,
            compact(group.time_s),
            group.origin,
            len(group.members),
        ]
        # In this order templates/js/data.js takes them apart.
        for group in analysis.groups
    ]


def edges(analysis: Analysis) -> list[list[int]]:
    """Return producer, consumer and which copy of the best plan the tensor comes by, from 1 on (0: none)."""
    plan = best_plan(analysis)
    inside = [copy.tensor for copy in plan.transfers.items if copy.where == "inside"] if plan else []
    copies = {name: number for number, name in enumerate(dict.fromkeys(inside), start=1)}
    producer: dict[str, int] = {}
    edge_list = []
    for operator in analysis.operators:
        # Once for each tensor: a Mul of x by x reads it twice, and is one arrow.
        for name in dict.fromkeys(tensor.name for tensor in operator.inputs):
            if name in producer:
                # One copy serves all readers on that device; readers on the producer's own need none.
                crosses = analysis.operators[producer[name]].placement != operator.placement
                edge_list.append([producer[name], operator.index, copies.get(name, 0) if crosses else 0])
        # ONNX writes an output that is left out as an empty name: several operators would share it.
        producer.update((tensor.name, operator.index) for tensor in operator.outputs if tensor.name)
    return edge_list


def _texts(operators: Sequence[OperatorResult]) -> dict[str, Any]:
    verdicts = [operator_words(operator.verdict) for operator in operators]
    return {
        "name": coded(operator.name for operator in operators),
        "type": coded(operator.op_type for operator in operators),
        "domain": coded(operator.domain for operator in operators),
        "module": coded(operator.module for operator in operators),
        "class": coded(operator.module_class for operator in operators),
        "file": coded(source_location(operator) for operator in operators),
        "code": coded(operator.source.code if operator.source else "" for operator in operators),
        "inputs": coded(_shapes(operator.inputs) for operator in operators),
        "outputs": coded(_shapes(operator.outputs) for operator in operators),
        "attributes": coded(_attributes(operator) for operator in operators),
        "basis": coded(operator.basis for operator in operators),
        "note": coded(operator.note for operator in operators),
        "placement": coded(operator.placement for operator in operators),
        "verdict": coded(operator.verdict.device for operator in operators),
        "verdict_word": coded(word for word, _ in verdicts),
        "verdict_aside": coded(aside for _, aside in verdicts),
        "reason": coded(operator.verdict.reason for operator in operators),
        "explanation": coded(operator.verdict.explanation for operator in operators),
        "placed_on": coded(operator.gpu.placed_on if operator.gpu else "" for operator in operators),
        "why": coded(operator.gpu.why if operator.gpu else "" for operator in operators),
        "phase": coded(operator.phase or "" for operator in operators),
    }


def _figures(operators: Sequence[OperatorResult]) -> dict[str, Any]:
    return {
        "flops": [operator.flops for operator in operators],
        "macs": [operator.macs for operator in operators],
        "bytes_read": [operator.bytes_read for operator in operators],
        "bytes_written": [operator.bytes_written for operator in operators],
        "intensity": [compact(operator.intensity) for operator in operators],
        "speedup": [compact(operator.verdict.speedup) for operator in operators],
    }


def _times(side: str, pairs: Sequence[tuple[OperatorResult, Time | None]]) -> dict[str, Any]:
    times = [time for _, time in pairs]
    return {
        f"{side}": [compact(time.time_s) if time else None for time in times],
        f"{side}_low": [compact(time.low_s) if time else None for time in times],
        f"{side}_high": [compact(time.high_s) if time else None for time in times],
        f"{side}_origin": coded((time.origin if time and time.time_s is not None else "") for time in times),
        f"{side}_bound": coded(bound_of(operator, time) for operator, time in pairs),
    }


def _membership(analysis: Analysis, session: str) -> list[int | None]:
    """For each operator the number of its group in this session, None where it is folded away."""
    numbers: list[int | None] = [None] * len(analysis.operators)
    for number, group in enumerate(analysis.groups):
        if group.session == session:
            for member in group.members:
                numbers[member] = number
    return numbers


def _shapes(tensors: Sequence[TensorInfo]) -> str:
    """``8x3x224x224 float32, 64x3x7x7 float32 (constant)``."""
    return ", ".join(shape(tensor) for tensor in tensors)


def shape(tensor: TensorInfo) -> str:
    """Return a tensor's shape and type; ``?`` for a dimension that stays open."""
    if tensor.shape is None:
        return tensor.dtype
    size = "x".join("?" if dim is None else str(dim) for dim in tensor.shape) or "scalar"
    return f"{size} {tensor.dtype}{' (constant)' if tensor.constant else ''}"


def _attributes(operator: OperatorResult) -> str:
    text = ", ".join(f"{name}={value}" for name, value in sorted(operator.attributes.items()))
    return text if len(text) <= _ATTRIBUTE_LIMIT else text[: _ATTRIBUTE_LIMIT - 1] + "…"
