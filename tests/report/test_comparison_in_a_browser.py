"""The comparison page in a real browser that has no network."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import report_factory as factory

from analyzer.report.compare import document
from analyzer.report.compare.build import compare

pytestmark = pytest.mark.browser
OUTPUT = Path(__file__).parent.parent / "output" / "pages"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def three() -> Any:
    """The invented network, one on a GPU half as fast, and one at another batch with an operator more."""
    base = factory.analysis(24)
    slow = replace(factory.GPU, name="Imaginary GPU 1500", peak_flops_per_s={"fp32": 1e13})
    second = replace(
        base,
        devices=replace(base.devices, gpu=slow),
        plans=(base.plans[0], factory.plan("gpu", 0.040), factory.plan("hybrid", 0.039)),
        findings=base.findings[1:],
    )
    third = replace(factory.analysis(25), model=replace(base.model, batch=16))
    return compare([("fast", base), ("slow", second), ("a longer <b>name</b> of a record", third)])


@pytest.fixture
def visit(visit_text: Any) -> Any:
    """Opens the page of a comparison and waits until all of it is drawn."""

    def go(comparison: Any, **options: Any) -> Any:
        page, seen = visit_text(document.render(comparison), **options)
        page.wait_for_function("document.documentElement.dataset.charts === 'drawn'")
        return page, seen

    return go


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_a_comparison_opens_without_errors_requests_overflow_or_axe_violations(
    visit: Any, axe_finds: Any, viewport: Any
) -> None:
    page, seen = visit(three(), viewport=viewport)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=OUTPUT / f"comparison-{viewport['width']}-light.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert axe_finds(page, "all" if viewport is WIDE else "all but colours") == []
    page.emulate_media(color_scheme="dark")
    page.screenshot(path=OUTPUT / f"comparison-{viewport['width']}-dark.png")
    if viewport is WIDE:
        assert axe_finds(page, "colours") == []
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_every_chart_of_a_comparison_is_drawn_with_words_and_data(visit: Any) -> None:
    page, _ = visit(three())
    names = [figure.get_attribute("data-chart") for figure in page.locator("figure.chart").all()]
    assert names == [
        "latencies",
        "record-latency",
        "record-throughput",
        "record-types",
        "record-roofline",
    ]
    for figure in page.locator("figure.chart").all():
        assert len(figure.locator("figcaption").inner_text()) > 20
        assert figure.locator(".drawing [role=img]").get_attribute("aria-label")
        figure.locator("details.numbers summary").click()
        figure.locator(".numbers-table tbody tr").first.wait_for()
    # A third of the CPU's, GPU's and best plans are each record's.
    assert len(page.evaluate("charts.csv('latencies')").split("\r\n")) == 1 + 9


def test_the_answer_comes_first_and_labels_are_text(visit: Any) -> None:
    page, _ = visit(three(), looks=True)
    assert page.locator(".sentence").bounding_box()["y"] < 300
    assert page.locator("#side-by-side thead").first.inner_text().count("<b>name</b>") == 1
    assert page.locator("main b").count() == 0


def test_a_record_is_hidden_by_the_keyboard_alone(visit: Any) -> None:
    page, _ = visit(three(), looks=True)
    page.locator("#chart-record-roofline .filter summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.wait_for_function("charts.views.get('record-roofline').data('record_store').length === 2")
    page.keyboard.press("Space")
    page.wait_for_function("charts.views.get('record-roofline').data('record_store').length === 0")


def test_a_comparison_prints_light_with_its_tables_and_charts(visit: Any) -> None:
    page, _ = visit(three(), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#side-by-side table").first.is_visible()
    assert page.locator("#chart-record-roofline svg.marks").is_visible()
    assert not page.locator(".filter").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
