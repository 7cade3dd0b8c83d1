"""What a page shows before anything is pressed, what it folds, and what of it goes on paper."""

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import report_factory as factory

from analyzer import analyze
from analyzer.record.analysis import Analysis, Opportunity
from analyzer.report import html

pytestmark = pytest.mark.browser
DRAWN = (
    "document.documentElement.dataset.charts === 'drawn' && document.documentElement.dataset.table === 'ready'"
)
GRAPH = "document.documentElement.dataset.graph === 'drawn'"
HEIGHT = "document.documentElement.scrollHeight"
DESK = {"width": 1400, "height": 900}
SHEETS = re.compile(rb"/Type\s*/Page\b")
# Sums of what moves by itself: https://developer.mozilla.org/docs/Web/API/LayoutShift
SHIFTS = """window.shifts = 0;
new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
    if (!entry.hadRecentInput) window.shifts += entry.value;
})).observe({ type: "layout-shift", buffered: true });"""


@pytest.fixture(scope="module")
def resnet() -> str:
    """The page of ResNet-50 at batch 64."""
    model = Path(__file__).parents[2] / "samples" / "resnet50.py"
    return html.render(analyze(model, batch=64, gpu="l4", cpu="epyc-9654", run=False))


@pytest.fixture
def visit(visit_text: Any) -> Any:
    """Opens a page or that of an analysis, and waits until all that is open is drawn."""

    def go(shown: Any, **options: Any) -> Any:
        page, seen = visit_text(shown if isinstance(shown, str) else html.render(shown), **options)
        page.wait_for_function(DRAWN)
        return page, seen

    return go


@pytest.fixture
def graph_of(visit: Any) -> Any:
    """Opens the page of an analysis at its graph."""

    def go(analysis: Analysis) -> Any:
        page, _ = visit(analysis, viewport=DESK)
        page.locator("#graph").scroll_into_view_if_needed()
        page.wait_for_function(GRAPH)
        return page

    return go


def test_a_page_has_seven_links_and_a_resnet_fits_six_thousand_pixels(visit: Any, resnet: str) -> None:
    page, seen = visit(resnet, viewport=DESK, looks=True)
    assert page.locator(".top nav a").count() <= 7
    for link in page.locator(".top nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    page.wait_for_function(GRAPH)
    assert page.evaluate(HEIGHT) < 6000
    assert seen.errors == []


@pytest.mark.parametrize(
    "told",
    [factory.generation(), factory.capacity(), factory.generation_capacity()],
    ids=["generation", "capacity", "both"],
)
def test_pages_of_other_questions_are_as_short_and_take_six_sheets_of_paper(visit: Any, told: Analysis) -> None:
    page, _ = visit(told, viewport=DESK)
    assert page.locator(".top nav a").count() <= 7
    assert page.evaluate(HEIGHT) < 6000
    assert len(SHEETS.findall(page.pdf(prefer_css_page_size=True, format="A4"))) <= 6


def test_a_graph_below_a_service_is_drawn_when_its_fold_is_opened(visit: Any) -> None:
    page, seen = visit(factory.capacity(), viewport=DESK)
    assert page.evaluate("document.documentElement.dataset.graph") is None
    page.locator("#graph summary").click()
    page.wait_for_function(GRAPH)
    assert page.locator("#graph-drawing svg, #graph-drawing canvas").count() > 0
    assert seen.errors == []


def test_five_rows_of_the_ranking_are_shown_and_the_fold_has_all(visit: Any, resnet: str) -> None:
    page, _ = visit(resnet, viewport=DESK)
    rows = page.locator('[data-options="ranking"] tbody tr')
    shown = page.locator('[data-options="ranking"] tbody tr:visible')
    assert shown.count() == 5
    # Sorted otherwise, the five cheapest, and the answer wherever it is then.
    page.locator('[data-options="ranking"] thead button', has_text="$/million").click()
    assert 5 <= shown.count() <= 6
    assert not page.locator('[data-searches="ranking"]').is_visible()
    page.locator("#ranking .all summary").click()
    assert shown.count() == rows.count() > 5
    page.locator('[data-searches="ranking"]').fill("L4")
    assert shown.count() < rows.count()


@pytest.mark.parametrize("width", [420, 1024, 1400])
def test_nothing_moves_by_itself_and_no_column_leaves_the_window(visit: Any, resnet: str, width: int) -> None:
    page, _ = visit(resnet, viewport={"width": width, "height": 900}, before=SHIFTS)
    page.wait_for_function(GRAPH)
    assert page.evaluate("window.shifts") < 0.001
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if width > 1000:
        table = "document.querySelector('[data-options=ranking]').parentElement"
        assert page.evaluate(f"{table}.scrollWidth <= {table}.clientWidth")


def test_a_resnet_takes_six_sheets_of_paper_and_no_column_is_cut(visit: Any, resnet: str) -> None:
    page, _ = visit(resnet, viewport=DESK)
    page.wait_for_function(GRAPH)
    sheets = SHEETS.findall(page.pdf(prefer_css_page_size=True, format="A4"))
    assert 3 <= len(sheets) <= 6
    # A4 without its margins of 11 mm, at 96 dots an inch.
    page.emulate_media(media="print")
    page.set_viewport_size({"width": round(188 / 25.4 * 96), "height": 900})
    for part in ("document.documentElement", "document.querySelector('#ranking .scroll')"):
        assert page.evaluate(f"{part}.scrollWidth <= {part}.clientWidth")
    assert page.locator("#ranking tbody tr:visible").count() == 5
    assert page.locator(".code tr.hot:visible").count() > 2


def test_each_line_of_the_source_has_its_share_its_device_and_its_operators(visit: Any) -> None:
    analysis = factory.analysis(48)
    page, _ = visit(analysis, viewport=DESK)
    times: dict[int, float] = defaultdict(float)
    for one in analysis.operators:
        times[one.source.line] += one.cpu.time_s if one.placement == "cpu" else one.gpu.time_s
    rows = page.locator("#source-lines tbody tr:not(.gap)")
    assert [int(row.locator("a").inner_text()) for row in rows.all()] == sorted(times)
    part = "Number(bar.style.getPropertyValue('--part'))"
    shown = f"[...document.querySelectorAll('#source-lines .bar')].map((bar) => {part})"
    whole = sum(times.values())
    # Shares are sent with four digits.
    assert page.evaluate(shown) == pytest.approx([times[line] / whole for line in sorted(times)], rel=1e-3)
    # Every fourth operator is a MaxPool, which falls to the CPU; 40 lines are a multiple of four.
    chips = [row.locator(".chip").inner_text() for row in rows.all()]
    assert chips == ["CPU" if line % 4 == 1 else "GPU" for line in sorted(times)]
    rows.nth(0).locator("a").click()
    page.wait_for_function("document.getElementById('found').textContent.startsWith('2 of 48')")
    # Not those of line 100 and on.
    assert {
        one["file"] for one in page.evaluate("report.table.getRows('active').map((row) => row.getData())")
    } == {"samples/imaginary.py:10"}


def test_j_and_k_step_through_the_hot_lines_and_the_address_has_the_line(visit: Any) -> None:
    page, _ = visit(factory.analysis(48), viewport=DESK)
    hot = [link.inner_text() for link in page.locator("#source-lines .hot a").all()]
    assert 2 < len(hot) < page.locator("#source-lines tbody tr:not(.gap)").count()
    now = "document.activeElement.closest('#source-lines') && document.activeElement.textContent"
    for key, line in (
        ("j", hot[0]),
        ("j", hot[1]),
        ("j", hot[2]),
        ("k", hot[1]),
        ("k", hot[0]),
        ("k", hot[-1]),
    ):
        page.keyboard.press(key)
        assert page.evaluate(now) == line
    address = page.url
    page.focus("#search")
    page.keyboard.press("j")
    assert page.input_value("#search") == "j"
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function(f"{now} === '{hot[-1]}'")


def test_a_place_in_the_source_leads_to_its_line(visit: Any) -> None:
    page, _ = visit(factory.analysis(24), viewport=DESK)
    now = "document.activeElement.closest('#source-lines') && document.activeElement.textContent"
    page.locator(".finding [data-line]").first.click()
    assert page.evaluate(now) == "13"
    page.evaluate("report.select(7)")
    page.locator("#detail a").click()
    assert page.evaluate(now) == "17"


def test_commands_on_lines_of_their_own_and_in_running_text_are_copied(visit: Any) -> None:
    base = factory.analysis(24)
    cpu = replace(base.devices.cpu, notes="Not listed: see `analyze devices` first, not `make`.")
    page, _ = visit(replace(base, devices=replace(base.devices, cpu=cpu)), viewport=DESK)
    buttons = page.locator("[data-copy]")
    commands = [button.get_attribute("data-copy") for button in buttons.all()]
    assert commands.count("analyze devices") == 1
    assert all(command.startswith("analyze ") for command in commands)
    page.locator(".method-part", has_text="Not listed").locator("summary").click()
    page.locator("[data-copy='analyze devices']").click()
    page.wait_for_function("document.querySelector('[data-copy=\"analyze devices\"]').textContent === 'Copied'")


def test_what_to_do_next_leads_to_its_operator_and_its_line_and_its_command_is_copied(visit: Any) -> None:
    base = factory.analysis(24)
    change = Opportunity(
        code="change",
        title="Change it",
        operators=(7, 8),
        source=base.operators[7].source,
        gain_s=2e-3,
        gain_low_s=1e-3,
        gain_high_s=3e-3,
        command="analyze apply net.py --fix it",
    )
    page, seen = visit(replace(base, opportunities=(change,)), viewport=DESK)
    item = page.locator(".rests li", has_text="Change it")
    item.locator("[data-select]").click()
    assert page.evaluate("report.selected()") == 7
    item.locator("[data-line]").click()
    assert page.evaluate("document.activeElement.textContent") == "17"
    item.locator("button").click()
    page.wait_for_function("document.querySelector('.rests button').textContent === 'Copied'")
    assert item.locator("code").inner_text() == "analyze apply net.py --fix it"
    assert seen.errors == []


def test_what_is_folded_has_no_serious_violation_either(visit: Any, unfold: Any, axe_finds: Any) -> None:
    page, seen = visit(factory.analysis(24), viewport=DESK)
    unfold(page)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert axe_finds(page) == []
    assert seen.errors == []


def layered(count: int) -> Analysis:
    """So many equal layers of four operators, between a first and a last operator."""
    base = factory.analysis(4 * count + 2)
    first, *inner, last = base.operators
    layers = [
        replace(one, op_type=factory.KINDS[at % 4], module=f"layers.{at // 4}.{factory.KINDS[at % 4].lower()}")
        for at, one in enumerate(inner)
    ]
    return replace(
        base, operators=(replace(first, module="embed"), *layers, replace(last, module="head")), groups=()
    )


def test_equal_layers_are_one_box_until_it_is_opened(graph_of: Any) -> None:
    page = graph_of(layered(32))
    status = page.locator("#graph-status")
    assert status.inner_text().startswith("3 boxes, 2 connections")
    box = page.locator(".graph-keys button[aria-label^='layers ×32, part, 0 to 31, 128 ops']")
    box.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('graph-status').textContent.startsWith('34 boxes')")
    page.click("#graph-reset")
    page.wait_for_function("document.getElementById('graph-status').textContent.startsWith('3 boxes')")


def test_four_layers_of_which_one_differs_are_four_boxes(graph_of: Any) -> None:
    base = layered(4)
    odd = replace(base.operators[6], op_type="Sigmoid")
    page = graph_of(replace(base, operators=(*base.operators[:6], odd, *base.operators[7:])))
    assert page.locator(".graph-keys button[aria-label*='×']").count() == 0


def test_boxes_are_the_fuller_the_more_time_they_take(graph_of: Any) -> None:
    page = graph_of(factory.analysis(24))
    heats = page.evaluate("""() => [...document.querySelectorAll('#graph-drawing path[fill="var(--warn)"]')]
        .map((part) => Number(part.getAttribute('fill-opacity')))""")
    best = page.evaluate("""() => [...Array(6).keys()].map((block) => report.operators
        .filter((row) => Math.floor(row.index / 4) === block).reduce((sum, row) => sum + row.best, 0))""")
    assert len(heats) == 6
    # As the root of the time, so that a tenth is still seen.
    assert heats == pytest.approx([0.45 * (time / max(best)) ** 0.5 for time in best], rel=1e-3)


def test_a_thousand_operators_are_drawn_at_once(graph_of: Any) -> None:
    page = graph_of(factory.analysis(1000))
    # Stages, their blocks, modules of one operator each, and these.
    for count in (87, 253, 1000):
        page.click("#graph-open")
        page.wait_for_function(
            f"document.getElementById('graph-status').textContent.startsWith('{count} boxes')"
        )
    page.locator(".graph-keys [data-box=o999]").wait_for(state="attached")


def test_a_map_of_the_graph_shows_what_is_seen_and_leads_elsewhere(graph_of: Any) -> None:
    page = graph_of(factory.analysis(24))
    seen = page.locator(".graph-map")
    page.click("#graph-open")
    page.wait_for_function("document.getElementById('graph-status').textContent.startsWith('24 boxes')")
    box, frame = seen.bounding_box(), page.locator("#graph .graph-scroll").bounding_box()
    assert page.locator(".graph-keys button").last.bounding_box()["y"] > frame["y"] + frame["height"]
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 3)
    page.wait_for_function(
        "document.querySelector('.graph-keys button:last-child').getBoundingClientRect().bottom"
        " <= document.querySelector('#graph .graph-scroll').getBoundingClientRect().bottom"
    )
    # All of it needs no map.
    page.click("#graph [data-zoom=fit]")
    seen.wait_for(state="hidden")
