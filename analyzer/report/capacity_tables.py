"""Reporting: all instances of a capacity plan as a table of text for every format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.report import capacity_words as words
from analyzer.report.answer import TextColumn, TextTable, first_rows, narrowed, text_table
from analyzer.report.generation_words import rate, short
from analyzer.report.summary.figure_words import signed
from analyzer.text import plural
from analyzer.units import UNKNOWN, count, digits, dollars, seconds, share

# On a terminal; a page and Markdown have all.
MOST_OPTIONS = 10


def sheets(analysis: Analysis) -> tuple[TextTable, ...]:
    """The table of instances; none for a record that was not asked for them."""
    told = analysis.capacity
    return (_instances(told),) if told is not None and told.options else ()


def terminal_sheets(analysis: Analysis) -> tuple[TextTable, ...]:
    """The same, short: the narrow columns of the first instances that keep the limit."""
    told = analysis.capacity
    kept = () if told is None else tuple(option for option in told.options if option.feasible)
    if told is None or not kept:
        return ()
    sheet = narrowed(first_rows(_instances(replace(told, options=kept)), MOST_OPTIONS))
    # The device beside the instance: a column of its own would leave no room for figures.
    rows = tuple(
        (f"{option.provider} {row[0]}{width}, {short(words.device(option))}", *row[1:])
        for option, row in zip(kept, sheet.rows, strict=False)
        for width in [f" TP {option.width}" if option.width > 1 else ""]
    )
    return (replace(sheet, rows=rows),)


def reasons(told: CapacityResult) -> Iterator[str]:
    """Why the first options keep no limit, where none of all does."""
    if told.best_option is None:
        for option in told.options[:MOST_OPTIONS]:
            yield f"{words.where(option)}: {option.reason}" if option.reason else words.where(option)


def _instances(told: CapacityResult) -> TextTable:
    said = f"Those that keep the {words.limits(told)} first, with the ends of 90 % intervals."
    return text_table(
        told.options,
        _columns(told),
        name="instances",
        title="By dollars a month",
        chosen=told.best,
        mark="cheapest",
        pale=tuple(at for at, row in enumerate(told.options) if not row.feasible),
        lead=" ".join(filter(None, (said, words.refused(told)))),
    )


def _columns(told: CapacityResult) -> tuple[TextColumn, ...]:
    generates = words.generates(told)
    latency = f"{'Mean' if told.percentile is None else words.limited(told)}{' TTFT' if generates else ''}"
    further = any(words.further_s(told, row) is not None for row in told.options)
    # How many and for how much stand first: a narrow window shows no more.
    return (
        TextColumn("Instance", words.name, words.name, words.place, figure=False),
        TextColumn(
            "Count",
            lambda row: count(row.count),
            lambda row: row.count,
            lambda row: _interval(row, count(row.low_count), count(row.high_count)),
        ),
        TextColumn(
            "$/month",
            lambda row: dollars(row.usd_per_month),
            lambda row: row.usd_per_month,
            lambda row: _interval(row, dollars(row.low_usd_per_month), dollars(row.high_usd_per_month)),
        ),
        TextColumn("Device", words.device, words.device, _copies, narrow=False, figure=False),
        TextColumn(
            "Sequences" if generates else "Max batch",
            lambda row: count(row.max_batch),
            lambda row: row.max_batch,
            (lambda row: "" if row.mean_batch is None else f"{digits(row.mean_batch, 2)} on average")
            if generates
            else _delay,
            narrow=not generates,
        ),
        TextColumn(
            "Highest rate",
            lambda row: UNKNOWN if row.highest_rate_per_s is None else f"{rate(row.highest_rate_per_s)}/s",
            lambda row: row.highest_rate_per_s,
            lambda row: _interval(row, rate(row.low_rate_per_s), rate(row.high_rate_per_s)),
        ),
        TextColumn(
            latency,
            lambda row: seconds(row.latency_s(told.percentile)),
            lambda row: row.latency_s(told.percentile),
        ),
        *(
            TextColumn(
                f"{words.further(told)} TPOT",
                lambda row: seconds(words.further_s(told, row)),
                lambda row: words.further_s(told, row),
            )
            for _ in range(generates and further)
        ),
        TextColumn(
            "Utilisation",
            lambda row: share(row.utilisation),
            lambda row: row.utilisation,
            None
            if generates
            else lambda row: "" if row.mean_batch is None else f"batch {digits(row.mean_batch, 2)}",
            narrow=False,
        ),
        TextColumn(
            "$/M requests",
            lambda row: dollars(row.usd_per_million),
            lambda row: row.usd_per_million,
            (
                lambda row: (
                    ""
                    if row.usd_per_million_tokens is None
                    else f"{dollars(row.usd_per_million_tokens)} per M tokens out"
                )
            )
            if generates
            else None,
            # At one rate they go as dollars a month do; the instance's name needs the room.
            narrow=False,
        ),
        TextColumn(
            "Price of",
            lambda row: row.price_date or UNKNOWN,
            lambda row: row.price_date or None,
            lambda row: f"{dollars(row.usd_per_hour)} an hour" if row.usd_per_hour is not None else "",
            narrow=False,
            figure=False,
        ),
        TextColumn(
            "Why not",
            lambda row: "" if row.feasible else row.reason,
            lambda row: None if row.feasible else row.reason,
            narrow=False,
            figure=False,
        ),
    )


def _copies(row: CapacityOption) -> str:
    copies = plural(row.replicas, "copy") if row.replicas is not None and row.replicas > 1 else ""
    if row.width > 1:
        copies = f"{copies or '1 copy'} on {row.width} GPUs{' each' if copies else ''}"
    # An option without figures has none that could come from anywhere. The sign stays beside its word.
    origin = signed(row.origin).replace(" ", "\u00a0") if row.feasible else ""
    return ", ".join(filter(None, (row.kind.upper(), row.precision, copies, origin)))


def _interval(row: CapacityOption, low: str, high: str) -> str:
    """An interval; nothing where it is a single figure, or the option has no figures."""
    return words.ends(low, high) if row.feasible and low != high else ""


def _delay(row: CapacityOption) -> str:
    if row.max_delay_s is None:
        return ""
    return f"{seconds(row.max_delay_s)} delay" if row.max_delay_s else "no delay"
