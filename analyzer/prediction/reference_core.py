"""A CPU of the catalogue in the keys of a calibration: one measured core, scaled by peak, caches and memory."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.devices.device import Device

_FILE = Path(__file__).with_name("reference_core.toml")
# Vector width and clock make the peak; operators that do not multiply gain less from both than products do.
_ELEMENT_EXPONENT = 0.75
_CACHE_EXPONENT = 0.5
# Streams reach this share of the channels' peak: STREAM on three servers, 78 to 83 % (AnandTech 11544, others).
_STREAM_SHARE = 0.78
# The least work that is worth one more thread (Eigen's cost model, as ONNX Runtime sets it: 100,000 cycles).
_GRAIN_S = 20e-6
# The part of an operator's time that further threads do not shorten: BERT-base, 128 tokens, on 1 to 6 cores
# of an i7-8700 takes 225, 120, 91, 89, 74, 59 ms (ONNX Runtime 1.15). Longer operators are assumed to share
# better.
_SERIAL = 0.09
_SERIAL_WORK_S = 1e-3
_SERIAL_EXPONENT = 0.25
_L2_BYTES = 1 << 20


def reference_ceilings(device: Device, threads: int) -> Mapping[str, float]:
    """Return the keys of a calibration for one thread; copies also for ``threads``."""
    threads = max(1, threads)
    peak = device.peak_flops_per_s["fp32"]
    return _scaled(
        peak / device.units / _core()["peak_flops_per_s"] * _sustained(device, threads),
        REFERENCE_SPEED / single_core_speed(device),
        device.bandwidth_bytes_per_s,
        device.cache_bytes or 0,
        device.units,
        device.peak_flops_per_s.get("int8", 0.0) / peak,
        threads,
    )


# Of its fp32 peak: where instructions of 512 bits lower the clock. Convolutions of OpenVINO 2024.1 reach 25 to
# 29 FLOPs a nominal clock and core with AVX2, 40 to 43 of 64 on a Xeon 8270 (openvino_ov2024.1_subset.csv); Ice
# Lake's clocks fall by half as much.
_WIDE_SHARE = {"Skylake": 0.75, "Cascade Lake": 0.75, "Ice Lake": 0.87}
# How far the clock of all cores lies between the sheet's and the highest: chips of few cores keep most of it.
# BERT on an i7-8700 (onnxruntime_ort_tables.csv), 3.2 to 4.6 GHz, runs at 4.3 on six cores.
_FEW_CORES, _OF_FEW, _OF_MANY = 18, 0.75, 0.35


def _sustained(device: Device, threads: int) -> float:
    """Return a core's sustained share of its rated peak: more with few cores, less with wide vectors."""
    share = 1.0
    if device.peak_flops_per_s["fp32"] / device.units > 48.0 * (device.clock_hz or 0.0) > 0.0:
        share = next((part for name, part in _WIDE_SHARE.items() if device.architecture.startswith(name)), 1.0)
    if not device.clock_hz or not device.turbo_hz:
        return share
    gained = max(0.0, device.turbo_hz / device.clock_hz - 1.0)
    floor = _OF_FEW if device.units <= _FEW_CORES else _OF_MANY
    busy = (threads - 1) / max(1, device.units - 1)
    return share * (1.0 + gained * (1.0 - (1.0 - floor) * min(1.0, busy)))


def gain(alone_s: npt.NDArray[np.float64], threads: int) -> npt.NDArray[np.float64]:
    """Return how much faster so many threads make an operator that takes ``alone_s`` on one."""
    useful = np.clip(alone_s / _GRAIN_S, 1.0, threads)
    serial = _SERIAL * np.clip(_SERIAL_WORK_S / np.maximum(alone_s, 1e-9), 0.0, 1.0) ** _SERIAL_EXPONENT
    return useful / (1.0 + serial * (useful - 1.0))


@lru_cache(maxsize=256)
def _scaled(
    ratio: float, slower: float, bandwidth: float, cache_bytes: int, units: int, int8: float, threads: int
) -> Mapping[str, float]:
    core = _core()
    ceilings: dict[str, float] = {"threads": float(threads), "cores": float(units)}
    ceilings["dispatch.t1"] = core["overhead"]["dispatch"] * slower
    ceilings["call.t1"] = core["overhead"]["call"] * slower
    # The reference core multiplies int8 at four times the rate of fp32.
    narrow = ratio * (int8 or 1.0) / 4.0
    for family in ("gemm", "gemm_dynamic", "gemm_trans", "bmm", "conv", "attention"):
        for name, rate in core[family].items():
            kind, _, shape = name.partition(".")
            ceilings[f"{family}.{kind}.t1.{shape}"] = rate * (narrow if kind == "int8" else ratio)
    for family in ("elementwise", "reduce", "move", "pool", "rnn"):
        scale = ratio if family == "rnn" else ratio**_ELEMENT_EXPONENT
        for name, seconds in core[family].items():
            op, _, rest = name.partition(".")
            ceilings[f"{family}.{op}.t1" + (f".{rest}" if rest else "")] = seconds / scale
    _second_core(ceilings, core, ratio, int8)
    for count in {1, threads}:
        _copies(ceilings, core, count, ratio, bandwidth, cache_bytes)
    return ceilings


def _second_core(ceilings: dict[str, float], core: Mapping[str, Any], ratio: float, gain: float) -> None:
    """Kernels on integers and of classical models, from the core that they were measured on.

    ``gain`` is the int8 peak over that of fp32, 0 without instructions for int8. Then a product takes three
    instructions for four times as many elements (vpmaddubsw, vpmaddwd, vpaddd), where that core has more units
    for these than for multiplication; most have as many.
    """
    second = core["second_core"]
    slower = core["elementwise"]["Add"] / second["add"] / ratio**_ELEMENT_EXPONENT
    for name, seconds in second["elementwise"].items():
        ceilings.setdefault(f"elementwise.{name}.t1", seconds * slower)
    # Products by what that core gained from integers.
    faster = (min(gain, _MOST_GAIN) if gain else _PLAIN_GAIN) / float(second["products"]["u8s8"]["128"])
    for family, rows in second["products"].items():
        # AMX multiplies bytes without a sign by signed ones alone (core/mlas/lib/platform.cpp).
        factor = min(faster, _UNSIGNED_GAIN) if family == "u8u8" else faster
        for count, share in rows.items():
            # A row reads the weights once: fewer bytes help whatever multiplies them.
            least = 1.0 if int(count) < _ROWS_THAT_COMPUTE else 0.0
            shape = f"t1.m{count}.n1024.k1024"
            ceilings[f"gemm.{family}.{shape}"] = ceilings[f"gemm.float32.{shape}"] * share * max(factor, least)
    convolved = faster * (_CONVOLVED if gain else 1.0)
    for name, share in second["convolutions"].items():
        family, _, kind = name.partition(".")
        known = ceilings.get(f"conv.float32.t1.{kind}")
        if known is not None:
            thin = kind.startswith(("depthwise", "group"))
            factor = min(convolved, _UNSIGNED_GAIN) if family == "u8u8" else convolved
            ceilings[f"conv.{family}.t1.{kind}"] = known * share * (1.0 if thin else factor)


# Rows from which a product computes rather than reads; instructions of a plain int8 product, over those of
# fp32.
_ROWS_THAT_COMPUTE, _PLAIN_GAIN = 16, 4 / 3
# AMX has a peak of 32 times fp32's that no library comes near. Of six convolutions with VNNI 28.6 ms became 9.8
# where the product's gain was 3.7.
_MOST_GAIN, _CONVOLVED = 8.0, 0.8
# Five products of bytes without a sign on a Xeon with AMX: 105 to 142 GOP/s, floats 146.
_UNSIGNED_GAIN = 1.25


def _copies(
    ceilings: dict[str, float],
    core: Mapping[str, Any],
    threads: int,
    ratio: float,
    bandwidth: float,
    cache_bytes: int,
) -> None:
    inside = max(float(rate) for rate in core["copy"].values()) * ratio**_CACHE_EXPONENT
    alone = min(float(rate) for rate in core["copy"].values())
    memory = min(bandwidth * _STREAM_SHARE, alone * threads)
    cached = max(cache_bytes, _L2_BYTES * threads)
    for name, rate in core["copy"].items():
        size = int(name)
        busy = float(gain(np.array(size / inside), threads))
        near = float(rate) * ratio**_CACHE_EXPONENT if size <= _L2_BYTES else inside * 0.85
        ceilings[f"copy.t{threads}.{name}"] = near * busy if size <= cached else max(memory, min(near, alone))
    ceilings[f"copy.t{threads}.{4 << 30}"] = memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop that no calibration probes.

    Attributes:
        element_s: Seconds an element on the core that it was measured on; see ``pace``.
        width: Half-width of its interval at least, as a factor.
        shared: Whether threads share it out.
    """

    element_s: float
    width: float
    shared: bool


# Shapes and data that were not measured make so much of a difference (benchmarks/operator_sweep.py).
_LOOP_WIDTH = 2.0


@cache
def loops() -> Mapping[str, Loop]:
    """Return the loops that no calibration probes, by the name that ``loop_variants`` gives them."""
    table = _core()["third_core"]
    rows = {name: row if isinstance(row, dict) else {"s": row} for name, row in table["loops"].items()}
    return {
        name: Loop(element_s=row["s"], width=row.get("width", _LOOP_WIDTH), shared=name in table["shared"])
        for name, row in rows.items()
    }


@cache
def least_width(name: str) -> float:
    """Return the half-width at least, as a factor, of a loop's interval."""
    known = loops().get(name)
    return known.width if known else float(_core()["third_core"]["widths"].get(name, 1.0))


@cache
def like() -> Mapping[str, str]:
    """Return the measured operators whose loops those have that no probe measures."""
    return dict(_core()["like"])


@cache
def rows_like() -> Mapping[str, str]:
    """Return the operators for whose rows those are taken whose rows no probe has."""
    return dict(_core()["rows_like"])


@cache
def loop_rows() -> Mapping[str, float]:
    """Return the seconds of a row or run besides its elements, on the same core."""
    return dict(_core()["third_core"]["rows"])


def pace(values: Mapping[str, float]) -> float:
    """Return how many times as long as that core a CPU takes for loops of one element after the other."""
    yardstick = ((key.partition("."), seconds) for key, seconds in _core()["third_core"]["yardstick"].items())
    known = [
        values[key] / seconds
        for (family, _, name), seconds in yardstick
        if (key := f"{family}.{name.replace('.', '.t1.', 1) if '.' in name else f'{name}.t1'}") in values
    ]
    return float(np.median(known)) if known else 1.0


@cache
def _core() -> dict[str, Any]:
    with _FILE.open("rb") as stream:
        return tomllib.load(stream)


# How fast one core runs ordinary code: what the host's launches and an operator's dispatch take.
# Instructions per clock over those of Golden Cove where an architecture is in no table.
_UNKNOWN_PER_CLOCK = 0.8
# The core that has speed 1: Sapphire Rapids at 3.5 GHz.
_CLOCK_HZ = 3.5e9
# Of the measured core in ``reference_core.toml``: its dispatch of an operator, and its speed, a Zen 5 of 4.2
# GHz.
_DISPATCH_S, REFERENCE_SPEED = 1.7e-7, 1.39


def single_core_speed(cpu: Device) -> float:
    """Speed of one core over that of Sapphire Rapids at 3.5 GHz.

    By the dispatch of an operator where that was measured on it, else by clock and architecture.
    """
    dispatch = cpu.calibration.get("dispatch.t1")
    if dispatch:
        return REFERENCE_SPEED * _DISPATCH_S / dispatch
    per_clock = next(
        (share for name, share in _core()["per_clock"].items() if cpu.architecture.startswith(name)),
        _UNKNOWN_PER_CLOCK,
    )
    return per_clock * (cpu.turbo_hz or cpu.clock_hz or _CLOCK_HZ) / _CLOCK_HZ
