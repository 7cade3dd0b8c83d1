"""What measured models say of a device, held against derivations and the coverage of intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from analyzer.fleet.build import MeasuredPair, biases_of, corrected
from analyzer.fleet.work import judged_anew
from analyzer.record.fleet import DeviceBias, FleetModel
from analyzer.record.outcome import RankedWay

TO_90 = 1.6448536269514722


def predicted(latency_s: float = 0.010, deviation: float = 0.2, **values: Any) -> RankedWay:
    reach = math.exp(TO_90 * deviation)
    return RankedWay(
        device="l4",
        kind="gpu",
        plan="gpu",
        batch=1,
        latency_s=latency_s,
        low_s=latency_s / reach,
        high_s=latency_s * reach,
        **values,
    )


def pair(name: str, ratio: float, *, batch: int = 1, deviation: float = 0.2) -> MeasuredPair:
    before = predicted(deviation=deviation)
    now = RankedWay(
        device="l4", kind="gpu", plan="gpu", batch=batch, latency_s=0.010 * ratio, origin="measured"
    )
    return MeasuredPair(model=name, predicted=before, measured=now)


def test_one_model_moves_the_ratio_by_half_of_what_it_shows() -> None:
    # var(c) = w = 0.02: p = 100, and c is around error / 2 with variance 0.01.
    (bias,) = biases_of([pair("a", 1.44)])
    assert bias.ratio == pytest.approx(1.2)
    assert bias.low == pytest.approx(1.2 * math.exp(-TO_90 * 0.1))
    assert (bias.models, bias.spread) == (1, 0)


def test_many_models_that_agree_leave_their_own_ratio() -> None:
    # n / (n + 1) of the error, and variance 0.02 / (n + 1).
    (bias,) = biases_of([pair(f"m{number}", 1.3) for number in range(9)])
    assert bias.ratio == pytest.approx(1.3**0.9)
    assert math.log(bias.high / bias.low) == pytest.approx(2 * TO_90 * math.sqrt(0.002))


def test_batches_of_one_model_are_one_witness() -> None:
    alone = biases_of([pair("a", 1.2), pair("b", 1.1), pair("c", 1.3)])
    with_batches = biases_of([pair("a", 1.2), pair("a", 1.2, batch=8), pair("b", 1.1), pair("c", 1.3)])
    assert with_batches[0].models == 3
    assert with_batches == alone


def test_three_models_that_agree_narrow_the_others_and_two_never_do() -> None:
    cell = predicted()
    (three,) = biases_of([pair(name, 1.2) for name in "abc"])
    told = corrected(cell, three)
    assert told.latency_s == pytest.approx(0.010 * 1.2**0.75)  # n / (n + 1)
    # Variance 0.02 / 4 + 0.02 where it was 0.04.
    assert math.log(told.high_s / told.low_s) == pytest.approx(2 * TO_90 * math.sqrt(0.025))
    (two,) = biases_of([pair(name, 1.2) for name in "ab"])
    told = corrected(cell, two)
    assert told.latency_s == cell.latency_s
    assert told.low_s <= cell.low_s
    assert told.high_s >= cell.high_s


def test_an_interval_is_never_narrower_than_what_the_models_show() -> None:
    (bias,) = biases_of([pair(str(number), ratio) for number, ratio in enumerate((0.5, 1.0, 2.0, 4.0))])
    # Errors -1, 0, 1, 2 times log 2: the sample variance is 5 / 3 of log(2)^2.
    assert bias.spread == pytest.approx(math.sqrt(5 / 3) * math.log(2))
    told = corrected(predicted(), bias)
    assert math.log(told.high_s / told.low_s) > 2 * TO_90 * bias.spread


@pytest.mark.parametrize("common", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("models", [3, 8, 30])
def test_the_intervals_hold_nine_tenths_of_what_is_measured_next(common: float, models: int) -> None:
    rng = np.random.default_rng(7)
    deviation, within, trials = 0.25, 0, 3000
    for _ in range(trials):
        shared = rng.normal(0, deviation * math.sqrt(common))
        errors = shared + rng.normal(0, deviation * math.sqrt(1 - common), models + 1)
        pairs = [pair(str(n), math.exp(error), deviation=deviation) for n, error in enumerate(errors[:-1])]
        told = corrected(predicted(deviation=deviation), biases_of(pairs)[0])
        within += told.low_s <= 0.010 * math.exp(errors[-1]) <= told.high_s
    # The standard error of 3,000 trials is 0.55 %. Where nothing is common few models may agree by chance.
    assert within / trials >= (0.85 if common == 0 else 0.88)
    if common == 0.5:  # as it is taken to be
        assert within / trials <= 0.94


def test_dollars_and_joules_go_with_the_time_and_the_cell_says_why() -> None:
    cell = predicted(usd_per_million=2.0, usd_low_per_million=1.0, usd_high_per_million=3.0, energy_j=5.0)
    bias = DeviceBias(device="l4", models=4, ratio=1.5, low=1.4, high=1.6)
    told = corrected(cell, bias)
    assert (told.usd_per_million, told.energy_j) == (3.0, 7.5)
    assert told.usd_low_per_million / told.usd_per_million == pytest.approx(told.low_s / told.latency_s)
    assert told.note == "times by 1.50, as 4 measured models took on it"


def test_what_was_measured_or_stands_on_another_device_stays() -> None:
    bias = DeviceBias(device="l4", models=4, ratio=1.5, low=1.4, high=1.6)
    for cell in (
        predicted(origin="measured"),
        RankedWay(device="t4", kind="gpu", plan="gpu", batch=1, latency_s=0.1),
        predicted(count=3),
        RankedWay(device="l4", kind="gpu", plan="gpu", batch=1),
    ):
        assert corrected(cell, bias) == cell


def test_devices_have_biases_of_their_own() -> None:
    other = MeasuredPair(
        model="a",
        predicted=RankedWay(
            device="a100", kind="gpu", plan="gpu", batch=1, latency_s=1.0, low_s=0.5, high_s=2.0
        ),
        measured=RankedWay(device="a100", kind="gpu", plan="gpu", batch=1, latency_s=1.0, origin="measured"),
    )
    assert [bias.device for bias in biases_of([pair("a", 2.0), other])] == ["a100", "l4"]


@pytest.mark.parametrize(
    ("question", "limits", "meets"),
    [
        ("run", {"slo": ("15ms",)}, False),
        ("run", {"slo": ("30ms",)}, True),
        ("generate", {"ttft": ("1s",), "tpot": ("15ms",)}, False),
        ("generate", {"ttft": ("1s",), "tpot": ("30ms",)}, True),
        ("capacity", {"p99": ("15ms",)}, True),
    ],
)
def test_limits_are_judged_by_the_corrected_times(
    question: Any, limits: dict[str, tuple[str, ...]], meets: bool
) -> None:
    twice = DeviceBias(device="l4", models=30, ratio=2.0, low=1.9, high=2.1, spread=0.1)
    row = FleetModel(name="m", reference="m.py", question=question, options=limits)
    generates = {"ttft_s": 0.1, "tpot_s": 0.010} if question == "generate" else {}
    cell = corrected(predicted(meets=True, **generates), twice)
    assert judged_anew(row, cell).meets is meets
    assert judged_anew(row, corrected(predicted(**generates), twice)).meets is None
