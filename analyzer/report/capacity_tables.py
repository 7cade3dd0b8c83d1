"""Reporting: all instances of a capacity plan as a table of text for every format."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.report import capacity_words as words
from analyzer.report import price_words
from analyzer.report.document import SCREEN, Column, Table, table
from analyzer.report.generation_words import rate
from analyzer.report.summary.figure_words import signed
from analyzer.text import plural
from analyzer.units import UNKNOWN, count, digits, dollars, seconds, share

# Rows of a terminal, and rows above which Markdown folds the table up.
MOST_OPTIONS = 10


def instances(plan: CapacityResult) -> Table:
    """Return the options of a capacity plan; a terminal shows the first that keep the limit."""
    order = f"Those that keep the {words.limits(plan)} first, with the ends of 90 % intervals."
    feasible = tuple(at for at, option in enumerate(plan.options) if option.feasible)
    return table(
        plan.options,
        _columns(plan),
        name="instances",
        title="By dollars a month",
        chosen=plan.best,
        mark="cheapest",
        pale=tuple(at for at, row in enumerate(plan.options) if not row.feasible),
        lead=" ".join(filter(None, (order, words.refused(plan)))),
        below=(words.refused(plan), *_reasons(plan)) if not feasible or words.refused(plan) else (),
        shown=feasible[:MOST_OPTIONS] or tuple(range(min(len(plan.options), MOST_OPTIONS))),
        most=MOST_OPTIONS,
        detail=SCREEN,
    )


def _reasons(plan: CapacityResult) -> Iterator[str]:
    """Yield why the first options keep no limit, where none of all does."""
    if plan.best_option is None:
        for option in plan.options[:MOST_OPTIONS]:
            yield f"{words.where(option)}: {option.reason}" if option.reason else words.where(option)


def _columns(plan: CapacityResult) -> tuple[Column, ...]:
    generates = words.generates(plan)
    latency = f"{'Mean' if plan.percentile is None else words.limited(plan)}{' TTFT' if generates else ''}"
    further = any(words.further_s(plan, row) is not None for row in plan.options)
    # How many and for how much stand first: a narrow window shows no more.
    return (
        Column("Instance", _named, _named, words.place, figure=False),
        Column(
            "Count",
            lambda row: count(row.count),
            lambda row: row.count,
            lambda row: _interval(row, count(row.low_count), count(row.high_count)),
        ),
        Column(
            "$/month",
            lambda row: dollars(row.usd_per_month),
            lambda row: row.usd_per_month,
            lambda row: _interval(row, dollars(row.low_usd_per_month), dollars(row.high_usd_per_month)),
        ),
        Column("Device", words.device, words.device, _copies, drop=2, figure=False),
        Column(
            "Sequences" if generates else "Max batch",
            lambda row: count(row.max_batch),
            lambda row: row.max_batch,
            (lambda row: "" if row.mean_batch is None else f"{digits(row.mean_batch, 2)} on average")
            if generates
            else _delay,
            drop=3,
        ),
        Column(
            "Highest rate",
            lambda row: UNKNOWN if row.highest_rate_per_s is None else f"{rate(row.highest_rate_per_s)}/s",
            lambda row: row.highest_rate_per_s,
            lambda row: _interval(row, rate(row.low_rate_per_s), rate(row.high_rate_per_s)),
        ),
        Column(
            latency,
            lambda row: seconds(row.latency_s(plan.percentile)),
            lambda row: row.latency_s(plan.percentile),
        ),
        *(
            Column(
                f"{words.further(plan)} TPOT",
                lambda row: seconds(words.further_s(plan, row)),
                lambda row: words.further_s(plan, row),
            )
            for _ in range(generates and further)
        ),
        Column(
            "Utilisation",
            lambda row: share(row.utilisation),
            lambda row: row.utilisation,
            None
            if generates
            else lambda row: "" if row.mean_batch is None else f"batch {digits(row.mean_batch, 2)}",
            drop=4,
        ),
        Column(
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
            drop=5,
        ),
        Column(
            "Price of",
            lambda row: row.price_date or UNKNOWN,
            lambda row: row.price_date or None,
            lambda row: f"{dollars(row.usd_per_hour)} an hour" if row.usd_per_hour is not None else "",
            drop=7,
            figure=False,
        ),
        Column(
            "Why not",
            lambda row: "" if row.feasible else row.reason,
            lambda row: None if row.feasible else row.reason,
            drop=8,
            figure=False,
        ),
    )


def _named(row: CapacityOption) -> str:
    """Return the instance, with the width by which rows of one differ."""
    return f"{words.name(row)}{f' TP {row.width}' if row.width > 1 else ''}"


def _copies(row: CapacityOption) -> str:
    copies = price_words.whole(row, row.width) if row.feasible else ""
    if row.kind == "cpu" and row.replicas is not None and row.replicas > 1:
        copies = plural(row.replicas, "copy")
    # An option without figures has none that could come from anywhere. The sign stays beside its word.
    origin = signed(row.origin).replace(" ", "\u00a0") if row.feasible else ""
    return ", ".join(filter(None, (row.kind.upper(), row.precision, copies, origin)))


def _interval(row: CapacityOption, low: str, high: str) -> str:
    """Return an interval; nothing where it is a single figure, or the option has no figures."""
    return words.ends(low, high) if row.feasible and low != high else ""


def _delay(row: CapacityOption) -> str:
    if row.max_delay_s is None:
        return ""
    return f"{seconds(row.max_delay_s)} delay" if row.max_delay_s else "no delay"
