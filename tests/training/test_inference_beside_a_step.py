"""The inference verdict beside the step's: from the latest comparable record in the folder of the reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli import run_command_line
from analyzer.record import load_report


@pytest.fixture
def run(model_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Analyses a model into a folder of reports; the record."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    path = model_file("mlp")

    def make(*options: Any, into: str = "reports/") -> Any:
        given = [str(path), "--no-run", "--format", "json", "--output", into, "--quiet", *options]
        assert run_command_line(given) == 0
        file = tmp_path / (into + "mlp.json" if into.endswith("/") else into)
        return json.loads(file.read_text())

    return make


def test_a_step_holds_the_inference_verdict_of_the_same_batch_and_devices(run: Any) -> None:
    inference = run("--batch", "8")
    step = run("--batch", "8", "--training")["training"]
    held = step["inference"]
    assert held["file"] == "mlp.json"
    assert held["sentence"] == inference["verdict"]["sentence"]
    assert held["date"] == inference["environment"]["date"]
    for plan, known in zip(held["plans"], inference["plans"], strict=True):
        assert plan.items() <= known.items()
    assert step["inference_note"] == ""


def test_a_step_written_over_the_record_of_inference_hands_its_verdict_on(run: Any) -> None:
    run("--batch", "8")
    first = run("--batch", "8", "--training")
    second = run("--batch", "8", "--training")
    assert second["training"]["inference"] == first["training"]["inference"]


@pytest.mark.parametrize(
    "options",
    [("--batch", "4"), ("--batch", "8", "--gpu", "a100"), ("--batch", "8", "--precision", "fp32")],
    ids=["another batch", "another GPU", "another precision"],
)
def test_what_cannot_be_compared_is_left_out_and_the_command_told(options: Any, run: Any) -> None:
    run(*options)
    step = run("--batch", "8", "--training")["training"]
    assert step["inference"] is None
    assert "analyze" in step["inference_note"]
    assert "--batch 8 --gpu l4" in step["inference_note"]


def test_the_command_that_is_told_makes_the_record(run: Any, tmp_path: Path) -> None:
    note = run("--batch", "8", "--training")["training"]["inference_note"]
    command = note.partition("`")[2].partition("`")[0].split()
    assert command[0] == "analyze"
    assert run_command_line([*command[1:], "--no-run", "--quiet", "--output", "reports/"]) == 0
    assert run("--batch", "8", "--training")["training"]["inference"]["batch"] == 8


def test_files_that_are_no_records_are_passed_over(run: Any, tmp_path: Path) -> None:
    record = run("--batch", "8", into="one.json")
    (tmp_path / "two.json").write_text('{"source": "' + record["model"]["source"] + '"')
    (tmp_path / "three.json").write_text("[]")
    step = run("--batch", "8", "--training", into="step.json")["training"]
    assert step["inference"]["file"] == "one.json"


def test_every_report_shows_both_side_by_side(run: Any, tmp_path: Path) -> None:
    inference = run("--batch", "8")
    run("--batch", "8", "--training")
    analysis = load_report(tmp_path / "reports" / "mlp.json")
    for form in ("html", "text", "markdown"):
        shown = analysis.render(form)
        assert "Inference and training" in shown
        assert "Step over inference" in shown
    assert inference["verdict"]["sentence"].split(":")[0] in analysis.render("text").replace("\n", " ")
    assert analysis.render("html") == analysis.render("html")
