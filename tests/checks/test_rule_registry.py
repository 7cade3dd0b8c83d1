import re
from collections.abc import Iterator
from typing import Any

import pytest
from checks_factory import stem

from analyzer.checks import FAMILIES, find, judge, rules, run
from analyzer.checks.registry import rule
from analyzer.checks.settings import CheckSettings, Ignore
from analyzer.errors import UsageError


def test_every_rule_is_documented_in_four_parts() -> None:
    for each in rules():
        assert re.fullmatch(r"A[1-7]\d\d", each.code)
        assert each.code[:2] in FAMILIES
        assert each.title.endswith(".")
        for text in (each.what, each.why, each.fix, each.example):
            assert len(text) > 20
            assert not text.startswith(" ")


def test_a_rule_is_found_by_code_and_by_name_in_any_case() -> None:
    assert find("a101") is find("A101") is find("no-cuda-kernel") is find("No-Cuda-Kernel")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("A191", "A101"), ("A60", "A601"), ("no-cuda-kernal", "no-cuda-kernel"), ("gelu", "gelu-not-fused")],
)
def test_an_unknown_rule_suggests_the_nearest(word: str, meant: str) -> None:
    with pytest.raises(UsageError) as raised:
        find(word)
    assert meant in raised.value.hint


def test_a_code_taken_twice_and_a_docstring_without_its_parts_are_refused() -> None:
    def undocumented(subject: Any) -> Iterator[Any]:
        """A title alone."""
        yield from ()

    with pytest.raises(ValueError, match="lacks What, Why, Fix, Example"):
        rule("A199", "anything", "note")(undocumented)
    with pytest.raises(ValueError, match="taken"):
        rule("A101", "anything", "note")(undocumented)
    with pytest.raises(ValueError, match="no code"):
        rule("B101", "anything", "note")(undocumented)


@pytest.mark.parametrize("pattern", ["maxpool", "MaxPool", "max*", "node_pool", "*"])
def test_what_is_ignored_by_module_type_or_name_keeps_its_reason(pattern: str) -> None:
    settings = CheckSettings(ignore=(Ignore(code="A101", operator=pattern, reason="known"),))
    judgement = judge(stem(23), settings)
    assert judgement.findings == ()  # Its copies are part of it.
    assert [(entry.code, entry.reason) for entry in judgement.ignored] == [("A101", "known")]


def test_a_pattern_for_another_operator_ignores_nothing() -> None:
    settings = CheckSettings(ignore=(Ignore(code="A1", operator="conv*"),))
    assert len(run(stem(23), settings)) == 1


def test_the_beginning_of_a_code_ignores_its_family() -> None:
    assert run(stem(23), CheckSettings(ignore=(Ignore(code="A1"),))) == ()


@pytest.mark.parametrize(
    "settings",
    [
        CheckSettings(ignore=(Ignore(code="A109"),)),
        CheckSettings(raise_to_error=("A109",)),
        CheckSettings(raise_to_warning=("A109",)),
    ],
)
def test_settings_that_name_an_unknown_code_are_refused_with_the_nearest(settings: CheckSettings) -> None:
    with pytest.raises(UsageError, match="no rule 'A109'") as raised:
        run(stem(23), settings)
    assert "A101" in raised.value.hint


def test_findings_come_by_code_and_each_time_alike() -> None:
    findings = run(stem(23), CheckSettings(max_copies=0, max_cpu_operators=0))
    assert [finding.code for finding in findings] == ["A101", "A602", "A603"]
    assert findings == run(stem(23), CheckSettings(max_copies=0, max_cpu_operators=0))
