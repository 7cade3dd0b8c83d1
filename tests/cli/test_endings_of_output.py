"""The ending of ``--output`` says the format where ``--format`` does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzer.cli import run_command_line

ASKED = ["samples/mlp.py", "--no-run", "--gpu", "l4", "--cpu", "epyc-9654", "--quiet"]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asked") / "mlp.json"
    assert run_command_line([*ASKED, "--output", str(path)]) == 0
    return path


# How each format begins: by the standards of HTML, JSON, XML and SARIF, a heading, a header row.
BEGINNINGS = {
    "x.html": "<!doctype html>",
    "x.JSON": "{",
    "x.xml": "<?xml",
    "x.sarif": '{\n  "$schema"',
    "x.md": "#",
    "x.csv": "index,",
    "x.txt": "mlp: batch 64",
}


def test_a_model_is_written_in_the_format_of_the_ending_alone(record: Path) -> None:
    assert json.loads(record.read_text(encoding="utf-8"))["schema_version"] == 1
    assert [path.name for path in record.parent.iterdir()] == ["mlp.json"]


@pytest.mark.parametrize("name", BEGINNINGS)
def test_render_writes_what_the_ending_says(record: Path, tmp_path: Path, name: str) -> None:
    assert run_command_line(["render", str(record), "--output", str(tmp_path / name), "--quiet"]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(BEGINNINGS[name].lower())


@pytest.mark.parametrize("command", [["check"], ["compare"]])
def test_what_prints_text_by_default_writes_the_ending_too(
    record: Path, tmp_path: Path, command: list[str]
) -> None:
    records = [str(record)] * (2 if command == ["compare"] else 1)
    path = tmp_path / "x.json"
    run_command_line([*command, *records, "--output", str(path), "--quiet"])
    assert json.loads(path.read_text(encoding="utf-8"))


def test_a_format_that_is_typed_goes_before_the_ending(record: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    assert run_command_line(["render", str(record), "--format", "text", "--output", str(path), "--quiet"]) == 0
    assert path.read_text(encoding="utf-8").startswith("mlp: batch 64")


def test_a_folder_and_an_ending_that_is_no_format_say_nothing(record: Path, tmp_path: Path) -> None:
    (tmp_path / "x.md").mkdir()
    assert run_command_line([*ASKED, "--output", str(tmp_path / "x.md")]) == 0
    assert sorted(path.name for path in (tmp_path / "x.md").iterdir()) == ["mlp.html", "mlp.json"]
    assert run_command_line([*ASKED, "--output", str(tmp_path / "y.pdf")]) == 2
