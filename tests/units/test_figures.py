"""Figures for human eyes."""

import pytest

from analyzer import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8.178368512e9, "8.18 GFLOP"),
        (999.9, "1.00 kFLOP"),
        (999.4, "999 FLOP"),
        (1, "1.00 FLOP"),
        (0, "0 FLOP"),
        (None, "–"),
        (7.3e17, "730 PFLOP"),
    ],
)
def test_counts_take_the_prefix_that_leaves_three_digits(value: float | None, text: str) -> None:
    assert units.flop_count(value) == text


def test_nothing_that_is_not_zero_reads_zero() -> None:
    assert units.seconds(3e-12) == "0.003 ns"
    assert units.share(0.0004) == "<1 %"
    assert units.share(0.9996) == ">99 %"
    assert (units.share(0), units.share(1)) == ("0 %", "100 %")


def test_long_times_and_large_sums_keep_their_unit() -> None:
    assert units.seconds(3170) == "3,170 s"
    assert units.dollars(12345) == "$12,345"


def test_small_sums_keep_three_digits() -> None:
    assert units.dollars(0.526) == "$0.526"
    assert units.dollars(9.758e-6) == "$0.00000976"


def test_ratios_have_two_digits_below_ten() -> None:
    assert (units.factor(3.44), units.factor(81.3), units.factor(0.056)) == ("3.4x", "81.3x", "0.056x")
