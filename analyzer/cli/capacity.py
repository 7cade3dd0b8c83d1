"""``analyze capacity MODEL|REPORT.json``: which instances serve a rate within a limit."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli import settings_defaults
from analyzer.cli.completion import files
from analyzer.cli.options import options_of


@click.command(
    name="capacity", short_help="Traffic and a latency limit: which instances, how many, dollars a month."
)
@click.argument("model", shell_complete=files)
@options_of("capacity")
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Plan which instances serve a model, how many of them, how requests are batched, and what a month costs.

    MODEL is what `analyze` takes, or REPORT.json, a saved record. Needed are --rate (or a trace, --arrivals)
    and one limit: --p50, --p90, --p95, --p99 or --mean, of the time from a request's arrival to its answer.
    Every instance of the price list is looked at, CPUs beside GPUs, each at the batch and the delay that let
    the most requests through within the limit. Of a record of this command what is left out stays as it was
    asked.

    A model that generates, as `analyze generate` takes it, is limited by --ttft and --tpot instead, each
    kept by 99 of 100 requests under continuous batching.
    """
    from analyzer.cli.reports import analyse_and_report, settings_start
    from analyzer.loading.configuration_file import is_record

    start, stem = settings_start(ctx.params["model"])
    if not is_record(ctx.params["model"]):
        # Settings are for models of the folder: a record was asked with them, and what is typed now is meant.
        settings_defaults(ctx, start)
    # Beside the model's own report, not in its place.
    analyse_and_report("capacity", ctx.params, f"{stem}-capacity")
