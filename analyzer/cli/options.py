"""Click's options and completion from the declarations of options, and progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from analyzer.option_kinds import ABOVE_ZERO, NUMBER, PATH, WHOLE, Command, Option
from analyzer.options import given_keywords, taken_by
from analyzer.progress import Progress, silent

# What is usual on two cores, for stages that cannot tell how far they are.
_USUAL_DURATIONS = {
    "importing torch": "about 2 s",
    "building the model": "seconds",
    "exporting to ONNX": "2 to 10 s, longer for very deep models",
    "exporting to ONNX with TorchScript": "seconds",
    "making weights and inputs": "seconds, longer for large models",
    "comparing with PyTorch": "a few runs' time",
}


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """Show the stage, its time and how much of it is done, by a callback, for the length of the block."""
    # A log that is no terminal would hold every frame of the bar.
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import SpinnerColumn

    with display(SpinnerColumn()) as shown:
        current: tuple[str, Any] = ("", None)

        def show(stage: str, share: float | None = None) -> None:
            nonlocal current
            if stage != current[0]:
                # A stage's clock starts at its own beginning: it is a new task, and the last one goes.
                if current[0]:
                    shown.remove_task(current[1])
                usual = _USUAL_DURATIONS.get(stage, "")
                text = f"{stage} [dim]({usual})[/dim]" if usual else stage
                current = stage, shown.add_task(text, total=None if share is None else 1.0)
            if share is not None:
                shown.update(current[1], total=1.0, completed=share)

        yield show


@contextmanager
def display(*first: Any) -> Iterator[Any]:
    """Show on standard error these columns, what is done, the time that passed and that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
    from rich.progress import ProgressColumn as Column
    from rich.text import Text

    class Left(Column):
        """Time left where it can be estimated; alone, the elapsed time would be taken for it."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            seconds = None if task.total is None or not task.completed else task.time_remaining
            if seconds is None:
                return Text("")
            minutes, rest = divmod(round(seconds), 60)
            hours, minutes = divmod(minutes, 60)
            return Text(f"about {hours}:{minutes:02}:{rest:02} left")

    text = TextColumn("{task.description}")
    columns = (*first, text, BarColumn(bar_width=24), TimeElapsedColumn(), Left())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield shown


CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Leave it to the shell, which knows files."""
    return [CompletionItem(incomplete, type="file")]


def devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Complete the last of several names of the catalogue between commas."""
    # Imported when a name is completed, not for every word.
    from analyzer.devices import catalogue

    before, comma, last = incomplete.rpartition(",")
    gpus = (*(gpu.slug for gpu in catalogue.gpus()), "all", "none")
    names = (cpu.slug for cpu in catalogue.cpus()) if param.name == "cpu" else gpus
    return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last.lower())]


def model_command(name: Command) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function that takes Click's context: MODEL, and the options that are declared."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        function = click.pass_context(options_of(name)(function))
        return click.command(name)(click.argument("model", shell_complete=files)(function))

    return decorate


def options_of(command: Command) -> Callable[[CommandFunction], CommandFunction]:
    """Add a command's options to a function, in the order of its help."""

    def decorate(function: CommandFunction) -> CommandFunction:
        for option in reversed(taken_by(command)):  # decorators apply from the inside out
            function = _option(option, command)(function)
        return function

    return decorate


def _option(option: Option, command: Command) -> Callable[[CommandFunction], CommandFunction]:
    name = f"--{option.name}/--no-{option.name}" if option.switch else f"--{option.name}"
    left_out = option.default if option.defaults else False if option.kind.is_flag else None
    return click.option(
        name,
        *(f"--{spelling}" for spelling in option.spellings),
        type=_type(option),
        is_flag=option.kind.is_flag,
        multiple=option.kind.repeats,
        default=option.defaults.get(command, left_out),
        metavar=option.metavar,
        help=option.help_for(command),
        shell_complete=devices if option.name in ("gpu", "gpus", "cpu") else None,
    )


def _type(option: Option) -> Any:
    # What Click could only refuse in words of its own (durations, shares, names) stays text, and is converted
    # where Python's keywords are.
    if option.kind is WHOLE:
        return click.IntRange(min=0) if option.settings == "tool.analyzer.check" else int
    if option.kind is PATH:
        return click.Path(path_type=Path)
    return float if option.kind in (NUMBER, ABOVE_ZERO) else None


def keywords(params: Mapping[str, Any], command: Command) -> dict[str, Any]:
    """Return keywords of a command's function from Click's parameters; what was left out is not there."""
    # By the option's name, as Click has it; the keyword of a negation is another.
    return given_keywords({one.name: params[one.name.replace("-", "_")] for one in taken_by(command)}, command)
