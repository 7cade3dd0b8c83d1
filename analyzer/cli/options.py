"""Click's options and the keywords of ``analyze()``, both from the one table of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from analyzer.cli import completion
from analyzer.option_table import (
    AnalyzeOptions,
    ApplyOptions,
    CapacityOptions,
    Command,
    FleetOptions,
    GenerateOptions,
    Option,
    given_keywords,
    taken_by,
)

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


def options_of(command: Command) -> Callable[[CommandFunction], CommandFunction]:
    """A decorator that adds a command's options, in the order of the table."""

    def decorate(function: CommandFunction) -> CommandFunction:
        for option in reversed(taken_by(command)):  # decorators apply from the inside out
            function = _option(option, command)(function)
        return function

    return decorate


def _option(option: Option, command: Command) -> Callable[[CommandFunction], CommandFunction]:
    name = f"--{option.name}/--no-{option.name}" if option.switch else f"--{option.name}"
    # What Click could only refuse in words of its own (durations, shares, names) stays text here and is checked
    # in `pipeline/options.py`, for the Python interface as well.
    return click.option(
        name,
        *(f"--{spelling}" for spelling in option.spellings),
        type=_type(option),
        is_flag=option.is_flag,
        multiple=option.kind == "repeated",
        default=option.defaults.get(command, False if option.is_flag else None),
        metavar=option.metavar,
        help=option.help_for(command),
        shell_complete=completion.OF_OPTIONS.get(option.name),
    )


def _type(option: Option) -> Any:
    if option.kind == "whole":  # the gate's limits may be 0; what must be above is said by its own message
        return click.IntRange(min=0) if option.settings == "tool.analyzer.check" else int
    if option.kind == "path":
        return click.Path(path_type=Path)
    return float if option.kind == "number" else None


def keywords(params: Mapping[str, Any], command: Command) -> AnalyzeOptions:
    """What was given, as ``analyze()`` takes it; what was left out is not there."""
    return cast(AnalyzeOptions, _given(params, command))


def generation_keywords(params: Mapping[str, Any]) -> GenerateOptions:
    """What was given, as ``analyze_generation()`` takes it."""
    return cast(GenerateOptions, _given(params, "generate"))


def capacity_keywords(params: Mapping[str, Any]) -> CapacityOptions:
    """What was given, as ``plan_capacity()`` takes it."""
    return cast(CapacityOptions, _given(params, "capacity"))


def apply_keywords(params: Mapping[str, Any]) -> ApplyOptions:
    """What was given, as ``apply_plan()`` takes it."""
    return cast(ApplyOptions, _given(params, "apply"))


def fleet_keywords(params: Mapping[str, Any]) -> FleetOptions:
    """What was given, as ``analyze_fleet()`` takes it."""
    return cast(FleetOptions, _given(params, "fleet"))


def _given(params: Mapping[str, Any], command: Command) -> dict[str, Any]:
    # By the option's name, as Click keeps it; the keyword of a negation is another.
    values = {option.name: params[option.name.replace("-", "_")] for option in taken_by(command)}
    return given_keywords(values, command)
