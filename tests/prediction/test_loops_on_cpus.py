"""Which measured loop an operator runs on a CPU, and how sure what no loop was measured of is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import prediction_graphs as made
import pytest

from analyzer import prediction
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.graph import Graph, Node, Tensor
from analyzer.prediction.loop_variants import variant

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


# Of the core that took the times of loops without a probe (reference_core.toml).
PACE = {"elementwise.Softplus.t1": 1.45e-8, "elementwise.Mish.t1": 1.53e-8, "move.NonZero.t1": 1.21e-8,
        "elementwise.Sin.t1": 2.31e-9, "reduce.ArgMax.t1.inner": 1.45e-9}  # fmt: skip


def machine(slow: str) -> Device:
    """One of which a single loop takes long."""
    loops = PACE | {f"{key}.t1": SLOW_S if key == slow else QUICK_S for key in KEYS}
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


of, given, tensor, ML = made.of, made.given, made.tensor, "ai.onnx.ml"
NARROW, WORDS = tensor("x", 8, 4, 16, dtype="int8"), tensor("x", 8, dtype="string")
HALF, DOUBLE, LOGICAL = (tensor("x", 8, dtype=name) for name in ("float16", "float64", "bool"))
BLOCKED = tensor("x", 1, 16, 8, 8)
TWICE = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
NAMES: list[tuple[Node, str]] = [
    (of("Pow", [X, (8, 4, 16)], X), "PowTensor"), (of("Pow", [X, given(3)], X), "PowCube"),
    (of("Pow", [WHOLE, given(2)], WHOLE), "PowInt"), (of("Pow", [WHOLE, WHOLE], WHOLE), "PowIntTensor"),
    (of("Gelu", [X], X, approximate="tanh"), "GeluTanh"), (of("Add", [X, (16,)], X), "AddBias"),
    (of("Sub", [X, ()], X), "AddScalar"), (of("Mul", [X, ()], X), "MulScalar"), (of("Div", [X, ()], X), "Div"),
    (of("Min", [X, ()], X), "Min"), (of("Mul", [WHOLE, WHOLE], WHOLE), "MulInt64"),
    (of("Sub", [WHOLE, WHOLE], WHOLE), "AddInt64"), (of("Mul", [DOUBLE, DOUBLE], DOUBLE), "AddInt64"),
    (of("Greater", [DOUBLE, DOUBLE], LOGICAL), "EqualInt64"), (of("Less", [X, X], LOGICAL), "Less"),
    (of("Cast", [X], HALF), "CastHalf"), (of("Cast", [DOUBLE], HALF), "CastToHalf"),
    (of("Cast", [HALF], X), "CastFloat"), (of("Cast", [HALF], DOUBLE), "CastFromHalf"),
    (of("Cast", [X], WHOLE), "CastInt"), (of("Cast", [LOGICAL], tensor("y", 8, dtype="uint8")), "CastBytes"),
    (of("Cast", [LOGICAL], X), "CastFromBool"), (of("Cast", [WHOLE], X), "CastWide"),
    (of("Cast", [NARROW], X), "CastNumbers"), (of("MatMul", [WHOLE, WHOLE], WHOLE), "MatMulInt64"),
    (of("Normalizer", [X], X, ML, norm="L1"), "NormalizerL1"),
    (of("SVMRegressor", [X], X, ML, kernel_type="RBF"), "SVMRBF"),
    (of("LabelEncoder", [WORDS], WHOLE, ML), "LabelEncoderStrings"),
    (of("CategoryMapper", [WHOLE], WORDS, ML), "LabelEncoder"),
    (of("QuantizeLinear", [X, (1,)], NARROW), "QuantizeLinear"),
    (of("QuantizeLinear", [X, (16,)], NARROW, axis=2), "QuantizeLast"),
    (of("QuantizeLinear", [X, (4,)], NARROW, axis=1), "QuantizeLinear"),
    (of("QuantizeLinear", [X, (8, 2, 16)], NARROW, axis=1, block_size=2), "QuantizeBlocks"),
    (of("QuantizeLinear", [X, (8, 4, 8)], NARROW, axis=-1, block_size=2), "QuantizeLinear"),
    (of("DequantizeLinear", [NARROW, (4,)], X), "DequantizeLinear"),
    (of("DequantizeLinear", [NARROW, (16,)], X, axis=2), "DequantizeAxis"),
    (of("DequantizeLinear", [NARROW, (8, 2, 16)], X, block_size=2), "DequantizeBlocks"),
    (of("DequantizeLinear", [NARROW, (8, 4, 8)], X, axis=2, block_size=2), "DequantizeBlocksLast"),
    (of("DequantizeLinear", [tensor("x", 8, dtype="int4"), ()], X), "DequantizePacked"),
    (of("Resize", [IMAGE], (1, 8, 16, 16), mode="linear"), "ResizeLinear"),
    (of("Resize", [IMAGE], (1, 16, 16, 8), mode="linear"), "ResizeLinearLast"),
    (of("Resize", [SEQUENCE], (1, 8, 32), mode="linear"), "ResizeLinearAnywhere"),
    (of("Resize", [IMAGE], (1, 8, 4, 4), mode="cubic"), "ResizeCubicDown"),
    (of("Resize", [IMAGE], (1, 8, 9, 9), mode="cubic"), "ResizeCubic"),
    (of("Resize", [IMAGE], (1, 8, 4, 4), mode="cubic", antialias=1), "ResizeLinear"),
    (of("Resize", [VOLUME], (1, 8, 8, 8, 8)), "ResizeNearestAnywhere"),
    (of("Resize", [tensor("x", 1, 8, 8, 8, dtype="uint8")], IMAGE), "ResizeBytes"),
    (of("Resize", [IMAGE], (1, 8, 16, 16), **TWICE), "ResizeNearestTwice"),
    (of("Resize", [IMAGE], (1, 8, 16, 16)), "ResizeNearest"),
    (of("Resize", [IMAGE], (1, 8, 16, 8), **TWICE), "ResizeNearest"),
    (of("Upsample", [IMAGE], (1, 8, 16, 16)), "ResizeNearestTwice"),
    (of("GridSample", [IMAGE, (1, 8, 8, 2)], IMAGE), "GridSample"),
    (of("GridSample", [IMAGE, (1, 8, 8, 2)], IMAGE, align_corners=1), "GridSampleLinear"),
    (of("GridSample", [IMAGE, (1, 8, 8, 2)], IMAGE, padding_mode="reflection"), "GridSampleLinearReflected"),
    (of("GridSample", [IMAGE, (1, 8, 8, 2)], IMAGE, mode="bicubic"), "GridSampleCubic"),
    (of("GridSample", [VOLUME, (1, 4, 4, 4, 3)], VOLUME, mode="nearest"), "GridSampleNearestVolume"),
    (of("ReduceMax", [X], (1, 4, 16), axes=[0]), "ReduceMaxFirstAxis"),
    (of("ReduceSum", [X], (1, 4, 16), axes=[0]), "ReduceSum"), (of("ReduceProd", [X], ()), "ReduceAll"),
    (of("ReduceMean", [tensor("x", 2, 3, 4, 5, 6)], (2, 1, 4, 1, 6), axes=[1, 3]), "ReduceApart"),
    (of("ReduceSum", [WHOLE], (8, 4, 1), axes=[2]), "ReduceInt64"),
    (of("ReduceSum", [NARROW], (8, 4, 1), axes=[2]), "ReduceInt32"),
    (of("ReduceMin", [NARROW], (8, 4, 1), axes=[2]), "ReduceMax"),
    (of("ArgMin", [WHOLE], (8, 4, 1)), "ArgMaxInt"),
    (of("OneHot", [WHOLE, (1,), (2,)], (8, 4, 16, 9)), "OneHot"),
    (of("OneHot", [WHOLE, (1,), (2,)], (9, 8, 4, 16), axis=0), "OneHotOuter"),
    (of("LpNormalization", [X], X, axis=1), "LpNormalizationOuter"), (of("CumSum", [X, given(2)], X), "CumSum"),
    (of("CumSum", [X, given(0)], X), "CumSumFirstAxis"), (of("Pad", [X], X, mode="wrap"), "PadWrapped"),
    (of("Compress", [X, (8,)], X), "CompressFlat"), (of("Sign", [WHOLE], WHOLE), "SignInt"),
    (of("RandomNormalLike", [X], X), "RandomNormal"),
    (of("MaxPool", [BLOCKED], BLOCKED, dilations=(2, 2)), "MaxPool"),
    (of("MaxPool", [IMAGE], IMAGE, dilations=(2, 2)), "MaxPoolOfTaps"),
    (of("AveragePool", [IMAGE], IMAGE), "AveragePoolOfTaps"),
    (of("AveragePool", [BLOCKED], BLOCKED), "AveragePool"),
    (of("Transpose", [tensor("x", 64, 1024)], (1024, 64), perm=(1, 0)), "TransposeMatrixOneSet"),
    (of("Pow", [X, stored("y", 2.0)], X), "Pow"), (of("Pow", [X, made.tensor("y")], X), "PowScalar"),
    (of("Pow", [X, made.tensor("y", 8, 4, 16)], X), "PowTensor"),
    (of("PRelu", [X, made.tensor("s", 4, 1, constant=True)], X), "PReluChannels"),
    (of("PRelu", [X, made.tensor("s", 8, 4, 16)], X), "PRelu"),
    (of("Mod", [X, stored("y", 0.7)], X, fmod=1), "Mod"), (of("Equal", [WHOLE, PLACES], WHOLE), "EqualInt64"),
    (of("Slice", [X, *BOUNDS, stored("t", [1], "int64")], X), "Slice"), (of("Slice", [X, *BOUNDS], X), "Slice"),
    (of("Slice", [X, *BOUNDS, stored("t", [-1], "int64")], X), "SliceSteps"),
    (of("Slice", [X, *BOUNDS[:2], stored("a", [1], "int64"), stored("t", [2], "int64")], X), "Slice"),
    (of("GatherElements", [X, PLACES], X, axis=-1), "GatherElements"),
    (of("ScatterElements", [X, PLACES, X], X, axis=2), "ScatterElements"),
    (of("ScatterElements", [X, PLACES, X], X), "ScatterElementsOuter"),
    (of("DepthToSpace", [IMAGE], IMAGE, blocksize=2), "DepthToSpace"),
    (of("DepthToSpace", [IMAGE], IMAGE, blocksize=2, mode="CRD"), "DepthToSpaceCRD"),
    (of("SpaceToDepth", [IMAGE], IMAGE, blocksize=2), "SpaceToDepth"),
    (of("Transpose", [X], X, perm=[1, 0, 2]), "TransposeHeads"),
    (of("Transpose", [X], X, perm=[0, 2, 1]), "TransposeMatrix"),
    (of("Transpose", [X], X, perm=[1, 2, 0]), "TransposeNHWC"),
    (of("MaxPool", [SEQUENCE], SEQUENCE, kernel_shape=[1]), "MaxPool1d"),
    (of("AveragePool", [VOLUME], VOLUME, kernel_shape=[1, 1, 1]), "AveragePool3d"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "name"), NAMES, ids=lambda value: getattr(value, "op_type", value))
def test_shapes_types_and_attributes_choose_an_operators_loop(one: Node, name: str) -> None:
    assert variant(one) == name


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "loop"),
    [
        ("Pow", [X, stored("y", 0.5)], {}, "elementwise.PowScalar"),
        ("Mod", [WHOLE, stored("y", 7, "int64")], {}, "elementwise.ModInt64"),
        ("Slice", [X, *BOUNDS, stored("t", [2], "int64")], {}, "move.SliceSteps"),
        ("GatherElements", [X, PLACES], {"axis": 1}, "move.GatherElementsOuter"),
        ("Transpose", [VOLUME], {"perm": [0, 4, 2, 3, 1]}, "move.TransposeAny"),
        ("MaxPool", [VOLUME], {"kernel_shape": [1, 1, 1]}, "pool.MaxPool3d"),
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
    return sum(item.value for item in prediction.predict(made.work(one, "cpu"), machine(slow), threads=1))


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


IMAGE_16, VOLUME_8 = made.tensor("x", 1, 16, 60, 60), made.tensor("x", 1, 8, 10, 24, 24)
SAMPLED, WIDE = made.tensor("x", 1, 32, 40, 40), made.tensor("x", 256, 512)
GRID = made.tensor("g", 1, 40, 40, 2)
TALL, NUMBERS = made.tensor("x", 256, 1024), made.tensor("x", 256, 1024, dtype="int64")
DOUBLES = made.tensor("x", 256, 512, dtype="float64")


def bytes_of(name: str, *shape: int, constant: bool = False) -> Tensor:
    return made.tensor(name, *shape, dtype="int8", constant=constant)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "outputs", "measured"),
    [
        ("LpPool", [made.tensor("x", 1, 32, 80, 80)], {"kernel_shape": (3, 3)}, [(1, 32, 80, 80)], 36.8e-3),
        ("GlobalLpPool", [made.tensor("x", 1, 64, 56, 56)], {}, [(1, 64, 1, 1)], 3.77e-3),
        ("Resize", [IMAGE_16], {"mode": "cubic"}, [(1, 16, 120, 120)], 20.8e-3),
        ("Resize", [VOLUME_8], {"mode": "nearest"}, [(1, 8, 20, 48, 48)], 4.9e-3),
        ("Resize", [VOLUME_8], {"mode": "linear"}, [(1, 8, 20, 48, 48)], 1.6e-3),
        ("GridSample", [SAMPLED, GRID], {"mode": "cubic"}, [(1, 32, 40, 40)], 2.52e-3),
        ("GridSample", [SAMPLED, GRID], {"mode": "bicubic"}, [(1, 32, 40, 40)], 2.52e-3),
        ("GridSample", [SAMPLED, GRID], {"mode": "nearest"}, [(1, 32, 40, 40)], 571e-6),
        ("GridSample", [SAMPLED, GRID], {"align_corners": 1}, [(1, 32, 40, 40)], 1.09e-3),
        ("GridSample", [SAMPLED, GRID], {"padding_mode": "reflection"}, [(1, 32, 40, 40)], 2.12e-3),
        ("GridSample", [made.tensor("x", 1, 8, 12, 24, 24), made.tensor("g", 1, 12, 24, 24, 3)], {},
         [(1, 8, 12, 24, 24)], 2.43e-3),
        ("MatMul", [made.tensor("x", 64, 512, dtype="int64"), made.tensor("w", 512, 512, dtype="int64")], {},
         [(64, 512)], 10.1e-3),
        ("MatMul", [made.tensor("x", 64, 512, dtype="int32"), made.tensor("w", 512, 512, dtype="int32")], {},
         [(64, 512)], 3.35e-3),
        ("MatMulInteger", [bytes_of("x", 64, 512), bytes_of("w", 512, 512, constant=True)], {},
         [(64, 512)], 1.64e-3),
        ("ConvInteger", [made.tensor("x", 1, 512, 100, dtype="uint8"),
                         bytes_of("w", 512, 512, 1, constant=True)], {}, [(1, 512, 100)], 1.98e-3),
        ("QuantizeLinear", [WIDE, stored("s", [0.1] * 512)], {"axis": 1}, [(256, 512)], 2.95e-3),
        ("DequantizeLinear", [bytes_of("x", 256, 512), made.tensor("s", 256, 16, constant=True)],
         {"axis": 1, "block_size": 32}, [(256, 512)], 186e-6),
        ("Compress", [TALL, made.tensor("c", 262144, dtype="bool")], {}, [(131072,)], 1.95e-3),
        ("ReduceLogSumExp", [TALL], {"axes": (1,)}, [(256,)], 2.39e-3),
        ("ReduceSum", [made.tensor("x", 16, 32, 16, 32)], {"axes": (0, 2)}, [(32, 32)], 219e-6),
        ("ReduceSum", [NUMBERS], {"axes": (0,)}, [(1024,)], 485e-6),
        ("Exp", [DOUBLES], {}, [(256, 512)], 752e-6),
        ("Sigmoid", [DOUBLES], {}, [(256, 512)], 1.98e-3),
        ("MaxPool", [made.tensor("x", 1, 32, 80, 80)], {"kernel_shape": (2, 2)},
         [(1, 32, 40, 40)] * 2, 1.46e-3),
        ("MaxPool", [made.tensor("x", 1, 32, 80, 80, dtype="uint8")],
         {"kernel_shape": (3, 3), "strides": (2, 2)}, [(1, 32, 39, 39)], 1.83e-3),
        ("Einsum", [made.tensor("x", 512, 512), made.tensor("y", 512, 512)], {"equation": "ij,ij->ij"},
         [(512, 512)], 30.9e-3),
        ("LpNormalization", [made.tensor("x", 512, 256)], {"axis": 0}, [(512, 256)], 633e-6),
        ("Det", [made.tensor("x", 4, 64, 64)], {}, [(4,)], 100e-6),
        ("AveragePool", [made.tensor("x", 2, 24, 56, 56)], {"kernel_shape": (7, 7)}, [(2, 24, 50, 50)], 9.2e-3),
        ("MaxPool", [made.tensor("x", 2, 24, 3000)], {"kernel_shape": (5,), "dilations": (3,)},
         [(2, 24, 2988)], 2.58e-3),
        ("MaxPool", [made.tensor("x", 1, 16, 56, 56, dtype="float64")],
         {"kernel_shape": (3, 3), "strides": (2, 2)}, [(1, 16, 27, 27)], 389e-6),
        ("MatMul", [made.tensor("x", 300, 64), made.tensor("w", 64)], {}, [(300,)], 69e-6),
        ("MatMul", [made.tensor("x", 1000, 256), made.tensor("w", 256, constant=True)], {}, [(1000,)], 626e-6),
        ("MatMul", [made.tensor("x", 1000, 4, 4), made.tensor("y", 1000, 4, 4)], {}, [(1000, 4, 4)], 130e-6),
        ("Resize", [made.tensor("x", 1, 8, 120, 120)], {"mode": "cubic"}, [(1, 8, 36, 36)], 2.92e-3),
        ("GridSample", [made.tensor("x", 1, 4, 10, 20, 20), made.tensor("g", 1, 10, 20, 20, 3)],
         {"padding_mode": "reflection"}, [(1, 4, 10, 20, 20)], 1.92e-3),
        ("MaxUnpool", [made.tensor("x", 2, 8, 20, 20), made.tensor("i", 2, 8, 20, 20, dtype="int64")],
         {"kernel_shape": (3, 3), "strides": (3, 3)}, [(2, 8, 60, 60)], 13.5e-6),
        ("RoiAlign", [made.tensor("x", 1, 32, 60, 60), made.tensor("b", 50, 4),
                      made.tensor("i", 50, dtype="int64")],
         {"output_height": 14, "output_width": 14, "sampling_ratio": 4}, [(50, 32, 14, 14)], 13.8e-3),
        ("ReduceSum", [made.tensor("x", 50000, 3)], {"axes": (0,)}, [(3,)], 146e-6),
    ],
)  # fmt: skip
def test_slow_loops_take_what_they_took(
    op: str, inputs: list[Tensor], attributes: dict[str, Any], outputs: list[tuple[int, ...]], measured: float
) -> None:
    """ONNX Runtime 1.31.1 on one core of a Xeon (Emerald Rapids), within 2x."""
    results = tuple(made.tensor(f"out{place}", *shape) for place, shape in enumerate(outputs))
    one = made.graph(replace(made.node(op, inputs, results[0], **attributes), outputs=results))
    assert 0.5 < _seconds(one, "") / measured < 2.0


def test_a_sum_along_the_first_axis_is_that_of_rows() -> None:
    """What a calibration measured along the first axis counts: 0.2 ns an element, and 3 along the last."""
    known = {**machine("").calibration, "reduce.CumSum.t1.inner": 3e-9, "reduce.CumSum.t1.outer": 2e-10}

    def taken(axis: int) -> float:
        one = made.graph(made.node("CumSum", [TALL, stored("a", axis, "int64")], replace(TALL, name="out")))
        device = replace(machine(""), calibration=known)
        return sum(item.value for item in prediction.predict(made.work(one, "cpu"), device, threads=1))

    assert taken(0) == pytest.approx(262144 * 2e-10, rel=0.05)
    assert taken(1) == pytest.approx(262144 * 3e-9, rel=0.05)


def test_a_vectorised_loop_takes_as_long_as_its_bytes() -> None:
    known = {**machine("").calibration, "move.Concat.t1": 1e-10}

    def taken(dtype: str) -> float:
        parts = [made.tensor(name, 256, 512, dtype=dtype) for name in "xy"]
        one = made.graph(made.node("Concat", parts, made.tensor("out", 256, 1024, dtype=dtype), axis=0))
        device = replace(machine(""), calibration=known)
        return sum(item.value for item in prediction.predict(made.work(one, "cpu"), device, threads=1)) - 3e-7

    assert taken("float64") == pytest.approx(2 * taken("float32"), rel=0.05)
    assert taken("uint8") == pytest.approx(taken("float32") / 4, rel=0.1)


def test_what_runs_on_one_thread_gains_nothing_from_others() -> None:
    """Resize by cubes is one loop (upsample.cc, ResizeBiCubic), LpPool is shared out by channels (pool.cc)."""
    cubic = made.graph(made.node("Resize", [IMAGE_16], made.tensor("out", 1, 16, 120, 120), mode="cubic"))
    x = made.tensor("x", 1, 32, 80, 80)
    pooled = made.graph(made.node("LpPool", [x], replace(x, name="out"), kernel_shape=(3, 3)))
    server = catalogue.device("epyc-9654")

    def gained(one: Graph) -> float:
        alone, many = (
            sum(item.value for item in prediction.predict(made.work(one, "cpu"), server, threads=threads))
            for threads in (1, 8)
        )
        return alone / many

    assert gained(cubic) < 1.3
    assert gained(pooled) > 3


def test_nearest_volumes_may_take_a_general_kernel_on_a_gpu() -> None:
    """128 x 96 x 96 x 96 results took 58 ms before pull request 27578 (onnxruntime issue 14596)."""
    x, out = made.tensor("x", 1, 128, 48, 48, 48), made.tensor("out", 1, 128, 96, 96, 96)
    one = made.graph(made.node("Resize", [x], out, mode="nearest"))
    time = next(iter(prediction.predict(made.work(one), catalogue.device("l4"))))
    assert time.value < 10e-3
    assert time.high > 58e-3


def test_a_permutation_of_several_axes_copies_run_by_run() -> None:
    """56,448 runs of 32 elements took 1.1 to 1.7 ms (an EPYC) and 0.8 ms (a Xeon); of one axis none."""
    one = made.graph(
        made.node("Transpose", [made.tensor("x", 128, 49, 3, 3, 32)], made.tensor("out", 3, 128, 3, 49, 32),
                  perm=[2, 0, 3, 1, 4])
    )  # fmt: skip
    assert _seconds(one, "") == pytest.approx(1.3e-3, rel=0.5)
    heads = made.graph(
        made.node("Transpose", [made.tensor("x", 8, 128, 8, 64)], made.tensor("out", 8, 8, 128, 64),
                  perm=[0, 2, 1, 3])
    )  # fmt: skip
    assert _seconds(heads, "") < 10e-6


def test_an_operator_that_nobody_measured_has_a_wide_interval() -> None:
    def width(op: str) -> float:
        one = made.graph(made.node(op, [made.tensor("x", 256, 1024)], made.tensor("y", 256, 1024)))
        item = next(iter(prediction.predict(made.work(one, "cpu"), machine(""), threads=1)))
        return item.high / item.value

    assert width("MelWeightMatrix") > 4.0  # an operator of ONNX without probe and without a like
    assert width("BitShift") < 2.5  # measured, in another size
    assert width("Tan") < 2.5


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
    took = sum(item.value for item in prediction.predict(made.work(one, "cpu"), known, threads=1))
    assert took == pytest.approx(flops / 1e9, rel=0.05)


@pytest.mark.parametrize(
    ("op", "attributes"), [("GatherElements", {"axis": "first"}), ("Transpose", {"perm": ["a", "b"]})]
)
def test_attributes_of_another_kind_leave_an_operator_its_name(op: str, attributes: dict[str, Any]) -> None:
    one = made.graph(made.node(op, [X, PLACES], replace(X, name="out"), **attributes))
    assert _seconds(one, "") > 0
