"""The composite action and the pre-commit hook: what they run really runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / ".github/actions/analyze/action.yml").read_text(encoding="utf-8"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a runner gives a step, with this checkout's `analyze` first on the path."""
    command = tmp_path / "bin" / "analyze"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m analyzer "$@"\n')
    command.chmod(0o755)
    return {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": os.environ.get("HOME", str(tmp_path)),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed, and the action runs in it")
def test_the_actions_check_annotates_summarises_and_writes_its_files(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "check")
    given = {
        "MODEL": str(ROOT / "samples/boosted_trees.onnx"),
        "ARGUMENTS": "--gpu t4 --max-copies 0",
        "REPORT": "out",
    }
    assert set(step["env"]) == set(given)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env=environment | given,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr  # Trees have no CUDA kernel.
    assert "::error " in done.stdout
    assert "A101" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "output").read_text() == "report=out\n"
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [Path(name).suffix for name in names] == [".txt", ".json", ".sarif", ".xml"]
    assert json.loads((tmp_path / "out/boosted_trees.json").read_text())["devices"]["gpu"]["slug"] == "t4"


def test_the_action_never_pastes_an_input_into_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_every_input_of_the_action_is_used() -> None:
    text = json.dumps(ACTION["runs"])
    assert all(f"inputs.{name}" in text for name in ACTION["inputs"])


def test_the_hook_runs_the_check_and_leaves_the_model_to_its_arguments() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["entry"] == "analyze check"
    assert hook["pass_filenames"] is False
