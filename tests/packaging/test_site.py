"""The documentation as a site: all of the reference is in it, and it works from a disk, without the network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from analyzer.checks import rules as all_rules
from analyzer.cli import COMMANDS
from analyzer.costs import rules as all_cost_rules
from analyzer.devices import catalogue
from analyzer.options import OPTIONS
from analyzer.record.schema import fleet_schema, schema

ROOT = Path(__file__).resolve().parents[2]
# What a browser loads by itself: scripts, styles, pictures, frames, and what a style names.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|embed|object)\b[^>]*?\b(?:src|data)=["']([^"']+)"""
    r"""|<link\b[^>]*?\bhref=["']([^"']+)|url\(["']?([^"')]+)|@import\s+["']([^"']+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, but for the notebook, which has a test of its own."""
    folder = tmp_path_factory.mktemp("site")
    given = ("-W", "--keep-going", "-n", "-E", "-q", "-D", "nb_execution_mode=off", "-d", str(folder / "read"))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sphinx", *given, str(ROOT / "docs"), str(folder / "html")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def words(site: Path, page: str) -> str:
    """What a reader sees of a page, its tags left out."""
    content = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    return unescape(re.sub(r"<[^>]+>", "", content))


def test_nothing_that_a_page_loads_comes_from_the_network(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(files) > 20
    loaded = {
        (path.name, address)
        for path in files
        for found in LOADED.findall(path.read_text(encoding="utf-8"))
        for address in filter(None, found)
    }
    assert {pair for pair in loaded if re.match(r"(?:https?:)?//", pair[1])} == set()


def test_the_reference_has_every_option_of_every_command(site: Path) -> None:
    said = words(site, "cli")
    parts = {name: said.split(f"Usage\nanalyze {name} ")[1].split("\nUsage\n")[0] for name in COMMANDS}
    for option in OPTIONS:
        for command in option.commands:
            assert re.search(rf"--{option.name}\b", parts[command]), (command, option.name)


def test_the_reference_has_every_rule_operator_and_device(site: Path) -> None:
    assert [rule.code for rule in all_rules() if f"{rule.code} {rule.name}" not in words(site, "rules")] == []
    operators = words(site, "operators")
    assert [rule.op_type for rule in all_cost_rules() if rule.op_type not in operators] == []
    devices = words(site, "devices")
    known = (*catalogue.gpus(), *catalogue.cpus())
    assert [one.slug for one in known if one.name not in devices or one.slug not in devices] == []


@pytest.mark.parametrize(("page", "content"), [("record", schema()), ("fleet-record", fleet_schema())])
def test_the_reference_has_every_key_of_a_record(site: Path, page: str, content: Any) -> None:
    said = set(words(site, page).split())
    for name, part in content["$defs"].items():
        assert {name, *part["properties"]} <= said, name


def test_settings_of_the_reference_are_those_of_the_table(site: Path) -> None:
    said = words(site, "settings").split()
    assert [option.name for option in OPTIONS if option.settings and option.name not in said] == []


def test_a_search_finds_a_page_by_its_words(site: Path) -> None:
    """The index is a script, since a page that was opened as a file may fetch nothing."""
    script = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(script.removeprefix("Search.setIndex(").removesuffix(")"))
    place = index["docnames"].index("tutorials/lengths")
    assert index["titleterms"]["tagger"] == place  # "A tagger" is a heading of that page alone
    assert 'src="searchindex.js' in (site / "search.html").read_text(encoding="utf-8")
