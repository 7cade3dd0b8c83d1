"""``analyze render REPORT.json``: any format from a saved record, as it was decided or decided anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from analyzer.cli import say
from analyzer.cli.options import keywords, options_of
from analyzer.text import printable


@click.command(name="render", short_help="Any format from a saved report; measures nothing.")
@click.argument("report", type=click.Path(path_type=Path))
@options_of("render")
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Write any format from REPORT.json; nothing is measured and the model is not read.

    With one of --gpu, --cpu, --precision, --objective, --slo, --pin, --prices, --pricing, --region and
    --utilisation the record's model is predicted and decided anew, at its batch and over all others; what the
    record measured stays for the devices that it was measured on. The rest of the question is as the record has
    it.
    """
    from analyzer.cli.reports import open_page, publish, report_targets
    from analyzer.record import load_report
    from analyzer.record.output_files import check_writable

    params = ctx.params
    report: Path = params["report"]
    analysis = load_report(report)
    # Beside the record, under its name: a page that belongs to the record is found with it.
    targets = report_targets(
        params["format"], params["output"], report.stem, report.parent, charts=params["chart"]
    )
    check_writable(targets, force=params["force"])
    given = keywords(params, "render")
    # As it was decided, unless asked: a record of another version shows that version's own answer.
    if given:
        from analyzer.api import analyze_record

        analysis = analyze_record(analysis, **given)
    written = publish(analysis, targets, force=params["force"])
    if not params["quiet"]:
        for path in written:
            say(printable(str(path)))
    if params["open"]:
        open_page(written)
