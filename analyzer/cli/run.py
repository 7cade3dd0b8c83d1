"""``analyze MODEL``: the default command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from analyzer.cli import EXIT_UNUSABLE, settings_defaults
from analyzer.cli.completion import files
from analyzer.cli.options import options_of


@click.command(name="run", short_help="Profile, decide, report: the default command.")
@click.argument("model", shell_complete=files)
@options_of("run")
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Profile a model, decide between CPU and GPU, and write a report.

    MODEL is model.py, model.py:Name, package.module:Name, "model.py:Net(hidden=512)", model.onnx, model.pt2, a
    folder with Hugging Face's config.json, timm:NAME or torchvision:NAME.
    """
    from analyzer.cli.reports import analyse_and_report
    from analyzer.loading.model_reference import parse_reference

    reference = parse_reference(ctx.params["model"])
    settings_defaults(ctx, reference.path or Path.cwd())
    if analyse_and_report("run", ctx.params, reference.stem).run_fails:
        ctx.exit(EXIT_UNUSABLE)
