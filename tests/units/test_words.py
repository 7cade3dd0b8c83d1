"""Lists and plurals as people write them."""

import pytest

from analyzer import text
from analyzer.errors import UsageError


@pytest.mark.parametrize(
    ("words", "said"),
    [((), ""), (("a",), "a"), (("a", "b"), "a and b"), (("a", "b", "c", "d"), "a, b, c and d")],
)
def test_the_last_word_of_a_list_has_an_and_before_it(words: tuple[str, ...], said: str) -> None:
    assert text.listed(words) == said
    assert text.listed(word for word in words) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [("", ""), ("ab", "a and b"), ("abc", "a, b and c"), ("abcd", "a, b, c and 1 more"),
     ("abcdefg", "a, b, c and 4 more")],
)  # fmt: skip
def test_a_long_list_counts_what_it_leaves_out_and_a_short_one_ends_in_and(words: str, said: str) -> None:
    assert text.first_few(words) == said


@pytest.mark.parametrize(
    ("number", "noun", "nouns", "said"),
    [
        (1, "copy", "", "1 copy"),
        (0, "operator", "", "0 operators"),
        (2, "copy", "", "2 copies"),
        (2, "day", "", "2 days"),
        (1234, "CPU operator", "", "1,234 CPU operators"),
        (1, "copy takes", "copies take", "1 copy takes"),
        (3, "copy takes", "copies take", "3 copies take"),
    ],
)
def test_plurals_have_thousands_apart_and_the_right_ending(
    number: int, noun: str, nouns: str, said: str
) -> None:
    assert text.plural(number, noun, nouns) == said


@pytest.mark.parametrize(
    ("value", "limit_s"),
    [("50ms", 0.05), ("1.5s", 1.5), (" 2 min ", 120.0), ("250 us", 2.5e-4), (0.05, 0.05), (2, 2.0)],
)
def test_a_latency_limit_is_a_figure_with_its_unit_or_seconds_as_a_number(
    value: object, limit_s: float
) -> None:
    assert text.latency_limit(value, where="--slo") == pytest.approx(limit_s)


@pytest.mark.parametrize("value", ["50", " 0.5 ", "1e-3", ".5", "5.", "0", "-3"])
def test_a_text_of_figures_alone_is_no_latency_limit(value: str) -> None:
    with pytest.raises(UsageError) as raised:
        text.latency_limit(value, where="--slo")
    number = value.strip()
    assert raised.value.message == f"--slo {number}: a limit needs a unit"
    figure = number.lstrip("-")  # what is written instead is a duration
    assert raised.value.hint == f"write {figure}ms or {figure}s"


@pytest.mark.parametrize(
    ("value", "share"), [("2%", 0.02), ("150%", 1.5), ("0.02", 0.02), (0.99, 0.99), (0, 0.0)]
)
def test_a_share_is_a_number_below_1_or_has_a_per_cent_sign(value: object, share: float) -> None:
    assert text.share(value, where="--tolerance") == share


@pytest.mark.parametrize("value", ["2", 2, 2.0, "2.0"])
def test_a_number_of_two_is_no_share_of_two_per_cent(value: object) -> None:
    with pytest.raises(UsageError, match="--tolerance: 2 is 200%") as caught:
        text.share(value, where="--tolerance")
    assert caught.value.hint == "Write 2%; or 200% where that is meant."


def test_of_a_number_without_end_nothing_is_repeated() -> None:
    with pytest.raises(UsageError, match=r"^--slo: a limit needs a unit") as raised:
        text.latency_limit("9" * 100_000, where="--slo")
    assert len(str(raised.value)) < 100
