"""A hand-made answer of a model that generates, for tests that need a record with one.

No figure here was measured or is meant to resemble a product; they are round, so that a test can work them out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from handmade import made

from analyzer.record.generation import (
    GenerationMemory,
    GenerationOption,
    GenerationPoint,
    GenerationResult,
    PhaseVerdict,
    RequestTimes,
)

GB = 10**9
PROMPT, OUTPUT = 1000, 101
CONTEXTS = (512, PROMPT, PROMPT + OUTPUT, 4096)


def times(scale: float = 1.0, **changes: Any) -> RequestTimes:
    """0.2 s to the first token and 10 ms for each of 100 more, half to double; ``scale`` multiplies them."""
    values: dict[str, Any] = {"origin": "predicted"}
    # 1.2 s in all for 101 tokens of each of 8 sequences.
    for name, time_s in (("ttft", 0.2), ("tpot", 0.01), ("request", 1.2)):
        values |= {
            f"{name}_s": time_s * scale,
            f"{name}_low_s": time_s * scale / 2,
            f"{name}_high_s": time_s * scale * 2,
        }
    values["tokens_per_s"] = 8 * OUTPUT / (1.2 * scale)
    return made(RequestTimes, values, changes)


def times_of(scale: float) -> dict[str, Any]:
    return vars(times(scale))


def memory(**changes: Any) -> GenerationMemory:
    """16 of the 22 GB that one device leaves."""
    values = {
        "weights_bytes": 12 * GB,
        "kv_bytes": 3 * GB,
        "activation_bytes": GB,
        "total_bytes": 16 * GB,
        "fits": True,
        "device_bytes": 16 * GB,
        "available_bytes": 22 * GB,
    }
    return made(GenerationMemory, values, changes)


def option(device: str = "imaginary-gpu", name: str = "Imaginary GPU 3000", **changes: Any) -> GenerationOption:
    """The device that was asked for, at 4 dollars for a million tokens."""
    values = {
        "device": device,
        "name": name,
        "kind": "gpu",
        "gpus": 1,
        "weights": "fp16",
        "kv": "fp16",
        **times_of(1.0),
        "fits": True,
        "meets_limits": None,
        "memory_bytes": 16 * GB,
        "largest_batch": 24,
        "batch": 8,
        "usd_per_hour": 1.5,
        "usd_per_million_tokens": 4.0,
        "provider": "imaginary",
        "instance": "i.gpu.large",
    }
    return made(GenerationOption, values, changes)


def devices() -> tuple[GenerationOption, ...]:
    """Two with a price, one without, and the CPU, in which it does not fit."""
    return (
        option("imaginary-small", "Imaginary GPU 1000", **times_of(2.5), usd_per_million_tokens=3.0),
        option(),
        option(
            "imaginary-large",
            "Imaginary GPU 9000",
            **times_of(0.5),
            gpus=2,
            usd_per_hour=None,
            usd_per_million_tokens=None,
            provider="",
            instance="",
        ),
        option(
            "imaginary-cpu",
            "Imaginary CPU 12",
            kind="cpu",
            gpus=0,
            weights="fp32",
            kv="fp32",
            **times_of(50.0),
            fits=False,
            largest_batch=0,
            usd_per_hour=None,
            usd_per_million_tokens=None,
            provider="",
            instance="",
        ),
    )


def on_cpu(**changes: Any) -> GenerationOption:
    """Fifty times as long."""
    return replace(devices()[-1], memory_bytes=32 * GB, **changes)


def sweep() -> tuple[GenerationPoint, ...]:
    """Times rise with the batch; from batch 32 on the longest context has no room."""
    return tuple(
        GenerationPoint(
            batch=batch,
            context=context,
            ttft_s=2e-4 * context * batch / 8,
            ttft_low_s=1e-4 * context * batch / 8,
            ttft_high_s=4e-4 * context * batch / 8,
            tpot_s=8e-3 + 2.5e-4 * batch,
            tpot_low_s=4e-3,
            tpot_high_s=3.2e-2,
            tokens_per_s=batch / (8e-3 + 2.5e-4 * batch),
            fits=not (batch == 32 and context == 4096),
        )
        for batch in (1, 8, 32)
        for context in CONTEXTS
    )


def generation(**changes: Any) -> GenerationResult:
    """Eight sequences on one invented GPU of 24 GB, without limits."""
    values: dict[str, Any] = {
        "prompt_tokens": PROMPT,
        "output_tokens": OUTPUT,
        "batch": 8,
        "gpus": 1,
        "device": "imaginary-gpu",
        "weights": "fp16",
        "kv": "fp16",
        "launch": "session",
        **times_of(1.0),
        "kv_bytes_per_token": 340_000,
        "state_bytes": 0,
        "memory": memory(),
        "largest_batch": 24,
        "longest_context": 3500,
        "model_context": 4096,
        "usd_per_million_tokens": 4.0,
        "provider": "imaginary",
        "instance": "i.gpu.large",
        "joules_per_token": 0.5,
        "cpu": on_cpu(),
        "sweep": sweep(),
        "cheapest": 0,
        "devices": devices(),
        "types": (
            option(prefill_speedup=1.0, decode_speedup=1.0),
            option(kv="int8", largest_batch=48, **times_of(0.9), prefill_speedup=1.0, decode_speedup=1.11),
            option(weights="int4", largest_batch=40, **times_of(0.5), prefill_speedup=2.0, decode_speedup=2.0),
            option(weights="int4", kv="int8", **times_of(0.4), largest_batch=80),
        ),
        "widths": (option(), option(gpus=2, **times_of(0.6), prefill_speedup=1.7, decode_speedup=1.6)),
        "frontier": {
            gpus: {context: gpus * 24_000 // context for context in (512, 1024, 4096, 32768)} for gpus in (1, 2)
        },
        "parts": {
            "Attention": {"prefill": 0.05, "decode": 0.004},
            "Mlp": {"prefill": 0.15, "decode": 0.006},
        },
        "phases": (
            PhaseVerdict(
                phase="prefill", device="gpu", cpu_s=10.0, gpu_s=0.2, speedup=50.0, low=20.0, high=120.0
            ),
            PhaseVerdict(
                phase="decode", device="either", cpu_s=0.5, gpu_s=0.01, speedup=50.0, low=0.9, high=90.0
            ),
        ),
        "notes": ("No request waits.",),
    }
    return made(GenerationResult, values, changes)
