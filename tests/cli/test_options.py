"""One table of options: the commands, the settings, the keywords and the help say the same."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from analyzer.checks.settings import RUN_OPTIONS
from analyzer.cli import COMMANDS, command_line, long_option
from analyzer.cli.options import keywords
from analyzer.devices import catalogue
from analyzer.errors import UsageError
from analyzer.loading.loaded import DEFAULT_OPSET
from analyzer.option_table import (
    DEFAULT_TIME_BUDGET_S,
    OPTIONS,
    AnalyzeOptions,
    ApplyOptions,
    CapacityOptions,
    Command,
    FleetOptions,
    GenerateOptions,
    RecordOptions,
    in_settings,
    is_analysis,
    taken_by,
)
from analyzer.pipeline import target_devices
from analyzer.pipeline.options import Options, make_options

# A keyword of `analyze()` that is a command: `analyze check`.
NO_OPTION = {"check"}
# Stands in [tool.analyzer.check] alone.
NO_COMMAND = {"fail-on-uncertain"}
# What is written where, and how loudly: methods of the analysis in Python.
NO_KEYWORD = {"chart", "format", "output", "force", "open", "quiet", "verbose"}
# Settings come with a model: a stranger's lose no file, start no browser and raise no limit.
NOT_THE_AUTHORS = {"force", "limit", "open"}
GIVEN: dict[str, Any] = {
    "batch": [8, 1],
    "input": "x=B,3:float32",
    "arg": "hidden=512",
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
    return {long_option(item): item for item in found if isinstance(item, click.Option)}


@pytest.mark.parametrize("command", ["run", "check", "render", "generate", "capacity", "apply", "fleet"])
def test_a_command_takes_what_the_table_says_in_its_order(command: Command) -> None:
    assert list(parameters(command)) == [option.name for option in taken_by(command)]


def test_every_option_of_a_run_can_stand_in_pyproject_but_what_is_not_the_authors_to_say() -> None:
    asking = set().union(*(parameters(command) for command in ("run", "generate", "capacity", "apply")))
    assert asking == set(RUN_OPTIONS) | NOT_THE_AUTHORS
    gate = {option.name for option in in_settings("tool.analyzer.check")}
    typed = {"run", "update-baseline"} | NOT_THE_AUTHORS
    assert gate - NO_COMMAND == set(parameters("check")) - set(RUN_OPTIONS) - typed


def test_the_keywords_are_the_long_options_with_underscores() -> None:
    run = {option.keyword for option in taken_by("run") if option.name not in NO_KEYWORD}
    assert set(AnalyzeOptions.__annotations__) - NO_OPTION == run
    assert {option.name for option in taken_by("run") if not is_analysis(option)} == NO_KEYWORD


def test_the_keywords_of_generation_are_its_long_options_with_underscores() -> None:
    generate = {option.keyword for option in taken_by("generate") if option.name not in NO_KEYWORD}
    assert set(GenerateOptions.__annotations__) == generate


def test_the_keywords_of_a_capacity_plan_are_its_long_options_with_underscores() -> None:
    capacity = {option.keyword for option in taken_by("capacity") if option.name not in NO_KEYWORD}
    assert set(CapacityOptions.__annotations__) == capacity


def test_the_keywords_of_an_applied_plan_are_its_long_options_with_underscores() -> None:
    apply = {option.keyword for option in taken_by("apply") if option.name not in NO_KEYWORD}
    assert set(ApplyOptions.__annotations__) == apply


def test_a_record_is_decided_anew_by_the_options_of_render() -> None:
    render = {option.keyword for option in taken_by("render") if option.name not in NO_KEYWORD}
    assert set(RecordOptions.__annotations__) == render


def test_other_spellings_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AnalyzeOptions] = []

    def analyse(params: dict[str, Any]) -> None:
        seen.append(keywords(params, "run"))
        raise UsageError("Asked, and that is all.")

    monkeypatch.setattr("analyzer.cli.run.analyse", analyse)
    for words in (("--batch", "4", "--utilisation", "0.5"), ("--batch-size", "4", "--utilization", "0.5")):
        result = CliRunner().invoke(command_line, ["run", __file__, *words])
        assert isinstance(result.exception, UsageError)
    assert seen[0] == seen[1]
    assert seen[0]["batch"] == "4"


def test_no_option_stands_twice() -> None:
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("keyword", sorted(AnalyzeOptions.__annotations__))
def test_every_keyword_changes_what_is_asked(keyword: str) -> None:
    assert make_options(**{keyword: GIVEN[keyword]}) != make_options() == Options()


@pytest.mark.parametrize(
    "keyword", sorted(set(AnalyzeOptions.__annotations__) - {"run", "cache", "training", "check"})
)
def test_none_is_an_option_left_out(keyword: str) -> None:
    left_out: dict[str, Any] = {keyword: None}
    assert make_options(**left_out) == Options()


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


def test_the_keywords_of_a_fleet_are_its_long_options_with_underscores() -> None:
    where_and_how = {"on", "jobs", "timeout", "retry-failed", "compare", "fail-on"}
    named = NO_KEYWORD | where_and_how
    fleet = {option.keyword for option in taken_by("fleet") if option.name not in named}
    assert set(FleetOptions.__annotations__) == fleet
