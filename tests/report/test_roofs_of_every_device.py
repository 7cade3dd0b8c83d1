"""The roof that the page draws is the peak that the prediction under it goes by, on every device."""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Literal

import pytest
from report_factory import analysis

from analyzer.costs import count
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.ort.execution import Group
from analyzer.prediction import Workload, predict, workload
from analyzer.report.charts import roofline

DEVICES = (*catalogue.gpus(), *catalogue.cpus())
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16")
WHOLE = analysis(1)


def drawn(device: Device, precision: str) -> float:
    """The height of a device's roof in operations per second."""
    devices = replace(WHOLE.devices, **{device.kind: device})
    chart = roofline.chart(replace(WHOLE, model=replace(WHOLE.model, precision=precision), devices=devices))
    assert chart is not None
    return next(roof["speed"] for roof in chart.extra["ridges"] if roof["device"] == device.kind.upper())


def large_product(side: int = 8192) -> Graph:
    """So large that arithmetic limits it on every device: side / 6 FLOPs a byte at 32 bits."""
    x, y = (Tensor(name=name, shape=(side, side), dtype=DTYPES["float32"]) for name in "xy")
    w = Tensor(name="w", shape=(side, side), dtype=DTYPES["float32"], constant=True, initializer=True)
    node = Node(index=0, name="product", op_type="MatMul", version=13, inputs=(x, w), outputs=(y,))
    return Graph(name="g", nodes=(node,), inputs=(x,), outputs=(y,), initializers=(w,), opsets={"ai.onnx": 20})


@cache
def work_of(session: Literal["cpu", "cuda"]) -> Workload:
    product = large_product()
    group = Group(session=session, name="product", op_type="MatMul", members=(0,), provider=session, kernels=1)
    return workload(product, count(product), (group,))


def predicted_s(device: Device, precision: str) -> float:
    (time,) = predict(work_of("cpu" if device.kind == "cpu" else "cuda"), device, precision=precision)
    assert time is not None
    return time.value


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.slug)
def test_a_lower_roof_means_a_longer_prediction(device: Device, precision: str) -> None:
    roof = drawn(device, precision)
    # The types whose peak is that roof: GeForce cards compute TF32 at their fp32 rate.
    types = [name for name, peak in device.peak_flops_per_s.items() if peak == roof]
    if device.kind == "cpu" and types == ["fp64"]:
        types.append("fp32")  # one vector unit: half as many elements fit
    mine = {name: peak / 8 if name in types else peak for name, peak in device.peak_flops_per_s.items()}
    before = predicted_s(device, precision)
    assert predicted_s(replace(device, peak_flops_per_s=mine), precision) > 1.05 * before, types


@pytest.mark.parametrize(("slug", "precision", "peak_type"), [
    # ONNX Runtime's CPU provider has no bf16 kernels: what the instructions offer, it does not use.
    *product(
        ("epyc-9654", "epyc-9754", "epyc-9965", "xeon-platinum-8488c", "xeon-platinum-8480-plus",
         "ryzen-9-7950x", "ryzen-9-9950x", "graviton3"),
        ("bf16",), ("fp32",),
    ),
    # ONNX Runtime's CUDA provider multiplies in floats between QuantizeLinear and DequantizeLinear.
    *product(("v100-16gb-sxm", "t4"), ("int8",), ("fp32",)),
    *product(("l4", "a100", "h100"), ("int8",), ("tf32",)),
    # Packed weights are read by products of fp16, as GenAI's builder writes them for CUDA.
    *product(("t4", "l4", "h100"), ("int4",), ("fp16",)),
    # A CPU has integer kernels for both.
    *product(("xeon-platinum-8488c", "epyc-9654"), ("int8", "int4"), ("int8",)),
])  # fmt: skip
def test_a_roof_stands_at_what_onnx_runtime_computes_in(slug: str, precision: str, peak_type: str) -> None:
    device = catalogue.device(slug)
    assert drawn(device, precision) == device.peak_flops_per_s[peak_type]


def test_a_precision_that_nobody_knows_draws_no_roof() -> None:
    whole = analysis(1)
    chart = roofline.chart(replace(whole, model=replace(whole.model, precision="fp5")))
    assert chart is not None
    assert chart.extra["ridges"] == ()


def test_no_predicted_point_is_above_its_roof_though_operators_are_fused() -> None:
    """A product and its activation are one kernel of 10 ms at the peak, which the record splits in half."""
    whole = analysis(2)
    peak = whole.devices.cpu.peak_flops_per_s["fp32"]
    work = round(peak * 0.01)
    half = replace(whole.operators[0].cpu, time_s=0.005, low_s=0.004, high_s=0.006)
    product, norm = (replace(item, cpu=half, intensity=1e4) for item in whole.operators)
    operators = replace(product, flops=work, macs=work // 2), replace(norm, flops=work // 100, macs=0)
    groups = tuple(replace(item, time_s=0.01) for item in whole.groups)
    chart = roofline.chart(replace(whole, operators=operators, groups=groups))
    assert chart is not None
    speeds = [row[6] for row in chart.rows if row[4] == "CPU"]
    assert speeds == pytest.approx([peak])
    assert "above its flat part" not in chart.lead


@pytest.mark.parametrize(("origin", "notes", "said"), [
    ("catalogue", "", "1 point of the CPU lies above its flat part: that is the data sheet's"),
    ("calibrated", "", "that is the fastest fp32 kernel which `analyze calibrate` timed."),
    ("calibrated", "This CPU was calibrated while other processes ran (1.5 of 2 cores).",
     "which `analyze calibrate` timed. This CPU was calibrated while other processes ran"),
])  # fmt: skip
def test_what_was_measured_above_the_roof_is_said_with_whence_the_roof_is(
    origin: Literal["calibrated", "catalogue"], notes: str, said: str
) -> None:
    whole = analysis(1)
    cpu = replace(whole.devices.cpu, origin=origin, notes=notes)
    faster = replace(whole.operators[0], flops=round(2 * cpu.peak_flops_per_s["fp32"] * 0.001))
    chart = roofline.chart(replace(whole, devices=replace(whole.devices, cpu=cpu), operators=(faster,)))
    assert chart is not None
    assert said in chart.lead


def test_integers_that_a_cpu_session_multiplies_are_under_the_roof_of_integers() -> None:
    whole = analysis(1)
    cpu = replace(whole.devices.cpu, peak_flops_per_s={"fp32": 1e12, "int8": 4e12})
    devices = replace(whole.devices, cpu=cpu)
    for op_type, height in (("FusedConv", 1e12), ("QLinearConv", 4e12)):
        groups = tuple(replace(item, op_type=op_type) for item in whole.groups)
        chart = roofline.chart(replace(whole, devices=devices, groups=groups))
        assert chart is not None
        assert {end["device"]: end["speed"] for end in chart.extra["ridges"]}["CPU"] == height


def test_a_limit_is_told_as_what_it_is_and_no_point_is_said_to_prove_it() -> None:
    """An element-wise loop on data in a cache is bound by its instructions, far left of the ridge."""
    whole = analysis(4)
    bounds = ("compute", "compute", "memory", "overhead")
    operators = tuple(
        replace(operator, op_type="Tanh", flops=2000, intensity=2.0, cpu=time)
        for operator, bound in zip(whole.operators, bounds, strict=True)
        for time in (replace(operator.cpu, time_s=1e-6, bound=bound),)
    )
    chart = roofline.chart(replace(whole, operators=operators, groups=()))
    assert chart is not None
    assert (
        "CPU: 4 operators (2 limited by their instructions (compute), 1 limited by memory, 1 limited by "
        "starting them (overhead)); the slowest is Tanh number 0, at 2.00 FLOPs per byte and 2.00 GFLOP/s."
    ) in chart.alternative
    chart = roofline.chart(analysis(1))
    assert chart is not None
    assert "far below both, instructions other than arithmetic, or starting it" in chart.lead
