"""How large a fleet's page is, and how long it takes to render and to open: a table, with the machine.

Run it from the repository: ``python benchmarks/fleet_page.py [--models N ...] [--devices N]``. The
fleets are fictitious and always the same, with two batches a device. Each page is opened in a headless
Chromium without network; "table s" is until its table's first rows are painted, "filter s" from a word in the
search to the rows that hold it, "show s" from another choice of what cells show to the painted cells. All are
medians.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Told between two frames: what stood in the first is painted when the second begins.
_PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"


def rendered(models: int, devices: int, page: Path) -> tuple[float, float]:
    """Seconds and megabytes."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "report")]
    import fleet_factory

    from analyzer.report.fleet_page import render

    fleet = fleet_factory.large(models, devices)
    start = time.perf_counter()
    text = render(fleet)
    spent = time.perf_counter() - start
    page.write_text(text, encoding="utf-8")
    return spent, len(text.encode()) / 1e6


def opened(browser: Any, page: Path) -> tuple[float, float, float]:
    """Seconds until the table is painted, until a search is answered, until cells show something else."""
    context = browser.new_context(offline=True, viewport={"width": 1600, "height": 1000})
    tab = context.new_page()
    start = time.perf_counter()
    tab.goto(page.as_uri(), wait_until="commit")
    tab.wait_for_selector("html[data-table=ready]", state="attached")
    tab.evaluate(_PAINTED)
    table = time.perf_counter() - start
    start = time.perf_counter()
    tab.fill("#fleet-search", "model-0001")
    tab.wait_for_selector("#fleet-found:text-matches('^1 of')")
    tab.evaluate(_PAINTED)
    found = time.perf_counter() - start
    tab.click("#fleet-filters button[type=reset]")
    tab.evaluate(_PAINTED)
    start = time.perf_counter()
    tab.check("input[name=fleet-show][value=latency]")
    tab.evaluate(_PAINTED)
    shown = time.perf_counter() - start
    context.close()
    return table, found, shown


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, nargs="*", default=[200, 1000])
    parser.add_argument("--devices", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    machine = platform.processor() or platform.machine()
    print(f"{platform.platform()}, {machine}, Python {platform.python_version()}")
    heads = ("render s", "MB", "table s", "filter s", "show s")
    print(f"{'models x devices x batches':28}" + "".join(f"{head:>10}" for head in heads))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for models in options.models:
            page = Path(name) / "index.html"
            made = [rendered(models, options.devices, page) for _ in range(options.rounds)]
            seen = [opened(browser, page) for _ in range(options.rounds)]
            figures = [statistics.median(column) for rows in (made, seen) for column in zip(*rows, strict=True)]
            print(
                f"{f'{models:,} x {options.devices} x 2':28}" + "".join(f"{value:10.3f}" for value in figures)
            )
        browser.close()


if __name__ == "__main__":
    main()
