"""What a shell offers when the tabulator key is pressed."""

import pytest
from click.shell_completion import ShellComplete

from analyzer.cli import COMMANDS, command_line
from analyzer.devices import catalogue


def offered(words: str) -> list[tuple[str, str]]:
    """Kinds and values offered for the last of the words after ``analyze``."""
    *before, incomplete = words.split(" ")
    shell = ShellComplete(command_line, {}, "analyze", "_ANALYZE_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(before, incomplete)]


def test_the_first_word_is_a_command_or_a_file() -> None:
    assert offered("") == [*(("plain", name) for name in COMMANDS), ("file", "")]
    assert offered("che") == [("plain", "check"), ("file", "che")]


@pytest.mark.parametrize("command", ["run", "check", "generate", "capacity", "apply", "fleet"])
def test_a_model_is_a_file(command: str) -> None:
    assert offered(f"{command} mod") == [("file", "mod")]


@pytest.mark.parametrize("words", ["--batch-", "model.py --batch-", "run model.py --batch-"])
def test_the_options_of_the_default_command_need_no_command(words: str) -> None:
    assert offered(words) == [("plain", "--batch-size")]


def test_devices_of_the_catalogue_complete_an_option_the_last_of_several_too() -> None:
    named = [gpu.slug for gpu in catalogue.gpus() if gpu.slug.startswith("h1")]
    assert len(named) > 2
    assert [value for _, value in offered("model.py --gpu h1")] == named
    assert [value for _, value in offered("model.py --gpu l4,H1")] == [f"l4,{name}" for name in named]
    cpus = {value for _, value in offered("check model.py --cpu ")}
    assert cpus == {cpu.slug for cpu in catalogue.cpus()}
