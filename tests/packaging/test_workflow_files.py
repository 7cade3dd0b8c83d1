"""The workflows: what their schema cannot see. What they run exists, may do little, and tests what it must."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from analyzer.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
# Commands that come with the runner's Python, and what stands behind `python -m`.
KNOWN = {"analyze", "bash", "gh", "make", "mkdir", "nvidia-smi", "python"}
MODULES = {"pip", "pytest"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs_of(path) for step in job["steps"]]


def jobs_of(path: Path) -> list[dict[str, Any]]:
    """The jobs that do something themselves; the others call a workflow."""
    return [job for job in read(path)["jobs"].values() if "uses" not in job]


def command_lines(path: Path) -> list[list[str]]:
    """Every command of every step, as words; a backslash at a line's end goes on with the next."""
    scripts = [step["run"].replace("\\\n", " ") for step in steps(path) if "run" in step]
    lines = [shlex.split(line) for script in scripts for line in script.splitlines() if line.strip()]
    return [[words[0].removeprefix(".venv/bin/"), *words[1:]] for words in lines]


def paths_in(words: list[str]) -> list[str]:
    made = ("-", "http", "reports/", "build/", "dist/")
    return [word for word in words if "/" in word and not word.startswith(made)]


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def workflow(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_every_command_of_a_workflow_is_known(workflow: Path) -> None:
    assert {words[0] for words in command_lines(workflow)} <= KNOWN


def test_what_a_workflow_makes_or_runs_exists(workflow: Path) -> None:
    for words in command_lines(workflow):
        program, *rest = words
        if program == "make":
            assert {word for word in rest if "=" not in word} <= TARGETS, words
        elif program == "python" and rest[0] == "-m":
            assert rest[1] in MODULES, words
        elif program == "python":
            assert (ROOT / rest[0]).is_file(), words
        elif program == "analyze":
            assert rest[0] in COMMANDS or (ROOT / rest[0]).is_file(), words
        assert all((ROOT / path).exists() for path in paths_in(rest)), words


def test_a_workflow_may_only_read_but_for_what_publishes(workflow: Path) -> None:
    content = read(workflow)
    assert content["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in content["jobs"].items() if "permissions" in job}
    published = {"publish": {"id-token": "write"}, "page": {"contents": "write"}}
    assert more == (published if workflow.stem == "release" else {})


def test_what_may_write_runs_nothing_of_the_repository() -> None:
    for job in jobs_of(ROOT / ".github/workflows/release.yml"):
        if "permissions" in job:
            used = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
            assert "actions/checkout" not in used


def test_a_newer_push_ends_an_older_run_of_the_checks_and_of_nothing_else(workflow: Path) -> None:
    assert read(workflow)["concurrency"]["cancel-in-progress"] is (workflow.stem == "ci")


def test_no_job_may_run_for_ever(workflow: Path) -> None:
    # On a card: 35 minutes of measuring, then every test.
    most = 120 if workflow.stem == "gpu" else 90
    assert all(0 < job["timeout-minutes"] <= most for job in jobs_of(workflow))


def test_a_workflow_never_pastes_an_expression_into_a_script(workflow: Path) -> None:
    assert not any("${{" in step.get("run", "") for step in steps(workflow))


def test_the_token_of_a_checkout_is_not_left_on_the_disk(workflow: Path) -> None:
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_every_action_names_its_version(workflow: Path) -> None:
    """The index's own action has a branch for each major version in place of a tag."""
    for step in steps(workflow):
        assert "uses" not in step or re.search(r"@(v\d+|release/v\d+)$", step["uses"])


def test_a_release_publishes_after_every_check_with_the_address_that_it_runs_at() -> None:
    jobs = read(ROOT / ".github/workflows/release.yml")["jobs"]
    assert jobs["checks"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in read(ROOT / ".github/workflows/ci.yml")[True]  # YAML 1.1 reads `on` as true
    assert jobs["publish"]["needs"] == ["checks", "build"]
    assert jobs["publish"]["environment"] == "pypi"
    assert jobs["page"]["needs"] == "publish"
    assert jobs["build"]["env"]["ANALYZER_REPOSITORY"] == "${{ github.server_url }}/${{ github.repository }}"
    assert read(ROOT / ".github/workflows/release.yml")[True] == {"push": {"tags": ["v*"]}}


def test_ci_runs_the_oldest_and_the_newest_python_that_the_package_names() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    ends = sorted(named, key=lambda version: int(version.split(".")[1]))
    assert PROJECT["requires-python"] == f">={ends[0]}"
    for job in read(ROOT / ".github/workflows/ci.yml")["jobs"].values():
        assert job["strategy"]["matrix"]["python"] == [ends[0], ends[-1]]


def test_ci_runs_everything_on_linux_and_what_needs_no_run_elsewhere() -> None:
    jobs = read(ROOT / ".github/workflows/ci.yml")["jobs"]
    assert {"run": "bash .ci/run"}.items() <= jobs["all"]["steps"][-1].items()
    assert jobs["no-run"]["strategy"]["matrix"]["system"] == ["macos-latest", "windows-latest"]
    said = [words for words in command_lines(ROOT / ".github/workflows/ci.yml") if words[0] == "analyze"]
    assert ["analyze", "samples/mlp.py", "--no-run", "--quiet"] in said
    assert ["analyze", "check", "samples/mlp.py"] in said


def test_a_card_is_measured_by_hand_alone_and_its_record_comes_back_whatever_fails() -> None:
    path = ROOT / ".github/workflows/gpu.yml"
    content = read(path)
    assert list(content[True]) == ["workflow_dispatch"]  # YAML 1.1 reads `on` as true
    assert content["jobs"]["measure"]["runs-on"] == ["self-hosted", "${{ inputs.runner }}"]
    *_, last = steps(path)
    assert (last["if"], last["with"]["path"]) == ("always()", "build/gpu")
    written = [words[words.index("--output") + 1] for words in command_lines(path) if "--output" in words]
    assert len(written) == 3
    assert all(name.startswith("build/gpu/") for name in written)


@pytest.mark.parametrize("script", ["cuda.py", "gpu_families.py"])
def test_the_options_that_a_workflow_gives_to_a_benchmark_exist(script: str) -> None:
    asked = f"benchmarks/{script}"
    (words,) = [words for words in command_lines(ROOT / ".github/workflows/gpu.yml") if asked in words]
    known = re.findall(r'add_argument\("(--[a-z-]+)"', (ROOT / asked).read_text(encoding="utf-8"))
    assert {word for word in words if word.startswith("--")} <= set(known)


def test_make_lint_checks_every_file_that_github_reads() -> None:
    lint = (ROOT / "Makefile").read_text(encoding="utf-8")
    for kind in ("github-workflows", "github-actions", "github-issue-forms", "github-issue-config"):
        assert f"$(CHECK_SCHEMA).{kind} " in lint
