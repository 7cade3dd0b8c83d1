"""How long a page takes to render and to open: a table, with the machine.

Run it from the repository: ``python benchmarks/rendering.py [--against TREE] [REPORT.json ...]``. Without
records it renders fictitious ones of 200 and 5,000 operators; each record is also compared with itself. Where
Playwright and Chromium are installed it also opens each page without network and tells when it is painted, when
its table answers and when all its charts are drawn. Another checkout to measure against takes its turn in every
round; its figures and the ratios come below. All are medians.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
from analyzer.report.compare import html_page
from analyzer.report.compare.build import compare
text = html_page.render(compare([("base", analysis), ("new", analysis)]))
print(time.perf_counter() - start, len(text.encode()), len(analysis.operators))
Path(sys.argv[2]).write_text(text, encoding="utf-8")
"""
_PAINTED = "performance.getEntriesByType('paint').map((entry) => entry.startTime / 1000)[0]"
_READY = "document.documentElement.dataset.table === 'ready'"
_DRAWN = "document.documentElement.dataset.charts === 'drawn'"


def records(names: list[Path], folder: Path) -> list[Path]:
    """The records to render: those named, else fictitious ones."""
    if names:
        return [name.resolve() for name in names]
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "report")]
    import report_factory

    from analyzer.record import to_json

    paths = []
    for operators in (200, 5000):
        paths.append(folder / f"fictitious-{operators}.json")
        paths[-1].write_text(to_json(report_factory.analysis(operators)), encoding="utf-8")
    return paths


def rendered(tree: Path, script: str, record: Path, page: Path) -> tuple[float, int, int]:
    """Seconds (imports counted), bytes and operators."""
    command = [sys.executable, "-c", script, str(record), str(page)]
    done = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True)
    spent, size, operators = done.stdout.split()
    return float(spent), int(size), int(operators)


def opened(page: Path, *, table: bool) -> tuple[float | None, float | None, float | None]:
    """Seconds until there is something to read, until the table answers (where there is one) and until every
    chart is drawn; None if unknown.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None, None, None
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
        painted = tab.evaluate(_PAINTED)
        browser.close()
    return painted, ready, drawn


def turn(tree: Path, script: str, record: Path, page: Path) -> tuple[float | None, ...]:
    """One rendering and one opening: operators, seconds to render, megabytes, and the seconds of `opened`."""
    spent, size, operators = rendered(tree, script, record, page)
    return operators, spent, size / 1e6, *opened(page, table=script == _RENDER)


def middle(turns: list[tuple[float | None, ...]]) -> list[float | None]:
    """The median of each figure."""
    return [None if None in column else statistics.median(column) for column in zip(*turns, strict=True)]


def line(name: str, figures: list[float | None]) -> str:
    """A row of the table."""
    operators, *rest = figures
    return f"{name:32} {operators:9,.0f}" + "".join(f"{'-' if v is None else f'{v:.3f}':>10}" for v in rest)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    trees = [ROOT, *filter(None, [options.against])]
    machine = platform.processor() or platform.machine()
    print(f"{platform.platform()}, {machine}, Python {platform.python_version()}")
    heads = ("operators", "render s", "MB", "paint s", "table s", "charts s")
    print(f"{'record':32} {heads[0]:>9}" + "".join(f"{head:>10}" for head in heads[1:]))
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "page.html"
        for record in records(options.records, Path(name)):
            for script, suffix in ((_RENDER, ""), (_COMPARE, ", compared")):
                turns = [[turn(tree, script, record, page) for tree in trees] for _ in range(options.rounds)]
                found = [middle(list(mine)) for mine in zip(*turns, strict=True)]
                for label, figures in zip((f"{record.stem}{suffix}", "  against"), found, strict=False):
                    print(line(label, figures))
                if options.against:
                    pairs = zip(*found, strict=True)
                    print(line("  ratio", [None if a is None or b is None else a / b for a, b in pairs]))


if __name__ == "__main__":
    main()
