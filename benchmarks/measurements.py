"""Public measurements of single operators on GPUs, read for ``fit_prediction.py``."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from analyzer.devices.catalogue import device
from analyzer.devices.device import Device
from analyzer.prediction.work_item import Kind
from analyzer.prediction.workload import COLUMNS, Workload

DEVICES = {
    "Tesla P100-PCIE-16GB": "p100-16gb-pcie",
    "Tesla P4": "p4",
    "Tesla V100-PCIE-32GB": "v100-32gb-pcie",
    "Tesla T4": "t4",
    "NVIDIA A100-PCIE-40GB": "a100-40gb-pcie",
    "NVIDIA A100 80GB PCIe": "a100-80gb-pcie",
    "NVIDIA L4": "l4",
    "NVIDIA H100 80GB HBM3": "h100-80gb-sxm",
    "NV_V100": "v100-16gb-pcie",
    "NV_P100": "p100-16gb-pcie",
}
UNARY = ("addu", "divu", "mulu", "powu", "relu", "tanh", "gelu")
BINARY = ("add", "div", "mul", "pow")
# Time of an empty operator between two CUDA events: the least that these measurements show.
FLOOR_S = 22e-6
# NeuSight's two sets: random shapes, and those of models. A card's are sessions of their own.
SESSIONS = {"neusight_train": "random shapes", "neusight_test": "shapes of models"}
# The session to learn from where a card's two disagree by more than a factor of 2: the other ran other kernels,
# slow where the second factor has many rows.
STEADY = {"Tesla P4": SESSIONS["neusight_test"]}
Array = np.ndarray


def anything(_row: Mapping[str, str]) -> bool:
    return True


@dataclass
class Sample:
    """Operators of one kind on one device."""

    name: str
    card: Device
    work: Workload
    seconds: Array
    flops: Array
    moved: Array
    floor: float = FLOOR_S
    weight: float = 1.0
    session: Array = field(default_factory=lambda: np.array([]))


def card_of(label: str) -> Device:
    """The catalogue's entry without the streams measured on it, which the model would take for granted."""
    card = device(DEVICES[label])
    return replace(card, sustained={key: rate for key, rate in card.sustained.items() if key != "bandwidth"})


def work_of(kind: Kind, count: int, **columns: Array) -> Workload:
    """Pieces of one kind, one group each, from columns."""
    ones = ("batch", "taps", "stride", "rows", "steps", "repeats")
    full = {name: np.ones(count) if name in ones else np.zeros(count) for name in COLUMNS}
    full.update({name: np.asarray(column, dtype=float) for name, column in columns.items()})
    return Workload(
        groups=count,
        group=np.arange(count),
        kind=np.full(count, int(kind)),
        op=np.zeros(count, dtype=np.int64),
        ops=("x",),
        columns=full,
        kernels=np.ones(count),
        unknown=np.zeros(count, dtype=bool),
        uncounted=np.zeros(count, dtype=bool),
    )


def some(sample: Sample, chosen: Array) -> Sample:
    """The same device with some of its operators."""
    work = sample.work
    fewer = replace(
        work, groups=len(chosen), group=np.arange(len(chosen)), kind=work.kind[chosen], op=work.op[chosen],
        columns={name: column[chosen] for name, column in work.columns.items()}, kernels=work.kernels[chosen],
        unknown=work.unknown[chosen], uncounted=work.uncounted[chosen],
    )  # fmt: skip
    return replace(
        sample,
        work=fewer,
        seconds=sample.seconds[chosen],
        flops=sample.flops[chosen],
        moved=sample.moved[chosen],
        session=sample.session[chosen] if sample.session.size else sample.session,
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def columns(found: Iterable[Mapping[str, str]], names: Iterable[str]) -> tuple[Array, ...]:
    table = np.array([[float(row[name]) for name in names] for row in found])
    return tuple(table.T)


def products(folder: Path, op: str) -> list[Sample]:
    samples = []
    for label, mine in by_device(rows(folder / "neusight_perop_matmul.csv"), lambda row: row["op"] == op):
        b, m, k, n, ms = columns(mine, ("B", "M_rows", "K_reduce", "N_cols", "latency_ms"))
        batch, tall = (np.ones_like(b), b * m) if op == "linear" else (b, m)
        read, written = 4 * batch * (tall * k + k * n), 4 * batch * tall * n
        flops = 2 * batch * tall * k * n
        work = work_of(
            Kind.MATMUL, len(ms), batch=batch, m=tall, n=n, k=k, read=read, written=written, flops=flops
        )
        session = np.array([SESSIONS[row["ns_split"]] for row in mine])
        samples.append(Sample(label, card_of(label), work, ms * 1e-3, flops, read + written, session=session))
    return samples


def vectors(folder: Path, ops: tuple[str, ...], kind: Kind, passes: float) -> list[Sample]:
    samples = []
    for label, mine in by_device(rows(folder / "neusight_perop_vector.csv"), lambda row: row["op"] in ops):
        b, h, ms = columns(mine, ("B", "H", "latency_ms"))
        size = 4 * b * h
        work = work_of(kind, len(ms), read=(passes - 1) * size, written=size, rows=b, row=h, elements=b * h)
        samples.append(Sample(label, card_of(label), work, ms * 1e-3, b * h, passes * size))
    # The least time that any of them took anywhere is the measurements' own: allocations, launches, events.
    least = min(float(sample.seconds.min()) for sample in samples)
    return [replace(sample, floor=least) for sample in samples]


def half_convolutions(folder: Path) -> list[Sample]:
    """cuDNN's best algorithm on a V100's tensor cores."""
    return deepbench(
        folder, lambda row: row["device"] == "NV_V100" and not row["precision_note"].startswith("Float")
    )


def deepbench(folder: Path, wanted: Callable[[Mapping[str, str]], bool]) -> list[Sample]:
    names = ("N", "C", "K", "filt_w", "filt_h", "W", "H", "stride_w", "stride_h", "out_w", "out_h")
    found = [row for row in rows(folder / "deepbench_conv.csv") if row["fwd_ms"] and wanted(row)]
    samples = []
    for label, mine in by_device([row for row in found if all(row[name] for name in names)], anything):
        b, c, o, kw, kh, w, h, sw, sh, ow, oh, ms = columns(mine, (*names, "fwd_ms"))
        samples.append(convolution(label, b, c, o, kw * kh, w * h, ow * oh, sw * sh, ms * 1e-3, 5e-6))
    return samples


def convolutions(folder: Path) -> list[Sample]:
    samples = []
    for label, mine in by_device(rows(folder / "neusight_perop_conv2d.csv"), anything):
        b, c, o, k, s, stride, pad, ms = columns(
            mine, ("B", "in_ch", "out_ch", "kernel_size", "in_size", "stride", "padding", "latency_ms")
        )
        out = np.floor((s + 2 * pad - k) / stride) + 1
        samples.append(
            convolution(label, b, c, o, k * k, s * s, out * out, stride**2, ms * 1e-3, FLOOR_S + 30e-6)
        )
    plain = deepbench(
        folder, lambda row: row["device"] == "NV_V100" and row["precision_note"].startswith("Float")
    )
    # The only ones with other kernels than 3x3 and with cuDNN's best algorithm, as ONNX Runtime takes it.
    samples += [replace(found, weight=3.0) for found in plain]
    return samples


def convolution(
    label: str, b: Array, c: Array, o: Array, taps: Array, size: Array, out: Array, stride: Array,
    seconds: Array, floor: float,
) -> Sample:  # fmt: skip
    weights, written = 4 * taps * c * o, 4 * b * o * out
    read, flops = 4 * b * c * size + weights, 2 * b * o * out * c * taps
    work = work_of(
        Kind.CONV, len(seconds), m=b * out, n=o, k=c * taps, taps=taps, stride=stride, spatial=out, flops=flops,
        read=read, written=written, weights=weights,
    )  # fmt: skip
    return Sample(label, card_of(label), work, seconds, flops, read + written, floor)


def by_device(
    table: Iterable[dict[str, str]], wanted: Callable[[dict[str, str]], bool]
) -> list[tuple[str, list[dict[str, str]]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for row in table:
        if row["device"] in DEVICES and wanted(row):
            found.setdefault(row["device"], []).append(row)
    return sorted(found.items())
