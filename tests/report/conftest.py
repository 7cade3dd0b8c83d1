"""Makes this folder's factory and its parts importable, and opens pages in a browser without network."""

import os
import shutil
import sys
from collections.abc import Iterator
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


@pytest.fixture
def visit_text(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page's text without network and collects what must not happen: errors and requests."""
    contexts = []

    def go(text: Any, *, viewport: Any = None, before: str = "", **options: Any) -> Any:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        size = viewport or {"width": 1280, "height": 800}
        context = browser.new_context(viewport=size, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(before)
        seen = SimpleNamespace(errors=[], requests=[])
        page.on("console", lambda message: message.type == "error" and seen.errors.append(message.text))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(path.as_uri())
        return page, seen

    yield go
    for context in contexts:
        context.close()
