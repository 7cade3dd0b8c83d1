"""Two graphs as one in a real browser that has no network: drawn, opened, sought, by mouse and by keyboard."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import handmade
import pytest
import report_factory as factory

from analyzer.record.analysis import Analysis
from analyzer.report.compare import html_page
from analyzer.report.compare.build import compare
from analyzer.report.compare.comparison import Comparison

pytestmark = pytest.mark.browser
OUTPUT = Path(__file__).parent.parent / "output" / "pages"
# A page is drawn for a narrow or for a wide window as it opens, and takes any width after that.
OPENED = {"390": ("390",), "1440": ("820", "1440")}
SIZES = {"390": (390, 844), "820": (820, 1100), "1440": (1440, 900)}


def pair() -> Comparison:
    """The invented network; then operator 4 slower, 8 on the CPU, 22 and 23 gone, another type at the end."""
    base = factory.analysis(24)
    items = list(base.operators[:22])
    items[4] = replace(items[4], gpu=handmade.on_gpu(3e-3, (0.9, 1.1)))
    items[8] = replace(items[8], placement="cpu", gpu=replace(items[8].gpu, placed_on="cpu"))
    items.append(factory.operator(22, "Gelu", module="stage1.block2.gelu"))
    new = replace(base, operators=tuple(items), groups=factory.groups(items))
    return compare([("before", base), ("after <b>it</b>", new)])


def flat(count: int) -> Analysis:
    """A graph without modules, each operator slower than the one before it in a second record."""
    base = factory.analysis(count)
    return replace(base, operators=tuple(replace(item, module="") for item in base.operators))


@pytest.fixture
def visit(visit_text: Any) -> Any:
    """Opens the page of a comparison and waits until its graph is drawn."""

    def go(comparison: Comparison, **options: Any) -> Any:
        page, seen = visit_text(html_page.render(comparison), **options)
        page.wait_for_function("document.documentElement.dataset.charts === 'drawn'")
        page.locator(".joined").first.scroll_into_view_if_needed()
        page.locator(".joined[data-drawn]").first.wait_for()
        return page, seen

    return go


@pytest.mark.parametrize("opened", OPENED)
def test_the_graph_opens_without_errors_requests_overflow_or_axe_violations(
    visit: Any, axe_finds: Any, opened: str
) -> None:
    width, height = SIZES[opened]
    page, seen = visit(pair(), viewport={"width": width, "height": height})
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for size in OPENED[opened]:
        width, height = SIZES[size]
        page.set_viewport_size({"width": width, "height": height})
        page.locator(".joined").screenshot(path=OUTPUT / f"joined-{size}-light.png")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert axe_finds(page, "all" if size == "1440" else "all but colours") == []
    page.emulate_media(color_scheme="dark")
    page.locator(".joined").screenshot(path=OUTPUT / f"joined-{opened}-dark.png")
    if opened == "1440":
        assert axe_finds(page, "colours") == []
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_worst_module_is_open_at_first_and_its_box_is_coloured_as_lost(visit: Any) -> None:
    page, _ = visit(pair(), looks=True)
    box = page.locator('svg [data-box="o4"]')
    # From 0.5 to 3 ms, beyond a twentieth of the whole.
    assert box.locator(".tint.l3").count() == 1
    assert "500 µs → 3.00 ms ▲" in box.text_content()
    assert page.locator(".joined .detail h4").inner_text() == "stage0.block1.conv"


def test_the_list_opens_the_way_to_a_box_and_shows_both_sides(visit: Any) -> None:
    page, _ = visit(pair())
    page.get_by_role("button", name="Close all").click()
    assert page.locator('svg [data-box="o4"]').count() == 0
    page.locator('.joined-list a[data-box="o4"]').click()
    assert page.locator('svg [data-box="o4"].chosen').is_visible()
    detail = page.locator(".joined .detail").inner_text()
    for text in (
        "before",
        "after <b>it</b>",
        "500 µs (",
        "3.00 ms (",
        "beyond the intervals",
        "FusedConv, 2 operators",
    ):
        assert text in detail


def test_what_is_new_gone_and_on_another_device_is_marked(visit: Any) -> None:
    page, _ = visit(pair())
    find = page.get_by_label("Find a module, operator or source line")
    find.fill("gelu")
    find.press("Enter")
    assert page.locator("svg .box.new").first.is_visible()
    find.fill("conv_8")
    page.locator("[data-hits] a").first.click()
    assert "⇄ GPU → CPU" in page.locator('svg [data-box="o8"]').text_content()
    find.fill("relu_22")
    page.locator("[data-hits] a").first.click()
    assert page.locator("svg .box.gone.chosen").count() == 1
    assert "not there" in page.locator(".joined .detail").inner_text()
    find.fill("nothing of this name")
    assert page.locator("[data-found]").inner_text() == "Nothing found."


def test_a_search_finds_names_before_source_lines(visit: Any) -> None:
    base = factory.analysis(8)
    line = replace(base.operators[4].source, code="y = self.maxpool(x)")
    items = [replace(item, source=line) if item.index == 4 else item for item in base.operators]
    # Operator 4, a Conv whose line holds the word, changed most; 3 and 7 are MaxPools.
    items[4] = replace(items[4], gpu=handmade.on_gpu(3e-3))
    page, _ = visit(compare([("a", base), ("b", replace(base, operators=tuple(items)))]))
    page.get_by_label("Find a module, operator or source line").fill("maxpool stage0")
    boxes = [link.get_attribute("data-box") for link in page.locator("[data-hits] a").all()]
    assert [box for box in boxes if box.startswith("o")] == ["o3", "o7", "o4"]


def test_the_keyboard_alone_opens_a_module_steps_inside_and_closes_it(visit: Any) -> None:
    page, _ = visit(pair())
    page.get_by_role("button", name="Close all").click()
    first = page.locator('svg [tabindex="0"]')
    assert first.count() == 1
    first.focus()
    name = first.get_attribute("data-box")
    assert first.get_attribute("aria-expanded") == "false"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.box") == f"g{name[1:]}"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.box") != f"g{name[1:]}"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.box") == name
    assert page.locator(f'svg [data-box="{name}"]').get_attribute("aria-expanded") == "false"


def test_a_graph_of_thousands_of_operators_draws_no_more_than_what_is_open(visit: Any) -> None:
    page, seen = visit(compare([("a", flat(3000)), ("b", flat(3000))]))
    assert seen.errors == []
    boxes = "document.querySelectorAll('.joined svg .box').length"
    assert 1 < page.evaluate(boxes) <= 160
    for _ in range(6):
        page.get_by_role("button", name="Open one level").click()
    assert page.evaluate(boxes) <= 160
    page.locator(".joined [data-find]").fill("conv_2000")
    page.locator("[data-hits] a").first.click()
    assert page.locator("svg .box.chosen").count() == 1
    assert page.evaluate(boxes) <= 160


def test_a_graph_prints_as_lists_and_no_drawing(visit: Any) -> None:
    page, _ = visit(pair(), color_scheme="dark", looks=True)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".joined-list").first.is_visible()
    assert not page.locator(".joined .graph-scroll").is_visible()
    assert not page.locator(".joined-find").is_visible()
