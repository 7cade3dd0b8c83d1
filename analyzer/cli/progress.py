"""Progress on standard error: what is happening, for how long, and how much of it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer.progress import Progress

# What is usual on two cores, for stages that cannot tell how far they are.
_USUAL_DURATIONS = {
    "importing torch": "about 2 s",
    "building the model": "seconds",
    "exporting to ONNX": "2 to 10 s, longer for very deep models",
    "exporting to ONNX with TorchScript": "seconds",
    "making weights and inputs": "seconds, longer for large models",
    "comparing with PyTorch": "a few runs' time",
}


def time_left(seconds: float) -> str:
    """``about 0:01:05 left``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"about {hours}:{minutes:02}:{rest:02} left"


class NoProgress:
    """Says nothing: with ``--quiet``, and where standard error is no terminal."""

    def __call__(self, stage: str, share: float | None = None) -> None:
        """Takes a stage and does nothing."""


class TerminalProgress:
    """A spinner with the stage and its time, a bar where the share done is known."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._task: Any = None
        self._stage = ""

    def __call__(self, stage: str, share: float | None = None) -> None:
        """Shows a stage; ``share`` is how much of it is done, None where that cannot be told."""
        if stage != self._stage:
            # A stage's clock starts at its own beginning: it is a new task, and the last one goes.
            if self._task is not None:
                self._display.remove_task(self._task)
            usual = _USUAL_DURATIONS.get(stage, "")
            text = f"{stage} [dim]({usual})[/dim]" if usual else stage
            self._task = self._display.add_task(text, total=None if share is None else 1.0)
            self._stage = stage
        if share is not None:
            self._display.update(self._task, total=1.0, completed=share)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """A progress callback for the length of the block."""
    # A log that is no terminal would hold every frame of the bar.
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield NoProgress()
        return
    from rich.progress import SpinnerColumn

    with display(SpinnerColumn()) as shown:
        yield TerminalProgress(shown)


@contextmanager
def display(*first: Any) -> Iterator[Any]:
    """A display on standard error: these columns, what is done, the time that passed and that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
    from rich.progress import ProgressColumn as Column
    from rich.text import Text

    class Left(Column):
        """What is left where that can be told; alone the time that has passed would be taken for it."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            seconds = None if task.total is None or not task.completed else task.time_remaining
            return Text("" if seconds is None else time_left(seconds))

    text = TextColumn("{task.description}")
    columns = (*first, text, BarColumn(bar_width=24), TimeElapsedColumn(), Left())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield shown
