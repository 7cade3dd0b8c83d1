"""``analyze doctor``: what this machine has, what works on it, and what to do about the rest."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from analyzer.cli import EXIT_FAILED, EXIT_FINE, say

if TYPE_CHECKING:
    from analyzer.pipeline.doctor import MachineCheck

_SIGNS = {"works": "✓", "note": "!", "absent": "–", "broken": "✗"}


@click.command("doctor")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.pass_context
def command(ctx: click.Context, form: str, quiet: bool) -> None:
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
