"""How long a page takes to render and to open: a table, with the machine.

Run it from the repository: ``python tests/benchmarks/rendering.py [REPORT.json ...]``. Without arguments it
renders fictitious records of 200 and 5,000 operators; each record is also compared with itself. Where
Playwright and Chromium are installed it also opens each page without network and tells when its table answers
and when all its charts are drawn.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In a process of its own, so that every import is counted; reading the record is not.
_RENDER = """
import sys, time
from pathlib import Path
from analyzer.record import from_json
analysis = from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
start = time.perf_counter()
from analyzer.report import render
text = render(analysis, "html")
print(time.perf_counter() - start, len(text.encode()), len(analysis.operators))
Path(sys.argv[2]).write_text(text, encoding="utf-8")
"""
_COMPARE = """
import sys, time
from pathlib import Path
from analyzer.record import from_json
analysis = from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
start = time.perf_counter()
from analyzer.report import compare_page
from analyzer.report.compare import compare
text = compare_page.render(compare([("base", analysis), ("new", analysis)]))
print(time.perf_counter() - start, len(text.encode()), len(analysis.operators))
Path(sys.argv[2]).write_text(text, encoding="utf-8")
"""
_READY = "document.documentElement.dataset.table === 'ready'"
_DRAWN = "document.documentElement.dataset.charts === 'drawn'"


def records(folder: Path) -> list[Path]:
    """The records to render: the arguments, else fictitious ones."""
    if len(sys.argv) > 1:
        return [Path(name) for name in sys.argv[1:]]
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "report")]
    import report_factory

    from analyzer.record import to_json

    paths = []
    for operators in (200, 5000):
        paths.append(folder / f"fictitious-{operators}.json")
        paths[-1].write_text(to_json(report_factory.analysis(operators)), encoding="utf-8")
    return paths


def rendered(script: str, record: Path, page: Path) -> tuple[float, int, int]:
    """Seconds (imports counted, the best of three), bytes and operators."""
    best = None
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", script, str(record), str(page)],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        spent, size, operators = done.stdout.split()
        best = min(float(spent), best or float(spent))
    return best or 0.0, int(size), int(operators)


def opened(page: Path, *, table: bool) -> tuple[float | None, float | None]:
    """Seconds until the table answers, where there is one, and until every chart is drawn; None if unknown."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None, None
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_context(offline=True, viewport={"width": 1280, "height": 800}).new_page()
        start = time.perf_counter()
        tab.goto(page.as_uri(), wait_until="commit")
        ready = None
        if table:
            tab.wait_for_function(_READY, polling=10)
            ready = time.perf_counter() - start
        tab.wait_for_function(_DRAWN, polling=10)
        drawn = time.perf_counter() - start
        browser.close()
    return ready, drawn


def main() -> None:
    """Prints the table."""
    machine = platform.processor() or platform.machine()
    print(f"{platform.platform()}, {machine}, Python {platform.python_version()}")
    print(f"{'record':32} {'operators':>9} {'render s':>9} {'MB':>6} {'table s':>8} {'charts s':>9}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for record in records(folder):
            page = folder / f"{record.stem}.html"
            for script, suffix in ((_RENDER, ""), (_COMPARE, ", compared")):
                spent, size, operators = rendered(script, record, page)
                ready, drawn = opened(page, table=script == _RENDER)
                shown = [f"{value:.2f}" if value is not None else "-" for value in (ready, drawn)]
                name = f"{record.stem}{suffix}"
                print(f"{name:32} {operators:9,} {spent:9.3f} {size / 1e6:6.2f} {shown[0]:>8} {shown[1]:>9}")


if __name__ == "__main__":
    main()
