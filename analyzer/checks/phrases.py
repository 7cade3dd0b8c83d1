"""Phrases of the rules about operators and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzer.graph import DTYPES, packed_bytes
from analyzer.record.analysis import Analysis, OperatorResult, TensorInfo
from analyzer.record.batch_ranges import has_batch, sizes_that_grow
from analyzer.text import first_few, plural

# The finding of a limit that a device misses; of an analysis the answer's own sentence says it.
OVER_SLO = "A607"
PLANS = {"cpu": "CPU plan", "gpu": "CUDA session", "hybrid": "best plan"}


def operator_label(operator: OperatorResult) -> str:
    """Return an operator's type and place: ``MaxPool of maxpool``; its own name where no module is known."""
    place = f" of {operator.module}" if operator.module else f" {operator.name!r}"
    return f"{operator.op_type}{place}"


def group_label(group: Sequence[OperatorResult]) -> str:
    """Return the label of one operator, or the number of several of a type, with the first places."""
    if len(group) == 1:
        return operator_label(group[0])
    places = list(dict.fromkeys(op.module or op.name for op in group))
    return f"{plural(len(group), f'{group[0].op_type} operator')} ({first_few(places)})"


def source_location(operator: OperatorResult | None) -> str:
    """Return ``file:line`` of the user's own source, empty where unknown."""
    if operator is None or operator.source is None:
        return ""
    return f"{operator.source.file}:{operator.source.line}"


def bytes_moved(operators: Iterable[OperatorResult]) -> int | None:
    """Return bytes that operators read and write together; None where none is known."""
    known = [
        operator.bytes_read + operator.bytes_written
        for operator in operators
        if operator.bytes_read is not None and operator.bytes_written is not None
    ]
    return sum(known) if known else None


def tensor_bytes(tensor: TensorInfo) -> int | None:
    """Return a tensor's bytes, None while its shape or width is open."""
    # A record may name a type that this version does not know.
    dtype = DTYPES.get(tensor.dtype)
    return packed_bytes(tensor.shape, dtype.bits) if dtype is not None else None


def total(figures: Iterable[float | None]) -> float | None:
    """Return the sum of what is known, None where nothing is."""
    known = [value for value in figures if value is not None]
    return sum(known) if known else None


def by_source_line(
    operators: Iterable[OperatorResult],
) -> tuple[tuple[OperatorResult, ...], ...]:
    """Group operators of one type from one source line, else one module class, in execution order."""
    groups: dict[tuple[str, str, str], list[OperatorResult]] = {}
    for operator in operators:
        place = source_location(operator) or operator.module_class or operator.module
        groups.setdefault((operator.domain, operator.op_type, place), []).append(operator)
    return tuple(tuple(group) for group in groups.values())


def is_executed(operator: OperatorResult) -> bool:
    """Return whether an operator is executed at all on the GPU's side (folded constants are not)."""
    return operator.gpu is not None and operator.gpu.why != "folded"


def forced_to_cpu(operator: OperatorResult) -> bool:
    """Return whether ONNX Runtime's CUDA session has to run it on the CPU, shape arithmetic apart."""
    gpu = operator.gpu
    return gpu is not None and gpu.placed_on == "cpu" and gpu.why not in ("shape-arithmetic", "folded")


def forced_operators(analysis: Analysis) -> tuple[OperatorResult, ...]:
    """Return the operators that are forced to the CPU and really run: ONNX Runtime removes some before."""
    # No group of the CUDA session at all says nothing about which operators it runs.
    executed = {index for group in analysis.groups if group.session == "cuda" for index in group.members}
    return tuple(
        op
        for op in analysis.operators
        if forced_to_cpu(op) and (not executed or op.index in executed)
        # An Identity that ends in its neighbour has a CUDA kernel, and runs nowhere.
        if not (op.op_type == "Identity" and op.gpu is not None and op.gpu.why == "cuda-kernel")
    )


def target_plan(analysis: Analysis) -> str:
    """Return the plan of the target device: ONNX Runtime's CUDA session, or the CPU where there is no GPU."""
    return "gpu" if analysis.plan("gpu") is not None else "cpu"


def time_in_plan(operator: OperatorResult, plan: str) -> float | None:
    """Return an operator's seconds in a plan."""
    on_gpu = plan == "gpu" or (plan == "hybrid" and operator.placement == "gpu" and operator.gpu is not None)
    time = operator.gpu if on_gpu else operator.cpu
    return None if time is None else time.time_s


def more_work(analysis: Analysis) -> str:
    """Return the advice that gives one run more to do; empty where nothing is known to."""
    return "raise the batch" if has_batch(analysis) else _sized(analysis, "more", "larger")


def less_work(analysis: Analysis) -> str:
    """Return the advice that makes one run hold less, with a comma behind; empty where nothing is known to."""
    advice = "use a smaller batch" if has_batch(analysis) else _sized(analysis, "less", "smaller")
    return advice and f"{advice}, "


def _sized(analysis: Analysis, work: str, size: str) -> str:
    names = sizes_that_grow(analysis)
    return f"give one call {work} work (a {size} size of {names})" if names else ""


def runs_nowhere(analysis: Analysis) -> bool:
    """Return whether ONNX Runtime creates a session of the model on none of the devices."""
    return analysis.verdict.device is None and not (analysis.run_fails or analysis.model.empty_inputs)
