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


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """Show the stage, its time and how much of it is done, by a callback, for the length of the block."""
    # A log that is no terminal would hold every frame of the bar.
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda *_: None
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
        """What is left where that can be told; alone the time that has passed would be taken for it."""

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
