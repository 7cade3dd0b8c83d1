"""Fictitious analyses for the tests of reporting: an invented network on invented devices.

No figure here was measured or is meant to resemble a product; times follow from round numbers so that a
test can work sums out by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import capacity_records
import generation_records
import handmade

from analyzer.decision.plans import Name
from analyzer.devices.device import Link
from analyzer.record.analysis import (
    Alternative,
    Analysis,
    BatchRange,
    CostRow,
    Coverage,
    Devices,
    Environment,
    Finding,
    GroupResult,
    OperatorResult,
    OperatorVerdict,
    PhaseResult,
    Phases,
    PlanResult,
    SweepPlan,
    SweepRow,
    TensorInfo,
    Tool,
    Transfers,
    Where,
)
from analyzer.record.invocation import Invocation

CPU = handmade.cpu(
    name="Imaginary CPU 12",
    memory_bytes=64 * 10**9,
    origin="calibrated",
    source="measured on an imaginary machine",
    tdp_w=100.0,
)
GPU = handmade.gpu(
    name="Imaginary GPU 3000",
    peak_flops_per_s={"fp32": 2e13, "tf32": 4e13, "fp16": 8e13},
    bandwidth_bytes_per_s=5e11,
    source="an imaginary data sheet",
    tdp_w=150.0,
    link=Link(name="Imaginary link x16", bandwidth_bytes_per_s=1e10, pageable_bytes_per_s=1e10),
)
KINDS = ("Conv", "BatchNormalization", "Relu", "MaxPool")
FLOPS = {"Conv": 2_000_000_000, "BatchNormalization": 2_000_000, "Relu": 1_000_000, "MaxPool": 0}


def operator(index: int, op_type: str, **changes: Any) -> OperatorResult:
    """One operator: 1 ms on the CPU and 0.1 ms on the GPU, its GPU time predicted."""
    cpu_s = 1e-3 * (1 + index % 5)
    fallen = op_type == "MaxPool"
    gpu_s = cpu_s if fallen else cpu_s / 10
    flops = FLOPS.get(op_type, 1000)
    shape = (8, 64, 56, 56)
    gpu = handmade.on_gpu(
        gpu_s,
        (0.7, 1.5),
        origin="measured" if fallen else "predicted",
        placed_on="cpu" if fallen else "cuda",
        why="no-kernel-for-opset" if fallen else "cuda-kernel",
    )
    verdict = OperatorVerdict(
        device="either" if fallen else "gpu",
        speedup=1.0 if fallen else 10.0,
        reason="no-cuda-kernel" if fallen else "compute-bound",
        explanation="No CUDA kernel for this opset." if fallen else "The GPU computes it ten times faster.",
    )
    line = Where(file="samples/imaginary.py", line=10 + index % 40, code=f"x = self.{op_type.lower()}(x)")
    into, out = (TensorInfo(name=f"t{at}", shape=shape, dtype="float32") for at in (index, index + 1))
    values: dict[str, Any] = {
        "index": index,
        "name": f"/{op_type.lower()}_{index}",
        "module": f"stage{index // 12}.block{index // 4 % 3}.{op_type.lower()}",
        "module_class": op_type,
        "source": line,
        "flops": flops,
        "macs": flops // 2 if op_type == "Conv" else 0,
        "bytes_read": 6_000_000,
        "bytes_written": 4_000_000,
        "intensity": flops / 10_000_000,
        "cpu": handmade.on_cpu(cpu_s, (0.9, 1.1), origin="measured", bound="compute"),
        "gpu": gpu,
        "verdict": verdict,
        "placement": "cpu" if fallen else "gpu",
    }
    return handmade.operator(op_type, [into], [out], **{**values, **changes})


def operators(count: int) -> tuple[OperatorResult, ...]:
    """A chain of this many operators, every fourth of them without a CUDA kernel."""
    return tuple(operator(index, kind) for index, kind in zip(range(count), cycle(KINDS), strict=False))


def groups(items: Sequence[OperatorResult]) -> tuple[GroupResult, ...]:
    """Conv and BatchNormalization fused in both sessions, the rest alone."""
    result = []
    for session, provider in (("cpu", "cpu"), ("cuda", "cuda")):
        for item in items:
            if item.op_type == "BatchNormalization":
                continue
            fused = item.op_type == "Conv" and item.index + 1 < len(items)
            members = (item.index, item.index + 1) if fused else (item.index,)
            shares = [items[index].cpu if session == "cpu" else items[index].gpu for index in members]
            time_s = sum(share.time_s or 0.0 for share in shares if share is not None)
            result.append(
                handmade.group(
                    session,
                    f"{item.name}_fused" if fused else item.name,
                    "FusedConv" if fused else item.op_type,
                    members,
                    provider="cpu" if item.op_type == "MaxPool" else provider,
                    time_s=time_s,
                    low_s=time_s / 2,
                    high_s=time_s * 1.5,
                    origin="measured" if session == "cpu" else "predicted",
                )
            )
    return tuple(result)


def plan(name: str, latency_s: float, **changes: Any) -> PlanResult:
    """A plan at batch 8 with an interval of 10 %."""
    values: dict[str, Any] = {
        "memory_bytes": 500_000_000,
        "energy_j": 1.5,
        "usd_per_million": 12.5,
        "origin": "measured",
        "operators_on_cpu": 24,
        "instance": "imaginary.large",
    }
    return handmade.plan(name, latency_s, batch=8, spread=(0.9, 1.1), **{**values, **changes})


def transfers(items: Sequence[OperatorResult]) -> Transfers:
    """The input, the output, and two copies around each operator that falls to the CPU."""
    copies = [handmade.copy("t0", "to_gpu", 1_000_000, 1e-4, "input")]
    for item in items:
        if item.placement == "cpu" and item.index + 1 < len(items):
            copies.append(handmade.copy(item.inputs[0].name, "to_cpu", 500_000))
            copies.append(handmade.copy(item.outputs[0].name, "to_gpu", 500_000))
    copies.append(handmade.copy(f"t{len(items)}", "to_cpu", 4_000, 1e-5, "output"))
    return handmade.transfers(copies)


def sweep() -> tuple[SweepRow, ...]:
    """The CPU wins at batch 1 and 2, the GPU from 4 on."""
    rows = []
    for batch in (1, 2, 4, 8, 16, 32, 64):
        cpu_s, gpu_s = 4e-3 * batch, 10e-3 + 0.5e-3 * batch
        pair: dict[Name, SweepPlan] = {}
        times: tuple[tuple[Name, float], ...]
        times = (("cpu", cpu_s), ("gpu", gpu_s), ("hybrid", min(cpu_s, gpu_s)))
        for name, time_s in times:
            pair[name] = SweepPlan(
                latency_s=time_s,
                low_s=time_s * 0.8,
                high_s=time_s * 1.2,
                throughput_per_s=batch / time_s,
                origin="measured" if name == "cpu" and batch in (1, 8) else "predicted",
                fits=not (name == "gpu" and batch == 64),
            )
        rows.append(SweepRow(batch=batch, plans=pair))
    return tuple(rows)


COSTS = (
    CostRow(
        provider="imaginary",
        instance="i.gpu.large",
        gpu="Imaginary GPU 3000",
        usd_per_hour=0.8,
        price_date="2026-01-01",
        throughput_per_s=500.0,
        latency_s=0.016,
        usd_per_million=0.444,
        meets_slo=True,
    ),
    CostRow(
        provider="imaginary",
        instance="i.cpu.large",
        gpu=None,
        usd_per_hour=0.4,
        price_date="2026-01-01",
        throughput_per_s=100.0,
        latency_s=0.08,
        usd_per_million=1.11,
        meets_slo=False,
    ),
)
FINDINGS = (
    Finding(
        code="A101",
        severity="error",
        operator=3,
        message="MaxPool runs on the CPU and copies 1 MB inside the graph.",
        fix="Export with opset 21.",
        seconds=1e-4,
        bytes=1_000_000,
    ),
    Finding(code="A501", severity="note", operator=None, message="TF32 is used.", fix="--precision fp32"),
)


def analysis(count: int = 24, **changes: Any) -> Analysis:
    """The invented network with this many operators; keyword arguments replace whole keys."""
    items = operators(count)
    flops = sum(item.flops or 0 for item in items)
    moved = transfers(items)
    values: dict[str, Any] = {
        "model": handmade.model(
            name="imaginary",
            source="samples/imaginary.py",
            opset=22,
            batch=8,
            precision="tf32",
            parameters=1_000_000,
            parameter_bytes=4_000_000,
            inputs=(TensorInfo(name="t0", shape=(8, 3, 224, 224), dtype="float32"),),
            outputs=(TensorInfo(name=f"t{count}", shape=(8, 10), dtype="float32"),),
            inputs_origin="file",
            exporter="torch.export",
        ),
        "devices": Devices(cpu=CPU, gpu=GPU),
        "totals": handmade.totals(
            items,
            intensity=flops / (10_000_000 * count) if count else None,
            fused_bytes_read=4_000_000 * count,
            fused_bytes_written=3_000_000 * count,
            fused_intensity=flops / (7_000_000 * count) if count else None,
            peak_memory_bytes=40_000_000,
            coverage_time=Coverage(exact=1.0, modelled=0.0, unknown=0.0),
        ),
        "groups": groups(items),
        "plans": (
            plan("cpu", 0.080),
            plan("gpu", 0.020, origin="mixed", transfers=moved, usd_per_million=0.444, energy_j=0.4),
            plan("hybrid", 0.018, origin="mixed", transfers=moved, usd_per_million=0.4, energy_j=0.39),
        ),
        "verdict": handmade.verdict(
            "gpu",
            speedup=4.0,
            low=3.2,
            high=5.1,
            crossover_batch=4,
            ranges=(
                BatchRange(first=1, last=3, device="cpu"),
                BatchRange(first=4, last=64, device="gpu"),
            ),
            reason="The convolutions are compute-bound and the GPU computes them ten times faster.",
            sentence="Run it on the Imaginary GPU 3000: 4x faster than the Imaginary CPU 12.",
            because=(
                "Convolutions take 60 % of the time on the CPU and are compute-bound.",
                "Copies of inputs and outputs take 0.11 ms, less than a hundredth of what is saved.",
                "Six MaxPool operators have no CUDA kernel at opset 22.",
            ),
            would_change=("Below batch 4 the CPU is faster.",),
            crossovers=(4,),
            saturation_batch=32,
            largest_batch=32,
        ),
        "conventions": {"flops_per_mac": 2, "dense": True, "bytes": "compulsory traffic of the operator alone"},
        "tool": Tool(name="onnx-analyzer", version="0.0.0"),
        "invocation": Invocation(
            command="run",
            model="samples/imaginary.py",
            options={"batch": ("8,1",), "slo": ("20ms",)},
            stand_ins={"gpu": ("imaginary-gpu",)},
        ),
        "costs": COSTS,
        "sweep": sweep(),
        "findings": FINDINGS,
        "environment": Environment(
            versions={"onnxruntime": "0.0.0", "torch": "0.0.0"},
            platform="imaginary OS",
            cpu="Imaginary CPU 12",
            threads=2,
            load_before=0.1,
            load_after=0.2,
            warmup_runs=3,
            runs=20,
            date="2026-01-01T00:00:00Z",
            timings_s={"export": 3.5},
        ),
    }
    return handmade.analysis(items, **{**values, **changes})


def generation(**changes: Any) -> Analysis:
    """A model that generates: the answer of ``generation_records``, the usual network as its decode step."""
    base = analysis()
    phase = PhaseResult(
        totals=base.totals,
        operators=base.operators,
        plans=(plan("cpu", 10.0), plan("gpu", 0.2)),
        verdict=replace(base.verdict, sentence="Run the prefill on the Imaginary GPU 3000."),
    )
    told = generation_records.generation(**changes)
    return replace(base, generation=told, phases=Phases(prefill=phase))


def capacity(**changes: Any) -> Analysis:
    """A capacity plan: the answer of ``capacity_records``, the usual network as its model."""
    return replace(analysis(), capacity=capacity_records.capacity(**changes))


def without_capacity(**changes: Any) -> Analysis:
    """A capacity plan without an answer."""
    return replace(analysis(), capacity=capacity_records.impossible(**changes))


def generation_capacity(**changes: Any) -> Analysis:
    """The same of a model that generates, above the answer of one request."""
    return replace(generation(), capacity=capacity_records.generation(**changes))


def without_gpu() -> Analysis:
    """As with ``--gpu none``."""
    base = analysis()
    return replace(
        base,
        devices=Devices(cpu=CPU, gpu=None),
        operators=tuple(
            replace(item, gpu=None, placement="cpu", verdict=replace(item.verdict, device="cpu", speedup=None))
            for item in base.operators
        ),
        plans=(plan("cpu", 0.080),),
        verdict=handmade.verdict("cpu", reason="No GPU was asked for."),
        groups=tuple(group for group in base.groups if group.session == "cpu"),
        costs=(),
        sweep=(),
    )


def without_times() -> Analysis:
    """A record whose operators have no times at all, and one whose cost nobody knows."""
    base = analysis()
    blind = tuple(
        replace(
            item,
            cpu=handmade.on_cpu(None, bound=None),
            gpu=None
            if item.gpu is None
            else replace(item.gpu, time_s=None, low_s=None, high_s=None, bound=None),
        )
        for item in base.operators
    )
    unknown = replace(
        blind[0],
        op_type="Custom",
        domain="com.acme",
        flops=None,
        macs=None,
        bytes_read=None,
        bytes_written=None,
        intensity=None,
        basis="unknown",
        note="no rule for com.acme::Custom",
    )
    totals = replace(base.totals, coverage=Coverage(exact=0.9, modelled=0.0, unknown=0.1), coverage_time=None)
    return replace(base, operators=(unknown, *blind[1:]), totals=totals, sweep=(), costs=(), groups=())


def empty() -> Analysis:
    """A model without operators."""
    return analysis(0, sweep=(), costs=(), findings=(), groups=())


def alternative() -> Alternative:
    """A second GPU, half as fast."""
    base = analysis()
    return Alternative(
        device=replace(GPU, slug="imaginary-small", name="Imaginary GPU 1000"),
        plans=(plan("gpu", 0.040, origin="mixed"),),
        verdict=replace(base.verdict, speedup=2.0, low=1.5, high=2.6),
    )


HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"


def hostile() -> Analysis:
    """A model whose every name tries to be markup."""
    base = analysis(8)
    items = tuple(
        replace(
            item,
            name=f"{HOSTILE}{item.index}",
            op_type=HOSTILE,
            module=f"{HOSTILE}.a",
            source=Where(file=HOSTILE, line=1, code=HOSTILE),
            note=HOSTILE,
        )
        for item in base.operators
    )
    return replace(
        base,
        operators=items,
        model=replace(base.model, name=HOSTILE, source=HOSTILE),
        findings=(Finding(code="A101", severity="warning", operator=0, message=HOSTILE, fix=HOSTILE),),
        verdict=replace(base.verdict, reason=HOSTILE, sentence=HOSTILE, because=(HOSTILE,)),
        environment=replace(base.environment, versions={HOSTILE: HOSTILE}, messages=(HOSTILE,)),
    )


def with_alternative() -> Analysis:
    """A record of two GPUs."""
    return replace(analysis(), alternatives=(alternative(),))


def alike(count: int, of_each: int) -> Analysis:
    """So many types with so many operators each, of 0.1 ms each in the best plan and 1 ms on the CPU."""
    base = analysis(count * of_each)
    first = base.operators[0]
    items = tuple(
        replace(first, index=at, op_type=f"Type{at % count}", module=f"block{at}")
        for at in range(count * of_each)
    )
    return replace(base, operators=items)


def graph_network() -> Analysis:
    """A call of a graph network: 144 atoms and 2,448 edges, and no batch."""
    base = analysis()
    verdict = replace(base.verdict, crossover_batch=None, ranges=())
    atoms = replace(base.model.inputs[0], name="pos", shape=(144, 3))
    inputs = (atoms, replace(atoms, name="edge_index", shape=(2, 2448), dtype="int64"))
    left_out = ("y was left out (None); --input y=... gives it.",)
    model = replace(base.model, batch=1, inputs=inputs, notes=left_out)
    return replace(base, model=model, sweep=(), verdict=verdict)
