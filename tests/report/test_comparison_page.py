"""The comparison as a page: what it says, and that it opens."""

from dataclasses import replace

import pytest
import report_factory as factory

from analyzer.report import compare_page
from analyzer.report.compare import compare


def pair():
    """The invented network, and one whose GPU plan takes 30 instead of 20 ms and lost its findings."""
    base = factory.analysis(24)
    slower = replace(base.plans[1], latency_s=0.030, low_s=0.028, high_s=0.032)
    moved = tuple(replace(item, placement="cpu") if item.index == 4 else item for item in base.operators)
    new = replace(base, plans=(base.plans[0], slower), operators=moved, findings=())
    return compare([("before", base), ("after", new)])


def test_a_slower_plan_is_marked_worse_with_its_share():
    lines = {line.label: line.cells for line in compare_page.build(pair())["lines"]}
    after = lines["latency on the GPU"][1]
    assert (after.text, after.change, after.tone, after.unsure) == ("30.0 ms", "50 % more", "worse", False)
    assert lines["latency on the CPU"][1].change == "the same"
    assert lines["findings"][1].tone == "better"


def test_what_one_record_lacks_is_a_dash_and_no_change():
    lines = {line.label: line.cells for line in compare_page.build(pair())["lines"]}
    assert lines["latency of the best plan"][1] == compare_page.Cell(text="–")


@pytest.mark.parametrize(
    ("base", "value", "said"),
    [
        (1.0, 1.0, "the same"),
        (1.0, 1.25, "25 % more"),
        (4.0, 1.0, "75 % less"),
        (1.0, 3.4, "3.4x"),
        (0.0, 5.0, "was 0"),
    ],
)
def test_changes_are_said_in_words(base, value, said):
    assert compare_page.change(base, value) == said


def test_an_operator_that_moved_is_listed_first():
    (label, _, sections) = compare_page.build(pair())["differences"][0]
    assert label == "after"
    assert sections[0].title == "Runs on another device (1)"
    assert (sections[0].lines[0].before, sections[0].lines[0].after) == ("gpu", "cpu")


def test_the_page_is_the_same_each_time_and_escapes_labels():
    hostile = compare([(factory.HOSTILE, factory.hostile()), ("b", factory.hostile())])
    text = compare_page.render(hostile)
    assert text == compare_page.render(hostile)
    assert "<img src=x" not in text


@pytest.mark.browser
def test_the_comparison_opens_without_errors_requests_or_axe_violations(visit_text):
    page, seen = visit_text(compare_page.render(pair()))
    page.wait_for_function("document.documentElement.dataset.charts === 'drawn'")
    assert page.locator("#chart-latencies svg.marks").is_visible()
    assert "Runs on another device" in page.locator("#difference-1").inner_text()
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith("file:")] == []
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    found = axe.Axe().run(page).response["violations"]
    assert [item["id"] for item in found if item["impact"] in ("serious", "critical")] == []
