"""Tables of a capacity plan, and the data of its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityOption, CapacityResult, InstanceLoads
from analyzer.record.outcome import RankedWay, WhyNot
from analyzer.report import capacity_words, figure_text
from analyzer.report import capacity_words as words
from analyzer.report.document import SCREEN, Column, Table, table
from analyzer.report.figure_text import signed
from analyzer.report.generation_text import rate
from analyzer.text import plural
from analyzer.units import HOURS_PER_MONTH, SECONDS_PER_HOUR, UNKNOWN, count, digits, dollars, seconds, share

# Rows of a terminal, and rows above which Markdown folds the table up.
MOST_OPTIONS = 10


def instances(analysis: Analysis) -> Table:
    """Return the options of a capacity plan; a terminal shows the first that keep the limit."""
    plan = analysis.capacity
    assert plan is not None
    order = f"Those that keep the {words.limits(plan)} first, with the ends of 90 % intervals."
    feasible = tuple(at for at, option in enumerate(plan.options) if option.feasible)
    return table(
        plan.options,
        _columns(plan, {_place(way, way.gpus): way.why_not for way in analysis.ranking}),
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


def _place(one: CapacityOption | RankedWay, gpus: int) -> tuple[object, ...]:
    return one.provider or "", one.instance or "", one.device, gpus


def _columns(plan: CapacityResult, causes: Mapping[tuple[object, ...], WhyNot | None]) -> tuple[Column, ...]:
    def why_not(row: CapacityOption) -> str:
        cause = causes.get(_place(row, row.width if row.kind == "gpu" else 0))
        return cause.sentence if cause is not None else "" if row.feasible else row.reason

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
        Column("Why not", why_not, lambda row: why_not(row) or None, drop=8, figure=False),
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
    )


def _named(row: CapacityOption) -> str:
    """Return the instance, with the width by which rows of one differ."""
    return f"{words.name(row)}{f' TP {row.width}' if row.width > 1 else ''}"


def _copies(row: CapacityOption) -> str:
    copies = figure_text.whole(row, row.width) if row.feasible else ""
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


_OWN = {
    "count": "count",
    "rate": "highest_rate_per_s",
    "batch": "max_batch",
    "delay": "max_delay_s",
    "utilisation": "utilisation",
    "month": "usd_per_month",
    "million": "usd_per_million",
}


def view(analysis: Analysis) -> dict[str, Any] | None:
    """Return the answer as the template prints it; None for a record that was not asked for instances."""
    plan = analysis.capacity
    if plan is None:
        return None
    best = plan.best_option
    missed = f"No instance keeps the {capacity_words.limits(plan)}"
    return {
        "device": best.kind if best else "either",
        "chip": f"{best.kind.upper()} instances" if best else missed,
        # The form needs the page's scripts, which a page without operators does not carry.
        "form": _form(plan) if plan.instances and analysis.operators else None,
    }


def _form(plan: CapacityResult) -> dict[str, Any]:
    """Return the first values of the what-if's fields: the question, in the units of the fields."""
    return {
        "rate": _typed(plan.rate_per_s),
        "limit": _typed(plan.limit_s * 1e3),
        "limited": capacity_words.limited_latency(plan),
        "generates": capacity_words.generates(plan),
        "further": seconds(plan.tpot_limit_s) if plan.tpot_limit_s is not None else "",
        "growth": _typed(plan.growth),
        "headroom": _typed(plan.headroom * 100),
        "spare": plan.spare,
        "pricing": plan.pricing,
        "ways": _ways(plan),
    }


def _ways(plan: CapacityResult) -> dict[str, str]:
    """Return the ways of paying that any instance has a price for, in words."""
    known = (way for one in plan.instances for way in one.usd_per_hour)
    return {way: capacity_words.way(way) for way in (plan.pricing, *known)}


def _typed(value: float) -> str:
    # Without the noise of a change of units: 0.07 s are 70 ms, not 70.00000000000001.
    return f"{value:.10g}"


def data(analysis: Analysis) -> dict[str, Any]:
    """Return the what-if's data, unrounded: it must come to the record's own numbers."""
    plan = analysis.capacity
    if plan is None or not plan.instances:
        return {}
    rows = [(plan.options[one.option], one) for one in plan.instances if one.option < len(plan.options)]
    return {
        "capacity": {
            "question": {
                "rate": plan.rate_per_s,
                "limit": plan.limit_s,
                "growth": plan.growth,
                "headroom": plan.headroom,
                "spare": plan.spare,
                "pricing": plan.pricing,
            },
            "limited": capacity_words.limited_latency(plan),
            # What other words the form has for a model that generates.
            **({"generates": True, "tokens": plan.output_tokens} if capacity_words.generates(plan) else {}),
            "ways": _ways(plan),
            "hours": HOURS_PER_MONTH,
            "seconds_per_hour": SECONDS_PER_HOUR,
            "instances": [_instance(option, one) for option, one in rows],
        }
    }


def _instance(option: CapacityOption, one: InstanceLoads) -> dict[str, Any]:
    return {
        "at": one.option,
        "instance": capacity_words.name(option),
        "where": capacity_words.where(option),
        "place": capacity_words.place(option),
        "device": capacity_words.runs_on(option),
        "kind": option.kind,
        "reason": option.reason,
        # The record's own answer, for the question's own values.
        "own": {key: getattr(option, name) for key, name in _OWN.items()} if option.feasible else None,
        "limits": [
            [point.limit_s, point.rate_per_s, point.max_batch, point.max_delay_s] for point in one.limits
        ],
        "loads": [[point.rate_per_s, point.utilisation] for point in one.loads],
        "usd": dict(one.usd_per_hour),
    }
