"""The page used by the keyboard alone, in a real browser."""

from typing import Any

import pytest
import report_factory as factory

from analyzer.report import html

pytestmark = pytest.mark.browser
READY = (
    "document.documentElement.dataset.charts === 'drawn' && document.documentElement.dataset.table === 'ready'"
    " && document.documentElement.dataset.graph === 'drawn'"
)
FOCUSED = "document.activeElement"

# Pixels between what has the focus and the nearer of the frame's upper and lower edge; negative beyond it.
FROM_THE_FRAMES_EDGES = (
    "((box, frame) => Math.min(box.top - frame.top, frame.bottom - box.bottom))("
    f"{FOCUSED}.getBoundingClientRect(),"
    " document.querySelector('#graph .graph-scroll').getBoundingClientRect())"
)


@pytest.fixture
def page(visit_text: Any, unfold: Any) -> Any:
    """The page of 24 operators as it opens, all of it drawn, nothing in focus."""
    opened, _ = visit_text(html.render(factory.analysis(24)))
    opened.wait_for_function(READY)
    unfold(opened)
    return opened


@pytest.fixture
def used_page(visit_text: Any, unfold: Any) -> Any:
    """The same, for tests that need no more than nothing in focus and put back what they change."""
    opened, _ = visit_text(html.render(factory.analysis(24)), looks=True)
    opened.wait_for_function(READY)
    unfold(opened)
    return opened


def tab_to(page: Any, selector: Any, most: int = 300) -> None:
    """Presses the tabulator key until what has the focus fits the selector."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(f"the tabulator key never comes to {selector}")


def press(page: Any, *names: Any) -> None:
    for name in names:
        page.keyboard.press(name)


def stored(page: Any, chart: Any, store: Any) -> Any:
    return page.evaluate(f"charts.views.get('{chart}').data('{store}').flatMap((entry) => entry.values)")


def outlined(page: Any) -> Any:
    return page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)") > 0


def name_of(page: Any) -> Any:
    return page.evaluate(f"{FOCUSED}.getAttribute('aria-label')")


def test_a_legend_is_filtered_by_check_boxes_with_names(used_page: Any) -> None:
    page = used_page
    tab_to(page, "#chart-roofline .filter summary")
    assert outlined(page)
    press(page, "Enter")
    tab_to(page, "#chart-roofline .filter input[value=CPU]", most=1)
    assert page.get_by_role("checkbox", name="CPU", exact=True).and_(page.locator(":focus")).count() == 1
    assert outlined(page)
    press(page, "Space")
    page.wait_for_function("charts.views.get('roofline').data('device_store').length === 1")
    assert stored(page, "roofline", "device_store") == ["GPU"]
    faded = "svg .mark-symbol path[aria-roledescription=point][opacity='0.06']"
    # 12 operators have work of their own; each has a point on either device.
    assert page.locator(f"#chart-roofline {faded}").count() == 12
    press(page, "Space")
    page.wait_for_function("charts.views.get('roofline').data('device_store').length === 0")
    assert page.locator(f"#chart-roofline {faded}").count() == 0
    page.locator("#chart-roofline .filter summary").click()


def test_with_no_box_checked_nothing_stands_out(used_page: Any) -> None:
    page = used_page
    tab_to(page, "#chart-by-type .filter summary")
    press(page, "Enter", "Tab", "Space", "Tab", "Space")
    page.wait_for_function("charts.views.get('by-type').data('device_store').length === 1")
    assert stored(page, "by-type", "device_store") == [None]
    press(page, "Space", "Shift+Tab", "Space")
    page.wait_for_function("charts.views.get('by-type').data('device_store').length === 0")
    press(page, "Shift+Tab", "Enter")


def test_every_chart_with_a_legend_that_filters_has_its_boxes(used_page: Any) -> None:
    page = used_page
    for chart in ("roofline", "by-type", "batch-latency", "batch-throughput"):
        boxes = page.locator(f"#chart-{chart} .filter fieldset")
        assert boxes.count() >= 1
        for box in boxes.all():
            assert box.locator("input").count() >= 2
            assert box.locator("legend").text_content()


def test_the_arrow_keys_walk_the_modules_and_enter_looks_inside(used_page: Any) -> None:
    page = used_page
    tab_to(page, "#chart-by-module .drawing")
    assert outlined(page)
    # Into the model, into stage0, to its neighbour stage1.
    press(page, "ArrowDown", "ArrowDown", "ArrowRight")
    assert "Module stage1" in page.locator("#chart-by-module .step").inner_text()
    press(page, "Enter")
    number = page.evaluate("report.modules.find((item) => item.path === 'stage1').number")
    page.wait_for_function(f"charts.views.get('by-module').signal('focus') === {number}")
    press(page, "Escape")
    page.wait_for_function("charts.views.get('by-module').signal('focus') === 0")


def test_plus_and_minus_zoom_into_the_plan(used_page: Any) -> None:
    page = used_page
    tab_to(page, "#chart-timeline .drawing")
    whole = page.evaluate("charts.views.get('timeline').scale('x').domain()")
    press(page, "ArrowRight", "+")
    page.wait_for_function(f"charts.views.get('timeline').scale('x').domain()[1] < {whole[1] * 0.6}")
    press(page, "0")
    page.wait_for_function(f"charts.views.get('timeline').scale('x').domain()[1] >= {whole[1]}")


def test_modules_of_the_graph_open_and_close_and_the_focus_follows(page: Any) -> None:
    page.evaluate("document.getElementById('graph-reset').focus()")
    tab_to(page, ".graph-keys button", most=5)
    assert outlined(page)
    # The first box from above is the outline of stage0, whose blocks are open at first.
    assert (name_of(page), page.evaluate(f"{FOCUSED}.ariaExpanded")) == ("stage0, opened", "true")
    press(page, "ArrowDown")
    assert name_of(page).startswith("block0, module, 4 ops")
    assert name_of(page).endswith("runs on CPU and GPU")
    assert page.evaluate(f"{FOCUSED}.ariaExpanded") == "false"
    press(page, "Enter")
    page.wait_for_function(f"{FOCUSED}.ariaLabel === 'stage0.block0, opened'")
    assert page.locator("#graph-status").inner_text().startswith("9 boxes")
    press(page, "Space")
    page.wait_for_function(f"{FOCUSED}.ariaLabel.startsWith('block0, module')")
    assert page.locator("#graph-status").inner_text().startswith("6 boxes")


def test_an_operator_of_the_graph_is_selected_by_enter(page: Any) -> None:
    page.evaluate("document.getElementById('graph-open').focus()")
    # Stages are open at first: blocks, then modules of one operator each, then the operators.
    press(page, "Enter")
    page.locator(".graph-keys [data-box=m4]").wait_for(state="attached")
    press(page, "Enter")
    page.locator(".graph-keys [data-box=o23]").wait_for(state="attached")
    tab_to(page, ".graph-keys button", most=5)
    press(page, "End")
    assert name_of(page).startswith("MaxPool, operator, #23")
    # Far below what was seen: the drawing has moved, not the page.
    page.wait_for_function(f"{FROM_THE_FRAMES_EDGES} > 0")
    press(page, "-", "-", "-", "-")
    page.wait_for_function("document.getElementById('graph-drawing').style.transform.startsWith('scale(0.')")
    press(page, "Enter")
    assert page.evaluate("report.selected()") == 23
    assert page.evaluate(f"{FOCUSED}.ariaPressed") == "true"


def test_the_graph_is_one_stop_of_the_tabulator_key(used_page: Any) -> None:
    page = used_page
    assert page.locator(".graph-keys button[tabindex='0']").count() == 1
    tab_to(page, ".graph-keys button")
    press(page, "ArrowDown", "ArrowDown", "Tab")
    assert page.evaluate(f"{FOCUSED}.closest('.graph-keys') === null")


def test_the_module_tree_unfolds_and_folds_with_the_arrow_keys(page: Any) -> None:
    tab_to(page, "#tree button[title^=stage1]")
    assert page.evaluate(f"{FOCUSED}.ariaExpanded") == "false"
    press(page, "ArrowRight")
    page.locator('#tree button:text-is("block2")').first.wait_for()
    assert page.evaluate(f"[{FOCUSED}.textContent, {FOCUSED}.ariaExpanded]") == ["stage1", "true"]
    press(page, "ArrowLeft")
    page.wait_for_function(
        "![...document.querySelectorAll('#tree button')].some((b) => b.textContent === 'block2')"
    )
    assert page.evaluate(f"[{FOCUSED}.textContent, {FOCUSED}.ariaExpanded]") == ["stage1", "false"]
    press(page, "Enter")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('12 of 24')")
    # The rows are made anew a moment after the table has answered, and the focus returns with them.
    page.wait_for_function(f"{FOCUSED}.textContent === 'stage1'")
    assert page.evaluate(f"{FOCUSED}.textContent") == "stage1"
