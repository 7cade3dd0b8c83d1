"""``analyze capacity MODEL|REPORT.json``: which instances serve a rate within a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from analyzer.cli import settings_defaults
from analyzer.cli.completion import files
from analyzer.cli.options import capacity_keywords, options_of


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
    from analyzer.cli.run import open_page, print_outcome, publish, report_targets
    from analyzer.record.output_files import check_writable

    model = ctx.params["model"]
    start, stem = _start(model)
    if not _is_record(model):
        # Settings are for models of the folder: a record was asked with them, and what is typed now is meant.
        settings_defaults(ctx, start if start.exists() else Path.cwd())
    params = ctx.params
    # Beside the model's own report, not in its place.
    targets = report_targets(params["format"], params["output"], f"{stem}-capacity", charts=params["chart"])
    check_writable(targets, force=params["force"])
    analysis = _plan(params)
    written = publish(analysis, targets, force=params["force"])
    print_outcome(analysis, targets, written, quiet=params["quiet"], verbose=params["verbose"])
    if params["open"]:
        open_page(written)


def _is_record(model: str) -> bool:
    from analyzer.generation.sources import is_configuration

    return model.endswith(".json") and not is_configuration(model)


def _start(model: str) -> tuple[Path, str]:
    """Where settings are looked for, and the stem of the reports' names."""
    from analyzer.cli.check import settings_start
    from analyzer.generation.sources import is_configuration, is_genai

    if not is_configuration(model) and not is_genai(model):
        return settings_start(model)
    path = Path(model)
    folder = path if path.is_dir() else path.parent
    return path, folder.resolve().name or "model"


def _plan(params: dict[str, Any]) -> Any:
    from analyzer.api import plan_capacity
    from analyzer.cli.progress import progress
    from analyzer.loading.reading_process import reading_process
    from analyzer.run_folder import temporary_things_in_one_folder

    # Not around the whole command: a browser that opens the page outlives it.
    with temporary_things_in_one_folder(), reading_process(), progress(quiet=params["quiet"]) as on_progress:
        return plan_capacity(params["model"], progress=on_progress, **capacity_keywords(params))
