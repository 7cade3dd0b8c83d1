"""The command that a page prints is run, and gives the page's answer."""

import json
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.cli import run_command_line
from analyzer.record import from_json
from analyzer.record.invocation import Invocation, command_line

MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, hidden=32):
            super().__init__()
            self.first = nn.Linear(64, hidden)
            self.second = nn.Linear(hidden, 8)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    class Other(Net):
        pass

    def build_model(hidden=32, note=""):
        return Net(hidden)

    def example_inputs(batch=4):
        return torch.randn(batch, 64)
"""
PRICES = """
[[instances]]
provider = "our rack"
name = "one L4"
gpu = "l4"
gpu_count = 1
usd_per_hour = 0.01
price_date = "2026-01-01"
"""


class _Commands(HTMLParser):
    """The text that a browser would copy from the code of the section "Repeat it"."""

    def __init__(self) -> None:
        super().__init__()
        self.section: str | None = ""
        self.found: list[str] = []
        self.inside, self.elements = False, 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - the parser's own signature
        if tag == "h3":
            self.section = None
        if self.inside:
            self.elements += 1
        if tag == "code" and self.section == "Repeat it":
            self.inside = True
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "code":
            self.inside = False

    def handle_data(self, data: str) -> None:
        if self.section is None:
            self.section = data
        if self.inside:
            self.found[-1] += data


def printed(page: Path) -> str:
    """The command of a page: text alone, on one line."""
    parser = _Commands()
    parser.feed(page.read_text(encoding="utf-8"))
    (command,) = parser.found
    assert parser.elements == 0
    assert command == command.strip()
    assert len(command.splitlines()) == 1
    return command


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """A folder with a model and prices, in which commands are run."""
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(cache))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(textwrap.dedent(MODEL))
    (tmp_path / "our prices.toml").write_text(PRICES)
    return tmp_path


def run(words: Sequence[str], into: Path) -> tuple[Path, dict[str, Any]]:
    """Runs a command into a folder; the page and the record there."""
    status = run_command_line([*words, "--quiet", "--format", "html,json", "--output", f"{into}/"])
    assert status in (0, 1), words
    (record,) = into.glob("*.json")
    return record.with_suffix(".html"), json.loads(record.read_text(encoding="utf-8"))


def again(page: Path, into: Path) -> tuple[Path, dict[str, Any]]:
    """Runs the command that a page prints."""
    name, *words = shlex.split(printed(page))
    assert name == "analyze"
    return run(words, into)


def answer(record: dict[str, Any]) -> dict[str, Any]:
    """All that was found; the question is compared by its command, in which a default GPU is named."""
    return {key: value for key, value in record.items() if key not in ("environment", "invocation")}


def same_command_and_answer(page: Path, record: dict[str, Any], into: Path) -> None:
    """Whether the command that a page prints gives that record and prints the same."""
    page_again, repeated = again(page, into)
    assert answer(repeated) == answer(record)
    assert printed(page_again) == printed(page)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--cpu", "epyc-9654", "--slo", "40us", "--utilisation", "0.25", "--pin", "first=cpu", "--gpu", "l4",
         "--prices", "our prices.toml", "--objective", "cost", "--arg", "hidden=48", "--arg", "note=a text"],
        ["--batch", "8,1", "--gpu", "t4,a100", "--opset", "18", "--pin", "fir*=cpu", "--pin", "second=gpu",
         "--precision", "fp32", "--threads", "1", "--pricing", "spot", "--region", "us-central1,asia"],
        ["--input", "x=B,64:float32=-0.5..0.5", "--batch", "16", "--gpu", "none"],
        ["--training", "--dataset-size", "1000", "--batch", "8"],
    ],
    ids=["nothing", "one of each", "several", "inputs", "training"],
)  # fmt: skip
def test_the_command_of_a_page_gives_the_same_record(folder: Path, options: list[str]) -> None:
    page, record = run(["net.py", *options, "--no-run"], folder / "one")
    same_command_and_answer(page, record, folder / "two")


@pytest.mark.parametrize("name", ["net.py:Other", "./net.py", "net.py:Net(hidden=48)", "models/net.py:Net(48)"])
def test_the_model_is_named_so_that_it_is_found_again(folder: Path, name: str) -> None:
    (folder / "models").mkdir()
    shutil.copy("net.py", "models/net.py")
    page, record = run([name, "--no-run"], folder / "one")
    same_command_and_answer(page, record, folder / "two")


def test_paths_are_named_from_the_repository_of_the_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".git").mkdir()
    (folder / "models").mkdir()
    shutil.copy("net.py", "models/net.py")
    shutil.copy("our prices.toml", "models/prices.toml")
    monkeypatch.chdir(folder / "models")
    page, record = run(["net.py", "--no-run", "--prices", "prices.toml"], folder / "one")
    monkeypatch.chdir(folder)
    page_again, repeated = again(page, folder / "two")
    assert "models/net.py" in printed(page)
    assert printed(page_again) == printed(page)
    # A price list is a source under the path by which it was read, in what the record keeps.
    assert answer(repeated) | {"kept": None} == answer(record) | {"kept": None}


def test_what_the_settings_asked_is_asked_again_without_them(folder: Path) -> None:
    settings = folder / "pyproject.toml"
    settings.write_text("[tool.analyzer]\nbatch = [8, 1]\nslo = '5ms'\npin = 'first=cpu'\nno-run = true\n")
    page, record = run(["net.py"], folder / "one")
    settings.unlink()
    same_command_and_answer(page, record, folder / "two")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--max-latency", "1us", "--fail-on", "warning", "--ignore", "A3", "--slo", "2us", "--tolerance", "2%",
         "--batch", "64", "--gpu", "t4", "--max-copies", "0", "--max-cpu-operators", "0", "--warn-on", "A101"],
    ],
    ids=["nothing", "budgets"],
)  # fmt: skip
def test_the_command_of_a_check_finds_the_same(folder: Path, options: list[str]) -> None:
    page, record = run(["check", "net.py", *options], folder / "one")
    assert printed(page).startswith("analyze check net.py")
    same_command_and_answer(page, record, folder / "two")


def test_the_command_of_a_run_measures_and_decides_the_same_question(folder: Path) -> None:
    options = ["--runs", "3", "--threads", "1", "--slo", "50ms", "--batch", "8,2", "--gpu", "t4"]
    page, record = run(["net.py", *options], folder / "one")
    page_again, repeated = again(page, folder / "two")
    for one in (record, repeated):
        assert (one["environment"]["runs"], one["environment"]["threads"]) == (3, 1)
        assert one["plans"][0]["origin"] == "measured"
        assert {row["batch"] for row in one["sweep"] if row["plans"]["cpu"]["origin"] == "measured"} == {2, 8}
        assert all(row["meets_slo"] is not None for row in one["costs"])
    assert printed(page_again) == printed(page)


def test_the_command_of_a_check_that_runs_is_a_check_that_runs(folder: Path) -> None:
    typed = ["check", "net.py", "--gpu", "t4", "--run", "--runs", "3"]
    page, record = run(typed, folder / "one")
    assert record["plans"][0]["origin"] == "measured"
    # Word for word what was typed, and that measured.
    assert sorted(shlex.split(printed(page))) == sorted(["analyze", *typed])


def test_a_rendered_record_is_repeated_with_what_render_was_asked(folder: Path) -> None:
    first = ["--no-run", "--batch", "8", "--slo", "1s", "--gpu", "l4", "--cpu", "epyc-9654"]
    _, saved = run(["net.py", *first], folder / "one")
    options = ["--slo", "30us", "--utilisation", "0.5", "--pin", "first=cpu", "--gpu", "t4,a100"]
    page, record = run(["render", "one/net.json", *options], folder / "two")
    _, repeated = again(page, folder / "three")
    assert saved["verdict"] != record["verdict"]
    assert repeated["invocation"] == record["invocation"]
    for key in ("devices", "verdict", "plans", "costs", "alternatives", "sweep"):
        assert repeated[key] == record[key]


def test_a_record_rendered_twice_keeps_what_was_asked_first(folder: Path) -> None:
    run(["net.py", "--no-run", "--pin", "first=cpu", "--slo", "1s", "--threads", "1"], folder / "one")
    run(["render", "one/net.json", "--utilisation", "0.5"], folder / "two")
    page, record = run(["render", "two/net.json", "--slo", "2s", "--cpu", "epyc-9654"], folder / "three")
    # Threads were meant for the CPU that stands there no more.
    assert printed(page) == (
        "analyze net.py --gpu l4 --cpu epyc-9654 --no-run --slo 2s --pin first=cpu --utilisation 0.5"
    )
    _, repeated = again(page, folder / "four")
    assert answer(repeated) == answer(record)


def test_own_prices_are_asked_again_of_a_record_that_was_decided_anew(folder: Path) -> None:
    asked = ["--gpu", "l4", "--cpu", "epyc-9654", "--prices", "our prices.toml"]
    run(["net.py", "--no-run", *asked], folder / "one")
    page, record = run(["render", "one/net.json", "--objective", "cost"], folder / "two")
    _, repeated = again(page, folder / "three")
    assert "one L4" in next(plan["instance"] for plan in record["plans"] if plan["name"] == "gpu")
    for key in ("plans", "verdict", "costs"):
        assert repeated[key] == record[key]


def test_a_shell_runs_the_command_as_it_is_copied(folder: Path) -> None:
    shutil.move("net.py", "my net's.py")
    program = folder / "bin" / "analyze"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m analyzer "$@"\n')
    program.chmod(0o755)
    page, record = run(["my net's.py", "--no-run", "--pin", "[f]irst*=cpu", "--slo", "5 ms"], folder / "one")
    line = f"PATH={shlex.quote(str(program.parent))}:$PATH; {printed(page)} --format json --output two.json"
    subprocess.run(["/bin/sh", "-c", line], check=True, capture_output=True)
    assert answer(json.loads((folder / "two.json").read_text())) == answer(record)


@pytest.mark.skipif(shutil.which("bash") is None, reason="quotes of POSIX.1-2024 need a shell that knows them")
@pytest.mark.parametrize(
    "name", ["a\nb.py", "tab\t.py", "back\\slash\n'quote'.py", "\u202ereversed.py", "$(x)`y`.py"]
)
def test_a_name_that_would_break_the_line_is_escaped_for_the_shell(name: str) -> None:
    line = command_line(Invocation(command="run", model=name, options={"pin": ("a b=cpu", "é*=gpu")}))
    assert line.isprintable()
    told = subprocess.run(
        ["bash", "-c", f"show() {{ printf '%s\\0' \"$@\"; }}; show {line}"], check=True, capture_output=True
    )
    words = told.stdout.decode().split("\0")[:-1]
    assert words == ["analyze", name, "--pin", "a b=cpu", "--pin", "é*=gpu"]


def test_a_model_whose_name_begins_with_a_dash_is_no_option() -> None:
    assert command_line(Invocation(command="run", model="-net.py")) == "analyze ./-net.py"


@pytest.mark.parametrize(
    "invocation",
    [
        Invocation(command="run", model=None),
        Invocation(command="calibrate", model="net.py"),
        Invocation(command="run", model="net.py", options={"no-such-option": ("1",)}),
        Invocation(command="run", model="net.py", options={"update-baseline": ()}),
    ],
    ids=["no name", "another command", "an option of nobody", "an option of another command"],
)
def test_what_no_command_line_asks_has_none(invocation: Invocation) -> None:
    assert command_line(invocation) == ""


def test_a_record_holds_what_was_given_and_nothing_else(folder: Path) -> None:
    analysis = analyze("net.py", batch=[8, 2], slo=0.005, pin="first=cpu", gpu="t4", run=False, cache=False)
    assert analysis.invocation == Invocation(
        command="run",
        model="net.py",
        options={"batch": ("8,2",), "gpu": ("t4",), "no-run": (), "slo": ("0.005s",), "pin": ("first=cpu",)},
    )
    assert from_json(analysis.render("json")).invocation == analysis.invocation


def test_a_module_has_no_command_but_its_record_holds_the_options() -> None:
    import torch

    analysis = analyze(torch.nn.Linear(8, 4), inputs=torch.zeros(2, 8), run=False, slo="1ms")
    assert analysis.invocation.model is None
    assert analysis.invocation.options == {"no-run": (), "slo": ("1ms",)}
    assert "Repeat it" not in analysis.render("html")
    assert analyze_record(analysis, slo="2ms").invocation.options["slo"] == ("2ms",)
