"""``analyze render REPORT.json``: any format from a saved record."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="render", short_help="Any format from a saved report; measures nothing.")
@click.argument("report", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "formats",
    default="html",
    metavar="F[,F...]",
    help="html, json, markdown, csv, text, junit, sarif, github. [html]",
)
@click.option(
    "--output",
    metavar="PATH",
    help="File, or folder for several formats; - is standard output. [beside the record]",
)
@click.option(
    "--gpu", metavar="NAME[,NAME...]", help="Predict these GPUs of the catalogue instead of the record's."
)
@click.option("--open", "open_it", is_flag=True, help="Open the page in a browser.")
@click.option("--quiet", is_flag=True, help="Do not print where reports went.")
def command(
    report: Path, formats: str, output: str | None, gpu: str | None, open_it: bool, quiet: bool
) -> None:
    """Write any format from REPORT.json; nothing is measured, and without --gpu nothing predicted anew."""
    from analyzer.cli.run import open_page, publish, report_targets
    from analyzer.record import load_report

    analysis = load_report(report)
    if gpu is not None:
        from analyzer.api import analyze_record

        analysis = analyze_record(analysis, gpu=gpu)
    where = report_targets(formats, output, report.stem, default=report.parent)
    written = publish(analysis, where)
    if not quiet:
        for path in written:
            click.echo(str(path))
    if open_it:
        open_page(written)
