"""The options of the command line and those of pyproject.toml are the same."""

import pytest

from analyzer.checks.settings import RUN_OPTIONS
from analyzer.cli import COMMANDS, command_line, long_option
from analyzer.cli.run import command as run


def test_every_long_option_can_stand_in_pyproject():
    options = {long_option(item) for item in run.params if item.param_type_name == "option"}
    assert options - {"help"} == set(RUN_OPTIONS)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_a_help_text(name):
    command = command_line.get_command(None, name)
    assert command.get_short_help_str()
    assert command.help


def test_help_names_every_command(capsys):
    command_line.main(["--help"], standalone_mode=False)
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
