"""Fictitious fleets for the tests of reporting: invented models on invented devices, round figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analyzer.record.analysis import Tool
from analyzer.record.fleet import (
    Consolidation,
    DeviceBias,
    Fleet,
    FleetDevice,
    FleetEnvironment,
    FleetFailure,
    FleetModel,
    Move,
    PackedInstance,
    PackedModel,
    Today,
    Traffic,
)
from analyzer.record.outcome import RankedWay

# What steers a terminal, commands a CI server, ends a script, is markup, a formula or a mention.
CONTROLS = "\x00\x07\x1b[31m\x7f\x85\x9b2J\u061c\u200e\u200f\u2028\u2029\u202e\u2066"
HOSTILE = (
    f"::error::a{CONTROLS}b\n::error::c\r\n ##[error]d </script><img src=x onerror=alert(1)> [red]=1+1|`#1@me"
)

TOOL = Tool(name="analyze", version="0.0.0")
DEVICES = (
    FleetDevice(slug="t4", name="NVIDIA T4", kind="gpu"),
    FleetDevice(slug="l4", name="NVIDIA L4", kind="gpu"),
    FleetDevice(slug="a100", name="NVIDIA A100 SXM4 80GB", kind="gpu"),
    FleetDevice(slug="epyc", name="AMD EPYC 9654", kind="cpu"),
)


def cell(
    device: str, batch: int | None, latency_s: float | None, dollars: float | None, **more: Any
) -> RankedWay:
    """One cell with an interval of 10 % and dollars with one of 20 %."""
    side = "cpu" if device == "epyc" else "gpu"
    values: dict[str, Any] = {
        "device": device,
        "kind": side,
        "batch": batch,
        "plan": side,
        "precision": "fp32",
        "latency_s": latency_s,
        "low_s": None if latency_s is None else 0.9 * latency_s,
        "high_s": None if latency_s is None else 1.1 * latency_s,
        "memory_bytes": 10**9,
        "usd_per_million": dollars,
        "usd_low_per_million": None if dollars is None else 0.8 * dollars,
        "usd_high_per_million": None if dollars is None else 1.2 * dollars,
        "provider": "AWS" if dollars is not None else "",
        "instance": f"{device}.large" if dollars is not None else "",
        "usd_per_hour": 0.5 if dollars is not None else None,
        "region": "us-east-1" if dollars is not None else "",
        "energy_j": 0.25,
    }
    return RankedWay(**{**values, **more})


def classifier() -> FleetModel:
    """Two batches on four devices: the L4 at batch 64 costs least, 20 cents a million."""
    times = {"t4": (0.004, 0.100), "l4": (0.003, 0.060), "a100": (0.002, 0.020), "epyc": (0.010, 0.500)}
    dollars = {"t4": (0.9, 0.4), "l4": (0.8, 0.2), "a100": (4.0, 0.6), "epyc": (0.5, 0.45)}
    cells = tuple(
        cell(
            device, batch, times[device][at], dollars[device][at], meets=not (device == "epyc" and batch == 64)
        )
        for device in times
        for at, batch in enumerate((1, 64))
    )
    return FleetModel(
        name="resnet50",
        reference="samples/resnet50.py",
        options={"batch": ("1,64",), "slo": ("200ms",)},
        owner="vision",
        tags=("image", "core"),
        traffic=Traffic(rate=120.0, limit_s=0.2, percentile=99),
        today=Today(instance="g5.xlarge", count=2),
        digest="0123",
        parameters=25_557_032,
        device="gpu",
        sentence="L4 at batch 64 costs least.",
        errors=1,
        warnings=2,
        cells=cells,
        best=5,
        cheapest=3,
        notes=("the inputs were inferred",),
    )


def generator() -> FleetModel:
    """A model that generates: 5 dollars a million tokens on the A100, and it does not fit the T4."""
    common: dict[str, Any] = {"plan": "gpu", "gpus": 2}
    cells = (
        cell("t4", 8, 9.0, None, fits=False, memory_bytes=30 * 10**9, note="needs 30 GB", **common),
        cell(
            "a100",
            8,
            2.0,
            5.0,
            ttft_s=0.18,
            tpot_s=0.0125,
            throughput_per_s=640.0,
            memory_bytes=30 * 10**9,
            **common,
        ),
        cell(
            "epyc",
            8,
            40.0,
            90.0,
            ttft_s=4.0,
            tpot_s=0.25,
            throughput_per_s=32.0,
            memory_bytes=30 * 10**9,
            plan="cpu",
        ),
    )
    return FleetModel(
        name="llama",
        reference="zoo/llama/config.json",
        question="generate",
        owner="language",
        tags=("text",),
        device="gpu",
        sentence="A100: the first token comes after 180 ms.",
        cells=cells,
        best=1,
        cheapest=1,
    )


def service() -> FleetModel:
    """A service: three L4 for 1,800 dollars a month."""
    cells = (
        cell("l4", 16, 0.038, 0.7, usd_per_month=1800.0, count=3, meets=True),
        cell("t4", 8, 0.045, 0.9, usd_per_month=2400.0, count=5, meets=True),
        cell("epyc", 1, None, None, meets=False, note="no count keeps the limit"),
    )
    return FleetModel(
        name="ranker",
        reference="zoo.ranker:Ranker",
        question="capacity",
        owner="search",
        tags=("core",),
        traffic=Traffic(rate=500.0, limit_s=0.05, percentile=99),
        device="gpu",
        sentence="3 x l4.large keep 500 requests/s.",
        cells=cells,
        best=0,
        cheapest=0,
    )


def homeless() -> FleetModel:
    """A model that keeps its limit nowhere."""
    cells = tuple(cell(device, 1, 0.3, 1.0, meets=False) for device in ("t4", "l4"))
    return FleetModel(
        name="slow",
        reference="slow.onnx",
        owner="vision",
        device="either",
        sentence="Nothing keeps 10 ms.",
        cells=cells,
    )


def failing(name: str = "broken", kind: Any = "timeout") -> FleetModel:
    """A model without a record."""
    return FleetModel(
        name=name,
        reference=f"{name}.py",
        owner="search",
        failure=FleetFailure(kind=kind, message="It took longer than 60 s.", hint="Raise --timeout."),
    )


def fleet(**changes: Any) -> Fleet:
    """Five models: one of each question, one without an answer, one that failed."""
    whole = Fleet(
        models=(failing(), generator(), service(), classifier(), homeless()),
        devices=DEVICES,
        sentences=("1 of 5 models pays for a GPU that it does not need: $500 a month.", "1 model failed."),
        moves=(
            Move(
                model="resnet50",
                today_instance="g5.xlarge",
                today_count=2,
                today_usd_per_month=1468.0,
                cell=3,
                instance="l4.large",
                count=1,
                usd_per_month=968.0,
                saved_usd_per_month=500.0,
                certain=True,
            ),
        ),
        consolidation=Consolidation(
            instances=(
                PackedInstance(
                    provider="AWS",
                    instance="l4.large",
                    device="l4",
                    count=2,
                    usd_per_month=1168.0,
                    models=(
                        PackedModel(
                            model="ranker", cell=0, share=0.45, rate=250.0, memory_bytes=10**9, latency_s=0.04
                        ),
                        PackedModel(
                            model="resnet50",
                            cell=3,
                            share=0.3,
                            rate=60.0,
                            memory_bytes=2 * 10**9,
                            latency_s=0.15,
                        ),
                    ),
                ),
            ),
            usd_per_month=1168.0,
            least_usd_per_month=1100.0,
            apart_usd_per_month=2768.0,
            left_out={"slow": "no device keeps its limit"},
            notes=("Requests come at random.",),
        ),
        biases=(DeviceBias(device="l4", models=3, ratio=1.12, low=1.05, high=1.2),),
        environment=FleetEnvironment(
            where="this machine", date="2026-01-02", versions={"onnxruntime": "0.0.0"}, kept=("llama",)
        ),
        tool=TOOL,
    )
    return replace(whole, **changes)


def hostile(text: str) -> Fleet:
    """A fleet with this in every text that may be any."""
    whole = fleet()
    models = []
    for at, model in enumerate(whole.models):
        cells = tuple(
            replace(one, precision=text, provider=text, instance=text, region=text, note=text)
            for one in model.cells
        )
        failure = None if model.failure is None else replace(model.failure, message=text, hint=text)
        models.append(
            replace(
                model,
                name=f"{at}{text}",
                reference=text,
                options={"batch": (text,)},
                owner=text,
                tags=(text,),
                today=Today(instance=text),
                digest=text,
                sentence=text,
                notes=(text,),
                cells=cells,
                failure=failure,
            )
        )
    packed = whole.consolidation
    assert packed is not None
    machine = replace(
        packed.instances[0],
        provider=text,
        instance=text,
        models=tuple(
            replace(one, model=models[at].name)
            for at, one in zip((2, 3), packed.instances[0].models, strict=True)
        ),
    )
    return replace(
        whole,
        models=tuple(models),
        devices=tuple(replace(device, name=text) for device in whole.devices),
        sentences=(text, text),
        moves=(replace(whole.moves[0], model=models[3].name, today_instance=text, instance=text),),
        consolidation=replace(packed, instances=(machine,), left_out={text: text}, notes=(text,)),
        environment=FleetEnvironment(
            where=text, date=text, versions={text: text}, kept=(text,), facts={text: text}
        ),
        tool=Tool(name=text, version=text),
    )


def large(models: int = 1000, devices: int = 30, batches: tuple[int, ...] = (1, 64)) -> Fleet:
    """As many as a platform team has: every figure with an interval, a tenth of the models generate."""
    chance = np.random.default_rng(4711)
    columns = tuple(
        FleetDevice(
            slug=f"gpu-{at}" if at < devices - 2 else f"cpu-{at}",
            name=f"NVIDIA Imaginary {at * 100} PCIe" if at < devices - 2 else f"Imaginary Xeon {at}",
            kind="gpu" if at < devices - 2 else "cpu",
        )
        for at in range(devices)
    )
    speeds = np.exp(chance.normal(0, 0.8, devices))
    prices = 0.5 * speeds**0.8 * np.exp(chance.normal(0, 0.3, devices))
    return Fleet(
        models=tuple(_one_of_many(at, columns, speeds, prices, batches, chance) for at in range(models)),
        devices=columns,
        sentences=(f"14 of {models:,} models pay for a GPU that they do not need: $3,100 a month.",),
        environment=FleetEnvironment(where="this machine", versions={"onnxruntime": "0.0.0"}),
        tool=TOOL,
    )


def _one_of_many(at: int, columns: Any, speeds: Any, prices: Any, batches: Any, chance: Any) -> FleetModel:
    name, owner = f"team-{at % 23}-model-{at:04}", f"team-{at % 23}"
    if at % 50 == 49:
        return replace(failing(name, ("error", "timeout", "killed", "memory")[at % 4]), owner=owner)
    generates = at % 10 == 3
    work, size = float(np.exp(chance.normal(-4, 1.5))), int(chance.integers(10**7, 4 * 10**10))
    cells = []
    for place, column in enumerate(columns):
        for batch in batches:
            middle = work * (0.2 + 0.03 * batch) / float(speeds[place]) * float(np.exp(chance.normal(0, 0.2)))
            dollars = float(prices[place]) * middle / batch / 3600 * 1e6
            spread = float(chance.uniform(1.05, 1.6))
            fits = size < (place + 1) * 5 * 10**9
            cells.append(
                RankedWay(
                    device=column.slug,
                    kind=column.kind,
                    batch=batch,
                    plan=column.kind if place % 5 else "hybrid" if column.kind == "gpu" else "cpu",
                    precision="tf32" if column.kind == "gpu" else "fp32",
                    fits=fits,
                    meets=middle < 0.5,
                    latency_s=middle,
                    low_s=middle / spread,
                    high_s=middle * spread,
                    ttft_s=0.2 * middle if generates else None,
                    tpot_s=0.01 * middle if generates else None,
                    throughput_per_s=100 * batch / middle if generates else None,
                    memory_bytes=size + batch * 10**7,
                    usd_per_million=dollars,
                    usd_low_per_million=dollars / spread,
                    usd_high_per_million=dollars * spread,
                    provider=("AWS", "Azure", "GCP")[place % 3],
                    instance=f"{column.slug}.xlarge",
                    usd_per_hour=float(prices[place]),
                    region="us-east-1",
                    energy_j=middle * 70 / batch,
                    note="" if fits else f"needs {(size + batch * 10**7) / 1e9:.1f} GB",
                )
            )
    usable = [index for index, one in enumerate(cells) if one.fits and one.meets]
    best = min(usable, key=lambda index: cells[index].usd_per_million or 0.0, default=None)
    return FleetModel(
        name=name,
        reference=f"zoo/{owner}/{name}.onnx",
        question="generate" if generates else "run",
        owner=owner,
        tags=(("image", "text", "speech")[at % 3], *(("core",) if at % 7 == 0 else ())),
        digest=f"{at:064x}",
        parameters=size // 4,
        device="gpu" if best is not None and cells[best].kind == "gpu" else "cpu",
        sentence=f"{columns[at % len(columns)].name} costs least of all devices at batch {batches[-1]}.",
        cells=tuple(cells),
        best=best,
        cheapest=best,
    )
