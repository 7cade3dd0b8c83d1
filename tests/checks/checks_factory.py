"""Hand-made analyses for the tests of the checks: an invented network on invented devices.

Every figure is a round number or follows from a shape, so that a test can work its expectation out by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from analyzer.analysis import (
    Analysis,
    Coverage,
    CpuTime,
    DeviceInfo,
    Devices,
    GpuTime,
    GroupResult,
    ModelInfo,
    OperatorResult,
    OperatorVerdict,
    PlanResult,
    TensorInfo,
    Tool,
    Totals,
    TransferItem,
    Transfers,
    VerdictResult,
    Where,
)

CPU = DeviceInfo(
    slug="imaginary-cpu",
    name="Imaginary CPU",
    peak_flops_per_s={"fp32": 1e12},
    bandwidth_bytes_per_s=1e11,
    memory_bytes=None,
    origin="catalogue",
    source="imaginary",
)
GPU = DeviceInfo(
    slug="imaginary-gpu",
    name="Imaginary GPU",
    peak_flops_per_s={"fp64": 1e12, "fp32": 32e12},
    bandwidth_bytes_per_s=1e12,
    memory_bytes=24_000_000_000,
    origin="catalogue",
    source="imaginary",
)
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
    into = tuple(item if isinstance(item, TensorInfo) else tensor(item) for item in inputs)
    out = tuple(item if isinstance(item, TensorInfo) else tensor(item) for item in outputs)
    values: dict[str, Any] = {
        "index": 0,
        "name": f"node_{out[0].name}",
        "op_type": op_type,
        "domain": "ai.onnx",
        "module": "",
        "module_class": "",
        "source": None,
        "inputs": into,
        "outputs": out,
        "attributes": {},
        "flops": 100,
        "macs": 0,
        "bytes_read": 1000,
        "bytes_written": 500,
        "intensity": None,
        "basis": "exact",
        "note": "",
        "cpu": CpuTime(
            time_s=cpu_s,
            low_s=None if cpu_s is None else cpu_s * 0.5,
            high_s=None if cpu_s is None else cpu_s * 2,
            origin="predicted",
            bound="memory",
        ),
        "gpu": GpuTime(
            time_s=gpu_s,
            low_s=None if gpu_s is None else gpu_s * 0.5,
            high_s=None if gpu_s is None else gpu_s * 2,
            origin="predicted",
            bound=bound,
            supported=why == "cuda-kernel",
            placed_on=placed_on,  # type: ignore[arg-type]
            why=why,
            detail=detail,
            kernel_opset=kernel_opset,
        ),
        "verdict": OperatorVerdict(device="gpu", speedup=10.0, reason="", explanation=""),
        "placement": "gpu" if placed_on == "cuda" else "cpu",
    }
    return OperatorResult(**{**values, **changes})


def copy(name: str, direction: str, nbytes: int, time_s: float = 5e-5, where: str = "inside") -> TransferItem:
    """One copy of a plan."""
    return TransferItem(tensor=name, direction=direction, bytes=nbytes, time_s=time_s, where=where)  # type: ignore[arg-type]


def plan(name: str, latency_s: float, items: Iterable[TransferItem] = (), **changes: Any) -> PlanResult:
    """A plan whose interval is half to double its latency."""
    found = tuple(items)
    values: dict[str, Any] = {
        "name": name,
        "latency_s": latency_s,
        "low_s": latency_s / 2,
        "high_s": latency_s * 2,
        "throughput_per_s": 1 / latency_s,
        "transfers": Transfers(
            count=len(found),
            bytes=sum(item.bytes for item in found),
            time_s=sum(item.time_s for item in found),
            items=found,
        ),
        "memory_bytes": 1_000_000,
        "fits": True,
        "energy_j": None,
        "usd_per_million": None,
        "origin": "predicted",
    }
    return PlanResult(**{**values, **changes})


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
        GroupResult(
            session="cuda",
            name=f"group_{members[0]}",
            op_type=op_type,
            members=members,
            provider="cuda",
            time_s=1e-4,
            low_s=5e-5,
            high_s=2e-4,
            origin="predicted",
        )
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
    from dataclasses import replace

    numbered = tuple(replace(op, index=index) for index, op in enumerate(operators))
    speedup = cpu_s / gpu_s
    values: dict[str, Any] = {
        "model": ModelInfo(
            name="Toy",
            source="models/toy.py",
            digest="0" * 64,
            opset=opset,
            batch=1,
            precision="fp32",
            parameters=10,
            parameter_bytes=40,
            inputs=(tensor("x"),),
            training=False,
        ),
        "devices": Devices(cpu=CPU, gpu=GPU),
        "totals": Totals(
            flops=sum(op.flops or 0 for op in numbered),
            macs=0,
            bytes_read=sum(op.bytes_read or 0 for op in numbered),
            bytes_written=sum(op.bytes_written or 0 for op in numbered),
            intensity=None,
            fused_bytes_read=None,
            fused_bytes_written=None,
            fused_intensity=None,
            peak_memory_bytes=None,
            operators=len(numbered),
            coverage=Coverage(exact=1.0, modelled=0.0, unknown=0.0),
            coverage_time=None,
        ),
        "operators": numbered,
        "groups": groups(numbered, fused),
        "plans": (plan("cpu", cpu_s), plan("gpu", gpu_s, copies), plan("hybrid", min(cpu_s, gpu_s))),
        "verdict": VerdictResult(
            device="gpu" if speedup > 1 else "cpu",
            objective="latency",
            speedup=speedup,
            low=speedup * 0.8,
            high=speedup * 1.25,
            crossover_batch=None,
            reason="",
        ),
        "conventions": {},
        "tool": Tool(name="onnx-analyzer", version="0"),
    }
    return Analysis(**{**values, **changes})


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
