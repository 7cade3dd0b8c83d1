"""A CPU of the catalogue in the keys of a calibration: one measured core, scaled by peak, caches and bandwidth."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from analyzer.devices.device import Device

_FILE = Path(__file__).with_name("reference_core.toml")
# Vector width and clock make the peak; operators that do not multiply gain less from both than products do.
_ELEMENT_EXPONENT = 0.75
_CACHE_EXPONENT = 0.5
# Streams reach this share of the channels' peak: STREAM on three servers, 78 to 83 % (AnandTech 11544 and others).
_STREAM_SHARE = 0.78
# Work on one thread that is worth one more: MLAS gives each thread 2 x 64 x 1024 FLOPs; elementwise operators as Eigen.
_GRAIN_FLOPS = 131072.0
_GRAIN_S = 10e-6
_SYNC_S = 1e-6
# Each further thread adds this much less than a whole one (memory, clock under load, uneven shares).
_EFFICIENCY = 0.9
_L2_BYTES = 1 << 20
_PROBE = 256 * 1024


def reference_ceilings(device: Device, threads: int) -> Mapping[str, float]:
    """The keys of a calibration, for one thread and for ``threads``."""
    figures = (
        device.peak_flops_per_s["fp32"],
        device.bandwidth_bytes_per_s,
        device.cache_bytes or 0,
        device.units,
    )
    int8 = device.peak_flops_per_s.get("int8", 0.0)
    return _scaled(*figures, int8, max(1, threads))


@lru_cache(maxsize=256)
def _scaled(
    peak: float, bandwidth: float, cache_bytes: int, units: int, int8: float, threads: int
) -> Mapping[str, float]:
    core = _core()
    ratio = peak / units / core["peak_flops_per_s"]
    gain = _gain(min(threads, units))
    found: dict[str, float] = {"threads": float(threads), "cores": float(units)}
    for count, more in {1: 1.0, threads: gain}.items():
        found[f"dispatch.t{count}"] = core["overhead"]["dispatch"] / ratio**_CACHE_EXPONENT
        found[f"call.t{count}"] = core["overhead"]["call"] / ratio**_CACHE_EXPONENT
        _products(found, core, count, ratio, more, int8 / peak if int8 else 1.0)
        _elements(found, core, count, ratio, more)
        _copies(found, core, count, ratio, bandwidth, cache_bytes)
    return found


def _products(
    found: dict[str, float], core: Mapping[str, Any], threads: int, ratio: float, more: float, int8: float
) -> None:
    for family in ("gemm", "gemm_dynamic", "gemm_trans", "bmm", "conv", "attention"):
        for name, rate in core[family].items():
            kind, _, shape = name.partition(".")
            scale = ratio * (_useful(shape, more) if threads > 1 else 1.0)
            if kind == "int8":
                # The reference core's own int8 peak is 4 x its fp32 peak.
                scale *= int8 / 4.0
            found[f"{family}.{kind}.t{threads}.{shape}"] = rate * scale


def _useful(shape: str, more: float) -> float:
    """How much faster threads make a product of this shape."""
    sizes = {part[0]: float(part[1:]) for part in shape.split(".") if part[1:].isdigit() and part[0] in "bmnk"}
    if len(sizes) < 3:
        return more
    work = 2.0 * sizes.get("b", 1.0) * sizes["m"] * sizes["n"] * sizes["k"]
    return max(1.0, min(more, work / _GRAIN_FLOPS))


def _elements(
    found: dict[str, float], core: Mapping[str, Any], threads: int, ratio: float, more: float
) -> None:
    scale = ratio**_ELEMENT_EXPONENT
    for family in ("elementwise", "reduce", "move", "pool"):
        for name, seconds in core[family].items():
            op, _, rest = name.partition(".")
            alone = seconds / scale
            # At the probe's size, which is what the key stands for.
            gain = max(1.0, min(more, alone * _PROBE / _GRAIN_S)) if threads > 1 else 1.0
            found[f"{family}.{op}.t{threads}" + (f".{rest}" if rest else "")] = alone / gain
    for name, seconds in core["rnn"].items():
        op, _, rest = name.partition(".")
        found[f"rnn.{op}.t{threads}.{rest}"] = seconds / ratio / max(1.0, min(more, seconds / _GRAIN_S))


def _copies(
    found: dict[str, float],
    core: Mapping[str, Any],
    threads: int,
    ratio: float,
    bandwidth: float,
    cache_bytes: int,
) -> None:
    inside = max(float(rate) for rate in core["copy"].values()) * ratio**_CACHE_EXPONENT
    alone = min(float(rate) for rate in core["copy"].values())
    memory = min(bandwidth * _STREAM_SHARE, alone * threads)
    kept = max(cache_bytes, _L2_BYTES * threads)
    for name, rate in core["copy"].items():
        size = int(name)
        busy = max(1.0, min(float(threads), size / inside / _GRAIN_S)) if threads > 1 else 1.0
        near = float(rate) * ratio**_CACHE_EXPONENT if size <= _L2_BYTES else inside * 0.85
        found[f"copy.t{threads}.{name}"] = near * busy if size <= kept else max(memory, min(near, alone))
    found[f"copy.t{threads}.{4 << 30}"] = memory


def _gain(threads: int) -> float:
    return 1.0 + _EFFICIENCY * (threads - 1)


@cache
def _core() -> dict[str, Any]:
    with _FILE.open("rb") as stream:
        return tomllib.load(stream)
