"""``analyze calibrate`` and ``analyze doctor``: what this machine sustains, and what works on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from analyzer.cli import EXIT_FAILED, EXIT_FINE, say

if TYPE_CHECKING:
    from analyzer.devices.calibration import Calibration
    from analyzer.pipeline.doctor import MachineCheck

_SIGNS = {"works": "✓", "note": "!", "absent": "–", "broken": "✗"}


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=25.0, show_default=True, help="About how long."
)
@click.option("--threads", type=click.IntRange(min=1), help="Intra-op threads; default: one per core.")
@click.option("--no-gpu", is_flag=True, help="Leave the GPU out.")
@click.option("--show", is_flag=True, help="Show what is kept, measure nothing.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no summary.")
def calibrate(seconds: float, threads: int | None, no_gpu: bool, show: bool, quiet: bool) -> None:
    """Measure this machine's ceilings and keep them.

    Products, bandwidth, elementwise operators and the rest run alone for a moment each, with one thread and
    with all. Measured ceilings replace the catalogue's in every later analysis for this machine, until its
    processor, its GPU or ONNX Runtime changes.
    """
    from analyzer.cli.progress import progress
    from analyzer.devices import calibration as calibrations
    from analyzer.measurement.ceilings.on_cpu import measure_all
    from analyzer.run_folder import temporary_things_in_one_folder

    if show:
        calibration = calibrations.load()
        if calibration is None:
            click.echo("this machine is not calibrated: run `analyze calibrate`")
            return
    else:
        _check_threads(threads)
        measure = partial(measure_all, seconds=seconds, threads=threads, gpu=not no_gpu)
        # `devices` keeps ceilings and lies below `measurement`, which takes them: the two meet here.
        with temporary_things_in_one_folder(), progress(quiet=quiet) as on_progress:
            calibration = calibrations.calibrate(measure, progress=on_progress)
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


def _summary(calibration: Calibration) -> str:
    from analyzer.devices.calibration import disturbance, headlines

    width = max(len(name) for name, _ in headlines(calibration))
    lines = [f"{name:<{width}}  {figure}" for name, figure in headlines(calibration)]
    lines.append(f"{len(calibration.values)} figures of {calibration.date} in {calibration.path}")
    if disturbed := disturbance(calibration.values):
        lines.append(f"This CPU was {disturbed}: calibrate again on a quiet machine.")
    return "\n".join(lines)


@click.command()
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.pass_context
def doctor(ctx: click.Context, form: str, quiet: bool) -> None:
    """Say what this machine has, what works on it, and what to do about the rest.

    Versions, processors, drivers, CUDA libraries, calibration, folders; small models are run to see. Status 1
    where something is there and does not work.
    """
    from analyzer.cli.progress import progress
    from analyzer.pipeline.doctor import examine

    with progress(quiet=quiet) as on_progress:
        checks = examine(on_progress)
    if form == "json":
        click.echo(json.dumps([asdict(check) for check in checks], indent=1, ensure_ascii=False))
    else:
        say("\n".join(_lines(checks)))
    ctx.exit(EXIT_FAILED if any(check.state == "broken" for check in checks) else EXIT_FINE)


def _lines(checks: tuple[MachineCheck, ...]) -> list[str]:
    lines: list[str] = []
    width = max(len(check.name) for check in checks)
    section = ""
    for check in checks:
        if check.section != section:
            section = check.section
            lines += ["", section[:1].upper() + section[1:]] if lines else [section[:1].upper() + section[1:]]
        lines.append(f"  {_SIGNS[check.state]} {check.name:<{width}}  {check.found}".rstrip())
        if check.hint:
            lines.append(f"    {'':<{width}}  {check.hint}")
    return lines
