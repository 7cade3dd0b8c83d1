"""The pages in Firefox: libraries are unpacked, table, charts and graph drawn, and nothing is complained of."""

import gc
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fleet_factory
import pytest
import report_factory as factory

from analyzer.report import html
from analyzer.report.compare import html_page
from analyzer.report.compare.build import compare
from analyzer.report.fleet import page as fleet_page

pytestmark = pytest.mark.browser
# Errors of scripts, and what scripts wrote to the console as errors; warnings have a flag of their own.
COMPLAINTS = """
    const said = Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError);
    const errors = said.filter((one) => !(one.flags & Ci.nsIScriptError.warningFlag))
      .map((one) => [one.sourceName, one.errorMessage]);
    const logged = Cc["@mozilla.org/consoleAPI-storage;1"].getService(Ci.nsIConsoleAPIStorage).getEvents()
      .filter((one) => one.level === "error").map((one) => [one.filename, String(one.arguments[0])]);
    return [...errors, ...logged].filter(([file]) => String(file).startsWith("file:"));
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def unclosed_sockets() -> Iterator[None]:
    """The driver asks a port until it answers, and leaves each attempt to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture(scope="module")
def firefox() -> Iterator[Any]:
    """A headless Firefox that reaches no network, or a skip that says what is missing."""
    driver = pytest.importorskip("marionette_driver.marionette", reason="marionette_driver is not installed")
    path = shutil.which("firefox-esr") or shutil.which("firefox")
    if path is None:
        pytest.skip("there is no Firefox")
    # A proxy that nobody is behind.
    nowhere = {"network.proxy.type": 1, "network.proxy.http": "127.0.0.1", "network.proxy.http_port": 9}
    with unclosed_sockets():
        started = driver.Marionette(bin=path, headless=True, host="127.0.0.1", port=free_port(), prefs=nowhere)
        started.start_session()
    started.set_window_rect(width=1280, height=900)
    yield started
    with unclosed_sockets():
        started.quit()
        started.cleanup()


@pytest.fixture
def visit(firefox: Any, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    def go(text: str) -> Any:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        firefox.navigate(path.as_uri())
        return firefox

    yield go
    with firefox.using_context("chrome"):
        complaints = firefox.execute_script(COMPLAINTS)
        firefox.execute_script("Services.console.reset();")
    assert complaints == []


def wait_for(firefox: Any, condition: str) -> None:
    """Until it holds; what never does is an error of the script after Firefox's own thirty seconds."""
    firefox.execute_async_script(
        f"const [done] = arguments; const look = () => ({condition}) ? done() : setTimeout(look, 50); look();"
    )


def count(firefox: Any, selector: str) -> int:
    return int(firefox.execute_script("return document.querySelectorAll(arguments[0]).length;", [selector]))


def test_the_report_is_unpacked_and_drawn(visit: Callable[[str], Any]) -> None:
    # As few as are drawn all: the table draws the rows that are seen.
    analysis = factory.analysis(8)
    firefox = visit(html.render(analysis))
    ready = "document.documentElement.dataset"
    wait_for(firefox, f"{ready}.charts === 'drawn' && {ready}.table === 'ready'")
    charts = count(firefox, "figure[data-chart]")
    assert charts > 4
    assert count(firefox, "figure[data-chart]:has(.drawing .marks)") == charts
    assert count(firefox, "#table .tabulator-row") == len(analysis.operators)
    firefox.execute_script("document.getElementById('graph').scrollIntoView();")
    wait_for(firefox, f"{ready}.graph === 'drawn'")
    assert count(firefox, ".graph-keys button") > 0
    # A selection goes into the address, and back takes it out again.
    firefox.execute_script("document.querySelector('[data-select]').click();")
    wait_for(firefox, "location.hash.startsWith('#operators?op=') && !document.getElementById('detail').hidden")
    address = firefox.get_url()
    firefox.go_back()
    wait_for(firefox, "location.hash === '' && document.getElementById('detail').hidden")
    firefox.navigate("about:blank")
    firefox.navigate(address)
    wait_for(firefox, f"{ready}.table === 'ready' && !document.getElementById('detail').hidden")


def test_the_comparison_and_its_graph_are_unpacked_and_drawn(visit: Callable[[str], Any]) -> None:
    before, after = factory.analysis(24), factory.analysis(25)
    firefox = visit(html_page.render(compare([("before", before), ("after", after)])))
    wait_for(firefox, "document.documentElement.dataset.charts === 'drawn'")
    firefox.execute_script("document.querySelector('.joined').scrollIntoView();")
    wait_for(firefox, "document.querySelector('.joined[data-drawn]')")
    assert count(firefox, ".joined svg") > 0


def test_the_page_of_a_fleet_is_unpacked_and_drawn(visit: Callable[[str], Any]) -> None:
    fleet = fleet_factory.fleet()
    firefox = visit(fleet_page.render(fleet))
    wait_for(firefox, "document.documentElement.dataset.table === 'ready'")
    assert count(firefox, ".tabulator-row") == len(fleet.models)
