"""Saving a chart from the page, in a real browser: by the keyboard, and light from a dark page."""

import csv
import io
import re
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import report_factory as factory

from analyzer.report import html
from analyzer.report.pictures import light_colours

pytestmark = pytest.mark.browser
SVG = "{http://www.w3.org/2000/svg}"
# Eighteen of twenty-four operators have a point on either device; above 4,000 points a canvas shows them.
MANY = 4068


@pytest.fixture(scope="module")
def text() -> str:
    return html.render(factory.analysis(MANY))


def saved(page: Any, chart: str, kind: str) -> tuple[str, bytes]:
    """The name and the content of what a chart's menu gives."""
    with page.expect_download() as download:
        page.locator(f"#chart-{chart} .save").get_by_role("button", name=f"{kind}: ").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_charts_of_a_dark_page_are_saved_light_with_title_and_origin(
    visit_text: Any, text: str, axe_finds: Any, unfold: Any
) -> None:
    page, seen = visit_text(text, color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.charts === 'drawn'")
    unfold(page)
    assert page.locator("#chart-roofline canvas.marks").count() == 1
    assert page.locator(".chart .vega-actions").count() == 0
    for chart in ("roofline", "batch-latency"):
        summary = page.locator(f"#chart-{chart} .save summary")
        # By the keyboard: Escape closes the menu and gives the focus back.
        summary.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "SVG"
        page.keyboard.press("Escape")
        assert page.locator(f"#chart-{chart} .save[open]").count() == 0
        assert page.evaluate("document.activeElement.textContent") == "Save"
        page.keyboard.press("Enter")

        name, picture = saved(page, chart, "SVG")
        assert name == f"imaginary-{chart}.svg"
        root = ElementTree.fromstring(picture)
        title = page.locator(f"#chart-{chart} h3").inner_text()
        assert root.findtext(f"{SVG}title") == title
        assert (
            page.locator(f"#chart-{chart} figcaption").inner_text().endswith(str(root.findtext(f"{SVG}desc")))
        )
        written = [element.text for element in root.iter(f"{SVG}text")]
        assert written[0] == title
        assert "Figures are measured and predicted; what is predicted is hollow or paler." in " ".join(
            filter(None, written)
        )
        light = set(light_colours().values())
        used = set(re.findall(r'(?:fill|stroke)="(#\w+)"', picture.decode()))
        assert b"var(" not in picture
        assert used <= light
        assert root.find(f"{SVG}rect").get("fill") == light_colours()["surface"]

    name, picture = saved(page, "batch-latency", "PNG")
    assert (name, picture[:8]) == ("imaginary-batch-latency.png", b"\x89PNG\r\n\x1a\n")
    # Two pixels for each of the sheet, the last that was saved as SVG.
    assert struct.unpack(">II", picture[16:24]) == tuple(
        2 * int(root.attrib[side]) for side in ("width", "height")
    )
    name, content = saved(page, "batch-latency", "CSV")
    assert name == "imaginary-batch-latency.csv"
    head, *rows = csv.reader(io.StringIO(content.decode()))
    assert head[:3] == ["batch", "plan", "latency"]
    assert len(rows) == 7 * 3  # batches and plans
    assert axe_finds(page) == []
    assert (seen.errors, [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))]) == (
        [],
        [],
    )


def test_a_modules_chart_says_what_its_widths_are_when_it_is_saved(visit_text: Any) -> None:
    page, _ = visit_text(html.render(factory.analysis(24)), looks=True)
    page.wait_for_function("document.documentElement.dataset.charts === 'drawn'")
    page.locator("#chart-by-module .save summary").click()
    page.select_option("#measure", "cpu")
    _, picture = saved(page, "by-module", "SVG")
    page.select_option("#measure", "best")
    page.locator("#chart-by-module .save summary").click()
    assert b">Width: time on the CPU. Figures are sums of measured and predicted times." in picture
