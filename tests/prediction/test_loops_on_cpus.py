"""Which measured loop an operator runs on a CPU, and how sure what no loop was measured of is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import prediction_graphs as made
import pytest

from analyzer import prediction
from analyzer.devices.device import Device
from analyzer.graph import Graph, Tensor

KEYS = (
    *("elementwise.Add", "elementwise.Pow", "elementwise.PowScalar", "elementwise.PowTensor"),
    *("elementwise.PRelu", "elementwise.PReluChannels", "elementwise.Mod", "elementwise.ModInt64"),
    *("elementwise.Equal", "elementwise.EqualInt64", "elementwise.CastInt", "move.Slice", "move.SliceSteps"),
    *("move.GatherElements", "move.GatherElementsOuter", "move.ScatterElements", "move.ScatterElementsOuter"),
    *("move.DepthToSpace", "move.DepthToSpaceCRD", "move.SpaceToDepth", "move.TransposeHeads"),
    *("move.TransposeMatrix", "move.TransposeNHWC", "move.TransposeAny", "pool.MaxPool", "pool.MaxPool1d"),
    *("pool.MaxPool3d", "pool.AveragePool", "pool.AveragePool3d"),
)
SLOW_S, QUICK_S = 1e-6, 1e-12


def machine(slow: str) -> Device:
    """One of which a single loop takes long."""
    loops = {f"{key}.t1": SLOW_S if key == slow else QUICK_S for key in KEYS}
    calibration = {"threads": 1.0, "cores": 1.0, "dispatch.t1": 1e-9, "call.t1": 1e-9, **loops,
                   "copy.t1.65536": 1e15, "copy.t1.268435456": 1e15}  # fmt: skip
    return Device(
        slug="made-up", name="made up", kind="cpu", peak_flops_per_s={"fp32": 1e11}, bandwidth_bytes_per_s=1e15,
        units=1, origin="calibrated", calibration=calibration,
    )  # fmt: skip


def stored(name: str, value: Any, dtype: str = "float32") -> Tensor:
    array = np.asarray(value)
    return replace(made.tensor(name, *array.shape, dtype=dtype, constant=True), value=array)


X = made.tensor("x", 8, 4, 16)
WHOLE = made.tensor("x", 8, 4, 16, dtype="int64")
PLACES = made.tensor("i", 8, 4, 16, dtype="int64")
IMAGE, SEQUENCE, VOLUME = (
    made.tensor("x", 1, 8, 8, 8),
    made.tensor("x", 1, 8, 64),
    made.tensor("x", 1, 8, 4, 4, 4),
)
BOUNDS = [stored(name, [value], "int64") for name, value in (("s", 0), ("e", 16), ("a", 2))]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "loop"),
    [
        ("Pow", [X, stored("y", 2.0)], {}, "elementwise.Pow"),
        ("Pow", [X, stored("y", [3.0])], {}, "elementwise.Pow"),
        ("Pow", [X, stored("y", 0.5)], {}, "elementwise.PowScalar"),
        ("Pow", [X, made.tensor("y")], {}, "elementwise.PowScalar"),
        ("Pow", [X, made.tensor("y", 8, 4, 16)], {}, "elementwise.PowTensor"),
        ("PRelu", [X, made.tensor("s", 4, 1, constant=True)], {}, "elementwise.PReluChannels"),
        ("PRelu", [X, made.tensor("s", 8, 4, 16)], {}, "elementwise.PRelu"),
        ("Mod", [WHOLE, stored("y", 7, "int64")], {}, "elementwise.ModInt64"),
        ("Mod", [X, stored("y", 0.7)], {"fmod": 1}, "elementwise.Mod"),
        ("Equal", [WHOLE, PLACES], {}, "elementwise.EqualInt64"),
        ("Slice", [X, *BOUNDS, stored("t", [1], "int64")], {}, "move.Slice"),
        ("Slice", [X, *BOUNDS], {}, "move.Slice"),
        ("Slice", [X, *BOUNDS, stored("t", [2], "int64")], {}, "move.SliceSteps"),
        ("Slice", [X, *BOUNDS, stored("t", [-1], "int64")], {}, "move.SliceSteps"),
        ("Slice", [X, *BOUNDS[:2], stored("a", [1], "int64"), stored("t", [2], "int64")], {}, "move.Slice"),
        ("GatherElements", [X, PLACES], {"axis": -1}, "move.GatherElements"),
        ("GatherElements", [X, PLACES], {"axis": 1}, "move.GatherElementsOuter"),
        ("ScatterElements", [X, PLACES, X], {"axis": 2}, "move.ScatterElements"),
        ("ScatterElements", [X, PLACES, X], {}, "move.ScatterElementsOuter"),
        ("DepthToSpace", [IMAGE], {"blocksize": 2}, "move.DepthToSpace"),
        ("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": "CRD"}, "move.DepthToSpaceCRD"),
        ("SpaceToDepth", [IMAGE], {"blocksize": 2}, "move.SpaceToDepth"),
        ("Transpose", [X], {"perm": [1, 0, 2]}, "move.TransposeHeads"),
        ("Transpose", [X], {"perm": [0, 2, 1]}, "move.TransposeMatrix"),
        ("Transpose", [X], {"perm": [1, 2, 0]}, "move.TransposeNHWC"),
        ("Transpose", [VOLUME], {"perm": [0, 4, 2, 3, 1]}, "move.TransposeAny"),
        ("MaxPool", [SEQUENCE], {"kernel_shape": [1]}, "pool.MaxPool1d"),
        ("MaxPool", [VOLUME], {"kernel_shape": [1, 1, 1]}, "pool.MaxPool3d"),
        ("AveragePool", [VOLUME], {"kernel_shape": [1, 1, 1]}, "pool.AveragePool3d"),
    ],
)  # fmt: skip
def test_an_operator_costs_the_loop_that_it_runs(
    op: str, inputs: list[Tensor], attributes: dict[str, Any], loop: str
) -> None:
    """512 elements of 1 us each, and next to nothing where another loop is the slow one."""
    one = made.graph(made.node(op, inputs, replace(inputs[0], name="out"), **attributes))
    assert _seconds(one, loop) == pytest.approx(512 * SLOW_S, rel=0.05)
    for other in KEYS:
        assert other == loop or _seconds(one, other) < 0.05 * 512 * SLOW_S


def _seconds(one: Graph, slow: str) -> float:
    return sum(item.time_s for item in prediction.predict(made.work(one, "cpu"), machine(slow), threads=1))


@pytest.mark.parametrize(
    ("op", "inputs", "output", "measured"),
    [
        ("DFT", [made.tensor("x", 16, 512, 1), stored("l", 512, "int64"), stored("a", 1, "int64")],
         (16, 512, 2), 304e-6),
        ("DFT", [made.tensor("x", 16, 400, 1), stored("l", 400, "int64"), stored("a", 1, "int64")],
         (16, 400, 2), 1.56e-3),
        ("STFT", [made.tensor("x", 1, 16000), stored("s", 160, "int64"), made.tensor("w", 512, constant=True)],
         (1, 97, 257, 2), 1.78e-3),
        ("STFT", [made.tensor("x", 1, 16000), stored("s", 160, "int64"), made.tensor("w", 400, constant=True)],
         (1, 98, 201, 2), 6.3e-3),
        ("Det", [made.tensor("x", 1000, 8, 8)], (1000,), 654e-6),
        ("Det", [made.tensor("x", 1000, 3, 3)], (1000,), 152e-6),
        ("GatherND", [made.tensor("x", 512, 512), made.tensor("i", 20000, 2, dtype="int64")], (20000,), 280e-6),
        ("Asinh", [made.tensor("x", 256, 1024)], (256, 1024), 8.2e-3),
    ],
)  # fmt: skip
def test_what_no_probe_measures_takes_what_it_took(
    op: str, inputs: list[Tensor], output: tuple[int, ...], measured: float
) -> None:
    """ONNX Runtime 1.31.1 on one core of an EPYC (AVX2)."""
    one = made.graph(made.node(op, inputs, made.tensor("out", *output)))
    assert _seconds(one, "") == pytest.approx(measured, rel=0.5)


def test_updates_are_counted_and_not_what_they_are_written_into() -> None:
    updates = made.tensor("u", 100, 16)
    inputs = [made.tensor("x", 1000, 16), made.tensor("i", 100, 16, dtype="int64"), updates]
    one = made.graph(made.node("ScatterElements", inputs, made.tensor("out", 1000, 16), axis=1))
    assert _seconds(one, "move.ScatterElements") == pytest.approx(1600 * SLOW_S, rel=0.05)


def test_a_permutation_of_several_axes_copies_run_by_run() -> None:
    """56,448 runs of 32 elements took 1.1 to 1.7 ms (the same core); where one axis is moved none of it."""
    one = made.graph(
        made.node("Transpose", [made.tensor("x", 128, 49, 3, 3, 32)], made.tensor("out", 3, 128, 3, 49, 32),
                  perm=[2, 0, 3, 1, 4])
    )  # fmt: skip
    assert _seconds(one, "") == pytest.approx(1.3e-3, rel=0.3)
    heads = made.graph(
        made.node("Transpose", [made.tensor("x", 8, 128, 8, 64)], made.tensor("out", 8, 8, 128, 64),
                  perm=[0, 2, 1, 3])
    )  # fmt: skip
    assert _seconds(heads, "") < 10e-6


def test_an_operator_that_nobody_measured_has_a_wide_interval() -> None:
    def width(op: str) -> float:
        one = made.graph(made.node(op, [made.tensor("x", 256, 1024)], made.tensor("y", 256, 1024)))
        item = next(iter(prediction.predict(made.work(one, "cpu"), machine(""), threads=1)))
        return item.high_s / item.time_s

    assert width("MelWeightMatrix") > 4.0  # an operator of ONNX without probe and without a like
    assert width("BitShift") < 2.0  # as an Add
    assert width("Tan") < 2.0


@pytest.mark.parametrize(("rank", "name"), [(1, "conv1d"), (3, "conv3d")])
@pytest.mark.parametrize("thin", [False, True])
def test_sequences_and_volumes_are_convolved_at_rates_of_their_own(rank: int, name: str, thin: bool) -> None:
    channels, taps = 24, (3,) * rank  # no whole block of 16
    key = f"depthwise{rank}d" if thin else name
    rates = {"conv.float32.t1.3x3": 1e12, f"conv.float32.t1.{key}": 1e9}
    known = replace(machine(""), calibration={**machine("").calibration, **rates})
    group = channels if thin else 1
    source = made.tensor("x", 1, channels, *(16,) * rank)
    filters = made.tensor("w", channels, channels // group, *taps, constant=True)
    attributes = {"group": group, "pads": [1] * 2 * rank, "kernel_shape": list(taps)}
    one = made.graph(made.node("Conv", [source, filters], replace(source, name="out"), **attributes))
    flops = 2 * channels * channels // group * 16**rank * 3**rank
    took = sum(item.time_s for item in prediction.predict(made.work(one, "cpu"), known, threads=1))
    assert took == pytest.approx(flops / 1e9, rel=0.05)


@pytest.mark.parametrize(
    ("op", "attributes"), [("GatherElements", {"axis": "first"}), ("Transpose", {"perm": ["a", "b"]})]
)
def test_attributes_of_another_kind_leave_an_operator_its_name(op: str, attributes: dict[str, Any]) -> None:
    one = made.graph(made.node(op, [X, PLACES], replace(X, name="out"), **attributes))
    assert _seconds(one, "") > 0
