"""``analyze render REPORT.json``: any format from a saved record, as it was decided or decided anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    "--gpu", metavar="NAME[,NAME...]", help="Decide for these GPUs of the catalogue instead of the record's."
)
@click.option("--cpu", metavar="NAME", help="Decide for this CPU of the catalogue.")
@click.option("--precision", metavar="P", help="Decide for fp32, tf32, fp16, bf16 or int8.")
@click.option("--objective", metavar="O", help="Decide by latency, throughput, cost or energy.")
@click.option("--slo", metavar="TIME", help="Latency that must be met, like 20ms.")
@click.option(
    "--pin", multiple=True, metavar="PATTERN=cpu|gpu", help="Binds operators in the best plan; repeatable."
)
@click.option(
    "--prices", type=click.Path(path_type=Path), metavar="FILE", help="Your own instance prices (TOML)."
)
@click.option("--utilisation", type=float, metavar="U", help="Share of rented time in use, for prices.")
@click.option("--open", "open_it", is_flag=True, help="Open the page in a browser.")
@click.option("--quiet", is_flag=True, help="Do not print where reports went.")
def command(
    report: Path, formats: str, output: str | None, open_it: bool, quiet: bool, **decide_by: Any
) -> None:
    """Write any format from REPORT.json; nothing is measured and the model is not read.

    With one of --gpu, --cpu, --precision, --objective, --slo, --pin, --prices, --utilisation the record's model
    is predicted and decided anew, at its batch and over all others; what the record measured stays for the
    devices that it was measured on. The rest of the question is as the record has it.
    """
    from analyzer.cli.run import open_page, publish, report_targets
    from analyzer.record import load_report

    analysis = load_report(report)
    given = {name: value for name, value in decide_by.items() if value not in (None, ())}
    if given:
        from analyzer.api import analyze_record

        analysis = analyze_record(analysis, **given)
    where = report_targets(formats, output, report.stem, default=report.parent)
    written = publish(analysis, where)
    if not quiet:
        for path in written:
            click.echo(str(path))
    if open_it:
        open_page(written)
