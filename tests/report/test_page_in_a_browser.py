"""The page in a real browser that has no network: what a reader sees and does."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import generation_records
import pytest
import rendering
import report_factory as factory

from analyzer import units
from analyzer.record import operator_rows
from analyzer.record.analysis import Analysis
from analyzer.report import html, operator_columns

pytestmark = pytest.mark.browser
OUTPUT = Path(__file__).parent.parent / "output" / "pages"
# The copies of the factory's best plan: operators leave them out.
BEST = "Best plan without 610 µs of copies"
DRAWN = (
    "document.documentElement.dataset.charts === 'drawn' && document.documentElement.dataset.table === 'ready'"
)
# What is watched for coming into view is told between two frames.
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
PAGES = {
    "usual": factory.analysis,
    "no_gpu": factory.without_gpu,
    "no_times": factory.without_times,
    "empty": factory.empty,
    "hostile": factory.hostile,
    "alternative": factory.with_alternative,
    "generation": factory.generation,
    "capacity": factory.capacity,
    "no_capacity": factory.without_capacity,
}


@pytest.fixture
def visit(visit_text: Any) -> Any:
    """Opens the page of an analysis and waits until all of it is drawn."""

    def go(analysis: Any, **options: Any) -> Any:
        page, seen = visit_text(html.render(analysis), **options)
        if analysis.operators:
            page.wait_for_function(DRAWN)
        return page, seen

    return go


def picture(page: Any, name: Any) -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=OUTPUT / f"{name}.png")


# Those that axe looks at are opened wide there.
@pytest.mark.parametrize(
    ("name", "viewport"),
    [
        *(pytest.param(name, NARROW, id=f"{name}-390") for name in PAGES),
        *(
            pytest.param(name, WIDE, id=f"{name}-1280")
            for name in PAGES
            if name not in ("alternative", "generation", "capacity")
        ),
    ],
)
def test_every_page_opens_without_errors_or_requests_and_fits_its_window(
    visit: Any, name: Any, viewport: Any
) -> None:
    page, seen = visit(PAGES[name](), viewport=viewport)
    picture(page, f"{name}-{viewport['width']}-light")
    assert_well_opened(page, seen)


def assert_well_opened(page: Any, seen: Any) -> None:
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_command_is_seen_whole_and_copied_as_one_line(visit: Any) -> None:
    base = factory.analysis()
    options: dict[str, tuple[str, ...]] = {
        "batch": ("1,8,64",),
        "gpu": ("l4,t4",),
        "cpu": ("epyc-9654",),
        "slo": ("20ms",),
    }
    options |= {"pin": ("features.layer.*=gpu", "classifier=cpu")}
    page, _ = visit(replace(base, invocation=replace(base.invocation, options=options)))
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        for command in page.locator(".command").all():
            shown = command.evaluate("part => [part.scrollWidth, part.clientWidth]")
            assert shown[0] <= shown[1]
    copied = page.evaluate(
        "(getSelection().selectAllChildren(document.querySelector('.command code')), getSelection().toString())"
    )
    assert copied == page.locator(".command code").first.text_content()
    assert copied.startswith("analyze ")
    assert "\n" not in copied


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_verdict_reason_and_plans_are_on_the_first_screen(visit: Any, viewport: Any) -> None:
    page, _ = visit(factory.analysis(), viewport=viewport, looks=viewport is WIDE)
    parts = (".sentence", ".verdict-why") + ((".plans", ".top-operators") if viewport is WIDE else ())
    for part in parts:
        assert page.locator(part).bounding_box()["y"] < viewport["height"] * 0.75


def test_a_column_sorts_and_the_unknown_stays_last(visit: Any) -> None:
    analysis = factory.without_times()
    page, _ = visit(analysis)
    header = page.locator('#table .tabulator-col[tabulator-field="flops"]')
    header.click()
    rows = "report.table.getRows('active').map((row) => row.getData().flops)"
    falling = page.evaluate(rows)
    assert falling[-1] is None
    assert falling[:-1] == sorted(falling[:-1], reverse=True)
    header.click()
    rising = page.evaluate(rows)
    assert rising[-1] is None
    assert rising[:-1] == sorted(rising[:-1])


def test_the_keyboard_sorts_the_table_and_opens_a_module_as_the_mouse_does(visit: Any) -> None:
    page, _ = visit(factory.analysis(24))
    page.locator('#table .tabulator-col[tabulator-field="cpu"]').focus()
    page.keyboard.press("Enter")
    times = page.evaluate("report.table.getRows('active').map((row) => row.getData().cpu)")
    assert times == sorted(times, reverse=True)
    page.locator('#tree button:text-is("stage1")').focus()
    page.keyboard.press("Enter")
    page.locator('#tree button:text-is("block2")').first.wait_for()
    page.wait_for_function("document.getElementById('found').textContent.startsWith('12 of 24')")
    page.click("#filters button[type=reset]")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('24 of 24')")
    page.locator('#tree button:text-is("stage1")').click()
    page.wait_for_function("document.getElementById('found').textContent.startsWith('12 of 24')")


def test_search_and_filters_narrow_the_table(visit: Any) -> None:
    page, _ = visit(factory.analysis(24), looks=True)
    page.fill("#search", "stage1 conv")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('3 of 24')")
    page.fill("#search", "")
    page.select_option("#filter-type", "MaxPool")
    page.select_option("#filter-placement", "cpu")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('6 of 24')")
    page.click("#filters button[type=reset]")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('24 of 24')")


def told(rows: Any, analysis: Any) -> list[str]:
    """What is told of these operators' sums, from the record by a plain loop."""

    def over(values: Any, unit: str, mark: str = "") -> str:
        known = [value for value in values if value is not None]
        text = f"{units.with_prefix(sum(known), unit)}{mark}" if known else "unknown"
        missing = len(values) - len(known)
        return f"{text} + {missing} unknown" if known and missing else text

    best = [row.cpu if row.placement == "cpu" else row.gpu for row in rows]
    every = [row.cpu if row.placement == "cpu" else row.gpu for row in analysis.operators]
    sides = {"CPU": [row.cpu for row in rows], "GPU": [row.gpu for row in rows], BEST: best}
    signs = {"measured": "●", "predicted": "○"}
    said = []
    for title, times in sides.items():
        origins = {time.origin for time in times if time.time_s}
        mark = " ◐" if len(origins) > 1 else f" {signs[origins.pop()]}" if origins else ""
        said.append(f"{title} {over([time.time_s for time in times], 's', mark)}")
    if any(time.time_s for time in best):
        part = sum(time.time_s for time in best) / sum(time.time_s for time in every)
        said.append(f"Share {units.share(part) if part >= 0.1 else f'{units.digits(100 * part, 2)} %'}")
    moved = [None if row.bytes_read is None else row.bytes_read + row.bytes_written for row in rows]
    return [
        *said,
        f"FLOPs {over([row.flops for row in rows], 'FLOP')}",
        f"Bytes {over(moved, 'B')}",
    ]


def test_sums_of_what_is_filtered_and_of_groups_are_those_of_the_record(visit: Any) -> None:
    analysis = factory.analysis(24)
    page, _ = visit(analysis, looks=True)
    shown = "[...document.querySelectorAll('#sums .sum')].map((part) => part.textContent)"
    assert page.evaluate(shown) == told(analysis.operators, analysis)
    page.select_option("#grouping", "module")
    page.fill("#search", "stage1")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('12 of 24')")
    assert page.evaluate(shown) == told(analysis.operators[12:], analysis)
    # A Conv and the BatchNormalization that is fused into it share one time: in the sum it is once.
    assert page.evaluate(shown)[0] == f"CPU {units.seconds(sum(1 + at % 5 for at in range(12, 24)) / 1e3)} ●"
    page.fill("#search", "stage1 block0")
    page.select_option("#grouping", "group_cpu")
    page.wait_for_function("document.querySelectorAll('#table .tabulator-group').length === 3")
    fused = page.locator("#table .group-head").first.evaluate(
        "head => [head.firstChild.textContent, ...[...head.children].map((part) => part.textContent)]"
    )
    assert fused[0].strip() == "FusedConv /conv_12_fused · cpu · 7.00 ms ● · 2 of 2"
    assert fused[1:] == told(analysis.operators[12:14], analysis)
    page.click("#filters button[type=reset]")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('24 of 24')")


def test_of_unknown_figures_their_number_is_told_and_never_a_nought(visit: Any) -> None:
    analysis = factory.without_times()
    page, _ = visit(analysis)
    expected = told(analysis.operators, analysis)
    # The 23 others: 5 Conv, 6 BatchNormalization, 6 Relu, 6 MaxPool, 10 MB each.
    assert expected[:3] == ["CPU unknown", "GPU unknown", f"{BEST} unknown"]
    assert expected[-1] == "Bytes 230 MB + 1 unknown"
    assert page.locator("#sums .sum").all_text_contents() == expected


def test_what_is_folded_runs_on_nothing_and_is_not_unknown_in_sums(visit: Any) -> None:
    base = factory.analysis(24)
    first = base.operators[0]
    assert first.gpu is not None
    folded = replace(
        first,
        cpu=replace(first.cpu, time_s=None, low_s=None, high_s=None),
        gpu=replace(first.gpu, time_s=None, low_s=None, high_s=None),
        verdict=replace(first.verdict, device="either", reason="folded", speedup=None),
        placement="cpu",
        flops=0,
    )
    page, _ = visit(replace(base, operators=(folded, *base.operators[1:])), looks=True)
    texts = page.locator("#sums .sum").all_text_contents()
    assert not [text for text in texts if "unknown" in text]
    row = page.locator("#table .tabulator-row").first
    assert row.locator("[tabulator-field=placement]").inner_text() == units.UNKNOWN
    on_cpu = sum(operator.placement == "cpu" for operator in base.operators[1:])
    page.select_option("#filter-placement", "cpu")
    page.wait_for_function(f"document.getElementById('found').textContent.startsWith('{on_cpu} of 24')")


# A headless browser's clipboard is all tabs' own: this one is the page's.
CLIPBOARD = """() => {
    window.copied = null;
    const writeText = async (text) => { window.copied = text; };
    Object.defineProperty(navigator, "clipboard", { value: { writeText } });
}"""
# What spreadsheets take for a formula, and what would be a line or a cell of its own.
TEXTS = (
    "=1+1",
    " +1",
    "-2",
    "@SUM(A1)",
    "＝1",
    "\t=1",
    "\n-1",
    "\u200b=1",
    "\u00a0+1",
    "a=1",
    "",
    'a "b", c\td',
    "–1",
)


def test_rows_are_downloaded_and_copied_as_filtered_and_sorted_and_harmless_to_spreadsheets(visit: Any) -> None:
    base = factory.analysis(24)
    first = replace(base.operators[12], name="=cmd|'/C calc'!A0", module="\t@stage1.block0")
    page, _ = visit(replace(base, operators=(*base.operators[:12], first, *base.operators[13:])))
    page.evaluate(CLIPBOARD)
    page.fill("#search", "stage1")
    page.select_option("#filter-type", "Conv")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('3 of 24')")
    page.locator('#table .tabulator-col[tabulator-field="cpu"]').click()
    with page.expect_download() as saved:
        page.click("#rows-csv")
    assert page.locator("#exported").inner_text() == "3 operators downloaded."
    assert saved.value.suggested_filename == "imaginary-operators.csv"
    rows = list(csv.DictReader(saved.value.path().read_text(encoding="utf-8").splitlines()))
    # 1 + index % 5 milliseconds.
    assert [row["index"] for row in rows] == ["12", "16", "20"]
    assert [float(row["cpu_time_s"]) for row in rows] == [0.003, 0.002, 0.001]
    assert (rows[0]["name"], rows[0]["module"]) == ("'=cmd|'/C calc'!A0", "' @stage1.block0")
    # Named as the command's own CSV names them, but for what that has in two columns or not at all.
    assert set(rows[0]) - set(operator_rows.COLUMNS) == {
        "source",
        "runs_on",
        "best_plan_time_s",
        "best_plan_share",
    }
    page.click("#rows-copy")
    page.locator("#exported", has_text="3 operators copied.").wait_for()
    copied = [line.split("\t") for line in page.evaluate("copied").split("\n")]
    assert copied == [list(rows[0]), *(list(row.values()) for row in rows)]
    for text in TEXTS:
        assert page.evaluate("(text) => sheets.cell(text)", text) == operator_columns.cell(text)


def test_the_slash_key_comes_to_the_search_and_escape_leaves_it_as_it_is(visit: Any) -> None:
    page, _ = visit(factory.analysis(24), looks=True)
    focused = "document.activeElement.id"
    page.keyboard.press("/")
    assert page.evaluate(focused) == "search"
    page.keyboard.type("a/b")
    page.keyboard.press("Escape")
    assert page.evaluate(f"[{focused}, document.getElementById('search').value]") == ["", "a/b"]
    page.click("#filters button[type=reset]")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('24 of 24')")


def test_the_first_screen_holds_the_answer_and_what_it_rests_on_and_is_copied_in_words(visit: Any) -> None:
    base = factory.analysis()
    guessed = replace(base.model, guessed_inputs=("x: float32[8,3,224,224]", "mask: bool[8,12]"))
    busy = replace(base.environment, messages=("Other processes took 40 % of the processor.",))
    analysis = replace(base, model=guessed, environment=busy)
    page, _ = visit(analysis)
    parts = (".sentence", ".sure", ".verdict-why", ".missing", ".plan .interval")
    for part in (*parts, ".plan dl div:has-text('Per million')"):
        for shown in page.locator(part).filter(visible=True).all():
            place = shown.bounding_box()
            assert place["y"] + place["height"] <= WIDE["height"]
    page.evaluate(CLIPBOARD)
    page.click("#copy-summary")
    page.locator("#summary-copied", has_text="Copied.").wait_for()
    copied = page.evaluate("copied")
    assert copied == rendering.mail(analysis)
    for part in parts[:2]:
        for shown in page.locator(part).all_inner_texts():
            assert shown.split(". ")[0].replace("\u00a0", " ") in copied
    for figures in page.locator(".plan .figure, .plan .interval span:first-child").all_inner_texts():
        assert figures.replace("\u00a0", " ") in copied


def test_operators_are_grouped_as_a_session_executes_them(visit: Any) -> None:
    page, _ = visit(factory.analysis(24), looks=True)
    page.select_option("#grouping", "group_cpu")
    head = page.locator("#table .tabulator-group").first
    assert "FusedConv" in head.inner_text()
    assert "2 of 2" in head.inner_text()
    page.click("#filters button[type=reset]")
    page.wait_for_function("document.querySelectorAll('#table .tabulator-group').length === 0")


def test_a_selected_row_marks_its_point_its_module_and_its_detail(visit: Any, unfold: Any) -> None:
    page, _ = visit(factory.analysis(24), looks=True)
    unfold(page)
    page.locator('#table .tabulator-row button:has-text("Conv")').first.click()
    assert page.evaluate("report.selected()") == 0
    page.wait_for_function("charts.views.get('roofline').data('picked').length === 2")
    assert page.locator("#tree .chosen-module").inner_text().startswith("conv")
    assert "2,000,000,000" in page.locator("#detail").inner_text()
    picture(page, "selected")
    page.locator("#detail").get_by_role("button", name="Close").click()
    assert page.evaluate("report.selected()") is None
    page.wait_for_function("charts.views.get('roofline').data('picked').length === 0")


def test_rows_that_come_into_view_are_not_made_anew(visit: Any) -> None:
    page, _ = visit(factory.analysis(24))
    page.evaluate("window.scrollTo(0, 0)")
    page.evaluate(
        "() => { window.changes = 0;"
        " const counted = new MutationObserver((seen) => { window.changes += seen.length; });"
        " document.querySelectorAll('#table .tabulator-table, #tree .tabulator-table')"
        ".forEach((rows) => counted.observe(rows, { childList: true })); }"
    )
    for part in ("#table", "#tree"):
        page.locator(part).scroll_into_view_if_needed()
        page.evaluate(TWO_FRAMES)
    assert page.evaluate("changes") == 0


def test_an_operator_selected_from_afar_is_there_when_the_table_comes_into_view(visit: Any) -> None:
    page, _ = visit(factory.analysis(200))
    page.evaluate("window.scrollTo(0, 0)")
    page.evaluate("report.select(150, 'link')")
    row = page.locator("#table .tabulator-selected")
    row.wait_for()
    page.locator("#table").scroll_into_view_if_needed()
    page.evaluate(TWO_FRAMES)
    table, place = page.locator("#table").bounding_box(), row.bounding_box()
    assert table["y"] < place["y"] < table["y"] + table["height"]


def test_the_tree_fills_its_place_when_the_window_changes(visit: Any) -> None:
    page, _ = visit(factory.analysis(24), viewport={"width": 800, "height": 800})
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function("document.getElementById('tree').clientWidth < 400")
    page.wait_for_function(
        "[...document.querySelectorAll('#tree .tabulator-row:first-child .tabulator-cell')]"
        ".reduce((sum, cell) => sum + cell.offsetWidth, 0) <= document.getElementById('tree').clientWidth"
    )


def test_a_clicked_point_selects_its_row(visit: Any, unfold: Any) -> None:
    page, _ = visit(factory.analysis(24), looks=True)
    unfold(page)
    chart = page.locator("#chart-roofline")
    chart.scroll_into_view_if_needed()
    chart.locator(
        "svg .mark-symbol.layer_1_marks path, svg .mark-symbol path[aria-roledescription=point]"
    ).first.click(force=True)
    index = page.evaluate("report.selected()")
    assert index is not None
    page.wait_for_function(f"report.table.getSelectedRows()[0]?.getIndex() === {index}")
    page.evaluate(f"report.select({index})")  # a second time: not selected
    page.wait_for_function("report.table.getSelectedRows().length === 0")


def test_a_legend_entry_filters_checks_its_box_alone_and_selects_nothing(visit: Any, unfold: Any) -> None:
    page, _ = visit(factory.analysis(24), looks=True)
    unfold(page)
    page.locator("#chart-roofline svg .role-legend-label text", has_text="CPU").click()
    page.wait_for_function("charts.views.get('roofline').data('device_store').length === 1")
    assert page.evaluate("report.selected()") is None
    page.wait_for_function("!document.querySelector('#chart-roofline .filter input[value=GPU]').checked")
    assert page.evaluate("document.querySelector('#chart-roofline .filter input[value=CPU]').checked")
    page.locator("#chart-roofline .filter summary").click()
    page.check("#chart-roofline .filter input[value=GPU]")
    page.wait_for_function("charts.views.get('roofline').data('device_store').length === 0")
    page.locator("#chart-roofline .filter summary").click()


def test_the_arrow_keys_step_through_a_chart_and_say_its_figures(visit: Any, unfold: Any) -> None:
    page, _ = visit(factory.analysis(24))
    unfold(page)
    page.locator("#chart-roofline .drawing").focus()
    page.keyboard.press("ArrowRight")
    # 2 GFLOP in 1 ms, and what is fused into it: the kernel takes 3 ms.
    assert "Attained 667 GFLOP/s" in page.locator("#chart-roofline .step").inner_text()
    assert page.evaluate("report.selected()") == 0


def test_every_chart_has_words_a_name_and_its_data(visit: Any, unfold: Any) -> None:
    page, _ = visit(factory.analysis(24))
    unfold(page)
    for figure in page.locator("figure.chart").all():
        assert len(figure.locator("figcaption").inner_text()) > 20
        assert figure.locator(".drawing [role=img]").get_attribute("aria-label")
        figure.locator("details.numbers summary").click()
        figure.locator(".numbers-table tbody tr").first.wait_for()
    text = page.evaluate("charts.csv('roofline')").split("\r\n")
    assert text[0].startswith("index,operator,kind,module,device,intensity")
    assert text[1].startswith("0,Conv,Conv,stage0.block0.conv,CPU,200,666700000000,0.003")
    assert len(text) == 25


def test_the_icicle_opens_a_module_and_returns(visit: Any) -> None:
    page, _ = visit(factory.analysis(24), looks=True)
    texts = "[...document.querySelectorAll('#chart-by-module svg .mark-text text')]"
    words = f"{texts}.map((one) => one.textContent.split(' ')[0])"
    assert {"stage0", "stage1"} < set(page.evaluate(words))
    # At the cell itself: where a pointer would press moves while other charts are drawn.
    page.locator("#chart-by-module svg .mark-rect path").nth(1).dispatch_event("click")
    page.wait_for_function("charts.views.get('by-module').signal('focus') !== 0")
    assert len({"stage0", "stage1"} & set(page.evaluate(words))) == 1
    page.click("#focus-out")
    page.wait_for_function("charts.views.get('by-module').signal('focus') === 0")


def test_an_arrow_that_bends_outside_of_all_boxes_lies_in_the_graphs_frame(visit: Any) -> None:
    """A box at 12 to 112 in a frame of 124; its arrow goes 40 beyond the left edge and 20 beyond the right."""
    page, _ = visit(factory.analysis())
    size, box, line = page.evaluate("""() => {
        const size = { width: 124, height: 68 };
        const box = { x: 62, y: 34 };
        const edge = { points: [{ x: 62, y: 34 }, { x: -40, y: 40 }, { x: 144, y: 50 }] };
        const layout = { graph: () => size, nodes: () => ["a"], edges: () => [0], edge: () => edge };
        layout.node = () => box;
        viewport.framed(layout, 12);
        return [size, box, edge.points];
    }""")
    # With a margin of 12 the frame goes from -52 to 156, and its left edge is 0 anew.
    assert size == {"width": 208, "height": 68}
    assert box == {"x": 114, "y": 34}
    assert [point["x"] for point in line] == [114, 12, 196]


def test_members_of_a_list_that_are_called_in_turn_are_named_with_it(visit: Any) -> None:
    base = factory.analysis(6)
    modules = ("down.0", "mid", "down.1", "mid", "down.2", "down.2")
    items = tuple(replace(each, module=module) for each, module in zip(base.operators, modules, strict=True))
    page, _ = visit(replace(base, operators=items))
    page.locator("#graph").scroll_into_view_if_needed()
    page.wait_for_function("document.documentElement.dataset.graph === 'drawn'")
    told = [button.get_attribute("aria-label") for button in page.locator(".graph-keys button").all()]
    named = [label.split(",")[0] for label in told if label]
    # In the order in which they are drawn, whatever that is.
    assert sorted(name for name in named if name.startswith("down")) == ["down.0", "down.1", "down.2"]


def test_the_graph_opens_and_closes_modules_and_shows_copies(visit: Any) -> None:
    page, seen = visit(factory.analysis(24), looks=True)
    page.locator("#graph").scroll_into_view_if_needed()
    page.wait_for_function("document.documentElement.dataset.graph === 'drawn'")
    # Two stages at the top hold too little to tell: their six blocks are opened at first.
    assert page.locator("#graph-status").inner_text().startswith("6 boxes, 5 connections, 5 copied")
    page.click("#graph-open")
    page.wait_for_function("document.getElementById('graph-status').textContent.startsWith('24 boxes')")
    page.click("#graph-reset")
    page.wait_for_function("document.getElementById('graph-status').textContent.startsWith('6 boxes')")
    picture(page, "graph")
    assert seen.errors == []


MOVED = "document.getElementById('graph-drawing').style.transform"


def shared_activation() -> Analysis:
    """The invented network whose blocks each have one module of both activations, called twice."""
    base = factory.analysis(24)
    items = [
        replace(item, op_type="Relu", module=f"{item.module.rpartition('.')[0]}.act")
        if item.index % 2
        else item
        for item in base.operators
    ]
    return replace(base, operators=tuple(items))


def test_the_graph_is_searched_shown_in_part_and_found_again_by_its_address(visit: Any) -> None:
    page, seen = visit(shared_activation())
    page.locator("#graph").scroll_into_view_if_needed()
    page.wait_for_function("document.documentElement.dataset.graph === 'drawn'")
    status, found = page.locator("#graph-status"), page.locator("#graph-found")
    page.fill("#graph-find", "act")
    # Two calls in each of six blocks, all closed: the blocks hide them.
    assert found.inner_text().startswith("12 found")
    assert page.locator(".graph-keys .holds").count() == 6
    page.press("#graph-find", "Enter")
    page.locator(".graph-keys .found.now").wait_for()
    assert found.inner_text() == "1 of 12: stage0.block0.act (call 1 of 2)"
    page.press("#graph-find", "Enter")
    page.locator(".graph-keys .found.now[aria-label*='call 2 of 2']").wait_for()
    # From what is inside of the frame: the box that was gone to.
    frame = page.locator("#graph .graph-scroll").bounding_box()
    box = page.locator(".graph-keys .now").bounding_box()
    assert frame["y"] <= box["y"]
    assert box["y"] + box["height"] <= frame["y"] + frame["height"]
    page.evaluate("graph.restore('stage0.block1')")
    page.wait_for_function("document.getElementById('graph-status').textContent.includes('Only stage0.block1')")
    # Conv, act, relu, act: four boxes and three arrows; one from block0 and one to block2.
    assert status.inner_text().startswith("4 boxes, 5 connections")
    assert status.inner_text().endswith("the other 20 operators are not, or stand in dashed boxes.")
    assert page.locator("#graph-path li").all_inner_texts() == ["imaginary", "stage0", "block1"]
    address = page.url
    page.click("#graph-path button >> nth=0")
    page.wait_for_function("!document.getElementById('graph-status').textContent.includes('Only')")
    assert not page.locator("#graph-path").is_visible()
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function("document.documentElement.dataset.graph === 'drawn'")
    assert "Only stage0.block1" in status.inner_text()
    # What no page of this record has is left out.
    page.evaluate("graph.restore('nowhere~<img src=x>~%E0%A4~stage0.block0*')")
    # Four operators, two blocks beside them, and the other stage.
    page.wait_for_function("document.getElementById('graph-status').textContent.startsWith('7 boxes')")
    assert page.evaluate("graph.state()") == "~stage0.block0*"
    assert seen.errors == []


def test_the_graph_moves_and_zooms_and_leaves_the_wheel_to_the_page(visit: Any) -> None:
    page, seen = visit(factory.analysis(24))
    page.emulate_media(reduced_motion="reduce")
    page.evaluate("document.getElementById('graph').scrollIntoView({ behavior: 'instant' })")
    page.wait_for_function("document.documentElement.dataset.graph === 'drawn'")
    frame = page.locator("#graph .graph-scroll").bounding_box()
    first, before = page.evaluate(MOVED), page.evaluate("scrollY")
    page.mouse.move(frame["x"] + 40, frame["y"] + 200)
    page.mouse.wheel(0, -120)
    page.locator(".graph-hint[data-told]").wait_for()
    page.wait_for_function(f"scrollY < {before}")
    assert page.evaluate(MOVED) == first
    page.evaluate("document.getElementById('graph').scrollIntoView({ behavior: 'instant' })")
    # With Ctrl, and once it was clicked, it is the drawing's.
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    page.wait_for_function(f"{MOVED} !== '{first}'")
    page.mouse.click(frame["x"] + 40, frame["y"] + 200)
    page.keyboard.press("0")
    page.wait_for_function(f"{MOVED} === '{first}'")
    page.mouse.wheel(0, 120)
    page.wait_for_function(f"{MOVED} !== '{first}'")
    page.click("#graph [data-zoom=fit]")
    page.wait_for_function(f"{MOVED} === '{first}'")
    # A drag that begins on a module moves the drawing and opens nothing.
    box = page.locator(".graph-keys [data-box^=m]").first.bounding_box()
    page.mouse.move(box["x"] + 30, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 50, steps=3)
    page.mouse.up()
    page.wait_for_function(f"{MOVED} !== '{first}'")
    now = page.locator(".graph-keys [data-box^=m]").first.bounding_box()
    assert (round(now["x"] - box["x"]), round(now["y"] - box["y"])) == (60, 30)
    assert page.locator("#graph-status").inner_text().startswith("6 boxes")
    page.mouse.click(now["x"] + 30, now["y"] + 20)
    page.wait_for_function("document.getElementById('graph-status').textContent.startsWith('9 boxes')")
    assert seen.errors == []


def test_the_readers_choice_of_dark_is_remembered(visit: Any) -> None:
    page, _ = visit(factory.analysis(), alone=True)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    dark = page.evaluate(background)
    assert dark != light
    # The browser hands a page's storage to its store a moment later; on a busy machine a reload can come first
    # and the choice is lost, so that the reader chooses again.
    for patience_ms in (500, 1000, 2000, 4000):
        page.wait_for_timeout(patience_ms)
        page.reload()
        if page.evaluate(background) == dark:
            break
        page.click("#theme")
    page.reload()
    assert page.evaluate(background) == dark


def test_names_of_a_model_are_shown_as_text(visit: Any, unfold: Any) -> None:
    page, seen = visit(factory.hostile())
    unfold(page)
    page.evaluate("report.select(0)")
    page.locator("#graph").scroll_into_view_if_needed()
    page.wait_for_function("document.documentElement.dataset.graph === 'drawn'")
    page.select_option("#grouping", "group_cpu")
    for figure in page.locator("details.numbers summary").all():
        figure.click()
    point = page.locator("#chart-timeline svg path[aria-roledescription=bar]").first
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    page.locator("#vg-tooltip-element.visible").wait_for()
    assert page.locator("img").count() == 0
    assert page.title().startswith(factory.HOSTILE)
    assert page.locator("h1").inner_text() == factory.HOSTILE
    assert seen.errors == []


def test_a_link_into_the_page_keeps_its_place_while_the_page_is_drawn(visit: Any) -> None:
    page, _ = visit(factory.analysis(24))
    address = page.url
    page.goto("about:blank")
    page.goto(f"{address}#findings")
    page.wait_for_function(f"{DRAWN} && document.documentElement.dataset.graph === 'drawn'")
    assert 0 <= page.locator("#findings").bounding_box()["y"] < 100


# What of the page lives in its address, as a reader sees it.
SHOWN = """() => ({
    operator: document.querySelector("#detail:not([hidden]) h3")?.textContent ?? null,
    search: document.getElementById("search").value,
    choices: [...document.querySelectorAll("#filters select, #measure")].map((choice) => choice.value),
    found: document.getElementById("found").textContent,
    rows: report.table.getRows("active").map((row) => row.getIndex()),
    groups: report.table.getGroups().length,
    width: charts.views.get("by-module").signal("measure"),
})"""


def test_a_copied_link_shows_the_same_and_going_back_takes_selections_back(visit: Any) -> None:
    page, seen = visit(factory.analysis(24))
    start = page.url
    page.fill("#search", "stage1")
    page.select_option("#filter-placement", "gpu")
    page.wait_for_function("location.hash === '#operators?on=gpu&q=stage1'")
    page.locator('#table .tabulator-col[tabulator-field="cpu"]').click()
    page.select_option("#grouping", "group_cpu")
    page.select_option("#measure", "flops")
    page.locator('#tree button:text-is("stage1")').click()
    page.evaluate("report.select(13, 'chart')")
    shown = page.evaluate(SHOWN)
    # Of stage1's twelve operators the three of a fourth kind run on the CPU; times are 1 to 5 ms in turn.
    assert shown["rows"] == [14, 18, 13, 22, 17, 12, 21, 16, 20]
    assert (shown["operator"], shown["width"], shown["groups"]) == ("BatchNormalization #13", "flops", 6)
    # A link within the page leaves all of it as it is.
    page.click(".top nav a[href='#findings']")
    page.wait_for_function("location.hash.startsWith('#findings?')")
    address = page.url
    assert "op=%2Fbatchnormalization_13" in address
    page.go_back()
    page.wait_for_function("location.hash.startsWith('#operators?')")
    page.go_back()
    page.wait_for_function("report.selected() === null && location.hash.includes('module=stage1')")
    page.go_back()
    page.wait_for_function("!location.hash.includes('module')")
    assert page.evaluate(SHOWN) == {**shown, "operator": None, "found": "9 of 24 operators"}
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function(DRAWN)
    assert page.evaluate(SHOWN) == shown
    assert 0 <= page.locator("#findings").bounding_box()["y"] < 100
    # What this page does not have is left out.
    page.goto("about:blank")
    page.goto(f"{start}#operators?op=<img src=x>&module=%E0&on=tpu&group=&sort=-nothing&measure=joules&q=relu")
    page.wait_for_function("location.hash === '#operators?q=relu'")
    assert page.locator("#found").inner_text() == "6 of 24 operators"
    assert seen.errors == []


def test_only_the_pages_own_scripts_run_and_none_names_a_file(visit: Any) -> None:
    page, _ = visit(factory.analysis(4))
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'foreign = 1'}))"
    )
    assert page.evaluate("typeof foreign") == "undefined"
    named = "[...document.querySelectorAll('script, style')].map((part) => part.textContent.slice(-80))"
    assert "sourceMappingURL" not in "".join(page.evaluate(named))


def with_a_wrong_letter(text: Any) -> Any:
    at = len(text) // 2
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


def cut_short(text: Any) -> Any:
    """Ends inside the last script, where four letters are not complete."""
    return text[: text.rindex('text/javascript">') + len('text/javascript">') + 1001]


@pytest.mark.parametrize(
    ("options", "changed", "said"),
    [
        ({"java_script_enabled": False}, str, "they need JavaScript and a newer browser"),
        ({"before": "delete window.DecompressionStream"}, str, "they need JavaScript and a newer browser"),
        ({}, with_a_wrong_letter, "This copy of the file is damaged"),
        ({}, cut_short, "This copy of the file is damaged"),
    ],
    ids=["no scripts", "an old browser", "a damaged file", "a file cut short"],
)
def test_without_its_scripts_the_page_says_so_and_shows_all_else(
    visit_text: Any, options: Any, changed: Any, said: Any
) -> None:
    text = changed(html.render(factory.analysis(24)))
    page, seen = visit_text(text, **options)
    note = page.locator(".needs-scripts", has_text=said)
    note.wait_for()
    assert note.bounding_box()["y"] < WIDE["height"]
    for shown in (".sentence", ".plans", ".top-operators tbody tr", "#findings", "#where figcaption"):
        assert page.locator(shown).first.is_visible()
    assert not [part for part in page.locator(".scripted").all() if part.is_visible()]
    assert page.locator(".needs-scripts:visible").count() == 1
    assert seen.errors == []


def test_the_page_prints_light_without_controls_and_with_every_row_that_is_filtered(
    visit: Any, unfold: Any
) -> None:
    page, _ = visit(factory.analysis(200), color_scheme="dark")
    unfold(page)
    page.select_option("#filter-type", "Conv")
    page.select_option("#grouping", "module")
    page.locator('#table .tabulator-col[tabulator-field="cpu"]').click()
    page.wait_for_function("document.getElementById('found').textContent.startsWith('50 of 200')")
    # As Chromium calls them while it prints.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for hidden in (".top nav", "#theme", "#filters", "#table", "#rows-csv", "#copy-summary"):
        assert not page.locator(hidden).is_visible()
    assert page.locator("#chart-roofline svg.marks").is_visible()
    numbers = page.locator("#paper tbody tr:not(.group) td:first-child").all_inner_texts()
    # Every fourth operator is a Conv; each is in a module of its own, the slowest first.
    assert numbers == [str(index) for index in sorted(range(0, 200, 4), key=lambda at: (-(at % 5), -at))]
    assert page.locator("#paper tr.group").count() == 50
    # A4 on its side, less the margins: 277 mm at 96 dots an inch.
    page.set_viewport_size({"width": round(277 / 25.4 * 96), "height": 700})
    for cut in ("document.getElementById('paper')", "document.documentElement"):
        assert page.evaluate(f"{cut}.scrollWidth <= {cut}.clientWidth")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#paper").inner_html() == ""
    printed = page.pdf(prefer_css_page_size=True)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "printed.pdf").write_bytes(printed)
    assert printed.startswith(b"%PDF")


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_axe_finds_no_serious_violation(visit: Any, axe_finds: Any, viewport: Any) -> None:
    page, seen = visit(factory.with_alternative(), viewport=viewport)
    page.evaluate("report.select(3)")
    page.locator("#graph").scroll_into_view_if_needed()
    page.wait_for_function("document.documentElement.dataset.graph === 'drawn'")
    assert axe_finds(page, "all" if viewport is WIDE else "all but colours") == []
    page.emulate_media(color_scheme="dark")
    page.evaluate(TWO_FRAMES)
    picture(page, f"alternative-{viewport['width']}-dark")
    if viewport is WIDE:
        assert axe_finds(page, "colours") == []
    assert_well_opened(page, seen)


@pytest.mark.parametrize(
    "told",
    [factory.generation(tpot_limit_s=0.004, meets_limits=False), factory.capacity()],
    ids=["generation", "capacity"],
)
def test_axe_finds_no_serious_violation_in_an_answer_whichever_colours_came_first(
    visit: Any, axe_finds: Any, told: Any
) -> None:
    page, seen = visit(told, color_scheme="dark")
    assert axe_finds(page, "colours") == []
    page.emulate_media(color_scheme="light")
    page.evaluate(TWO_FRAMES)
    assert axe_finds(page) == []
    assert_well_opened(page, seen)


def test_five_thousand_operators_scroll_and_filter_with_few_rows_in_the_page(visit: Any) -> None:
    page, seen = visit(factory.analysis(5000))
    assert page.locator("#table .tabulator-row").count() < 120
    page.evaluate("report.select(4000)")
    page.wait_for_function(
        "[...document.querySelectorAll('#table .tabulator-selected')].some((row) => row.offsetParent)"
    )
    page.fill("#search", "#stage10.")
    page.fill("#search", "stage10.")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('12 of 5,000')")
    picture(page, "five-thousand")
    assert seen.errors == []


def test_figures_of_the_script_read_like_those_of_the_program(visit: Any) -> None:
    from analyzer import units

    page, _ = visit(factory.analysis(24), looks=True)
    # Halves too, which Python rounds to the even number.
    values = [
        0,
        1,
        9.996,
        0.0123,
        1.5e-3,
        999.6e-6,
        4.2e-10,
        1e3,
        1500.5,
        1501.5,
        999_500,
        2.5e9,
        8.178e12,
        3e17,
    ]
    shown = page.evaluate(f"{json.dumps(values)}.map((value) => figures.figure(value, 'seconds'))")
    assert shown == [units.seconds(value) for value in values]
    shares = [0, 0.001, 0.25, 0.625, 0.635, 0.999, 1]
    shown = page.evaluate(f"{json.dumps(shares)}.map((value) => figures.figure(value, 'share'))")
    assert shown == [units.share(value) for value in shares]
    amounts = [0, 0.1, 12.34, 999.4, 1000, 10_256.5, 10_257.5]
    shown = page.evaluate(f"{json.dumps(amounts)}.map((value) => figures.figure(value, 'dollars'))")
    assert shown == [units.dollars(value) for value in amounts]
    assert page.evaluate("figures.figure(null, 'bytes')") == units.UNKNOWN


def test_options_of_generation_sort_by_what_they_stand_for_and_are_found_by_words(visit: Any) -> None:
    rows = tuple(
        replace(option, name=f"{option.name} {at}", device=f"{option.device}-{at}")
        for at in range(3)
        for option in generation_records.devices()
    )
    page, seen = visit(factory.generation(devices=rows))
    shown = page.locator('[data-options="devices"] tbody tr:not([hidden])')
    heading = page.locator('[data-options="devices"] thead button', has_text="$/M tokens")
    heading.click()
    assert shown.first.inner_text().startswith("1 x Imaginary GPU 1000")
    heading.click()
    # What has no price stays last.
    assert shown.first.inner_text().startswith("1 x Imaginary GPU 3000")
    assert "–" in shown.last.inner_text()
    page.locator("#devices .all summary").click()
    page.locator('[data-searches="devices"]').fill("gpu 9000")
    assert shown.count() == 3
    assert page.locator('[data-found="devices"]').inner_text() == "3 of 12"
    assert seen.errors == []


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["1280", "390"])
def test_the_answer_of_generation_is_on_the_first_screen(visit: Any, viewport: Any) -> None:
    page, _ = visit(factory.generation(), viewport=viewport)
    for part in (".sentence", ".tile"):
        assert page.locator(part).first.bounding_box()["y"] < viewport["height"] * 0.75
