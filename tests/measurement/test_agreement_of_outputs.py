"""Outputs compared."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from analyzer.measurement.output_agreement import OutputAgreement, agreement


def one(a: NDArray[Any], b: NDArray[Any], **options: Any) -> OutputAgreement:
    (only,) = agreement({"y": a}, {"y": b}, **options)
    return only


def test_equal_outputs_agree_bit_for_bit() -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32)
    found = one(x, x.copy())
    assert found.agrees
    assert found.max_absolute == 0


def test_errors_are_relative_to_the_largest_magnitude() -> None:
    expected = np.array([100.0, 0.001], np.float32)
    found = one(expected, expected + np.array([0.0, 0.01], np.float32))
    assert found.max_absolute == pytest.approx(0.01, rel=1e-3)
    assert found.max_relative == pytest.approx(1e-4, rel=1e-3)
    assert found.agrees  # a hundred times the small element, but nothing beside the large one


def test_a_wrong_answer_is_a_mismatch_that_names_the_output() -> None:
    expected = np.array([1.0, 2.0], np.float32)
    (found,) = agreement({"logits": expected}, {"logits": expected * np.float32(1.1)})
    assert not found.agrees
    assert found.name == "logits"


@pytest.mark.parametrize(
    ("kind", "error", "agrees"),
    [
        (np.float64, 1e-4, False),
        (np.float32, 1e-4, True),
        (np.float32, 1e-2, False),
        (np.float16, 1e-2, True),
        (ml_dtypes.bfloat16, 5e-2, True),
        (ml_dtypes.bfloat16, 0.5, False),
    ],
)
def test_coarser_types_may_differ_more(kind: Any, error: float, agrees: bool) -> None:
    expected = np.array([1.0, -0.5], dtype=kind)
    assert one(expected, (expected.astype(np.float64) * (1 + error)).astype(kind)).agrees is agrees


def test_tf32_may_differ_more_than_float32() -> None:
    expected = np.array([1.0], np.float32)
    coarse = expected * np.float32(1.005)
    assert not one(expected, coarse).agrees
    assert one(expected, coarse, precision="tf32").agrees


def test_integers_must_be_equal() -> None:
    assert one(np.array([1, 2]), np.array([1, 2])).agrees
    found = one(np.array([1, 2]), np.array([1, 3]))
    assert not found.agrees
    assert found.why == "1 of 2 elements differ"


def test_quantized_integers_may_be_one_step_apart() -> None:
    assert one(np.array([10], np.uint8), np.array([11], np.uint8)).agrees
    assert not one(np.array([10], np.uint8), np.array([12], np.uint8)).agrees


def test_not_a_number_agrees_only_with_itself() -> None:
    nan, one_ = np.array([np.nan, 1.0], np.float32), np.array([0.0, 1.0], np.float32)
    assert one(nan, nan).agrees
    assert "not a number" in one(one_, nan).why
    assert "not a number" in one(nan, one_).why
    inf = np.array([np.inf, 1.0], np.float32)
    assert one(inf, inf).agrees
    assert not one(inf, -inf).agrees


def test_values_where_zeros_are_right_are_a_mismatch() -> None:
    found = one(np.zeros(3, np.float32), np.array([0, 1e-3, 0], np.float32))
    assert not found.agrees
    assert found.max_relative is None
    assert "zeros" in found.why


@pytest.mark.parametrize("other", [{}, {"y": np.zeros((2, 1), np.float32)}])
def test_a_missing_output_or_another_shape_is_a_mismatch(other: dict[str, NDArray[Any]]) -> None:
    (found,) = agreement({"y": np.zeros(2, np.float32)}, other)
    assert not found.agrees
    assert found.max_absolute is None


def test_sequences_are_compared_element_by_element() -> None:
    x = np.ones(2, np.float32)
    assert all(found.agrees for found in agreement({"s": [x, x]}, {"s": [x, x]}))
    assert [found.agrees for found in agreement({"s": [x, x]}, {"s": [x]})] == [False]
    assert [found.name for found in agreement({"s": [x, x]}, {"s": [x, x * 2]}) if not found.agrees] == ["s[1]"]


def test_text_is_compared() -> None:
    assert one(np.array(["a"], object), np.array(["a"], object)).agrees
    assert not one(np.array(["a"], object), np.array(["b"], object)).agrees


def test_empty_outputs_agree() -> None:
    assert one(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).agrees


@pytest.mark.parametrize(("noise", "agrees"), [(0.099, True), (0.101, False)])
def test_of_a_quantised_model_noise_of_a_tenth_of_the_output_is_the_limit(noise: float, agrees: bool) -> None:
    # Equal magnitudes, signs in turn: 20 log10(1 / noise) decibels.
    signal = np.where(np.arange(1000) % 2, 1.0, -1.0).astype(np.float32)
    worst = one(signal, signal * np.float32(1 + noise), in_noise=True)
    assert worst.agrees is agrees
    assert worst.sqnr_db == pytest.approx(-20 * np.log10(noise), abs=1e-3)


def test_of_a_quantised_model_one_wrong_element_may_be_far_off() -> None:
    signal = np.ones(10_000, dtype=np.float32)
    other = signal.copy()
    other[0] = 3.0  # 10,000 of signal over 4 of noise are 34 dB
    assert one(signal, other, in_noise=True).agrees
    assert not one(signal, other).agrees


def test_of_a_quantised_model_infinities_missing_outputs_and_other_shapes_are_no_noise() -> None:
    ones = np.ones(4, dtype=np.float32)
    broken = ones.copy()
    broken[0] = np.inf
    assert not one(ones, broken, in_noise=True).agrees
    assert not agreement({"y": ones}, {}, in_noise=True)[0].agrees
    assert not one(ones, ones[:2], in_noise=True).agrees
    assert not one(0 * ones, ones, in_noise=True).agrees
    # A class that follows from two floats next to each other.
    assert one(np.array([3]), np.array([4]), in_noise=True).agrees
