"""The composite action and the pre-commit hook: what they run really runs."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / ".github/actions/analyze/action.yml").read_text(encoding="utf-8"))


needs_bash = pytest.mark.skipif(
    shutil.which("bash") is None, reason="bash is not installed, and the action runs in it"
)
# In place of the real one: installs nothing, says what it was asked.
PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m pip" ]; then
    shift 2
    case "$1" in
        install) printf '%s\\n' "$*" >> "$ASKED" ;;
        freeze) printf 'numpy==2.4.6\\ntorch==2.13.0+cpu\\ntorchvision==0.28.0+cpu\\n' ;;
        cache) echo /home/runner/pip ;;
    esac
    exit 0
fi
exec "{python}" "$@"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a runner gives a step, with this checkout's `analyze` and a Python without pip first on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    written = {
        "analyze": f'#!/bin/sh\nexec "{sys.executable}" -P -m analyzer "$@"\n',
        "python": PYTHON.format(python=sys.executable),
    }
    for name, text in written.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": os.environ.get("HOME", str(tmp_path)),
        "GITHUB_ACTION_PATH": str(ROOT / ".github/actions/analyze"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "RUNNER_TEMP": str(tmp_path),
        "ASKED": str(tmp_path / "asked"),
    }


def run_step(
    name: str, folder: Path, environment: dict[str, str], given: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """A step as a runner runs it; ``given`` stands for what its expressions give."""
    step = next(step for step in ACTION["runs"]["steps"] if step["name"] == name)
    computed = {key for key, value in step["env"].items() if "${{" in value}
    assert computed == set(given)
    plain = {key: value for key, value in step["env"].items() if key not in computed}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=environment | plain | given,
        capture_output=True,
        text=True,
        check=False,
    )


def outputs(folder: Path) -> dict[str, str]:
    lines = (folder / "output").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@needs_bash
def test_the_actions_check_annotates_summarises_and_writes_its_files(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    given = {
        "MODEL": str(ROOT / "samples/boosted_trees.onnx"),
        "ARGUMENTS": "--gpu t4 --max-copies 0 --fail-on A101",
        "REPORT": "out",
        "ANALYZER_CACHE_DIR": str(tmp_path / "exports"),
    }
    done = run_step("Check", tmp_path, environment, given)
    assert done.returncode == 1, done.stderr  # Trees have no CUDA kernel.
    assert "::error " in done.stdout
    assert "A101" in (tmp_path / "summary.md").read_text()
    assert outputs(tmp_path) == {"report": str(tmp_path / "out"), "exit-status": "1"}
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [Path(name).suffix for name in names] == [".txt", ".json", ".sarif", ".xml"]
    assert json.loads((tmp_path / "out/boosted_trees.json").read_text())["devices"]["gpu"]["slug"] == "t4"


@needs_bash
def test_the_action_checks_a_model_a_line_and_without_any_those_of_the_settings(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    for name in ("one model", "two"):
        shutil.copy(ROOT / "samples/boosted_trees.onnx", tmp_path / f"{name}.onnx")
    (tmp_path / "pyproject.toml").write_text("[[tool.analyzer.check.model]]\npath = 'two.onnx'\n")
    given = {"ARGUMENTS": "", "REPORT": "out", "ANALYZER_CACHE_DIR": str(tmp_path / "exports")}
    done = run_step("Check", tmp_path, environment, given | {"MODEL": "one model.onnx\n  t*.onnx \n\n"})
    assert done.returncode == 0, done.stderr
    names = {"one model.json", "two.json", "check.sarif", "check.xml", "check.github.txt"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    shutil.rmtree(tmp_path / "out")
    done = run_step("Check", tmp_path, environment, given | {"MODEL": ""})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/two.json").exists()


@needs_bash
def test_an_input_that_looks_like_a_command_is_a_name(tmp_path: Path, environment: dict[str, str]) -> None:
    hostile = "$(touch made) `touch made`; touch made; \"'.onnx"
    given = {
        "MODEL": hostile,
        "ARGUMENTS": "",
        "REPORT": hostile,
        "ANALYZER_CACHE_DIR": str(tmp_path / "exports"),
    }
    done = run_step("Check", tmp_path, environment, given)
    assert done.returncode == 2
    given = {"MODEL": hostile, "ARGUMENTS": hostile, "TORCH": hostile, "REQUIREMENTS": ""}
    assert run_step("Compute the cache's keys", tmp_path, environment, given).returncode == 0
    given = {"TORCH": hostile, "REQUIREMENTS": hostile}
    assert run_step("Install", tmp_path, environment, given).returncode == 0
    assert f"install {hostile} --index-url" in (tmp_path / "asked").read_text()
    assert not (tmp_path / "made").exists()


@needs_bash
def test_the_models_requirements_are_installed_beside_a_pytorch_that_they_cannot_replace(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    given = {"TORCH": "torch>=2.11", "REQUIREMENTS": "needs.txt"}
    done = run_step("Install", tmp_path, environment, given)
    assert done.returncode == 0, done.stderr
    builds = "https://download.pytorch.org/whl/cpu"
    package = f"{ROOT}/.github/actions/analyze/../../.."
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"install torch>=2.11 --index-url {builds}",
        f"install --extra-index-url {builds} --constraint {tmp_path}/torch.txt"
        f" --requirement needs.txt {package}",
    ]
    assert (tmp_path / "torch.txt").read_text() == "torch==2.13.0+cpu\n"


@needs_bash
def test_a_pytorch_that_is_there_is_neither_installed_again_nor_replaced(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = run_step("Install", tmp_path, environment, {"TORCH": "", "REQUIREMENTS": ""})
    assert done.returncode == 0, done.stderr
    package = f"{ROOT}/.github/actions/analyze/../../.."
    assert (tmp_path / "asked").read_text() == f"install --constraint {tmp_path}/torch.txt {package}\n"
    assert (tmp_path / "torch.txt").read_text() == "torch==2.13.0+cpu\n"


@needs_bash
def test_downloads_are_kept_by_what_is_installed_and_exports_by_the_model_too(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "needs.txt").write_text("einops\n")

    def keys(**changes: str) -> dict[str, str]:
        (tmp_path / "output").unlink(missing_ok=True)
        given = {"MODEL": "model.py", "ARGUMENTS": "--gpu l4", "TORCH": "torch", "REQUIREMENTS": "needs.txt"}
        done = run_step("Compute the cache's keys", tmp_path, environment, given | changes)
        assert done.returncode == 0, done.stderr
        return outputs(tmp_path)

    first = keys()
    assert first["downloads"] == "/home/runner/pip"
    other_model = keys(ARGUMENTS="--gpu t4")
    assert (other_model["packages"], other_model["model"] == first["model"]) == (first["packages"], False)
    (tmp_path / "needs.txt").write_text("einops==0.8\n")
    other_packages = keys()
    assert (other_packages["packages"] == first["packages"], other_packages["model"]) == (False, first["model"])
    assert keys(REQUIREMENTS="")["packages"] not in (first["packages"], other_packages["packages"])


def test_the_action_installs_a_pytorch_that_the_package_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [ACTION["inputs"]["torch"]["default"]] == project["optional-dependencies"]["torch"]


def test_every_action_that_the_action_uses_names_its_version() -> None:
    used = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in used)


def test_the_action_never_pastes_an_input_into_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_every_input_of_the_action_is_used() -> None:
    text = json.dumps(ACTION["runs"])
    assert all(f"inputs.{name}" in text for name in ACTION["inputs"])


def test_the_hooks_run_the_check_and_leave_the_model_to_their_arguments() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["entry"] for hook in hooks] == ["analyze check"] * 2
    assert not any(hook["pass_filenames"] for hook in hooks)


def test_the_main_hook_runs_where_the_models_own_imports_are() -> None:
    main, isolated = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert (main["id"], main["language"]) == ("analyze-check", "system")
    assert (isolated["id"], isolated["language"]) == ("analyze-check-isolated", "python")
