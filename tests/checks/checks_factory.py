"""Hand-made analyses for the tests of the checks: an invented network on invented devices.

Every figure is a round number or follows from a shape, so that a test can work its expectation out by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import handmade
from handmade import copy

from analyzer.record.analysis import (
    Analysis,
    GroupResult,
    OperatorResult,
    PlanResult,
    TensorInfo,
    TransferItem,
    Where,
)

__all__ = ["analysis", "copy", "groups", "operator", "plan", "stem", "tensor"]
SHAPE = (1, 8, 16)


def tensor(name: str, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> TensorInfo:
    """A tensor; names that begin with ``w`` are constants."""
    return TensorInfo(name=name, shape=shape, dtype=dtype, constant=name.startswith("w"))


def operator(
    op_type: str,
    inputs: Sequence[str | TensorInfo],
    outputs: Sequence[str | TensorInfo],
    *,
    cpu_s: float | None = 1e-3,
    gpu_s: float | None = 1e-4,
    placed_on: str = "cuda",
    why: str = "cuda-kernel",
    detail: str = "",
    kernel_opset: int | None = None,
    bound: str = "memory",
    **changes: Any,
) -> OperatorResult:
    """One operator; it gets its index from ``analysis``."""
    into, out = (
        [item if isinstance(item, TensorInfo) else tensor(item) for item in side] for side in (inputs, outputs)
    )
    placed = {"placed_on": placed_on, "why": why, "detail": detail, "kernel_opset": kernel_opset}
    values: dict[str, Any] = {
        "cpu": handmade.on_cpu(cpu_s),
        "gpu": handmade.on_gpu(gpu_s, bound=bound, **placed),
        "placement": "gpu" if placed_on == "cuda" else "cpu",
    }
    return handmade.operator(op_type, into, out, **{**values, **changes})


def plan(name: str, latency_s: float, items: Iterable[TransferItem] = (), **changes: Any) -> PlanResult:
    """A plan whose interval is half to double its latency."""
    return handmade.plan(name, latency_s, **{"transfers": handmade.transfers(items), **changes})


def groups(
    operators: Sequence[OperatorResult], fused: dict[tuple[int, ...], str] | None = None
) -> tuple[GroupResult, ...]:
    """The CUDA session's groups: each operator alone, but for the members of ``fused``."""
    found = dict(fused or {})
    taken = {index for members in found for index in members}
    found |= {
        (op.index,): op.op_type
        for op in operators
        if op.index not in taken and op.gpu and op.gpu.why != "folded"
    }
    return tuple(
        handmade.group("cuda", f"group_{members[0]}", op_type, members)
        for members, op_type in sorted(found.items())
    )


def analysis(
    *operators: OperatorResult,
    copies: Iterable[TransferItem] = (),
    fused: dict[tuple[int, ...], str] | None = None,
    cpu_s: float = 1e-2,
    gpu_s: float = 2e-3,
    opset: int = 20,
    **changes: Any,
) -> Analysis:
    """An analysis of these operators, numbered in order; the GPU is five times faster as a whole."""
    numbered = tuple(replace(op, index=index) for index, op in enumerate(operators))
    speedup = cpu_s / gpu_s
    values: dict[str, Any] = {
        "model": handmade.model(opset=opset, inputs=(tensor("x"),)),
        "groups": groups(numbered, fused),
        "plans": (plan("cpu", cpu_s), plan("gpu", gpu_s, copies), plan("hybrid", min(cpu_s, gpu_s))),
        "verdict": handmade.verdict(
            "gpu" if speedup > 1 else "cpu", speedup=speedup, low=speedup * 0.8, high=speedup * 1.25
        ),
    }
    return handmade.analysis(numbered, **{**values, **changes})


BEFORE_POOL, AFTER_POOL = (1, 64, 112, 112), (1, 64, 56, 56)
# float32: 4 bytes an element.
BYTES_BEFORE, BYTES_AFTER = 4 * prod(BEFORE_POOL), 4 * prod(AFTER_POOL)


def stem(opset: int = 23, **changes: Any) -> Analysis:
    """The stem of a residual network: convolution, Relu, pooling, convolution.

    At opset 22 and above MaxPool has no CUDA kernel, so its input and its output are copied.
    """
    falls = opset >= 22
    line = Where(file="models/toy.py", line=57, code="x = self.maxpool(x)")
    pool = operator(
        "MaxPool",
        [tensor("relu", BEFORE_POOL)],
        [tensor("pool", AFTER_POOL)],
        module="maxpool",
        source=line,
        cpu_s=8e-4,
        gpu_s=8e-4 if falls else 2e-5,
        placed_on="cpu" if falls else "cuda",
        why="no-kernel-for-opset" if falls else "cuda-kernel",
        detail="no CUDA kernel for MaxPool since opset 22; has one at opset 21" if falls else "",
        kernel_opset=21 if falls else None,
        bytes_read=BYTES_BEFORE,
        bytes_written=BYTES_AFTER,
    )
    copies = (
        (copy("relu", "to_cpu", BYTES_BEFORE, 3e-4), copy("pool", "to_gpu", BYTES_AFTER, 1e-4)) if falls else ()
    )
    ends = (copy("x", "to_gpu", 600_000, where="input"), copy("y", "to_cpu", 4_000, where="output"))
    return analysis(
        operator("Conv", ["x", "w1"], [tensor("conv", BEFORE_POOL)], module="conv1"),
        operator("Relu", [tensor("conv", BEFORE_POOL)], [tensor("relu", BEFORE_POOL)], module="relu"),
        pool,
        operator("Conv", [tensor("pool", AFTER_POOL), "w2"], ["y"], module="layer1.0.conv1"),
        copies=(*copies, *ends),
        opset=opset,
        **changes,
    )
