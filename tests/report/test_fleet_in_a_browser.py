"""The page of a fleet in a real browser that has no network: what is seen, filtered, sorted and forwarded."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import fleet_factory as factory
import pytest

from analyzer.report import fleet_page, fleet_tables

pytestmark = pytest.mark.browser
OUTPUT = Path(__file__).parent.parent / "output" / "pages"
# No waiting for an expression: the page's policy lets nothing be compiled.
READY = "html[data-table=ready]"
# A page is drawn for a narrow or for a wide window as it opens, and takes any width after that.
OPENED = {"360": ("360",), "1600": ("800", "1600")}
SIZES = {"360": (360, 780), "800": (800, 900), "1600": (1600, 1000)}
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
NAMES = "fleet.grid().getRows('active').map((row) => report.data.models.name[row.getData().index])"


@pytest.fixture
def visit(visit_text: Any) -> Any:
    """Opens the page of a fleet, or its text, and waits until its table answers."""

    def go(fleet: Any, **options: Any) -> Any:
        text = fleet if isinstance(fleet, str) else fleet_page.render(fleet)
        page, seen = visit_text(text, **options)
        page.wait_for_selector(READY, state="attached")
        return page, seen

    return go


def cell(page: Any, model: int, device: int) -> Any:
    """A model's cell in a device's column, by their places in the factory's fleet."""
    return page.locator(f'.tabulator-cell[tabulator-field="d{device}"][data-model="{model}"]')


def waits_for(page: Any, counted: str) -> None:
    page.wait_for_selector(f"#fleet-found:text-is('{counted}')")


@pytest.mark.parametrize("opened", OPENED)
def test_a_fleet_opens_without_errors_requests_overflow_or_axe_violations(
    visit: Any, axe_finds: Any, opened: str
) -> None:
    width, height = SIZES[opened]
    page, seen = visit(factory.fleet(), viewport={"width": width, "height": height})
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for size in OPENED[opened]:
        width, height = SIZES[size]
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(TWO_FRAMES)
        page.screenshot(path=OUTPUT / f"fleet-{size}-light.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert axe_finds(page, "all" if size == "1600" else "all but colours", serious=False) == []
    page.emulate_media(color_scheme="dark")
    page.screenshot(path=OUTPUT / f"fleet-{opened}-dark.png", full_page=True)
    if opened == "1600":
        assert axe_finds(page, "colours", serious=False) == []
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize(
    "fleet",
    [
        factory.fleet(models=(), devices=(), moves=(), consolidation=None),
        factory.fleet(models=(factory.failing(),), moves=(), consolidation=None),
        factory.hostile(factory.HOSTILE),
        factory.hostile("half \udcff"),
    ],
    ids=["empty", "failed", "hostile", "half"],
)
def test_a_fleet_of_any_texts_or_none_opens_without_errors(visit: Any, fleet: Any) -> None:
    page, seen = visit(fleet)
    assert seen.errors == []
    assert page.locator("main img").count() == 0


def test_the_answer_and_what_should_move_are_on_the_first_screen(visit: Any) -> None:
    page, _ = visit(factory.fleet(), viewport={"width": 1600, "height": 1000}, looks=True)
    assert page.locator(".sentence").first.inner_text().startswith("1 of 5 models pays for a GPU")
    assert page.locator("#moves table").bounding_box()["y"] < 800


def test_every_cell_says_its_unit_and_the_cheapest_is_marked(visit: Any) -> None:
    page, _ = visit(factory.fleet(), looks=True)
    # The classifier's L4 at 64: 20 cents; the generator's A100: 5 dollars; the service's three L4.
    assert cell(page, 3, 1).inner_text() == "$0.200 ★\n/M inferences"
    assert cell(page, 1, 2).inner_text() == "$5.00 ★\n/M tokens"
    assert cell(page, 2, 1).inner_text() == "$1,800 ★\n/month, 3 inst."
    assert cell(page, 3, 1).locator("[role=img]").get_attribute("aria-label").strip() == "cheapest"
    assert cell(page, 1, 0).inner_text().endswith("does not fit")
    assert cell(page, 4, 0).inner_text().endswith("misses its limit")
    assert "per million output tokens" in page.locator("#fleet-units").inner_text()


def test_the_nearer_to_the_best_of_its_row_the_deeper_is_a_cell(visit: Any) -> None:
    page, _ = visit(factory.fleet(), looks=True)
    # The classifier's 0.4, 0.2, 0.6 and, as its 45 cents miss the limit, 0.5: of the best 2, 1, 3, 2.5.
    assert [cell(page, 3, at).get_attribute("data-heat") for at in range(4)] == ["3", "5", "2", "3"]
    assert cell(page, 4, 0).get_attribute("data-heat") == "no"


def test_cells_show_times_memory_or_the_verdict_of_one_batch(visit: Any) -> None:
    page, _ = visit(factory.fleet())
    page.check("input[value=latency]")
    page.select_option("#fleet-batch", "1")
    # Of 3 ms within 10 %; at batch 1 the cheapest batch is another.
    assert cell(page, 3, 1).inner_text() == "3.00 ms ○ ☆\n2.70 to 3.30 ms"
    assert "batch 64" in cell(page, 3, 1).locator("[role=img]").get_attribute("aria-label")
    # Was not asked at this batch; a service's batch is its answer.
    assert cell(page, 1, 2).inner_text() == "–"
    assert cell(page, 2, 1).inner_text() == "38.0 ms ○ ★\np99"
    page.select_option("#fleet-batch", "")
    # Each at its own cheapest batch, coloured among its like: the A100's 20 ms are the best of 64.
    assert cell(page, 3, 1).inner_text() == "60.0 ms ○ ★\nbatch 64"
    assert [cell(page, 3, at).get_attribute("data-heat") for at in range(4)] == ["2", "2", "5", "5"]
    assert "choose a batch to compare" in page.locator("#fleet-units").inner_text()
    assert cell(page, 1, 2).inner_text() == "TTFT 180 ms ○ ★\nTPOT 12.5 ms"
    page.check("input[value=fit]")
    assert cell(page, 1, 0).inner_text() == "30.0 GB\ndoes not fit"
    page.check("input[value=tokens]")
    assert cell(page, 1, 2).inner_text() == "640 ★\ntokens/s"
    page.check("input[value=verdict]")
    assert cell(page, 3, 2).inner_text() == "GPU\nbest"


def test_a_device_sorts_within_each_kind_of_question_and_the_unusable_last(visit: Any) -> None:
    models = tuple(
        replace(factory.classifier(), name=name, cells=(factory.cell("l4", 1, 0.1, price),), best=0, cheapest=0)
        for name, price in (("dear", 9.0), ("cheap", 1.0), ("middle", 5.0))
    )
    unfit = replace(models[0], name="unfit", cells=(factory.cell("l4", 1, 0.1, 0.1, fits=False),))
    page, _ = visit(
        factory.fleet(
            models=(*models, unfit, factory.generator(), factory.service()), moves=(), consolidation=None
        )
    )
    page.locator('.tabulator-col[tabulator-field="d1"]').click()
    assert page.evaluate(NAMES) == ["cheap", "middle", "dear", "unfit", "llama", "ranker"]
    page.locator('.tabulator-col[tabulator-field="d1"]').click()
    assert page.evaluate(NAMES) == ["dear", "middle", "cheap", "unfit", "llama", "ranker"]
    assert "Sorting keeps them apart" in page.locator("#fleet-units").inner_text()


def test_filters_narrow_the_table_and_stand_in_the_address(visit: Any) -> None:
    page, _ = visit(factory.fleet(), looks=True)
    waits_for(page, "5 of 5 models")
    page.select_option("#fleet-owner", "vision")
    waits_for(page, "2 of 5 models")
    page.select_option("#fleet-tag", "core")
    waits_for(page, "1 of 5 models")
    assert page.url.endswith("#models?tag=core&owner=vision")
    page.click("#fleet-filters button[type=reset]")
    waits_for(page, "5 of 5 models")
    assert page.url.endswith("#models")
    for name, value, left in (
        ("question", "capacity", 1),
        ("verdict", "gpu", 3),
        ("status", "failed", 1),
        ("status", "moves", 1),
        ("status", "none", 1),
        ("status", "errors", 1),
        ("status", "answered", 4),
    ):
        page.select_option(f"#fleet-{name}", value)
        waits_for(page, f"{left} of 5 models")
        page.click("#fleet-filters button[type=reset]")
        waits_for(page, "5 of 5 models")
    page.fill("#fleet-search", "SEARCH longer")  # the owner, and a word of the failure
    waits_for(page, "1 of 5 models")
    assert page.evaluate(NAMES) == ["broken"]
    page.click("#fleet-filters button[type=reset]")
    waits_for(page, "5 of 5 models")


def test_the_cells_that_are_shown_are_downloaded_as_the_fleets_own_file_has_them(visit: Any) -> None:
    page, _ = visit(factory.fleet())
    page.select_option("#fleet-status", "answered")
    waits_for(page, "4 of 5 models")
    page.locator('#fleet-table .tabulator-col[tabulator-field="cheapest"]').click()
    with page.expect_download() as saved:
        page.click("#fleet-csv")
    shown = list(csv.DictReader(saved.value.path().read_text(encoding="utf-8").splitlines()))
    assert list(dict.fromkeys(row["model"] for row in shown)) == page.evaluate(NAMES)
    whole = csv.DictReader(fleet_tables.render(factory.fleet()).splitlines())
    cells = {(row["model"], row["device"], row["batch"]): row for row in whole}
    figures = 0
    for row in shown:
        own = cells[row["model"], row["device"], row["batch"]]
        for name, text in row.items():
            # The page has four digits of a figure.
            if name.endswith(("_s", "_million", "_month", "_hour", "_j", "_bytes")) and text:
                assert float(text) == pytest.approx(float(own[name]), rel=1e-3)
                figures += 1
            else:
                assert text == own[name]
    assert figures > len(shown)


def test_a_forwarded_address_shows_the_same_view(visit: Any) -> None:
    page, seen = visit(factory.fleet())
    page.select_option("#fleet-status", "answered")
    page.check("input[value=latency]")
    page.select_option("#fleet-batch", "64")
    page.click("#fleet-devices summary")
    page.locator("#fleet-device-list label", has_text="A100").click()
    page.keyboard.press("Escape")
    page.locator('.tabulator-col[tabulator-field="d1"]').click()
    waits_for(page, "4 of 5 models")
    page.evaluate(TWO_FRAMES)
    address, order = page.url, page.evaluate(NAMES)
    assert "show=latency&batch=64&devices=t4%2Cl4%2Cepyc&sort=%40l4" in address
    other = page.context.new_page()
    other.goto(address)
    other.wait_for_selector(READY, state="attached")
    waits_for(other, "4 of 5 models")
    assert other.evaluate(NAMES) == order
    assert other.locator('.tabulator-col[tabulator-field="d2"]').is_visible() is False
    assert cell(other, 3, 1).inner_text().startswith("60.0 ms")
    assert other.locator("#models").bounding_box()["y"] < 100
    assert other.url == address
    assert seen.errors == []


def test_an_address_that_names_what_is_not_there_shows_all(visit: Any) -> None:
    page, seen = visit(factory.fleet())
    strange = "#models?owner=nobody&show=x&batch=7&sort=@h900&status=y&devices=t4"
    page.goto(page.url.split("#")[0] + strange)
    page.reload()
    page.wait_for_selector(READY, state="attached")
    waits_for(page, "5 of 5 models")
    assert cell(page, 3, 0).inner_text().startswith("$0.400")
    assert page.locator('.tabulator-col[tabulator-field="d1"]').is_visible() is False
    assert seen.errors == []


def test_a_link_to_a_section_keeps_the_filters(visit: Any) -> None:
    page, _ = visit(factory.fleet())
    page.select_option("#fleet-owner", "vision")
    waits_for(page, "2 of 5 models")
    page.click('nav a[href="#failed"]')
    page.evaluate(TWO_FRAMES)
    waits_for(page, "2 of 5 models")


def test_the_keyboard_reaches_a_cell_its_interval_and_all_its_batches(visit: Any) -> None:
    page, _ = visit(factory.fleet())
    page.locator("#fleet-table .tabulator-tableholder").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "End", "Home", *("ArrowRight",) * 5):
        page.keyboard.press(key)
        page.evaluate(TWO_FRAMES)
    tip = page.locator("#fleet-tip")
    focused = page.locator(":focus")
    assert focused.get_attribute("aria-describedby") == "fleet-tip"
    # Model, verdict, cheapest, saved, T4, L4: the sixth column.
    assert tip.locator("p").inner_text() == "resnet50, L4, batch 64"
    told = tip.inner_text()
    for part in (
        "60.0 ms ○ predicted",
        "54.0 to 66.0 ms",
        "$0.160 to $0.240",
        "l4.large (AWS, us-east-1), $0.500/hour",
    ):
        assert part in told
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    page.keyboard.press("Enter")
    detail = page.locator("#fleet-detail")
    assert detail.locator("h3").inner_text() == "resnet50 on L4"
    assert detail.locator("tbody tr").count() == 2
    assert "120 requests/s, p99 within 200 ms" in detail.inner_text()
    assert detail.locator("a").get_attribute("href") == "./resnet50.html"
    page.keyboard.press("Enter")  # the focus is on Close
    assert not detail.is_visible()
    assert page.locator(":focus").get_attribute("tabulator-field") == "d1"


def test_the_table_is_one_stop_of_the_tabulator_and_its_heads_are_reached_by_arrows(visit: Any) -> None:
    page, _ = visit(factory.fleet())
    page.locator("#fleet-devices summary").focus()
    page.keyboard.press("Tab")
    assert page.locator(":focus").get_attribute("tabulator-field") == "name"
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("fleet.grid().getSorters()[0].field") == "d0"
    page.keyboard.press("ArrowDown")
    page.evaluate(TWO_FRAMES)
    assert page.locator(":focus").get_attribute("role") == "gridcell"


def test_pointing_at_a_cell_shows_its_interval_and_a_failure_its_message(visit: Any) -> None:
    page, _ = visit(factory.fleet(), looks=True)
    page.locator("#models").scroll_into_view_if_needed()
    cell(page, 1, 2).hover()
    assert "Whole request" in page.locator("#fleet-tip").inner_text()
    assert "1.80 to 2.20 s" in page.locator("#fleet-tip").inner_text()
    page.locator('.tabulator-cell[tabulator-field="verdict"][data-model="0"]').hover()
    assert "It took longer than 60 s." in page.locator("#fleet-tip").inner_text()


def test_a_models_name_leads_to_its_page_and_a_failed_ones_nowhere(visit: Any) -> None:
    page, _ = visit(factory.fleet(), looks=True)
    links = page.locator("#fleet-table .tabulator-cell a")
    assert [link.get_attribute("href") for link in links.all()] == [
        "./llama.html", "./ranker.html", "./resnet50.html", "./slow.html",
    ]  # fmt: skip


def test_what_is_filtered_is_printed_light_without_the_virtual_table(visit: Any) -> None:
    page, _ = visit(factory.fleet(), color_scheme="dark")
    page.select_option("#fleet-owner", "vision")
    waits_for(page, "2 of 5 models")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#fleet-table").is_visible()
    rows = page.locator(".every-model tbody tr")
    assert [row.locator("th").inner_text() for row in rows.all() if row.is_visible()] == ["resnet50", "slow"]
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts_every_model_has_its_row(visit_text: Any) -> None:
    page, _ = visit_text(fleet_page.render(factory.fleet()), java_script_enabled=False)
    assert page.locator(".every-model").is_visible()
    assert page.locator(".needs-scripts").is_visible()
    assert not page.locator("#fleet-table").is_visible()
    assert "It took longer than 60 s." in page.locator("#failed").inner_text()


def test_of_a_thousand_models_on_thirty_devices_a_screenful_is_made(visit: Any) -> None:
    text = fleet_page.render(factory.large())
    # Less than the five megabytes that mail takes for one of several attachments.
    assert len(text.encode()) < 5e6
    page, seen = visit(text)
    assert page.locator("#fleet-table .tabulator-row").count() < 80
    page.fill("#fleet-search", "model-0777")
    waits_for(page, "1 of 1,000 models")
    assert re.fullmatch(r"team-\d+-model-0777", page.evaluate(NAMES)[0])
    assert seen.errors == []


def test_cpus_of_the_price_list_are_shown_where_one_is_the_cheapest_or_asked_for(visit: Any) -> None:
    listed = tuple(
        replace(factory.DEVICES[3], slug=slug, name=slug, named=False) for slug in ("xeon", "seldom")
    )
    model = factory.classifier()
    more = tuple(
        factory.cell(slug, 64, 0.1, price, kind="cpu", named=False)
        for slug, price in (("xeon", 0.1), ("seldom", 9.0))
    )
    model = replace(model, cells=(*model.cells, *more), cheapest=len(model.cells))
    page, _ = visit(
        factory.fleet(models=(model,), devices=(*factory.DEVICES, *listed), moves=(), consolidation=None)
    )
    shown = {
        name: page.locator(f'.tabulator-col[tabulator-field="d{at}"]').is_visible()
        for at, name in enumerate(("t4", "l4", "a100", "epyc", "xeon", "seldom"))
    }
    assert [name for name, visible in shown.items() if not visible] == ["seldom"]
    assert page.locator("#fleet-devices summary").inner_text().startswith("Devices shown: 5 of 6")
    assert "#" not in page.url
    page.click("#fleet-devices summary")
    page.click("[data-devices=all]")
    assert page.locator('.tabulator-col[tabulator-field="d5"]').is_visible()
    assert page.url.endswith("devices=t4%2Cl4%2Ca100%2Cepyc%2Cxeon%2Cseldom")


def test_what_no_model_has_is_no_filter(visit: Any) -> None:
    bare = replace(factory.generator(), owner="", tags=())
    page, _ = visit(factory.fleet(models=(bare,), moves=(), consolidation=None))
    filters = ("tag", "owner", "question", "batch", "verdict", "status")
    assert [name for name in filters if page.locator(f"#fleet-{name}").is_visible()] == ["verdict", "status"]


def test_what_opens_on_demand_has_no_axe_violations(visit: Any, axe_finds: Any) -> None:
    page, _ = visit(factory.fleet(left=3), viewport={"width": 1600, "height": 1000})
    page.check("input[value=verdict]")
    cell(page, 3, 1).click()
    page.click("#fleet-devices summary")
    cell(page, 3, 3).focus()
    assert page.locator("#fleet-tip").is_visible()
    assert axe_finds(page, serious=False) == []
    page.emulate_media(color_scheme="dark")
    assert page.locator("#fleet-tip").is_visible()
    assert axe_finds(page, "colours", serious=False) == []


def test_going_back_to_an_address_without_filters_clears_them(visit: Any) -> None:
    page, _ = visit(factory.fleet())
    page.evaluate("location.hash = '#models?owner=vision&sort=-model&show=fit'")
    waits_for(page, "2 of 5 models")
    assert page.locator("input[value=fit]").is_checked()
    page.evaluate("location.hash = '#models?q=llama'")
    waits_for(page, "1 of 5 models")
    assert page.locator("#fleet-owner").input_value() == ""
    assert page.locator("input[value=dollars]").is_checked()
