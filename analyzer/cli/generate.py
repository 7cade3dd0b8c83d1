"""``analyze generate MODEL``: prefill and decode of a language model."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli import settings_defaults
from analyzer.cli.completion import files
from analyzer.cli.options import options_of


@click.command(
    name="generate", short_help="A language model that generates: prefill, decode, cache, what fits."
)
@click.argument("model", shell_complete=files)
@options_of("generate")
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Predict a language model that generates, and write a report.

    MODEL is a folder with config.json, as Hugging Face keeps a model, or that file; a folder of ONNX Runtime
    GenAI; an .onnx file whose cache is among its inputs and outputs; model.py, model.py:Name or
    package.module:Name, a model with such a configuration, or with a function example_inputs(batch, tokens,
    past) beside it. Weights are never read.
    The answer has time to the first token (TTFT), time of each further token (TPOT), memory, the largest batch,
    the longest context and dollars per million tokens, on the GPU, on the CPU, and on all of the catalogue.
    """
    from analyzer.cli.reports import analyse_and_report, settings_start

    start, stem = settings_start(ctx.params["model"])
    settings_defaults(ctx, start)
    analyse_and_report("generate", ctx.params, stem)
