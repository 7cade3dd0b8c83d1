"""``analyze generate MODEL``: prefill and decode of a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from analyzer.cli import settings_defaults
from analyzer.cli.completion import files
from analyzer.cli.options import generation_keywords, options_of


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
    from analyzer.cli.run import open_page, print_outcome, publish, report_targets
    from analyzer.generation.sources import is_configuration, is_genai, is_python
    from analyzer.loading.model_reference import parse_reference
    from analyzer.record.output_files import check_writable

    model = ctx.params["model"]
    path = Path(model)
    reference = parse_reference(model) if is_python(model) else None
    named = reference.path if reference else path
    settings_defaults(ctx, named if named is not None and named.exists() else Path.cwd())
    params = ctx.params
    folder = path if path.is_dir() else path.parent
    stem = folder.resolve().name if is_configuration(model) or is_genai(model) else path.stem
    stem = reference.stem if reference else stem
    targets = report_targets(params["format"], params["output"], stem or "model", charts=params["chart"])
    check_writable(targets, force=params["force"])
    analysis = _analyse(params)
    written = publish(analysis, targets, force=params["force"])
    print_outcome(analysis, targets, written, quiet=params["quiet"], verbose=params["verbose"])
    if params["open"]:
        open_page(written)


def _analyse(params: dict[str, Any]) -> Any:
    from analyzer.api import analyze_generation
    from analyzer.cli.progress import progress
    from analyzer.loading.reading_process import reading_process
    from analyzer.run_folder import temporary_things_in_one_folder

    # Not around the whole command: a browser that opens the page outlives it.
    with temporary_things_in_one_folder(), reading_process(), progress(quiet=params["quiet"]) as on_progress:
        return analyze_generation(params["model"], progress=on_progress, **generation_keywords(params))
