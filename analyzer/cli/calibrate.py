"""``analyze calibrate``: measure this machine's ceilings and keep them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from analyzer.cli import say

if TYPE_CHECKING:
    from analyzer.devices.calibration import Calibration
    from analyzer.progress import Progress


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=25.0, show_default=True, help="About how long."
)
@click.option("--threads", type=click.IntRange(min=1), help="Intra-op threads; default: one per core.")
@click.option("--no-gpu", is_flag=True, help="Leave the GPU out.")
@click.option("--show", is_flag=True, help="Show what is kept, measure nothing.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no summary.")
def command(seconds: float, threads: int | None, no_gpu: bool, show: bool, quiet: bool) -> None:
    """Measure this machine's ceilings and keep them.

    Products, bandwidth, elementwise operators and the rest run alone for a moment each, with one thread and
    with all. Measured ceilings replace the catalogue's in every later analysis for this machine, until its
    processor, its GPU or ONNX Runtime changes.
    """
    from analyzer.devices.calibration import calibrate, load
    from analyzer.measurement.ceilings.on_cpu import measure_all
    from analyzer.run_folder import temporary_things_in_one_folder

    if show:
        calibration = load()
        if calibration is None:
            click.echo("this machine is not calibrated: run `analyze calibrate`")
            return
    else:
        _check_threads(threads)
        measure = partial(measure_all, seconds=seconds, threads=threads, gpu=not no_gpu)
        # `devices` keeps ceilings and lies below `measurement`, which takes them: the two meet here.
        with temporary_things_in_one_folder(), _progress_bar(quiet) as progress:
            calibration = calibrate(measure, progress=progress)
    if not quiet:
        say(_summary(calibration))


def _check_threads(threads: int | None) -> None:
    from analyzer.errors import UsageError
    from analyzer.measurement.noise.machine_load import available_cores

    # Cores that this process may use: a container or taskset may allow fewer than there are.
    cores = available_cores()
    if threads is not None and threads > cores:
        raise UsageError(
            f"{threads} threads would take turns on {cores} cores: their rates would be no ceilings.",
            hint=f"Use --threads {cores} or less.",
        )


@contextmanager
def _progress_bar(quiet: bool) -> Iterator[Progress | None]:
    """A progress bar on standard error."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<16}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("calibrating", total=1.0)
        yield lambda stage, fraction: bar.update(task, description=stage, completed=fraction)


def _summary(calibration: Calibration) -> str:
    from analyzer.devices.calibration import disturbance, headlines

    width = max(len(name) for name, _ in headlines(calibration))
    lines = [f"{name:<{width}}  {figure}" for name, figure in headlines(calibration)]
    lines.append(f"{len(calibration.values)} figures of {calibration.date} in {calibration.path}")
    if disturbed := disturbance(calibration.values):
        lines.append(f"This CPU was {disturbed}: calibrate again on a quiet machine.")
    return "\n".join(lines)
