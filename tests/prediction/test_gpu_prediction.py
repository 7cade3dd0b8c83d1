"""Kernel times on GPUs: laws that need no oracle, and published measurements."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import prediction_graphs as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer import prediction
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.errors import UsageError
from analyzer.graph import Graph
from analyzer.prediction.gpu.constants import FITTED
from analyzer.prediction.gpu.tiles import untranslated


def kernel(work: prediction.Workload, device: Device, precision: str = "fp32") -> float:
    """Time of the kernels without floors and gaps between them."""
    found = prediction.predict_arrays(work, device, precision=precision)
    assert found.overheads is not None
    return float((found.value - found.overheads.launch_s).sum())


@pytest.mark.parametrize(
    ("slug", "share"),
    [("a100-80gb-pcie", 0.91), ("a100-40gb-pcie", 0.79), ("v100-32gb-pcie", 0.88), ("h100-80gb-sxm", 0.74),
     ("t4", 0.40), ("l4", 0.30)],
)  # fmt: skip
def test_large_fp32_products_sustain_the_published_share_of_the_data_sheet(slug: str, share: float) -> None:
    """Medians of products of 100 to 1000 GFLOP in NeuSight's data set; a card's power limit shows in them."""
    one, card = made.product(8192, 4096, 4096), catalogue.device(slug)
    reached = made.flops(one) / kernel(made.work(one), card) / card.peak_flops_per_s["fp32"]
    assert reached == pytest.approx(share, rel=0.30)


@pytest.mark.parametrize(
    ("slug", "low", "high"),
    [("a100-40gb-pcie", 0.80, 0.90), ("l4", 0.74, 0.80), ("t4", 0.70, 0.79), ("v100-32gb-pcie", 0.85, 0.93)],
)
def test_elementwise_operators_reach_the_published_share_of_the_bandwidth(
    slug: str, low: float, high: float
) -> None:
    """Additions above 100 MB in NeuSight's data set."""
    card = catalogue.device(slug)
    elements = 100_000_000
    reached = (
        3
        * 4
        * elements
        / kernel(made.work(made.elementwise("Add", elements, 2)), card)
        / card.bandwidth_bytes_per_s
    )
    assert low < reached < high


def test_no_large_product_beats_the_peak_by_more_than_a_boost_clock() -> None:
    one = made.product(4096, 4096, 4096)
    work = made.work(one)
    for card in catalogue.gpus():
        for precision in ("fp32", "tf32", "fp16", "bf16"):
            peak = card.peak_flops_per_s.get(precision)
            if peak:
                assert made.flops(one) / kernel(work, card, precision) < 1.16 * peak, (card.slug, precision)


def test_tensor_cores_and_narrow_types_pay_on_large_products() -> None:
    work = made.work(made.product(4096, 4096, 4096))
    for slug in ("t4", "l4", "a10g", "a100", "h100", "rtx-4090"):
        card = catalogue.device(slug)
        times = [kernel(work, card, precision) for precision in ("fp32", "fp16")]
        assert times[0] > times[1], slug


def test_twice_the_bandwidth_halves_what_memory_limits() -> None:
    work = made.work(made.elementwise("Relu", 50_000_000))
    card = catalogue.device("l4")
    wide = replace(card, bandwidth_bytes_per_s=2 * card.bandwidth_bytes_per_s)
    assert kernel(work, wide) == pytest.approx(kernel(work, card) / 2)


def test_half_precision_halves_the_bytes_of_elementwise_operators() -> None:
    work = made.work(made.elementwise("Relu", 50_000_000))
    card = catalogue.device("a100")
    assert kernel(work, card, "fp16") == pytest.approx(kernel(work, card, "tf32") / 2)


def test_one_tile_more_than_multiprocessors_costs_a_second_wave() -> None:
    """108 multiprocessors: 27 x 4 tiles of 128 x 128 fill them once, 28 x 4 need a second wave."""
    card = catalogue.device("a100")
    full = kernel(made.work(made.product(27 * 128, 4 * 128, 8192)), card)
    over = kernel(made.work(made.product(28 * 128, 4 * 128, 8192)), card)
    assert over / full > 1.15


@pytest.mark.parametrize(
    ("slug", "low", "high"), [("p100-16gb-pcie", 0.38, 0.55), ("v100-32gb-pcie", 0.80, 1.05)]
)
def test_rows_far_apart_slow_products_on_pascal(slug: str, low: float, high: float) -> None:
    """NeuSight's linear layers with an inner dimension of 4096 and of over 32768.

    Medians of 7.0 and 2.8 TFLOP/s on a P100 (0.40), of 13.5 and 11.5 on a V100 (0.85).
    """
    card = catalogue.device(slug)
    near, far = made.product(4096, 4096, 4096), made.product(4096, 4096, 50_000)
    rates = [made.flops(one) / kernel(made.work(one), card) for one in (near, far)]
    assert low < rates[1] / rates[0] < high


@pytest.mark.parametrize(("batch", "k", "teraflops"), [(1, 2048, 7.0), (4, 256, 8.4)])
def test_single_products_sustain_less_than_batched_ones_on_pascal(batch: int, k: int, teraflops: float) -> None:
    """NeuSight's P100, over 1 ms and 512 rows and columns: medians of 366 linear and 34 batched products."""
    one = made.product(4096, 4096, k, batch=batch, constant=batch == 1)
    reached = made.flops(one) / kernel(made.work(one), catalogue.device("p100-16gb-pcie"))
    assert reached == pytest.approx(teraflops * 1e12, rel=0.1)


@given(m=st.integers(1, 50), n=st.integers(1, 50), steps=st.integers(1, 500), units=st.integers(1, 128))
def test_each_tile_reads_two_sides_at_every_step(m: int, n: int, steps: int, units: int) -> None:
    """Tiles of 128 x 128 read 128 rows of each operand, 8 floats at a time; without reach all miss."""
    one = (np.array([1.0]), np.array([128.0 * m]), np.array([128.0 * n]), np.array([8.0 * steps]))
    assert untranslated(*one, reach=0.0, units=float(units))[0] == pytest.approx(m * n * steps * 256)


@given(m=st.integers(1, 5000), n=st.integers(1, 128), k=st.integers(8, 4000))
def test_a_tile_reads_whole_rows_however_few_columns_there_are(m: int, n: int, k: int) -> None:
    """A strip of up to 128 columns: each row of the one operand once, those of the other once a tile."""
    one = (np.array([1.0]), np.array([float(m)]), np.array([float(n)]), np.array([float(k)]))
    reads = (m + n * -(-m // 128)) * k / 8
    assert untranslated(*one, reach=0.0, units=20.0)[0] == pytest.approx(reads)


@pytest.mark.parametrize(
    ("slug", "m", "n", "k", "ms"),
    [
        ("p100-16gb-pcie", 6072, 6, 19_000, 3.84),
        ("p100-16gb-pcie", 5578, 5, 10_239, 2.11),
        ("p100-16gb-pcie", 7449, 6, 34_812, 9.54),
        ("t4", 257, 5, 29_728, 0.34),
    ],
)
def test_few_columns_are_no_matrix_vector_product(slug: str, m: int, n: int, k: int, ms: float) -> None:
    """NeuSight's linear layers, rounded; as matrix-vector products they came out 2 to 5 times too fast."""
    time_s = kernel(made.work(made.product(m, n, k)), catalogue.device(slug))
    assert ms * 1e-3 / 1.5 < time_s < ms * 1e-3 * 1.5


@pytest.mark.parametrize(("span", "share"), [(1.0, 0.0), (0.5, 0.5), (0.25, 0.75)])
def test_what_rows_in_flight_span_beyond_the_reach_misses(span: float, share: float) -> None:
    """Two units hold four tiles of one column: 512 + 128 rows of 4000 bytes span 2.56 MB."""
    one = (np.array([1.0]), np.array([12_800.0]), np.array([1280.0]), np.array([1000.0]))
    everything = untranslated(*one, reach=0.0, units=2.0)[0]
    assert untranslated(*one, reach=2.56e6 * span, units=2.0)[0] == pytest.approx(share * everything)


def test_tensor_cores_fill_up_few_channels_to_a_tiles_depth() -> None:
    """CUTLASS steps through ceil(C / 32) tiles of 32 halves at each filter position: 1 costs what 32 do."""
    card = catalogue.device("v100-32gb-pcie")
    one, full, twice = (
        kernel(made.work(made.convolution(32, channels, 64, 112, kernel=5)), card, "fp16")
        for channels in (1, 32, 64)
    )
    assert one == pytest.approx(full, rel=0.3)
    assert twice > 1.5 * full


def test_a_3x3_convolution_may_beat_the_peak_of_its_dense_count() -> None:
    """Winograd F(4x4, 3x3) multiplies 4 times less: DeepBench's V100 reaches 2.64 times the dense peak."""
    card = catalogue.device("v100-32gb-pcie")
    one = made.convolution(32, 256, 256, 56)
    reached = made.flops(one) / kernel(made.work(one), card) / card.peak_flops_per_s["fp32"]
    assert 1.0 < reached < 2.64
    five = made.convolution(32, 256, 256, 56, kernel=5)
    assert made.flops(five) / kernel(made.work(five), card) < card.peak_flops_per_s["fp32"]


def test_a_depthwise_convolution_takes_longer_than_its_traffic_and_with_its_filter() -> None:
    """Each multiplication loads what it multiplies: no filter reaches a tenth of the peak."""
    card = catalogue.device("a100")
    times = []
    for size in (1, 3, 5, 7):
        one = made.convolution(32, 256, 256, 56, kernel=size, group=256)
        times.append(kernel(made.work(one), card))
        assert times[-1] > 2 * 4 * 32 * 256 * 56 * 56 / 2039e9
        assert made.flops(one) / times[-1] < 0.1 * card.peak_flops_per_s["fp32"]
    assert times[0] <= times[1] < times[2] < times[3]
    assert (
        prediction.predict(made.work(made.convolution(32, 256, 256, 56, kernel=1, group=256)), card)[0].bound
        == "memory"
    )


@pytest.mark.parametrize(
    ("one", "bound"),
    [
        (made.product(4096, 4096, 4096), "compute"),
        (made.elementwise("Add", 10_000_000, 2), "memory"),
        (made.elementwise("Add", 100, 2), "overhead"),
        (made.product(1, 4096, 4096), "memory"),
    ],
)
def test_each_estimate_says_what_limits_it(one: object, bound: str) -> None:
    assert prediction.predict(made.work(one), catalogue.device("a100"))[0].bound == bound


def test_every_estimate_lies_inside_its_interval_and_is_predicted() -> None:
    work = made.work(made.convolution(8, 64, 64, 56))
    for card in catalogue.gpus():
        for precision in ("fp32", "tf32", "fp16", "bf16"):
            estimate = prediction.predict(work, card, precision=precision)[0]
            assert 0 < estimate.low < estimate.value < estimate.high
            assert estimate.origin == "predicted"


def test_intervals_of_single_products_hold_how_much_the_card_itself_varies() -> None:
    """NeuSight measured a T4's products twice, 1.23 apart at the same shapes; an H100's agree within 2 %."""

    def wide(slug: str, batch: int) -> float:
        work = made.work(made.product(2048, 2048, 2048, batch=batch, constant=batch == 1))
        estimate = prediction.predict(work, catalogue.device(slug), precision="fp32")[0]
        return estimate.high / estimate.value

    assert wide("t4", 1) / wide("h100", 1) == pytest.approx(1.08, rel=0.03)
    assert wide("t4", 8) == pytest.approx(wide("h100", 8), rel=0.01)


def test_a_type_that_a_card_lacks_is_replaced_by_the_nearest_and_widens() -> None:
    work = made.work(made.product(2048, 2048, 2048))
    own = prediction.predict(work, catalogue.device("t4"), precision="fp32")[0]
    other = prediction.predict(work, catalogue.device("t4"), precision="tf32")[0]
    assert other.value == pytest.approx(own.value)
    assert other.high / other.value > own.high / own.value


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(UsageError, match="fp12"):
        prediction.predict(made.work(made.product(8, 8, 8)), catalogue.device("t4"), precision="fp12")


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 4096), n=st.integers(1, 4096), k=st.integers(1, 4096), more=st.integers(1, 64),
    slug=st.sampled_from(["t4", "l4", "a100", "h100"]), precision=st.sampled_from(["fp32", "fp16"]),
)  # fmt: skip
def test_more_rows_never_take_much_less_time(
    m: int, n: int, k: int, more: int, slug: str, precision: str
) -> None:
    """A better fitting tile may gain a little; work that grows does not pay."""
    card = catalogue.device(slug)
    less, larger = (kernel(made.work(made.product(rows, n, k)), card, precision) for rows in (m, m * more))
    assert larger > 0.8 * less


def test_norms_read_again_what_the_cache_cannot_hold() -> None:
    """Rows of 8192 floats: those in flight overflow the T4's 4 MB, hardly the L4's 48 MB.

    NeuSight's layer norms take 1.5 and 1.1 times a copy there.
    """
    norm = made.graph(
        made.node(
            "LayerNormalization",
            [
                made.tensor("x", 4096, 8192),
                made.tensor("s", 8192, constant=True),
                made.tensor("b", 8192, constant=True),
            ],
            made.tensor("y", 4096, 8192),
            axis=-1,
        )
    )
    copy = made.elementwise("Relu", 4096 * 8192)
    ratio = {
        slug: kernel(made.work(norm), card) / kernel(made.work(copy), card)
        for slug in ("t4", "l4")
        for card in [catalogue.device(slug)]
    }
    assert 1.4 < ratio["t4"] < 1.6
    assert 1.0 <= ratio["l4"] < 1.2


def test_recurrences_cannot_run_their_steps_at_once() -> None:
    def lstm(steps: int) -> prediction.Workload:
        inputs = [
            made.tensor("x", steps, 1, 256),
            made.tensor("w", 1, 1024, 256, constant=True),
            made.tensor("r", 1, 1024, 256, constant=True),
        ]
        return made.work(
            made.graph(made.node("LSTM", inputs, made.tensor("y", steps, 1, 1, 256), hidden_size=256))
        )

    card = catalogue.device("h100")
    assert kernel(lstm(200), card) > 150 * FITTED.step_s
    assert kernel(lstm(200), card) == pytest.approx(2 * kernel(lstm(100), card), rel=0.05)


def test_the_calibration_of_a_card_goes_before_its_data_sheet() -> None:
    one = made.product(8192, 8192, 8192)
    card = catalogue.device("h200")
    measured = replace(card, calibration={"cuda.gemm.float16.m4096.n4096.k4096": 400e12, "cuda.kernel": 1e-6})
    slower = kernel(made.work(one), measured, "fp16")
    assert slower > kernel(made.work(one), card, "fp16")
    assert made.flops(one) / slower < 400e12


def test_arrays_and_estimates_agree() -> None:
    work, card = made.work(made.convolution(4, 64, 128, 28)), catalogue.device("l4")
    arrays, estimates = prediction.predict_session(work, card), prediction.predict(work, card)
    assert np.allclose(arrays.value, [item.value for item in estimates])
    assert np.allclose(arrays.high, [item.high for item in estimates])


def figures(card: Device) -> tuple[float, ...]:
    """What more of can only help; the power limit as the reason that the rest is sustained."""
    whole = (card.peak_flops_per_s["fp32"], card.peak_flops_per_s.get("fp16", 0.0), card.bandwidth_bytes_per_s)
    return (*whole, float(card.cache_bytes or 0), float(card.tdp_w or 0))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(
    "one",
    [
        made.product(4096, 4096, 4096),
        made.elementwise("Add", 50_000_000, 2),
        made.convolution(64, 128, 128, 56),
        made.product(512, 512, 64, batch=192, constant=False),
    ],
    ids=["product", "sum", "convolution", "batched"],
)
def test_a_card_with_more_of_everything_is_not_slower(one: Graph, precision: str) -> None:
    """Of the same architecture; a tenth is left to what was measured on one card of two alone."""
    work = made.work(one)
    cards = [card for card in catalogue.gpus() if card.vendor == "NVIDIA"]
    times = {card.slug: kernel(work, card, precision) for card in cards}
    for more, less in permutations(cards, 2):
        better = all(left >= right for left, right in zip(figures(more), figures(less), strict=True))
        if better and more.architecture == less.architecture:
            assert times[more.slug] < 1.1 * times[less.slug], (more.slug, less.slug)


def test_a_product_of_two_stacks_that_broadcast_computes_every_pair() -> None:
    """[16, 1, m, k] by [1, 16, k, n] are 256 products, as many as of two stacks of 256."""
    side = 512
    left, right = made.tensor("x", 16, 1, side, side), made.tensor("z", 1, 16, side, side)
    crossed = made.graph(made.node("MatMul", [left, right], made.tensor("y", 16, 16, side, side)))
    device = catalogue.device("a100")
    (time,) = prediction.predict(made.work(crossed), device, precision="fp32")
    assert time is not None
    assert time.value > made.flops(crossed) / device.peak_flops_per_s["fp32"]


@pytest.mark.parametrize("op", ["TopK", "CumSum", "ScatterND", "NonZero"])
def test_kernels_that_nobody_measured_have_a_wide_interval(op: str) -> None:
    card = catalogue.device("h100-80gb-sxm")

    def width(name: str) -> float:
        inputs = [made.tensor("x", 4096, 4096), made.tensor("i", 4096, 1, dtype="int64")]
        one = made.graph(made.node(name, inputs, made.tensor("y", 4096, 4096)))
        (item,) = prediction.predict(made.work(one), card)
        return item.high / item.value

    assert width(op) > 4.0 > 2 * width("Tile")


def test_a_cumulative_sum_reads_all_that_is_before_each_element() -> None:
    """Twice as long an axis is four times as much to read, where a stream is twice as long."""

    def took(length: int) -> float:
        axis = replace(made.tensor("a", dtype="int64", constant=True), value=np.array(1))
        shape = (4096, length)
        one = made.graph(made.node("CumSum", [made.tensor("x", *shape), axis], made.tensor("y", *shape)))
        (item,) = prediction.predict(made.work(one), catalogue.device("a100-80gb-sxm"))
        return item.value

    assert took(4096) / took(2048) == pytest.approx(4.0, rel=0.05)
    assert took(4096) > 10 * 2 * 4096 * 4096 * 4 / 2e12
