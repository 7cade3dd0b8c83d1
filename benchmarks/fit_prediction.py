"""Fit the GPU model's constants to public measurements and say how well they predict a device left out.

    python benchmarks/fit_prediction.py FOLDER [--quick] [--only NAME,NAME]

FOLDER holds the measurements as CSV: ``neusight_perop_{matmul,conv2d,vector}.csv`` (PyTorch eager fp32, CUDA
events), ``deepbench_conv.csv`` (cuDNN). They are not part of this repository; language models have a script of
their own, ``fit_kernels.py``. Each family is fitted on all devices but one and judged on that one; beside the
their own, ``fit_kernels.py``. Each family is fitted on all devices but one and judged on it; beside the
all devices, to be copied into ``analyzer/prediction/gpu/constants.toml``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from judging import Verdict, agreement, by_columns, interval, judged, median_error
from measurements import (
    BINARY,
    FLOOR_S,
    STEADY,
    UNARY,
    Array,
    Sample,
    convolutions,
    half_convolutions,
    products,
    some,
    vectors,
)
from scipy.optimize import minimize

from analyzer.devices.device import Device
from analyzer.prediction.gpu.ceilings import sheet as sheet_of
from analyzer.prediction.gpu.constants import FITTED, GpuConstants, Tiles
from analyzer.prediction.gpu.kernels import kernel_times
from analyzer.prediction.work_item import Kind


def unchanged(constants: GpuConstants, _values: Mapping[str, float]) -> GpuConstants:
    return constants


@dataclass
class Family:
    """What is fitted together.

    ``parameters``: name, start, low, high; one called ``floor`` is the measurements' own overhead, not the
    model's. ``apply`` makes constants of their values. ``teachers`` are what it is fitted to where that is not
    ``samples``. ``centred``: errors count from a device's median, so that its power does not. ``by_power``: the
    interval widens by how much a card's sustained rate varies. ``pascal``: what is fitted next, for its cards.
    """

    name: str
    samples: list[Sample]
    least_s: float
    kind: Kind
    precision: str = "fp32"
    parameters: tuple[tuple[str, float, float, float], ...] = ()
    apply: Callable[[GpuConstants, Mapping[str, float]], GpuConstants] = unchanged
    teachers: tuple[Sample, ...] = ()
    centred: bool = False
    by_power: bool = False
    pascal: Family | None = None


def predicted(sample: Sample, constants: GpuConstants, precision: str) -> Array:
    sheet = sheet_of(sample.card, precision, constants)
    return kernel_times(sample.work, sheet, constants).seconds + sample.floor


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
        each = []
        for sample in thinned:
            error = errors(on_floor(sample, overhead), made, family.precision, 0.0)
            error = error - np.median(error) if family.centred else error
            each.append(np.minimum(np.abs(error), 0.5).mean())
        return float(np.average(each, weights=[sample.weight for sample in thinned]) + outside)

    for turn in range(rounds):  # to one side, then to the other: a single search may end in a hollow
        simplex = np.vstack([begin, *(begin + 0.25 * (-1) ** turn * step for step in np.eye(len(begin)))])
        options: Any = {"initial_simplex": simplex, "maxfev": 60 * len(begin), "fatol": 1e-5, "xatol": 1e-3}
        begin = minimize(loss, begin, method="Nelder-Mead", options=options).x
    return family.apply(start, values(begin)), values(begin)


def on_floor(sample: Sample, overhead: float | None) -> Sample:
    """The sample with a fitted overhead where it was measured through PyTorch."""
    return replace(sample, floor=overhead) if overhead and sample.floor >= FLOOR_S else sample


def thin(sample: Sample, least_s: float, most: int) -> Sample:
    """The same device with fewer operators, chosen at random but always the same."""
    long_enough = np.flatnonzero(sample.seconds > least_s)
    return some(sample, np.random.default_rng(0).permutation(long_enough)[:most])


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


def judge(family: Family, start: GpuConstants, rounds: int) -> list[Verdict]:
    """Leaves each device out and prints a line for it and one for all."""
    print(f"\n{family.name}: over {family.least_s * 1e6:.0f} us, {family.precision}")
    verdicts = [left_out(family, sample, start, rounds) for sample in family.samples]
    verdicts = [verdict for verdict in verdicts if verdict.error.size]
    judged(verdicts)
    return verdicts


def left_out(family: Family, sample: Sample, start: GpuConstants, rounds: int) -> Verdict:
    """Constants from the other chips, judged on this one."""
    others = [other for other in family.samples if other is not sample]
    constants, values = fit(family, apart(family, sample), start, rounds)
    if family.pascal and sample.card.architecture == "Pascal":
        constants, _ = fit(family.pascal, apart(family.pascal, sample), constants, rounds)
    error = errors(on_floor(sample, values.get("floor")), constants, family.precision, family.least_s)
    session = sample.session[sample.seconds > family.least_s] if sample.session.size else sample.session
    width = width_name(family)
    unsteady = sheet_of(sample.card, family.precision, start).unsteady if family.by_power else 1.0
    return Verdict(sample.name, width, error, session, *rooflines(sample, family, others), unsteady)


def apart(family: Family, sample: Sample) -> list[Sample]:
    """What a family learns from when a device is left out: no other card of its chip either."""
    teachers = family.teachers or family.samples
    return [
        other
        for other in teachers
        if other.card.architecture != sample.card.architecture or is_sibling(other.card, sample.card)
    ]


def is_sibling(one: Device, other: Device) -> bool:
    """Another chip of the same architecture."""
    return one.architecture == other.architecture and one.compute_capability != other.compute_capability


def width_name(family: Family) -> str:
    """The entry of ``WIDTHS`` that holds for the family."""
    if family.precision != "fp32":
        return "TENSOR_CONV"
    return "BATCHED" if family.name.startswith("batched") else family.kind.name


SHARES = np.linspace(0.15, 1.1, 191)


def watts(kinds: Sequence[Sequence[Sample]], start: GpuConstants) -> None:
    """Watts per sustained fp32 TFLOP/s by device: its power over what products over 1 ms reach.

    Both kinds count the same; single products alone, by other kernels, reach another share. How far a device's
    sessions of these are apart is how unsteady it is: half of that either way.
    """
    for single, batched in zip(*kinds, strict=True):
        share, alone = sustained((single, batched), start), sustained((single,), start)
        each = [sustained((part,), start) for part in sessions(single)]
        low, high = min(each), max(each)
        print(
            f"  {single.name:24} sustains {share:.2f} of the peak: {need(single.card, share):.1f} W per"
            f" TFLOP/s, in single products {alone / share:.2f} of that, by session {low:.2f} to {high:.2f},"
            f" unsteady by {np.sqrt(high / low):.2f}"
        )


def sustained(samples: Sequence[Sample], start: GpuConstants) -> float:
    """The share of the peak with which the mean error of products over 1 ms is least."""
    return float(SHARES[int(np.argmin(sum(misses(sample, start) for sample in samples)))])


def need(card: Device, share: float) -> float:
    return (card.tdp_w or 0) / (share * card.peak_flops_per_s["fp32"] * 1e-12)


def misses(sample: Sample, start: GpuConstants) -> Array:
    """Mean absolute logarithms of errors of products over 1 ms, by the share of the peak that is sustained."""
    few, chip = thin(sample, 1e-3, 500), sample.card.compute_capability
    tried = (replace(start, fp32_watts={chip: need(sample.card, share)}, single={}) for share in SHARES)
    return np.array([np.abs(errors(few, made, "fp32", 0.0)).mean() for made in tried])


def sessions(sample: Sample) -> list[Sample]:
    """Each session by itself that has twenty products over 1 ms."""
    parts = [some(sample, np.flatnonzero(sample.session == name)) for name in np.unique(sample.session)]
    return [part for part in parts if (part.seconds > 1e-3).sum() >= 20]


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


def steady(sample: Sample) -> Sample:
    """The sample without a session that is not to be learnt from."""
    wanted = STEADY.get(sample.name)
    return some(sample, np.flatnonzero(sample.session == wanted)) if wanted else sample


def families(folder: Path) -> list[Family]:
    def vector(constants: GpuConstants, values: Mapping[str, float]) -> GpuConstants:
        return replace(constants, vector=with_tiles(constants.vector, values, "q"))

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
    # Tiles are shared by both and not learnt from Pascal, the reach of address translation from nothing else.
    taught = tuple(sample for sample in (*linear, *batched) if sample.card.architecture != "Pascal")
    far = tuple(steady(sample) for sample in linear if sample.card.architecture == "Pascal")
    walks = (("reach", 3e6, 1e6, 1e7), ("walk_s", 3e-10, 1e-11, 2e-9))
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
            "linear",
            linear,
            2e-4,
            many,
            parameters=tiles,
            apply=vector,
            teachers=taught,
            by_power=True,
            pascal=Family("walks", [], 2e-4, many, parameters=walks, apply=plain, teachers=far, centred=True),
        ),
        Family("batched products", batched, 1e-4, many, parameters=tiles, apply=vector, teachers=taught),
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
    both = [family for family in every if family.samples[0].session.size]
    print("sustained power")
    watts([family.samples for family in both], FITTED)
    agreement(both[0].samples, 1e-3)
    for sample in both[0].samples:
        if sample.name in STEADY:
            by_columns(sample, errors(sample, FITTED, "fp32", 0.0), (1, 512, 1024, 2048, 4096, 10**9))
    held_out: dict[str, list[Verdict]] = {}
    for family in every:
        if options.only and not any(part in family.name for part in options.only.split(",")):
            continue
        if options.quick:
            family = replace(family, parameters=(), pascal=None)
        for verdict in judge(family, FITTED, 2):
            held_out.setdefault(verdict.width, []).append(verdict)
        for part in (family, family.pascal):
            if part and part.parameters:
                _, values = fit(part, part.teachers or part.samples, FITTED, 2)
                print("  fitted on all:", ", ".join(f"{name} {value:.3g}" for name, value in values.items()))
    widths = (f"{name} {interval(found):.3f}" for name, found in held_out.items())
    print("\nhalf-widths of 90 % intervals as factors:", ", ".join(widths))


if __name__ == "__main__":
    main()
