"""Makes this folder's factory and its parts importable, and opens pages in a browser without network."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]


def chromium_path() -> str | None:
    """Debian's Chromium, else what the environment names; None for Playwright's own."""
    named = os.environ.get("CHROMIUM_PATH")
    return (
        named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    )


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A headless Chromium, or a skip that says what is missing."""
    driver = pytest.importorskip("playwright.sync_api", reason="Playwright's Python package is not installed")
    with driver.sync_playwright() as started:
        try:
            chromium = started.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        except driver.Error as error:
            pytest.skip(f"no Chromium could be started: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()


@dataclass(slots=True, kw_only=True)
class Tab:
    """A tab without network, and what must not happen in it.

    Attributes:
        seen: ``errors`` and ``requests`` of the page that it shows.
        looked_at: The text of its page and the window that it opened in, if tests do no more than look at it.
        in_use: Whether a test has it.
        pages: How many pages it has shown.
    """

    page: Any
    seen: Any
    looked_at: tuple[str, Any] | None = None
    in_use: bool = False
    pages: int = 0


def open_tab(browser: Any, before: str = "", **options: Any) -> Tab:
    page = browser.new_context(offline=True, **options).new_page()
    page.add_init_script(before)
    seen = SimpleNamespace(errors=[], requests=[])
    page.on("console", lambda message: message.type == "error" and seen.errors.append(message.text))
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    return Tab(page=page, seen=seen)


@pytest.fixture(scope="session")
def tabs(browser: Any) -> list[Tab]:
    """Tabs that tests hand on: a page in a process of its own takes twice the time of one in a used process."""
    return []


def free_tab(browser: Any, tabs: list[Tab], wanted: tuple[str, Any] | None) -> Tab:
    """The tab that shows what is wanted, else one of its kind: what is looked at stays where it is."""
    free = [tab for tab in tabs if not tab.in_use and (tab.looked_at is None) == (wanted is None)]
    found = next((tab for tab in free if tab.looked_at == wanted), free[0] if free else None)
    if found is None:
        found = open_tab(browser)
        tabs.append(found)
    found.in_use = True
    return found


def leave_page(tab: Tab) -> None:
    """Nothing is laid out anew for the next page's window, nor are hundreds of megabytes kept."""
    tab.page.goto("about:blank")
    tab.looked_at = None
    tab.pages += 1
    if tab.pages % 4 == 0:
        tab.page.request_gc()


# As if nobody had scrolled, pressed a key or come near it with the mouse.
UNTOUCHED = """() => {
    scrollTo(0, 0);
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.blur();
    document.body.removeAttribute("tabindex");
}"""


@pytest.fixture
def visit_text(browser: Any, tabs: list[Tab], tmp_path: Path) -> Iterator[Any]:
    """Opens a page's text without network and collects what must not happen: errors and requests.

    With ``looks`` the test only looks, or puts back what it changes: it may get a page that others have
    looked at.
    ``alone`` gives the page a browser's profile of its own, as other options than the colours' do.
    """
    used: list[Tab] = []
    own: list[Tab] = []
    pages = count()

    def go(
        text: str,
        *,
        viewport: Any = None,
        color_scheme: str = "light",
        looks: bool = False,
        alone: bool = False,
        **options: Any,
    ) -> Any:
        size = viewport or {"width": 1280, "height": 800}
        if alone or options:
            tab = open_tab(browser, viewport=size, color_scheme=color_scheme, **options)
            own.append(tab)
        else:
            wanted = (text, size) if looks else None
            tab = free_tab(browser, tabs, wanted)
            used.append(tab)
            if wanted is None or tab.looked_at != wanted:
                leave_page(tab)
            tab.page.set_viewport_size(size)
            tab.page.emulate_media(media="null", color_scheme=color_scheme)
            if tab.looked_at is not None:
                tab.page.evaluate(UNTOUCHED)
                return tab.page, tab.seen
            tab.looked_at = wanted
        path = tmp_path / f"page-{next(pages)}.html"
        path.write_text(text, encoding="utf-8")
        tab.seen.errors.clear()
        tab.seen.requests.clear()
        tab.page.goto(path.as_uri())
        return tab.page, tab.seen

    yield go
    for tab in used:
        tab.in_use = False
        for page in tab.page.context.pages:
            if page is not tab.page:
                page.close()
        tab.page.mouse.move(0, 0)
        if tab.looked_at is None:
            tab.page.evaluate("localStorage.clear()")
    for tab in own:
        tab.page.context.close()


@pytest.fixture(scope="session")
def unfold() -> Any:
    """Opens what is folded, and waits until the charts in there are drawn."""

    def go(page: Any) -> None:
        page.evaluate("document.querySelectorAll('.fold').forEach((fold) => { fold.open = true; })")
        page.wait_for_function(
            "[...document.querySelectorAll('.fold [data-chart]')].every((figure) => figure.dataset.drawn)"
        )

    return go


@pytest.fixture(scope="session")
def axe_finds() -> Any:
    """What axe finds in a page, each with its element.

    Of the same markup in the other theme the rules about ``colours`` tell, in another window ``all but
    colours``.
    """
    driver = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    about_colours = ("color-contrast", "link-in-text-block")
    rules: dict[str, dict[str, Any]] = {
        "all": {},
        "colours": {"runOnly": {"type": "rule", "values": about_colours}},
        "all but colours": {"rules": {rule: {"enabled": False} for rule in about_colours}},
    }

    def find(page: Any, about: str = "all", *, serious: bool = True) -> list[tuple[str, str]]:
        # What passes is thousands of elements, each with its path.
        options = {"resultTypes": ["violations"], **rules[about]}
        found = driver.Axe().run(page, options=options).response["violations"]
        grave = [item for item in found if not serious or item["impact"] in ("serious", "critical")]
        return [(item["id"], item["nodes"][0]["html"][:120]) for item in grave]

    return find
