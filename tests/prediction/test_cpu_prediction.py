"""Operator times on CPUs: from a calibration, and from the catalogue's figures."""

import math
from dataclasses import replace

import numpy as np
import prediction_graphs as made
import pytest

from analyzer import prediction
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.graph import Graph

# A machine made up for these tests: every rate below is a round number.
MADE_UP = {
    "threads": 2.0,
    "cores": 2.0,
    **{f"dispatch.t{t}": 1e-7 for t in (1, 2)},
    **{f"call.t{t}": 2e-6 for t in (1, 2)},
    **{f"gemm.float32.t{t}.m{n}.n{n}.k{n}": t * 1e11 for t in (1, 2) for n in (64, 256, 1024)},
    **{f"conv.float32.t{t}.3x3": t * 1e11 for t in (1, 2)},
    **{f"conv.float32.t{t}.depthwise3x3": t * 2e10 for t in (1, 2)},
    **{f"elementwise.Relu.t{t}": 1e-10 / t for t in (1, 2)},
    # As the core that took the times of loops without a probe.
    **{f"elementwise.Softplus.t{t}": 1.45e-8 / t for t in (1, 2)},
    **{f"elementwise.Add.t{t}": 1e-10 / t for t in (1, 2)},
    **{f"copy.t{t}.{size}": t * rate for t in (1, 2) for size, rate in ((65536, 1e11), (268435456, 2e10))},
    **{f"rnn.LSTM.t{t}.h256.b1": 1e-5 for t in (1, 2)},
}

CALL_S = MADE_UP["call.t1"]


@pytest.fixture
def machine() -> Device:
    return Device(
        slug="made-up",
        name="made up",
        kind="cpu",
        peak_flops_per_s={"fp32": 2e11},
        bandwidth_bytes_per_s=4e10,
        units=2,
        threads=2,
        origin="calibrated",
        calibration=MADE_UP,
    )


def seconds(one: object, device: Device, threads: int | None = None, precision: str = "fp32") -> float:
    work = made.work(one, "cpu")
    return sum(item.value for item in prediction.predict(work, device, threads=threads, precision=precision))


def test_a_product_of_a_measured_shape_runs_at_the_measured_rate(machine: Device) -> None:
    """2 x 256^3 FLOPs at 1e11 per second and thread, and 0.5 MB of activations from a cache of 1e11 B/s."""
    expected = 2 * 256**3 / 1e11 + 1e-7
    assert seconds(made.product(256, 256, 256), machine, 1) == pytest.approx(expected, rel=0.1)
    assert seconds(made.product(256, 256, 256), machine, 2) == pytest.approx(expected / 2, rel=0.1)


def test_a_factor_that_is_computed_at_run_time_is_packed_at_each_run(machine: Device) -> None:
    """The cube of 1024 takes 0.5 % longer with packing: 107 us for its 2^20 elements, a copy's time at most."""
    packing = {**MADE_UP, "gemm_dynamic.float32.t1.m1024.n1024.k1024": 1e11 / 1.005}
    slower = replace(machine, calibration=packing)
    constant = made.product(256, 256, 256)
    computed = made.product(256, 256, 256, constant=False)
    assert seconds(constant, slower, 1) == pytest.approx(seconds(constant, machine, 1))
    more = seconds(computed, slower, 1) - seconds(computed, machine, 1)
    assert more == pytest.approx(0.005 * 2 * 1024**3 / 1e11 / 2**20 * 256**2, rel=1e-6)


def test_elementwise_operators_cost_their_own_time_per_element(machine: Device) -> None:
    """Softplus takes 145 times what Relu does."""
    assert seconds(made.elementwise("Relu", 10_000), machine, 1) == pytest.approx(1e-6 + CALL_S, rel=0.15)
    assert seconds(made.elementwise("Softplus", 100_000), machine, 1) == pytest.approx(1.45e-3, rel=0.01)
    assert seconds(made.elementwise("Softplus", 100_000), machine, 2) == pytest.approx(7.25e-4, rel=0.01)


def test_what_outgrows_the_caches_costs_its_bytes(machine: Device) -> None:
    """1 GB read and written at 2e10 B/s on one thread."""
    assert seconds(made.elementwise("Relu", 125_000_000), machine, 1) == pytest.approx(0.05, rel=0.01)


def test_weights_that_push_each_other_out_are_read_at_the_rate_that_was_measured(machine: Device) -> None:
    """16 matrices of 4 MiB, one row each: read at 1e10 B/s together, at 4e10 where one stays in a cache."""
    matrix, copies = 4 * 1024**2, 16
    measured = {f"read.t1.{matrix}": 4e10, f"read.t1.{copies * matrix}": 1e10}
    inputs = [
        [made.tensor("x", 1, 1024), made.tensor(f"w{number}", 1024, 1024, constant=True)]
        for number in range(copies)
    ]
    step = made.graph(
        *(made.node("MatMul", each, made.tensor(f"y{i}", 1, 1024)) for i, each in enumerate(inputs))
    )
    known = replace(machine, calibration={**MADE_UP, **measured})
    each = 2 * 1024**2 / 1e11 + matrix * (1 / 1e10 - 1 / 4e10)
    assert seconds(step, known, 1) == pytest.approx(copies * each, rel=0.01)
    alone = made.graph(made.node("MatMul", inputs[0], made.tensor("y0", 1, 1024)))
    assert seconds(alone, known, 1) == pytest.approx(2 * 1024**2 / 1e11, rel=0.15)


def test_a_recurrence_costs_its_steps(machine: Device) -> None:
    inputs = [
        made.tensor("x", 50, 1, 256),
        made.tensor("w", 1, 1024, 256, constant=True),
        made.tensor("r", 1, 1024, 256, constant=True),
    ]
    one = made.graph(made.node("LSTM", inputs, made.tensor("y", 50, 1, 1, 256), hidden_size=256))
    assert seconds(one, machine, 1) == pytest.approx(50 * 1e-5, rel=0.1)


@pytest.mark.parametrize(("rows", "directions"), [(1, 1), (1, 2), (4, 1)])
def test_a_recurrence_is_shared_out_by_its_rows_and_directions_alone(rows: int, directions: int) -> None:
    """However many cores there are: each step waits for the one before it."""
    inputs = [
        made.tensor("x", 500, rows, 256),
        made.tensor("w", directions, 1024, 256, constant=True),
        made.tensor("r", directions, 1024, 256, constant=True),
    ]
    output = made.tensor("y", 500, directions, rows, 256)
    way = "bidirectional" if directions == 2 else "forward"
    one = made.graph(made.node("LSTM", inputs, output, hidden_size=256, direction=way))
    server = catalogue.device("epyc-9654")
    alone, few, many = (seconds(one, server, threads) for threads in (1, rows * directions, 96))
    assert alone / many < 1.1 * rows * directions  # the input's product is one for all steps, and is shared out
    assert many < 1.1 * few


def test_half_precision_runs_in_fp32_on_a_cpu(machine: Device) -> None:
    one = made.product(256, 256, 256)
    assert seconds(one, machine, precision="fp16") == seconds(one, machine, precision="fp32")


def test_grouped_convolutions_have_a_rate_of_their_own(machine: Device) -> None:
    """Depthwise at 2e10 FLOP/s, dense at 1e11."""
    thin, dense = made.convolution(1, 64, 64, 56, group=64), made.convolution(1, 64, 64, 56)
    assert seconds(thin, machine, 1) / made.flops(thin) > 4 * seconds(dense, machine, 1) / made.flops(dense)


@pytest.mark.parametrize(("side", "times"), [(14, 4), (56, 2), (112, 2), (28, 3)])
def test_small_planes_slow_depthwise_convolutions_from_memory(machine: Device, side: int, times: int) -> None:
    """Probes say 4 and 2 times what a copy of their bytes takes, besides arithmetic; 28 lies half-way."""
    near, copy = 4e10, 4e10
    per_element = {
        plane: 18 / near * (1 + 6 / plane) / (1 + 6 / 56) + beyond * 8 / copy
        for plane, beyond in ((14, 4), (56, 2))
    }
    far = {f"conv.float32.t2.depthwise3x3far{plane}": 18 / cost for plane, cost in per_element.items()}
    slower = replace(machine, calibration={**MADE_UP, **far, "copy.t2.67108864": copy})
    batch = 2**17 // side**2
    one = made.convolution(batch, 256, 256, side, group=256)
    more = seconds(one, slower, 2) - seconds(
        one, replace(machine, calibration={**MADE_UP, "copy.t2.67108864": copy}), 2
    )
    assert more == pytest.approx((times - 1) * 8 * 256 * batch * side**2 / copy, rel=0.01)


@pytest.mark.parametrize(
    "slug", ["xeon-platinum-8260", "epyc-9654", "graviton3", "core-i7-13700k", "raspberry-pi-5"]
)
def test_a_cpu_of_the_catalogue_stays_below_its_peak(slug: str) -> None:
    one, cpu = made.product(4096, 4096, 4096), catalogue.device(slug)
    # Sheets count at the base clock; a core alone runs at its highest.
    fastest = (cpu.turbo_hz or cpu.clock_hz or 0.0) / (cpu.clock_hz or 1.0)
    assert made.flops(one) / seconds(one, cpu) < cpu.peak_flops_per_s["fp32"] * fastest
    assert made.flops(one) / seconds(one, cpu, 1) < cpu.peak_flops_per_s["fp32"] * fastest / cpu.units


def test_bert_on_a_core_of_coffee_lake_takes_what_was_published() -> None:
    """225 ms on one core of an i7-8700 (4.6 GHz), 58.6 on six; a Xeon E-2136 has the same at 4.5 GHz."""
    cpu = catalogue.device("xeon-e-2136")
    # 12 layers of 128 tokens: four projections of 768 x 768, two of 768 x 3072.
    layer = [*[made.product(128, 768, 768)] * 4, *[made.product(128, 768, 3072)] * 2]
    for threads, published in ((1, 0.225), (6, 0.0586)):
        predicted = 12 * sum(seconds(one, cpu, threads) for one in layer)
        assert published * 0.7 < predicted < published * 1.25


def test_wide_vectors_gain_less_than_their_width() -> None:
    """OpenVINO's networks reach 1.5 times the FLOPs a clock with AVX-512 on a Xeon 8270 as with AVX2."""
    one = made.product(2048, 2048, 2048)
    wide, narrow = (
        made.flops(one) / seconds(one, cpu, 1) / (cpu.turbo_hz or 1.0)
        for cpu in (catalogue.device("xeon-platinum-8260"), catalogue.device("xeon-e-2136"))
    )
    assert 1.2 < wide / narrow < 1.8


def test_more_threads_help_large_work_and_leave_small_work_alone() -> None:
    cpu = catalogue.device("xeon-platinum-8260")
    large, small = made.product(2048, 2048, 2048), made.product(8, 16, 16)
    assert seconds(large, cpu, 8) < seconds(large, cpu, 1) / 3
    assert seconds(small, cpu, 8) == pytest.approx(seconds(small, cpu, 1), rel=0.05)


def test_six_cores_share_bert_as_published() -> None:
    """BERT-base on an i7-8700: 225 ms on one core, 58.6 ms on six, 3.84 times (ONNX Runtime's own notebook).

    Its largest products are 128 x 768 x 3072.
    """
    cpu = replace(catalogue.device("core-i7-13700k"), units=6, threads=6)
    one = made.product(128, 3072, 768)
    assert seconds(one, cpu, 1) / seconds(one, cpu, 6) == pytest.approx(3.84, rel=0.15)


def test_a_wider_memory_helps_what_memory_limits() -> None:
    cpu = catalogue.device("xeon-platinum-8260")
    wide = replace(cpu, bandwidth_bytes_per_s=2 * cpu.bandwidth_bytes_per_s)
    one = made.elementwise("Relu", 200_000_000)
    assert seconds(one, wide) < 0.6 * seconds(one, cpu)


def test_memory_streams_at_the_published_share_of_its_peak() -> None:
    """STREAM reaches 78 to 83 % of the channels' peak on servers."""
    cpu = catalogue.device("xeon-platinum-8260")
    reached = 8 * 200_000_000 / seconds(made.elementwise("Relu", 200_000_000), cpu) / cpu.bandwidth_bytes_per_s
    assert 0.7 < reached < 0.84


def test_assumed_figures_widen_the_interval() -> None:
    work = made.work(made.product(512, 512, 512), "cpu")
    sure = prediction.predict(work, catalogue.device("xeon-platinum-8260"))[0]
    unsure = prediction.predict(work, catalogue.device("xeon-w-2135"))[0]
    assert unsure.high / unsure.value > sure.high / sure.value > 1.7


def test_a_calibration_narrows_it(machine: Device) -> None:
    work = made.work(made.product(512, 512, 512), "cpu")
    measured = prediction.predict(work, machine)[0]
    assert measured.high / measured.value < 1.5


def test_a_choice_between_two_tensors_passes_memory_again(machine: Device) -> None:
    """64 MB of results from as much, chosen by 16 MB: two tensors between are written and read as well."""
    elements = 16 * 2**20
    inputs = [made.tensor("c", elements, dtype="bool"), made.tensor("x", elements), made.tensor("y", elements)]
    where = made.graph(made.node("Where", inputs, made.tensor("z", elements)))
    nbytes = elements * (1 + 4 + 4 + 4 + 4 * 4)
    assert seconds(where, machine, 2) == pytest.approx(nbytes / 4e10, rel=0.15)


def test_a_join_of_many_tensors_costs_each_of_them(machine: Device) -> None:
    """0.1 us (again and again) to 0.3 us (among other operators) a tensor, measured with ONNX Runtime 1.31."""

    def joined(count: int) -> float:
        parts = [made.tensor(f"x{number}", 64 // count) for number in range(count)]
        return seconds(made.graph(made.node("Concat", parts, made.tensor("y", 64), axis=0)), machine, 1)

    assert 62 * 0.1e-6 < joined(64) - joined(2) < 62 * 0.3e-6


def test_a_run_costs_one_call_with_its_arrays(machine: Device) -> None:
    slower = replace(machine, calibration={**MADE_UP, "run.t2": CALL_S + 3e-6})
    one = made.elementwise("Relu", 10_000)
    assert seconds(one, slower, 2) - seconds(one, machine, 2) == pytest.approx(3e-6)


def test_a_narrow_product_costs_a_whole_panel_of_columns(machine: Device) -> None:
    """1,000 x 1,000 by 1, 2, 3, 10 or 16 columns: 281 to 283 us with ONNX Runtime 1.31.1; by 17: 561 us."""
    whole = seconds(made.product(1000, 16, 1000), machine, 1)
    for columns in (1, 3, 10):
        assert seconds(made.product(1000, columns, 1000), machine, 1) == pytest.approx(whole, rel=0.02)
    assert seconds(made.product(1000, 17, 1000), machine, 1) == pytest.approx(2 * whole, rel=0.15)


def test_one_row_is_multiplied_by_the_columns_that_there_are(machine: Device) -> None:
    flops = 2 * 1024**2
    by_one = seconds(made.product(1, 1, flops // 2), machine, 1)
    assert by_one == pytest.approx(flops / 1e11 + flops * 2 / 2e10, rel=0.5)


def _largest(rows: int, length: int, kept: int) -> Graph:
    k = replace(made.tensor("k", 1, dtype="int64", constant=True), value=np.array([kept]))
    return made.graph(made.node("TopK", [made.tensor("x", rows, length), k], made.tensor("y", rows, kept)))


def test_the_largest_are_looked_for_among_all(machine: Device) -> None:
    known = replace(machine, calibration={**MADE_UP, "reduce.TopK.t1.inner": 1.6e-9})
    # The probe itself, and eight times as many to look at.
    assert seconds(_largest(256, 1024, 8), known, 1) == pytest.approx(256 * 1024 * 1.6e-9, rel=0.02)
    first, longer = (seconds(_largest(100, length, 1), known, 1) for length in (10_000, 80_000))
    assert longer / first == pytest.approx(8, rel=0.05)


@pytest.mark.parametrize(("kept", "times"), [(32, 4.3), (64, 8.6), (300, 38), (1000, 80)])
def test_what_is_kept_of_a_row_costs_more_than_what_is_read(machine: Device, kept: int, times: float) -> None:
    """Of 1,000 elements, over what 8 of them take: as measured with ONNX Runtime 1.31.1."""
    known = replace(machine, calibration={**MADE_UP, "reduce.TopK.t1.inner": 1.6e-9})
    ratio = seconds(_largest(300, 1000, kept), known, 1) / seconds(_largest(300, 1000, 8), known, 1)
    assert 1 / 2 < ratio / times < 2


def test_a_sum_of_many_adds_one_after_the_other(machine: Device) -> None:
    """49 additions of 10,000 elements at 0.1 ns each, with a tensor of their own: 0.25 us, as measured."""
    many = seconds(made.elementwise("Sum", 10_000, operands=50), machine, 1)
    assert many == pytest.approx(49 * (10_000 * 1e-10 + 0.25e-6), rel=0.1)


def _of_rows(op: str, rows: int, length: int) -> Graph:
    x, kept = made.tensor("x", rows, length), rows if op.startswith("Reduce") else rows * length
    axes = replace(made.tensor("a", 1, dtype="int64", constant=True), value=np.array([1]))
    more = [axes] if op.startswith("Reduce") else []
    return made.graph(made.node(op, [x, *more], made.tensor("y", rows, kept // rows)))


@pytest.mark.parametrize(
    ("op", "rows", "length", "measured"),
    [
        ("Softmax", 20_000, 8, 303e-6),
        ("Softmax", 1000, 16, 18.4e-6),
        ("LayerNormalization", 20_000, 8, 434e-6),
        ("LayerNormalization", 1000, 16, 27.3e-6),
        ("ReduceSum", 20_000, 8, 48e-6),
    ],
)
def test_short_rows_cost_more_than_their_elements(
    machine: Device, op: str, rows: int, length: int, measured: float
) -> None:
    """As measured with ONNX Runtime 1.31.1 on one core; long rows of so many elements take a tenth of it."""
    quick = replace(machine, calibration={**MADE_UP, "reduce.ReduceSum.t1.inner": 2.5e-11})
    assert seconds(_of_rows(op, rows, length), quick, 1) == pytest.approx(measured, rel=0.25)


def test_probes_of_short_rows_tell_what_a_row_takes(machine: Device) -> None:
    """8 elements at 0.1 ns each are part of the 20.8 ns that the probe takes for a row."""
    known = replace(machine, calibration={**MADE_UP, **{f"row.Softmax.t{t}": 20.8e-9 / t for t in (1, 2)}})
    expected = 20_000 * (20e-9 + 8 * 1e-10)
    assert seconds(_of_rows("Softmax", 20_000, 8), known, 1) == pytest.approx(expected, rel=0.02)
    assert seconds(_of_rows("Softmax", 20_000, 8), known, 2) == pytest.approx(expected / 2, rel=0.03)


@pytest.mark.parametrize(
    ("shape", "axis", "count", "measured"),
    [
        ((100_000,), 0, 30_000, 233e-6),
        ((1000, 30), 1, 20, 148e-6),
        ((1000, 30), 1, 3, 24.7e-6),
        ((100_000, 1), 0, 3000, 26e-6),
    ],
)
def test_a_gather_costs_its_runs(
    machine: Device, shape: tuple[int, ...], axis: int, count: int, measured: float
) -> None:
    """One element at a time, along the first axis or the last; as measured with ONNX Runtime 1.31.1."""
    indices = made.tensor("i", count, dtype="int64")
    result = made.tensor("y", *shape[:axis], count, *shape[axis + 1 :])
    gather = made.graph(made.node("Gather", [made.tensor("x", *shape), indices], result, axis=axis))
    assert seconds(gather, machine, 1) == pytest.approx(measured, rel=0.25)


def test_columns_are_joined_row_by_row(machine: Device) -> None:
    """50 columns of 1,000 rows: 44 us with ONNX Runtime 1.31.1; 50 rows of 1,000 columns are 50 runs."""

    def joined(rows: int, columns: int, axis: int) -> float:
        parts = [made.tensor(f"x{number}", rows, columns) for number in range(50)]
        whole = (50 * rows, columns) if axis == 0 else (rows, 50 * columns)
        return seconds(made.graph(made.node("Concat", parts, made.tensor("y", *whole), axis=axis)), machine, 1)

    assert joined(1000, 1, 1) - joined(1, 1000, 0) == pytest.approx(50_000 * 0.8e-9, rel=0.05)


def test_a_repeated_value_of_the_same_rank_is_one_scalar(machine: Device) -> None:
    """[1000, 1] and [1, 1] take 3.3 us, [1000, 1] and [1] take 13.3 us with ONNX Runtime 1.31.1."""

    def added(*shape: int) -> float:
        one = [made.tensor("x", 1000, 1), made.tensor("p", *shape)]
        return seconds(made.graph(made.node("Add", one, made.tensor("y", 1000, 1))), machine, 1)

    assert added(1) - added(1, 1) == pytest.approx(999 * 2e-8, rel=0.02)  # without a probe


@pytest.mark.parametrize("op", ["LinearRegressor", "LinearClassifier"])
def test_a_linear_model_of_many_features_is_a_product(machine: Device, op: str) -> None:
    scores = made.tensor("y", 1000, 3)
    linear = made.graph(made.node(op, [made.tensor("x", 1000, 4096)], scores))
    product = seconds(made.product(1000, 3, 4096), machine, 1)
    assert seconds(linear, machine, 1) == pytest.approx(product, rel=0.1)


def test_trees_cost_what_a_comparison_was_measured_to_take(machine: Device) -> None:
    """Steps of 1 and 16 ns: between 500 and 500,000 of them lies 4 ns in the middle of the logarithms."""
    steps = {f"tree.t{t}.{many}": cost / t for t in (1, 2) for many, cost in ((500, 1e-9), (500_000, 1.6e-8))}
    known = replace(machine, calibration={**MADE_UP, **steps})
    one = made.trees(rows=1000, trees=100, depth=4)
    assert seconds(one, known, 1) == pytest.approx(500_000 * 1.6e-8, rel=0.01)
    assert seconds(one, known, 2) == pytest.approx(500_000 * 0.8e-8, rel=0.01)
    few = made.trees(rows=1000, trees=3, depth=4)
    middle = 1e-9 * 16 ** (math.log(15_000 / 500) / math.log(1000))
    assert seconds(few, known, 1) == pytest.approx(15_000 * middle + CALL_S, rel=0.01)


@pytest.mark.parametrize(("depth", "least", "most"), [(6, 1.0, 1.02), (9, 1.35, 1.5), (12, 2.0, 4.0)])
def test_steps_in_larger_trees_take_longer(machine: Device, depth: int, least: float, most: float) -> None:
    """127, 1,023 and 8,191 nodes; trained: 544 to 873 take 1.35 to 1.45 times as long, 7,582 up to 4 times."""
    known = replace(machine, calibration={**MADE_UP, "tree.t1.1000": 1e-9, "tree.t1.100000": 1e-9})
    taken = seconds(made.trees(rows=1000, trees=10, depth=depth), known, 1) - CALL_S
    assert least <= taken / (1000 * 10 * (depth + 1) * 1e-9) <= most


def test_votes_of_support_vectors_are_summed_on_one_thread(machine: Device) -> None:
    """A nanosecond a coefficient and row, whatever a second thread does for the kernel."""
    known = {**MADE_UP, "elementwise.SVMPOLY.t1": 2e-9, "elementwise.SVMPOLY.t2": 1e-9}

    def taken(threads: int) -> float:
        one = made.node(
            "SVMClassifier", [made.tensor("x", 1000, 32)], made.tensor("y", 1000, 3),
            kernel_type="POLY", vectors_per_class=(400, 300, 300), coefficients=(0.5,) * 2000,
        )  # fmt: skip
        graph = made.graph(replace(one, domain="ai.onnx.ml", version=1))
        return seconds(graph, replace(machine, calibration=known), threads)

    values, votes = 1000 * 1000, 1000 * 2000
    assert taken(1) == pytest.approx(values * 2e-9 + votes * 1e-9, rel=0.02)
    assert taken(2) == pytest.approx(values * 1e-9 + votes * 1e-9, rel=0.02)
