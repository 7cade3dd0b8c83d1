"""Reporting: all instances of a capacity plan as a table of text for every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.report import capacity_words as words
from analyzer.report.answer import OptionTable, first_rows, narrowed
from analyzer.report.generation_words import rate, short
from analyzer.report.summary.figure_words import signed
from analyzer.text import plural
from analyzer.units import UNKNOWN, count, digits, dollars, seconds, share

# On a terminal; a page and Markdown have all.
MOST_OPTIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _CapacityColumn:
    """A column of instances: its heading, what it shows, what beside it, and what it is sorted by."""

    head: str
    text: Callable[[CapacityOption], str]
    value: Callable[[CapacityOption], float | str | None]
    beside: Callable[[CapacityOption], str] | None = None
    narrow: bool = True
    figure: bool = True


def sheets(analysis: Analysis) -> tuple[OptionTable, ...]:
    """The table of instances; none for a record that was not asked for them."""
    told = analysis.capacity
    return (_instances(told),) if told is not None and told.options else ()


def terminal_sheets(analysis: Analysis) -> tuple[OptionTable, ...]:
    """The same, short: the narrow columns of the first instances that keep the limit."""
    told = analysis.capacity
    kept = () if told is None else tuple(option for option in told.options if option.feasible)
    if told is None or not kept:
        return ()
    sheet = narrowed(first_rows(_instances(replace(told, options=kept)), MOST_OPTIONS))
    # The device beside the instance: a column of its own would leave no room for figures.
    rows = tuple(
        (f"{option.provider} {row[0]}{_width(option)}, {short(words.device(option))}", *row[1:])
        for option, row in zip(kept, sheet.rows, strict=False)
    )
    return (replace(sheet, rows=rows),)


def _width(option: CapacityOption) -> str:
    return f" TP {option.width}" if option.width > 1 else ""


def reasons(told: CapacityResult) -> Iterator[str]:
    """Why the first options keep no limit, where none of all does."""
    if words.best(told) is None:
        for option in told.options[:MOST_OPTIONS]:
            yield f"{words.where(option)}: {option.reason}" if option.reason else words.where(option)


def _instances(told: CapacityResult) -> OptionTable:
    columns = _columns(told)
    rows = told.options
    return OptionTable(
        name="instances",
        title="By dollars a month",
        head=tuple(column.head for column in columns),
        rows=tuple(tuple(column.text(row) for column in columns) for row in rows),
        figures=tuple(at for at, column in enumerate(columns) if column.figure),
        narrow=tuple(at for at, column in enumerate(columns) if column.narrow),
        sort=tuple(tuple(column.value(row) for column in columns) for row in rows),
        beside=tuple(tuple(column.beside(row) if column.beside else "" for column in columns) for row in rows),
        chosen=told.best,
        mark="cheapest",
        pale=tuple(at for at, row in enumerate(rows) if not row.feasible),
        lead=_lead(told),
    )


def _lead(told: CapacityResult) -> str:
    said = f"Those that keep the {words.limits(told)} first, with the ends of 90 % intervals."
    return " ".join(filter(None, (said, words.refused(told))))


def _columns(told: CapacityResult) -> tuple[_CapacityColumn, ...]:
    kept, generates = words.limited(told), words.generates(told)
    # How many and for how much stand first: a narrow window shows no more.
    return (
        _CapacityColumn(
            head="Instance",
            text=words.name,
            value=words.name,
            beside=words.place,
            figure=False,
        ),
        _CapacityColumn(
            head="Count",
            text=lambda row: count(row.count),
            value=lambda row: row.count,
            beside=lambda row: _interval(row, count(row.low_count), count(row.high_count)),
        ),
        _CapacityColumn(
            head="$/month",
            text=lambda row: dollars(row.usd_per_month),
            value=lambda row: row.usd_per_month,
            beside=lambda row: _interval(row, dollars(row.low_usd_per_month), dollars(row.high_usd_per_month)),
        ),
        _CapacityColumn(
            head="Device", text=words.device, value=words.device, beside=_copies, narrow=False, figure=False
        ),
        _together(told),
        _CapacityColumn(
            head="Highest rate",
            text=lambda row: _per_second(row.highest_rate_per_s),
            value=lambda row: row.highest_rate_per_s,
            beside=lambda row: _interval(row, rate(row.low_rate_per_s), rate(row.high_rate_per_s)),
        ),
        _CapacityColumn(
            head=f"{'Mean' if told.percentile is None else kept}{' TTFT' if generates else ''}",
            text=lambda row: seconds(words.latency(told, row)),
            value=lambda row: words.latency(told, row),
        ),
        *(_further(told) if generates else ()),
        _CapacityColumn(
            head="Utilisation",
            text=lambda row: share(row.utilisation),
            value=lambda row: row.utilisation,
            beside=None if generates else _batch,
            narrow=False,
        ),
        _CapacityColumn(
            head="$/M requests",
            text=lambda row: dollars(row.usd_per_million),
            value=lambda row: row.usd_per_million,
            beside=_token_dollars if generates else None,
            # At one rate they go as dollars a month do; the instance's name needs the room.
            narrow=False,
        ),
        _CapacityColumn(
            head="Price of",
            text=lambda row: row.price_date or UNKNOWN,
            value=lambda row: row.price_date or None,
            beside=lambda row: f"{dollars(row.usd_per_hour)} an hour" if row.usd_per_hour is not None else "",
            narrow=False,
            figure=False,
        ),
        _CapacityColumn(
            head="Why not",
            text=lambda row: "" if row.feasible else row.reason,
            value=lambda row: None if row.feasible else row.reason,
            narrow=False,
            figure=False,
        ),
    )


def _together(told: CapacityResult) -> _CapacityColumn:
    """How many requests share a run of the model at most."""
    if words.generates(told):
        return _CapacityColumn(
            head="Sequences",
            text=lambda row: count(row.max_batch),
            value=lambda row: row.max_batch,
            beside=lambda row: f"{digits(row.mean_batch, 2)} on average" if row.mean_batch is not None else "",
            narrow=False,
        )
    return _CapacityColumn(
        head="Max batch",
        text=lambda row: count(row.max_batch),
        value=lambda row: row.max_batch,
        beside=_delay,
    )


def _further(told: CapacityResult) -> tuple[_CapacityColumn, ...]:
    """The time of each further token; no column where no answer has one."""
    if all(words.further_s(told, row) is None for row in told.options):
        return ()
    return (
        _CapacityColumn(
            head=f"{words.further(told)} TPOT",
            text=lambda row: seconds(words.further_s(told, row)),
            value=lambda row: words.further_s(told, row),
        ),
    )


def _token_dollars(row: CapacityOption) -> str:
    usd = row.usd_per_million_tokens
    return f"{dollars(usd)} per M tokens out" if usd is not None else ""


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


def _batch(row: CapacityOption) -> str:
    return f"batch {digits(row.mean_batch, 2)}" if row.mean_batch is not None else ""


def _per_second(value: float | None) -> str:
    return f"{rate(value)}/s" if value is not None else UNKNOWN
