"""``analyze apply MODEL|REPORT.json --output DIR``: the plan as a session that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from analyzer.cli import EXIT_FAILED, print_error, say, settings_defaults
from analyzer.cli.completion import files
from analyzer.cli.options import options_of
from analyzer.errors import DisagreementError, UsageError

if TYPE_CHECKING:
    from analyzer.pipeline.apply.result import Applied


@click.command(name="apply", short_help="The plan as a session: annotated model, settings, program, proof.")
@click.argument("model", shell_complete=files)
@options_of("apply")
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> int:
    """Write a folder that runs a plan under ONNX Runtime, and verify that it does.

    MODEL is what `analyze` takes, or REPORT.json, a saved record whose model is still there. The folder holds
    the model with its weights and an annotation on each node that the plan moves to the CPU (model.onnx), the
    session's settings (session.json), a program that needs onnxruntime and numpy alone (run.py; --verify
    compares it with the plan), and what was planned and verified (apply.json).

    --fix and --precision rewrite the model first, where that is predicted to be faster: outputs are compared
    with those of MODEL, and original.json beside record.json is its record (`analyze compare` reads both).

    Exit status 1 where numbers or placement are not as planned, or a fix that was named gives other numbers.
    """
    from analyzer.cli.reports import call, settings_start

    params = ctx.params
    if params["output"] in (None, "", "-"):
        raise UsageError("--output names the folder to write.", hint="For example --output deployed.")
    if not params["model"].endswith(".json"):
        start, _stem = settings_start(params["model"])
        settings_defaults(ctx, start)
    try:
        applied: Applied = call("apply", params, output=params["output"], force=params["force"])
    except DisagreementError as error:
        print_error(error.message, error.hint)
        return EXIT_FAILED
    if not params["quiet"]:
        from analyzer.pipeline.apply.result import summary

        for line in summary(applied):
            say(line)
    say(str(applied.folder))
    verified = applied.verified
    return EXIT_FAILED if verified.numbers is False or verified.placement is False else 0
