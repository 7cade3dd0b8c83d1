"""Two records as one tree in a real browser without network: unfolded, filtered, by mouse and by keyboard."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import handmade
import pytest
import report_factory as factory

from analyzer.record.analysis import Analysis
from analyzer.report.compare import document
from analyzer.report.compare.build import compare
from analyzer.report.compare.comparison import Comparison

pytestmark = pytest.mark.browser
OUTPUT = Path(__file__).parent.parent / "output" / "pages"
SIZES = {"420": (420, 844), "1024": (1024, 1100), "1400": (1400, 900)}


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
    """A graph without modules."""
    base = factory.analysis(count)
    return replace(base, operators=tuple(replace(item, module="") for item in base.operators))


@pytest.fixture
def visit(visit_text: Any) -> Any:
    """Opens the page of a comparison and waits until its tree is there."""

    def go(comparison: Comparison, **options: Any) -> Any:
        page, seen = visit_text(document.render(comparison), **options)
        page.wait_for_function("document.documentElement.dataset.charts === 'drawn'")
        page.locator(".joined").first.scroll_into_view_if_needed()
        page.locator(".joined[data-drawn]").first.wait_for()
        return page, seen

    return go


def names(page: Any) -> list[str]:
    """What the tree's rows are called, from above."""
    return [
        text.split("\n")[0]
        for text in page.locator(".joined .tabulator-row .two:first-of-type").all_inner_texts()
    ]


@pytest.mark.parametrize("size", SIZES)
def test_the_tree_opens_without_errors_requests_overflow_or_axe_violations(
    visit: Any, axe_finds: Any, size: str
) -> None:
    width, height = SIZES[size]
    page, seen = visit(pair(), viewport={"width": width, "height": height})
    OUTPUT.mkdir(parents=True, exist_ok=True)
    page.locator(".joined").screenshot(path=OUTPUT / f"joined-{size}-light.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert axe_finds(page, "all" if size == "1400" else "all but colours") == []
    page.emulate_media(color_scheme="dark")
    page.locator(".joined").screenshot(path=OUTPUT / f"joined-{size}-dark.png")
    if size == "1400":
        assert axe_finds(page, "colours") == []
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_labels_are_text_and_the_way_to_what_changed_most_is_open(visit: Any) -> None:
    page, _ = visit(pair(), looks=True)
    assert "after <b>it</b>" in page.locator(".joined .tabulator-header").inner_text()
    row = page.locator(".joined .tabulator-row", has_text="/maxpool_23")
    # It took 4 ms, and is gone.
    for text in ("MaxPool", "4.00 ms", "2.80 to 6.00 ms", "−4.00 ms", "gone", "samples/imaginary.py:33"):
        assert text in row.inner_text()


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("new", ["22"]),
        ("gone", ["maxpool_23", "relu_22"]),
        ("slower", ["conv_4"]),
        ("flipped", ["conv_8"]),
        ("faster", []),
    ],
)
def test_a_filter_leaves_the_operators_of_its_kind_unfolded(visit: Any, kind: str, found: list[str]) -> None:
    page, _ = visit(pair())
    page.locator(".joined select").select_option(kind)
    text = page.locator(".joined .tabulator-tableholder")
    page.locator(".joined .found", has_text=f"{len(found)} of 25").wait_for()
    for name in found:
        page.locator(".joined .tabulator-row", has_text=name).first.wait_for()
    assert ("No operator fits the filters." in text.inner_text()) == (not found)
    page.locator(".joined select").select_option("")
    page.locator(".joined .found", has_text="25 of 25").wait_for()


def test_a_search_finds_modules_names_and_source_lines(visit: Any) -> None:
    page, _ = visit(pair())
    page.locator(".joined input").fill("block1 batchnorm")
    page.locator(".joined .found", has_text="2 of 25").wait_for()
    assert names(page).count("BatchNormalization") == 2


def test_the_keyboard_alone_unfolds_and_folds_a_module_and_keeps_the_focus(visit: Any) -> None:
    page, _ = visit(pair())
    button = page.locator(".joined button", has_text="stage0")
    button.focus()
    number = button.get_attribute("data-module")
    assert button.get_attribute("aria-expanded") == "false"
    for key, expanded in (("ArrowRight", "true"), ("ArrowLeft", "false"), ("Enter", "true")):
        page.keyboard.press(key)
        assert button.get_attribute("aria-expanded") == expanded
        assert page.evaluate("document.activeElement.dataset.module") == number
    assert page.locator(".joined button", has_text="block0").first.is_visible()


def test_a_column_sorts_inside_each_module(visit: Any) -> None:
    page, _ = visit(pair())
    page.locator(".joined .tabulator-col", has_text="Difference").click()
    # 2.5 ms lost in stage0; descending.
    assert [name for name in names(page) if name.startswith("stage")] == ["stage0", "stage1"]
    page.locator(".joined .tabulator-col", has_text="Difference").click()
    assert [name for name in names(page) if name.startswith("stage")] == ["stage1", "stage0"]


def test_a_tree_of_thousands_of_operators_draws_no_more_than_what_is_seen(visit: Any) -> None:
    page, seen = visit(compare([("a", flat(3000)), ("b", flat(3000))]))
    assert seen.errors == []
    assert 1 < page.locator(".joined .tabulator-row").count() < 200
    page.locator(".joined input").fill("conv_2000")
    page.locator(".joined .tabulator-row", has_text="/conv_2000").wait_for()


def test_a_tree_prints_as_the_lists_below_it(visit: Any) -> None:
    page, _ = visit(pair(), color_scheme="dark", looks=True)
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator(".joined").is_visible()
    assert page.get_by_role("region", name="Changed most, by module").locator("table").is_visible()
