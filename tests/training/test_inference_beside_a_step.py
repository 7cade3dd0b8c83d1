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


def test_a_step_holds_the_verdict_of_inference_in_every_report_and_hands_it_on(
    run: Any, tmp_path: Path
) -> None:
    inference = run("--batch", "8")
    # Files beside it that are no records are passed over.
    (tmp_path / "reports" / "two.json").write_text('{"source": "' + inference["model"]["source"] + '"')
    (tmp_path / "reports" / "three.json").write_text("[]")
    step = run("--batch", "8", "--training")["training"]
    held = step["inference"]
    assert held["file"] == "mlp.json"
    assert held["verdict"]["sentence"] == inference["verdict"]["sentence"]
    assert held["date"] == inference["environment"]["date"]
    copies_as_sums = [plan | {"transfers": plan["transfers"] | {"items": []}} for plan in inference["plans"]]
    assert held["plans"] == copies_as_sums
    assert step["inference_note"] == ""

    analysis = load_report(tmp_path / "reports" / "mlp.json")
    for form in ("html", "text", "markdown"):
        shown = analysis.render(form)
        assert "Inference and training" in shown
        assert "Step over inference" in shown
    assert inference["verdict"]["sentence"].split(":")[0] in analysis.render("text").replace("\n", " ")
    assert analysis.render("html") == analysis.render("html")

    # It was written over the record of inference: the next step has the verdict of this one.
    assert run("--batch", "8", "--training")["training"]["inference"] == held


def test_what_cannot_be_compared_is_left_out_and_the_command_told_makes_a_record_that_can(run: Any) -> None:
    others = [("--batch", "4"), ("--batch", "8", "--gpu", "a100"), ("--batch", "8", "--precision", "fp32")]
    for number, options in enumerate(others):
        run(*options, into=f"reports/{number}.json")
    step = run("--batch", "8", "--training")["training"]
    assert step["inference"] is None
    assert "--batch 8 --gpu l4" in step["inference_note"]
    command = step["inference_note"].partition("`")[2].partition("`")[0].split()
    assert command[0] == "analyze"
    assert run_command_line([*command[1:], "--no-run", "--quiet", "--output", "reports/"]) == 0
    assert run("--batch", "8", "--training")["training"]["inference"]["batch"] == 8
