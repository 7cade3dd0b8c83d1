"""What a shell completes: names of devices and files; Click offers commands and options by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import click
from click.shell_completion import CompletionItem

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Leaves it to the shell, which knows files."""
    return [CompletionItem(incomplete, type="file")]


def _names(offered: Callable[[], Iterable[str]]) -> Completion:
    """Completes the last of several names between commas."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{name}") for name in offered() if name.startswith(last.lower())]

    return complete


# The catalogue is imported when a name is completed, not for every word.
def _gpus() -> Iterable[str]:
    from analyzer.devices import catalogue

    return (*(gpu.slug for gpu in catalogue.gpus()), "all", "none")


def _cpus() -> Iterable[str]:
    from analyzer.devices import catalogue

    return (cpu.slug for cpu in catalogue.cpus())


OF_OPTIONS: Mapping[str, Completion] = {"gpu": _names(_gpus), "gpus": _names(_gpus), "cpu": _names(_cpus)}
