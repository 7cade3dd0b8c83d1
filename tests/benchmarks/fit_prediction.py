"""Fit the GPU model's constants to public measurements and say how well they predict a device left out.

    python tests/benchmarks/fit_prediction.py FOLDER [--quick] [--only NAME,NAME]

FOLDER holds the measurements as CSV: ``neusight_perop_{matmul,conv2d,vector}.csv`` (PyTorch eager fp32, CUDA
events), ``vidur_llm_layer_ops.csv`` (fp16 layer products), ``deepbench_conv.csv`` (cuDNN). They are not part of
this repository. Each family is fitted on all devices but one and judged on that one; beside the model stand a
naive roofline (data-sheet peaks) and one with a fitted constant. Then come the constants fitted on all devices,
to be copied into ``analyzer/prediction/constants.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from measurements import (
    BINARY,
    FLOOR_S,
    UNARY,
    Array,
    Sample,
    convolutions,
    half_convolutions,
    products,
    projections,
    vectors,
)
from scipy.optimize import minimize

from analyzer.devices.device import Device
from analyzer.prediction import gpu
from analyzer.prediction.constants import FITTED, GpuConstants, Tiles
from analyzer.prediction.piece import Kind


def unchanged(constants: GpuConstants, _values: Mapping[str, float]) -> GpuConstants:
    return constants


@dataclass
class Family:
    """What is fitted together.

    ``parameters``: name, start, low, high; one called ``floor`` is the measurements' own overhead, not the
    model's. ``apply`` makes constants of their values. ``teachers`` are what it is fitted to where that is not
    ``samples``. ``pascal_apart``: Pascal's cards have an interval of their own.
    """

    name: str
    samples: list[Sample]
    least_s: float
    kind: Kind
    precision: str = "fp32"
    parameters: tuple[tuple[str, float, float, float], ...] = ()
    apply: Callable[[GpuConstants, Mapping[str, float]], GpuConstants] = unchanged
    teachers: tuple[Sample, ...] = ()
    pascal_apart: bool = False


def predicted(sample: Sample, constants: GpuConstants, precision: str) -> Array:
    times, _ = gpu.kernel_times(sample.work, gpu.sheet(sample.card, precision, constants), constants)
    return times + sample.floor


def errors(sample: Sample, constants: GpuConstants, precision: str, least_s: float) -> Array:
    """Logarithms of predicted over measured, of what took long enough."""
    found: Array = np.log(predicted(sample, constants, precision) / sample.seconds)
    return found[sample.seconds > least_s]


def fit(
    family: Family, samples: Sequence[Sample], start: GpuConstants, rounds: int
) -> tuple[GpuConstants, dict[str, float]]:
    """Constants that make the mean absolute logarithm of the error least, each device counting the same.

    Errors count up to a half: the bulk decides, not what cannot be explained.
    """
    if not family.parameters:
        return start, {}
    low = np.log([item[2] for item in family.parameters])
    high = np.log([item[3] for item in family.parameters])
    begin = np.clip(np.log([item[1] for item in family.parameters]), low + 1e-3, high - 1e-3)
    thinned = [thin(sample, 1e-4 if family.teachers else family.least_s, 250) for sample in samples]

    def values(point: Array) -> dict[str, float]:
        found = np.exp(np.clip(point, low, high)).tolist()
        return dict(zip((item[0] for item in family.parameters), found, strict=True))

    def loss(point: Array) -> float:
        outside = np.abs(point - np.clip(point, low, high)).sum()
        made, overhead = family.apply(start, values(point)), values(point).get("floor")
        each = [
            np.minimum(np.abs(errors(on_floor(sample, overhead), made, family.precision, 0.0)), 0.5).mean()
            for sample in thinned
        ]
        return float(np.average(each, weights=[sample.weight for sample in thinned]) + outside)

    for _ in range(rounds):
        simplex = np.vstack([begin, *(begin + 0.25 * step for step in np.eye(len(begin)))])
        options: Any = {"initial_simplex": simplex, "maxfev": 60 * len(begin), "fatol": 1e-5, "xatol": 1e-3}
        begin = minimize(loss, begin, method="Nelder-Mead", options=options).x
    return family.apply(start, values(begin)), values(begin)


def on_floor(sample: Sample, overhead: float | None) -> Sample:
    """The sample with a fitted overhead where it was measured through PyTorch."""
    return replace(sample, floor=overhead) if overhead and sample.floor >= FLOOR_S else sample


def thin(sample: Sample, least_s: float, most: int) -> Sample:
    """The same device with fewer operators, chosen at random but always the same."""
    long_enough = np.flatnonzero(sample.seconds > least_s)
    chosen = np.random.default_rng(0).permutation(long_enough)[:most]
    work = sample.work
    fewer = replace(
        work, groups=len(chosen), group=np.arange(len(chosen)), kind=work.kind[chosen], op=work.op[chosen],
        columns={name: column[chosen] for name, column in work.columns.items()}, kernels=work.kernels[chosen],
        unknown=work.unknown[chosen],
    )  # fmt: skip
    return replace(
        sample,
        work=fewer,
        seconds=sample.seconds[chosen],
        flops=sample.flops[chosen],
        moved=sample.moved[chosen],
    )


def rooflines(sample: Sample, family: Family, others: list[Sample]) -> tuple[float, float]:
    """Median errors of the data sheet's roofline and of one with the other devices' median efficiency."""

    def naive(one: Sample) -> Array:
        peak = one.card.peak_flops_per_s[family.precision]
        return np.maximum(one.flops / peak, one.moved / one.card.bandwidth_bytes_per_s)

    long_enough = sample.seconds > family.least_s
    sheet = naive(sample)[long_enough] / sample.seconds[long_enough]
    if not others:
        return median_error(np.log(sheet)), float("nan")
    factors = np.concatenate([(one.seconds / naive(one))[one.seconds > family.least_s] for one in others])
    return median_error(np.log(sheet)), median_error(np.log(sheet * np.median(factors)))


def median_error(logarithms: Array) -> float:
    return float(np.median(np.abs(np.expm1(logarithms))))


@dataclass
class Verdict:
    """A device left out: its entry in ``WIDTHS``, its errors, and the medians of the two rooflines."""

    name: str
    width: str
    error: Array
    sheet: float
    one: float


def judge(family: Family, start: GpuConstants, rounds: int) -> list[Verdict]:
    """Leaves each device out and prints a line for it and one for all."""
    print(f"\n{family.name}: over {family.least_s * 1e6:.0f} us, {family.precision}")
    print(f"  {'device left out':24}     n  median   bias     x2   90 %    by   naive   one k")
    verdicts = [left_out(family, sample, start, rounds) for sample in family.samples]
    verdicts = [verdict for verdict in verdicts if verdict.error.size]
    inside = []
    for verdict in verdicts:
        alike = [other for other in verdicts if other.width == verdict.width and other is not verdict]
        width = interval([other.error for other in alike] or [verdict.error])
        inside.append(np.abs(verdict.error) <= np.log(width))
        line(verdict, inside[-1], width)
    line(together(verdicts), np.concatenate(inside), interval([verdict.error for verdict in verdicts]))
    return verdicts


def left_out(family: Family, sample: Sample, start: GpuConstants, rounds: int) -> Verdict:
    """Constants from the other chips, judged on this one."""
    others = [other for other in family.samples if other is not sample]
    teachers = family.teachers or family.samples
    apart = [other for other in teachers if other.card.architecture != sample.card.architecture]
    apart += [other for other in teachers if is_sibling(other.card, sample.card)]
    constants, values = fit(family, apart, start, rounds)
    error = errors(on_floor(sample, values.get("floor")), constants, family.precision, family.least_s)
    return Verdict(sample.name, width_name(family, sample.card), error, *rooflines(sample, family, others))


def together(verdicts: Sequence[Verdict]) -> Verdict:
    sheets = np.concatenate([np.full(verdict.error.size, verdict.sheet) for verdict in verdicts])
    ones = np.concatenate([np.full(verdict.error.size, verdict.one) for verdict in verdicts])
    error = np.concatenate([verdict.error for verdict in verdicts])
    return Verdict("all", "", error, float(np.median(sheets)), float(np.median(ones)))


def interval(found: Sequence[Array]) -> float:
    """The factor within which nine tenths of errors lie, each operator counting the same.

    A device is judged by the errors of the others when these were left out (a conformal interval): its own
    say nothing about its width.
    """
    return float(np.exp(np.quantile(np.abs(np.concatenate(found)), 0.9)))


def is_sibling(one: Device, other: Device) -> bool:
    """Another card of the same architecture, with another chip or memory."""
    return one.architecture == other.architecture and one.name.split()[:2] != other.name.split()[:2]


def width_name(family: Family, card: Device) -> str:
    """The entry of ``WIDTHS`` that holds for the family on a card."""
    if family.pascal_apart and card.architecture == "Pascal":
        return "PASCAL"
    if family.precision != "fp32":
        return "TENSOR" if family.kind is Kind.MATMUL else "TENSOR_CONV"
    return "BATCHED" if family.name.startswith("batched") else family.kind.name


def line(verdict: Verdict, inside: Array, width: float) -> None:
    error = verdict.error
    print(
        f"  {verdict.name:24} {error.size:5d} {median_error(error):7.3f} {np.exp(np.median(error)):6.2f} "
        f"{np.mean(np.abs(error) < np.log(2)):6.1%} {np.mean(inside):6.1%} {width:5.2f} "
        f"{verdict.sheet:7.3f} {verdict.one:7.3f}"
    )


def watts(samples: list[Sample], start: GpuConstants) -> dict[str, float]:
    """Watts per sustained fp32 TFLOP/s by device, from products over 1 ms: power over what they reach."""
    found = {}
    for sample in samples:
        few = thin(sample, 1e-3, 300)
        shares = np.linspace(0.15, 1.1, 96)
        apart = []
        for share in shares:
            need = (sample.card.tdp_w or 0) / (share * sample.card.peak_flops_per_s["fp32"] * 1e-12)
            there = replace(start, fp32_watts={sample.card.compute_capability: need})
            apart.append(np.median(np.abs(errors(few, there, "fp32", 0.0))))
        share = float(shares[int(np.argmin(apart))])
        found[sample.name] = (sample.card.tdp_w or 0) / (share * sample.card.peak_flops_per_s["fp32"] * 1e-12)
        print(
            f"  {sample.name:24} sustains {share:.2f} of its fp32 peak: {found[sample.name]:.1f} W per TFLOP/s"
        )
    return found


def with_tiles(tiles: Tiles, values: Mapping[str, float], prefix: str) -> Tiles:
    quality = list(tiles.quality)
    for index, size in enumerate(tiles.sizes):
        name = f"{prefix}{max(size)}x{min(size)}"
        if name in values:
            quality[index] = values[name]
    return replace(
        tiles,
        quality=tuple(quality),
        efficiency=values.get("efficiency", tiles.efficiency),
        depth=values.get("depth", tiles.depth),
        bandwidth=values.get("bandwidth", tiles.bandwidth),
        split_s=values.get("split_s", tiles.split_s),
    )


def families(folder: Path) -> list[Family]:
    def vector(constants: GpuConstants, values: Mapping[str, float]) -> GpuConstants:
        return replace(constants, vector=with_tiles(constants.vector, values, "q"))

    def tensor(constants: GpuConstants, values: Mapping[str, float]) -> GpuConstants:
        return replace(constants, tensor=with_tiles(constants.tensor, values, "q"))

    def plain(constants: GpuConstants, values: Mapping[str, float]) -> GpuConstants:
        tiles = tuple(values.get(f"q{index}", old) for index, old in enumerate(constants.conv_tiles))
        rest: dict[str, Any] = {
            name: value for name, value in values.items() if not name.startswith("q") and name != "floor"
        }
        return replace(constants, conv_tiles=tiles, **rest)

    streams = (
        ("stream_hbm", 0.87, 0.5, 1.0),
        ("stream_gddr", 0.76, 0.5, 1.0),
        ("stream_pascal", 0.735, 0.5, 1.0),
    )
    tiles = (
        ("efficiency", 0.93, 0.7, 1.05), ("q128x64", 0.9, 0.5, 1.0), ("q64x64", 0.8, 0.3, 1.0),
        ("q64x32", 0.5, 0.2, 1.0), ("q32x32", 0.3, 0.1, 1.0), ("depth", 16.0, 1.0, 128.0),
        ("bandwidth", 0.7, 0.4, 1.0), ("split_s", 5e-6, 1e-6, 2e-5),
    )  # fmt: skip
    conv = (
        ("conv_efficiency", 1.0, 0.5, 1.1), ("conv_depth", 16.0, 1.0, 128.0), ("conv_power", 0.7, 0.3, 1.0),
        ("q2", 0.8, 0.3, 1.0), ("q3", 0.5, 0.2, 1.0), ("q4", 0.3, 0.05, 1.0),
        ("conv_bandwidth", 0.5, 0.05, 1.5),
        ("winograd_efficiency", 0.72, 0.3, 1.1), ("winograd_depth", 50.0, 1.0, 200.0),
        ("winograd_transform", 0.5, 0.05, 2.0), ("winograd_channel_s", 50e-9, 1e-9, 3e-7),
        ("winograd_s", 20e-6, 2e-6, 5e-5), ("floor", 150e-6, 30e-6, 4e-4),
    )  # fmt: skip
    rereads = (("norm_rows", 18.0, 0.5, 60.0), ("norm_row_s", 6e-7, 1e-9, 2e-6), ("norm_edge", 4.0, 1.0, 10.0))
    soft = (("softmax_rows", 8.0, 0.5, 60.0), ("softmax_edge", 2.0, 1.0, 10.0))
    linear, batched = products(folder, "linear"), products(folder, "bmm")
    # Tiles are shared by both. Pascal is judged, not learnt from: its cards were measured twice, a fifth apart.
    taught = tuple(sample for sample in (*linear, *batched) if sample.card.architecture != "Pascal")
    halves = (
        tiles[0], ("q256x128", 1.0, 0.6, 1.2), ("q128x128", 0.97, 0.6, 1.2), *tiles[1:4], *tiles[5:],
    )  # fmt: skip
    one, many = Kind.VECTOR, Kind.MATMUL
    unary, binary = vectors(folder, UNARY, one, 2), vectors(folder, BINARY, one, 3)
    streamed = (*unary, *binary)
    norms, softmaxes = (vectors(folder, ("ln",), Kind.NORM, 2), vectors(folder, ("softmax",), Kind.SOFTMAX, 2))
    return [
        Family("unary", unary, 1e-4, one, parameters=streams, apply=plain, teachers=streamed),
        Family("binary", binary, 1e-4, one, parameters=streams, apply=plain, teachers=streamed),
        Family("norm", norms, 1e-4, Kind.NORM, parameters=rereads, apply=plain),
        Family("softmax", softmaxes, 1e-4, Kind.SOFTMAX, parameters=soft, apply=plain),
        Family(
            "linear", linear, 2e-4, many, parameters=tiles, apply=vector, teachers=taught, pascal_apart=True
        ),
        Family(
            "batched products",
            batched,
            1e-4,
            many,
            parameters=tiles,
            apply=vector,
            teachers=taught,
            pascal_apart=True,
        ),
        Family("projections", projections(folder), 1e-5, many, "fp16", halves, tensor),
        Family("convolution", convolutions(folder), 1e-4, Kind.CONV, parameters=conv, apply=plain),
        Family("convolution, half", half_convolutions(folder), 2e-5, Kind.CONV, "fp16"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="judge the constants as they are, fit nothing")
    parser.add_argument(
        "--only", default="", help="families to fit, by part of their names, separated by commas"
    )
    options = parser.parse_args()
    every = families(options.folder)
    print("sustained power")
    watts(next(family.samples for family in every if family.name == "linear"), FITTED)
    held_out: dict[str, list[Array]] = {}
    for family in every:
        if options.only and not any(part in family.name for part in options.only.split(",")):
            continue
        if options.quick:
            family = replace(family, parameters=())
        for verdict in judge(family, FITTED, 1):
            held_out.setdefault(verdict.width, []).append(verdict.error)
        if family.parameters:
            _, values = fit(family, family.teachers or family.samples, FITTED, 2)
            print("  fitted on all:", ", ".join(f"{name} {value:.3g}" for name, value in values.items()))
    widths = (f"{name} {interval(found):.3f}" for name, found in held_out.items())
    print("\nhalf-widths of 90 % intervals as factors:", ", ".join(widths))


if __name__ == "__main__":
    main()
