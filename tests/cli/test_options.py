"""One table of options: the commands, the settings, the keywords and the help say the same."""

import inspect
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import analyzer
from analyzer.checks.settings import RUN_OPTIONS
from analyzer.cli import COMMANDS, command_line
from analyzer.cli.options import keywords
from analyzer.devices import catalogue
from analyzer.errors import UsageError
from analyzer.loading.loaded import DEFAULT_OPSET
from analyzer.option_kinds import Command
from analyzer.options import DEFAULT_TIME_BUDGET_S, OPTIONS, Options, in_settings, keywords_of, taken_by
from analyzer.pipeline import target_devices
from analyzer.pipeline.options import make_options

# Stands in [tool.analyzer.check] alone.
NO_COMMAND = {"fail-on-uncertain"}
# What is written where, and how loudly: methods of the analysis in Python.
NO_KEYWORD = {"chart", "format", "output", "force", "open", "quiet", "verbose"}
# Settings come with a model: a stranger's lose no file, start no browser and raise no limit.
NOT_THE_AUTHORS = {"force", "limit", "open"}
GIVEN: dict[str, Any] = {
    "batch": [8, 1],
    "input": "x=B,3:float32",
    "input_data": "x.npy",
    "arg": "hidden=512",
    "script_arg": ("--epochs", "1"),
    "gpu": "t4",
    "cpu": "epyc-9654",
    "precision": "fp16",
    "opset": 18,
    "onnxruntime": "1.29",
    "run": False,
    "runs": 3,
    "time_budget": "2s",
    "threads": 1,
    "state": "past=present",
    "training": True,
    "limit": "memory=8GB",
    "dataset_size": 1000,
    "objective": "cost",
    "slo": 0.005,
    "pin": "first=cpu",
    "prices": "prices.toml",
    "pricing": "spot",
    "region": "europe",
    "utilisation": 0.5,
    "cache": False,
    "check": True,
}


def parameters(command: str) -> dict[str, click.Option]:
    found = command_line.get_command(click.Context(command_line), command).params
    return {item.opts[0].removeprefix("--"): item for item in found if isinstance(item, click.Option)}


@pytest.mark.parametrize("command", ["run", "check", "render", "generate", "capacity", "apply", "fleet"])
def test_a_command_takes_what_the_table_says_in_its_order(command: Command) -> None:
    assert list(parameters(command)) == [option.name for option in taken_by(command)]


def test_every_option_of_a_run_can_stand_in_pyproject_but_what_is_not_the_authors_to_say() -> None:
    asking = set().union(*(parameters(command) for command in ("run", "generate", "capacity", "apply")))
    assert asking == set(RUN_OPTIONS) | NOT_THE_AUTHORS
    gate = {option.name for option in in_settings("tool.analyzer.check")}
    typed = {"run", "update-baseline"} | NOT_THE_AUTHORS
    assert gate - NO_COMMAND == set(parameters("check")) - set(RUN_OPTIONS) - typed


@pytest.mark.parametrize(
    ("function", "command"),
    [
        ("analyze", "run"),
        ("analyze_generation", "generate"),
        ("plan_capacity", "capacity"),
        ("apply_plan", "apply"),
        ("analyze_fleet", "fleet"),
    ],
)
def test_the_keywords_of_a_function_are_the_long_options_of_its_command(
    function: str, command: Command
) -> None:
    where_and_how = {"on", "jobs", "timeout", "retry-failed", "compare", "fail-on"} | NO_KEYWORD
    options = {option.keyword for option in taken_by(command) if option.name not in where_and_how}
    named = inspect.signature(getattr(analyzer, function)).parameters
    assert set(keywords_of(command)) == options
    assert options <= set(named)
    assert all(named[keyword].annotation for keyword in options)
    assert all(item.kind is not item.VAR_KEYWORD for item in named.values())


def test_other_spellings_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def call(command: Command, params: dict[str, Any]) -> None:
        seen.append(keywords(params, command))
        raise UsageError("Asked, and that is all.")

    monkeypatch.setattr("analyzer.cli.reports.call", call)
    for words in (("--batch", "4", "--utilisation", "0.5"), ("--batch-size", "4", "--utilization", "0.5")):
        result = CliRunner().invoke(command_line, ["run", __file__, *words])
        assert isinstance(result.exception, UsageError)
    assert seen[0] == seen[1]
    assert seen[0]["batch"] == "4"


def test_no_option_stands_twice() -> None:
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("keyword", [*keywords_of("run"), "check"])
def test_every_keyword_changes_what_is_asked(
    keyword: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((2, 3)))
    assert make_options(**{keyword: GIVEN[keyword]}) != make_options()


@pytest.mark.parametrize("keyword", keywords_of("run"))
def test_none_is_an_option_left_out(keyword: str) -> None:
    left_out: dict[str, Any] = {keyword: None}
    assert make_options(**left_out) == make_options()


def test_the_defaults_that_the_help_shows_are_those_that_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {option.name: option.help for option in OPTIONS}
    monkeypatch.setattr(target_devices, "gpu_of_this_machine", lambda: None)
    chosen = target_devices.find_targets(Options())
    assert told["gpu"].endswith(f"else {chosen.gpus[0].slug}]")
    assert chosen.default_gpu == chosen.gpus[0].slug
    assert told["opset"].endswith(f"[{DEFAULT_OPSET}]")
    assert told["time-budget"].endswith(f"[{DEFAULT_TIME_BUDGET_S:g}]")
    assert told["objective"].endswith(f"[{Options().objective}]")
    assert told["utilisation"].endswith(f"[{Options().utilisation:g}]")


def test_a_gpu_of_this_machine_or_a_named_one_is_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_devices, "gpu_of_this_machine", lambda: catalogue.device("t4"))
    assert target_devices.find_targets(Options()).default_gpu is None
    monkeypatch.setattr(target_devices, "gpu_of_this_machine", lambda: None)
    assert target_devices.find_targets(make_options(gpu="l4")).default_gpu is None


def test_all_gpus_are_the_usual_one_and_behind_it_the_rest_of_the_catalogue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = {gpu.slug for gpu in catalogue.gpus()}

    def asked(names: str, **options: Any) -> list[str]:
        return [gpu.slug for gpu in target_devices.find_targets(make_options(gpu=names, **options)).gpus]

    monkeypatch.setattr(target_devices, "gpu_of_this_machine", lambda: None)
    found = asked("all")
    assert (found[0], set(found), len(found)) == ("l4", every, len(every))
    # One that is named before stays the verdict's, and none is there twice.
    found = asked("T4,All")
    assert (found[:2], set(found), len(found)) == (["t4", "l4"], every, len(every))
    monkeypatch.setattr(target_devices, "gpu_of_this_machine", lambda: catalogue.device("h200"))
    assert (asked("all")[0], len(asked("all"))) == ("h200", len(every))
    # A check is the same on every machine.
    assert asked("all", check=True)[0] == "l4"
    with pytest.raises(UsageError, match="none cannot stand beside"):
        make_options(gpu="none,all")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_a_help_text(name: str) -> None:
    command = command_line.get_command(click.Context(command_line), name)
    assert command.get_short_help_str()
    assert command.help


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    command_line.main(["--help"], standalone_mode=False)
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
