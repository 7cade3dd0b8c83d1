"""Parts of hand-made analyses: an invented network on invented devices, for tests that need a record.

No figure here was measured or is meant to resemble a product. Every builder fills in what a test does not care
about; keyword arguments replace whole fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from analyzer.devices.device import Device
from analyzer.record.analysis import (
    Analysis,
    Coverage,
    CpuTime,
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
)


def made(kind: type, values: dict[str, Any], changes: dict[str, Any]) -> Any:
    """A value of this kind: the defaults, and what is to differ from them."""
    return kind(**{**values, **changes})


def cpu(**changes: Any) -> Device:
    """A CPU of 1 TFLOP/s and 100 GB/s."""
    values = {
        "slug": "imaginary-cpu",
        "kind": "cpu",
        "name": "Imaginary CPU",
        "peak_flops_per_s": {"fp32": 1e12},
        "bandwidth_bytes_per_s": 1e11,
        "memory_bytes": None,
        "origin": "catalogue",
        "source": "imaginary",
    }
    return made(Device, values, changes)


def gpu(**changes: Any) -> Device:
    """A GPU of 32 TFLOP/s and 1 TB/s with 24 GB."""
    values = {
        "slug": "imaginary-gpu",
        "kind": "gpu",
        "name": "Imaginary GPU",
        "peak_flops_per_s": {"fp64": 1e12, "fp32": 32e12},
        "bandwidth_bytes_per_s": 1e12,
        "memory_bytes": 24_000_000_000,
        "origin": "catalogue",
        "source": "imaginary",
    }
    return made(Device, values, changes)


def _around(time_s: float | None, spread: tuple[float, float]) -> dict[str, float | None]:
    low, high = spread
    known = time_s is not None
    return {
        "time_s": time_s,
        "low_s": time_s * low if known else None,
        "high_s": time_s * high if known else None,
    }


def on_cpu(time_s: float | None, spread: tuple[float, float] = (0.5, 2), **changes: Any) -> CpuTime:
    """A time on the CPU; ``spread`` holds the ends of its interval as multiples of it."""
    values = {**_around(time_s, spread), "origin": "predicted", "bound": "memory"}
    return made(CpuTime, values, changes)


def on_gpu(time_s: float | None, spread: tuple[float, float] = (0.5, 2), **changes: Any) -> GpuTime:
    """A time on the GPU; without a CUDA kernel (``why``) it is not supported there."""
    values = {
        **_around(time_s, spread),
        "origin": "predicted",
        "bound": "memory",
        "placed_on": "cuda",
        "why": "cuda-kernel",
    }
    values["supported"] = changes.get("why", values["why"]) == "cuda-kernel"
    return made(GpuTime, values, changes)


def operator(
    op_type: str, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], **changes: Any
) -> OperatorResult:
    """One operator: 1 ms on the CPU, 0.1 ms on the GPU."""
    values = {
        "index": 0,
        "name": f"node_{outputs[0].name}",
        "op_type": op_type,
        "domain": "ai.onnx",
        "module": "",
        "module_class": "",
        "source": None,
        "inputs": tuple(inputs),
        "outputs": tuple(outputs),
        "attributes": {},
        "flops": 100,
        "macs": 0,
        "bytes_read": 1000,
        "bytes_written": 500,
        "intensity": None,
        "basis": "exact",
        "note": "",
        "cpu": on_cpu(1e-3),
        "gpu": on_gpu(1e-4),
        "verdict": OperatorVerdict(device="gpu", speedup=10.0, reason="", explanation=""),
        "placement": "gpu",
    }
    return made(OperatorResult, values, changes)


def copy(name: str, direction: str, nbytes: int, time_s: float = 5e-5, where: str = "inside") -> TransferItem:
    """One copy of a plan."""
    return TransferItem(tensor=name, direction=direction, bytes=nbytes, time_s=time_s, where=where)  # type: ignore[arg-type]


def transfers(items: Iterable[TransferItem] = ()) -> Transfers:
    """These copies with their sums."""
    found = tuple(items)
    return Transfers(
        count=len(found),
        bytes=sum(item.bytes for item in found),
        time_s=sum(item.time_s for item in found),
        items=found,
    )


def plan(
    name: str, latency_s: float, *, batch: int = 1, spread: tuple[float, float] = (0.5, 2), **changes: Any
) -> PlanResult:
    """A plan without copies; ``spread`` holds the ends of its interval as multiples of its latency."""
    values = {
        "name": name,
        "latency_s": latency_s,
        "low_s": latency_s * spread[0],
        "high_s": latency_s * spread[1],
        "throughput_per_s": batch / latency_s,
        "transfers": transfers(),
        "memory_bytes": 1_000_000,
        "fits": True,
        "energy_j": None,
        "usd_per_million": None,
        "origin": "predicted",
    }
    return made(PlanResult, values, changes)


def group(session: str, name: str, op_type: str, members: tuple[int, ...], **changes: Any) -> GroupResult:
    """A group that a session executes as one."""
    values = {
        "session": session,
        "name": name,
        "op_type": op_type,
        "members": members,
        "provider": session,
        "time_s": 1e-4,
        "low_s": 5e-5,
        "high_s": 2e-4,
        "origin": "predicted",
    }
    return made(GroupResult, values, changes)


def model(**changes: Any) -> ModelInfo:
    """A small model."""
    values = {
        "name": "Toy",
        "source": "models/toy.py",
        "digest": "0" * 64,
        "opset": 20,
        "batch": 1,
        "precision": "fp32",
        "parameters": 10,
        "parameter_bytes": 40,
        "inputs": (),
        "training": False,
    }
    return made(ModelInfo, values, changes)


def totals(operators: Sequence[OperatorResult], **changes: Any) -> Totals:
    """The sums over these operators."""
    values = {
        "flops": sum(item.flops or 0 for item in operators),
        "macs": sum(item.macs or 0 for item in operators),
        "bytes_read": sum(item.bytes_read or 0 for item in operators),
        "bytes_written": sum(item.bytes_written or 0 for item in operators),
        "intensity": None,
        "fused_bytes_read": None,
        "fused_bytes_written": None,
        "fused_intensity": None,
        "peak_memory_bytes": None,
        "operators": len(operators),
        "coverage": Coverage(exact=1.0, modelled=0.0, unknown=0.0),
        "coverage_time": None,
    }
    return made(Totals, values, changes)


def verdict(device: str, **changes: Any) -> VerdictResult:
    """A verdict that knows no speed-up."""
    values = {
        "device": device,
        "objective": "latency",
        "speedup": None,
        "low": None,
        "high": None,
        "crossover_batch": None,
        "reason": "",
    }
    return made(VerdictResult, values, changes)


def analysis(operators: Sequence[OperatorResult], **changes: Any) -> Analysis:
    """These operators, the invented devices and nothing else."""
    values = {
        "model": model(),
        "devices": Devices(cpu=cpu(), gpu=gpu()),
        "totals": totals(operators),
        "operators": tuple(operators),
        "groups": (),
        "plans": (),
        "verdict": verdict("either"),
        "conventions": {},
        "tool": Tool(name="onnx-analyzer", version="0"),
    }
    return made(Analysis, values, changes)
