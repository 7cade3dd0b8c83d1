"""The documents for those who change the code: what they name exists, and what they say to type works."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"),
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if "_build" not in path.parts
    ),
)
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# What the recipes change or run; the copies are made fresh, so that no recipe sees another's changes.
COPIED = ("analyzer", "templates", "samples", "tests", "pyproject.toml")
RECIPES = re.findall(r"^## (Add [^\n]+)\n(.*?)(?=^## )", CONTRIBUTING, re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
TARGET = re.compile(r"Append\s+to\s+`([^`]+)`:\s*\Z")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_every_link_within_the_repository_leads_somewhere(name: str) -> None:
    folder = (ROOT / name).parent
    links = re.findall(r"\]\(([^)#\s]+)", text_of(name))
    assert [link for link in links if not (link.startswith("https://") or (folder / link).exists())] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_file_of_ours_that_a_document_names_exists(name: str) -> None:
    """Paths to modules stand as seen from the repository or from the package."""
    named = re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|toml|json|yml))`", text_of(name))
    captions = re.findall(r"^:caption: (.+)$", text_of(name), re.MULTILINE)  # what the page itself writes
    ours = [path for path in named if not path.startswith(("models/", "reports/")) and path not in captions]
    assert [
        path for path in ours if not any((home / path).exists() for home in (ROOT, ROOT / "analyzer"))
    ] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_make_target_that_a_document_names_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text_of(name), re.MULTILINE)) <= targets


def test_the_architecture_lists_the_folders_of_the_package_and_no_module_that_is_gone() -> None:
    package = ROOT / "analyzer"
    table = ARCHITECTURE.split("## Rooms")[1].split("\n## ")[0]
    named = {
        name
        for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    }
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert folders <= named
    assert {name for name in named - folders if not (package / f"{name}.py").exists()} == set()


@pytest.mark.parametrize(("name", "lines"), [("README.md", 120), ("CHANGELOG.md", 60)])
def test_a_document_for_a_reader_in_a_hurry_stays_short(name: str, lines: int) -> None:
    assert len(text_of(name).splitlines()) <= lines


def test_the_architecture_stays_short() -> None:
    assert len(ARCHITECTURE.split()) <= 1500


def test_the_glossary_has_each_term_once_in_order() -> None:
    terms = re.findall(r"^\| ([^|]+) \| \S", text_of("docs/explanation/glossary.md"), re.MULTILINE)[1:]
    assert len(terms) >= 30
    assert terms == sorted(set(terms), key=str.lower)


def test_every_entry_of_the_changelog_stands_under_what_it_does() -> None:
    heading = ""
    for line in text_of("CHANGELOG.md").splitlines():
        if line.startswith("#"):
            heading = line
        if line.startswith("- "):
            assert heading in {f"### {kind}" for kind in ("Added", "Changed", "Deprecated", "Removed", "Fixed")}


def test_there_is_a_recipe_for_an_operator_a_device_and_a_check() -> None:
    assert [title for title, _ in RECIPES] == ["Add an operator", "Add a GPU", "Add a check"]


def follow(recipe: str, folder: Path) -> list[str]:
    """Does what a recipe says: blocks go to the files it names, commands are run; gives what they print."""
    said, end = [], 0
    for block in BLOCK.finditer(recipe):
        kind, body = block.groups()
        before, end = recipe[end : block.start()], block.end()
        if kind == "console":
            said += [run(shlex.split(line), folder) for line in body.splitlines()]
        else:
            target = TARGET.search(before)
            assert target is not None, before
            with (folder / target[1]).open("a", encoding="utf-8") as file:
                file.write(f"\n\n{body}")
    return said


def run(words: list[str], folder: Path) -> str:
    words = {"analyze": ["-m", "analyzer", *words[1:]], "python": words[1:]}[words[0]]
    environment = {**os.environ, "PYTHONPATH": str(folder), "ANALYZER_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("title", "recipe"), RECIPES, ids=[title for title, _ in RECIPES])
def test_what_a_recipe_says_works_as_it_stands(title: str, recipe: str, tmp_path: Path) -> None:
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    said = follow(recipe, tmp_path)
    shown = {"Add an operator": "8 * outputs", "Add a GPU": "Example A1", "Add a check": "over a thousand"}[
        title
    ]
    assert shown in said[0]
    assert any(" passed" in text for text in said)


def test_the_page_that_explains_reports_has_every_word_and_mark_of_theirs() -> None:
    from analyzer.decision.operator_verdicts import REASONS
    from analyzer.record.analysis import OperatorVerdict
    from analyzer.report.figure_text import MARKS
    from analyzer.report.module_tree import operator_words

    explained = text_of("docs/explanation/reading-the-page.md")
    for mark in MARKS.values():
        assert f"| {mark.sign} {mark.name} | {mark.meaning} |" in explained
    words = set(re.findall(r"^\| (?:\w+ \()?([\w ]+)\)? \| ", explained, re.MULTILINE))
    for reason in REASONS:
        verdict = OperatorVerdict(device="cpu", speedup=None, reason=reason, explanation="")
        device, aside = operator_words(verdict)
        assert {aside or device} <= words | {"CPU"}, reason
