"""Hold what every command writes against snapshots; a refactoring moves none of them.

``pytest tests/golden --update`` writes the snapshots anew; their diff is the list of what changed. Nothing is
measured, so that every machine gives the same.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import rendering
from golden_cases import CASES, QUICK
from snapshots import hold, of_file, of_page, scrubbed

from analyzer import load_report
from analyzer.cli import run_command_line
from analyzer.record.analysis import Analysis

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
INPUTS = HERE / "inputs"
EXPECTED = HERE / "expected"
_OF_FLEETS = ("index.html", "fleet.json", "fleet.csv", "fleet.md")
CAPACITY = ("capacity", "capacity-generate")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Help and tables are as wide as the terminal is.
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    with contextlib.chdir(ROOT):
        yield


@pytest.mark.parametrize("case", QUICK)
def test_what_users_see_most_is_as_it_was(case: str, tmp_path: Path, update: bool) -> None:
    _compare(case, tmp_path, update=update)


@pytest.mark.parametrize("case", sorted({*CASES}.difference(QUICK, CAPACITY)))
def test_every_command_writes_what_it_wrote(case: str, tmp_path: Path, update: bool) -> None:
    _compare(case, tmp_path, update=update)


# They begin with this machine's processor: it is one of the catalogue, whatever runs the test.
@pytest.mark.parametrize("machine", ["catalogue"], indirect=True)
@pytest.mark.parametrize("case", CAPACITY)
@pytest.mark.usefixtures("machine")
def test_plans_of_capacity_are_as_they_were(case: str, tmp_path: Path, update: bool) -> None:
    _compare(case, tmp_path, update=update)


def test_there_is_no_snapshot_without_a_case() -> None:
    assert {path.stem for path in EXPECTED.glob("*.txt")} == {*CASES}


def _compare(case: str, folder: Path, *, update: bool) -> None:
    got, path = _snapshot(CASES[case], folder), EXPECTED / f"{case}.txt"
    # Of each kind of record one is written as a page too; other models' are in the same formats.
    for record in (page.with_suffix(".json") for page in sorted(folder.rglob("*.html"))):
        if record.exists() and '"operators"' in record.read_text(encoding="utf-8"):
            _formats_agree(load_report(record))
    hold(path, got, update=update)


def _formats_agree(analysis: Analysis) -> None:
    """Hold the figures of every format against those of Markdown, which leaves out no row and no column."""
    every = _figures(rendering.markdown(analysis).replace("\\", ""))
    assert every
    for format_of in (rendering.text, rendering.screen, rendering.mail):
        assert _figures(format_of(analysis)) <= every, format_of.__name__
    assert _figures(of_page(rendering.notebook(analysis))) <= every
    # The page has more beside it: what the answer says, it says too.
    assert _figures(rendering.mail(analysis)) <= _figures(of_page(analysis.render("html")))


def _figures(text: str) -> set[str]:
    """Return the figures of a text with their units, wherever its lines are broken."""
    joined = html.unescape(" ".join(text.replace("\u00a0", " ").split()))
    return set(re.findall(r"\$[\d.,]*\d|\d[\d.,]*(?: [kMGTPmµn]?(?:s|B|J|FLOP|/s)(?![\w…])| %|x\b)", joined))


def _snapshot(commands: tuple[str, ...], folder: Path) -> str:
    """Return what the commands print and write, file by file in the order of their names."""
    parts = []
    for command in commands:
        arguments = [word.format(**{"out": folder, "in": INPUTS}) for word in shlex.split(command)]
        printed, messages = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(messages):
            status = run_command_line(arguments)
        parts.append(f"$ analyze {command}\nstatus {status}")
        parts += [text for text in (printed.getvalue(), messages.getvalue()) if text.strip()]
    for path in sorted(folder.rglob("*")):
        # Records and pages of a fleet's models are those of `analyze MODEL`.
        shown = path.is_file() and (path.name in _OF_FLEETS or not (path.parent / "index.html").exists())
        snapshot = of_file(path) if shown and not path.parent.name.startswith(".") else ""
        if snapshot:
            parts.append(f"--- {path.relative_to(folder).as_posix()}\n{snapshot}")
    text = "\n\n".join(part.rstrip() for part in parts) + "\n"
    text = text.replace(str(folder), "{out}").replace(str(INPUTS), "{in}").replace(str(ROOT), "{root}")
    return scrubbed("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
