"""Reporting: latency and what runs together against the load of one instance, up to its highest rate.

Of a model that generates the latencies are those of the first token and of each further one.
"""

from __future__ import annotations

from typing import Any

from analyzer.record.capacity import CapacityOption, CapacityResult, InstanceLoads, LoadPoint
from analyzer.report import capacity_words as words
from analyzer.report.charts.chart import (
    Chart,
    Column,
    Row,
    axis,
    by_line,
    decades,
    faded,
    layered,
    legend_selection,
    lines_with_words,
    quantity,
    ring,
    series,
    tooltip,
)
from analyzer.report.generation_words import rate
from analyzer.units import count, digits, seconds, share


def _columns(latency: str) -> tuple[Column, ...]:
    return (
        Column(name="rate", title="Requests per second", kind="per_second"),
        Column(name="of", title="Latency of"),
        Column(name="latency", title=latency, kind="seconds"),
        Column(name="utilisation", title="Utilisation", kind="share"),
        Column(name="limited", title="Limited"),
    )


_BATCH = (
    Column(name="rate", title="Requests per second", kind="per_second"),
    Column(name="batch", title="Mean batch", kind="number"),
    Column(name="utilisation", title="Utilisation", kind="share"),
)
_SEQUENCES = (_BATCH[0], Column(name="batch", title="Sequences", kind="number"), _BATCH[2])
_PERCENTILES = {
    "p50": "var(--record-3)",
    "p90": "var(--record-1)",
    "p95": "var(--record-4)",
    "p99": "var(--record-5)",
}
_MEAN = {"mean": "var(--record-8)"}
# Of the axis' length: from where on a mark's words are written to the left of it.
_LATE = 0.6


def charts(told: CapacityResult) -> tuple[Chart, ...]:
    """Of the best option, else of the one that comes nearest; nothing where too few loads of it are known."""
    at = told.best if told.best is not None else words.nearest(told)
    one = words.loads(told, at) if at is not None else None
    if one is None or at is None or len(one.loads) < 2:
        return ()
    option = told.options[at]
    lines = (_latency(told, option, one), *filter(None, (_further(told, option, one),)))
    return (*lines, _batch(told, option, one))


def _marks(told: CapacityResult, option: CapacityOption, end: float) -> tuple[dict[str, Any], ...]:
    """Where an instance stands at the planned rate, and the most that it takes within the limit."""
    marks = []
    if option.count:
        share_of_each = words.planned(told) / option.count
        each = f"each of {count(option.count)}" if option.count > 1 else "planned"
        marks.append((share_of_each, f"{each}: {rate(share_of_each)}/s"))
    if option.highest_rate_per_s is not None:
        marks.append((option.highest_rate_per_s, f"highest: {rate(option.highest_rate_per_s)}/s"))
    return tuple(
        # One above the other: the two may lie close together.
        {"rate": value, "label": label, "late": value > end * _LATE, "line": 8 + 14 * line}
        for line, (value, label) in enumerate(marks)
    )


def _latency(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> Chart:
    colours = _PERCENTILES if told.percentile is not None else _PERCENTILES | _MEAN
    kept = words.limited(told)
    answered = "have their first token" if words.generates(told) else "are answered"
    lead = (
        f"Of one {words.name(option)}, waiting included: half of the requests {answered} within p50, 99 of 100 "
        f"within p99. The thick line is {kept}, which is limited"
    )
    lead += "." if option.feasible else f"; at no rate does it keep the {words.limits(told)}."
    return Chart(
        name="capacity-latency",
        title="First token by load" if words.generates(told) else "Latency by load",
        lead=lead,
        alternative=_words(told, option, one),
        **_drawn(
            _columns("Time to the first token" if words.generates(told) else "Latency"),
            colours,
            {name: [(point, getattr(point, f"{name}_s")) for point in one.loads] for name in colours},
            kept,
            told.limit_s,
            marks=_marks(told, option, one.loads[-1].rate_per_s),
            below=told.best is None,
        ),
    )


def _drawn(
    columns: tuple[Column, ...],
    colours: dict[str, str],
    lines: dict[str, list[tuple[LoadPoint, float | None]]],
    limited: str,
    limit_s: float | None,
    *,
    marks: tuple[dict[str, Any], ...],
    below: bool,
) -> dict[str, Any]:
    """Return what a chart of latencies draws: a line for each percentile, the limited one thick."""
    rows: tuple[Row, ...] = tuple(
        (point.rate_per_s, name, time_s, point.utilisation, "yes" if name == limited else "no")
        for name, line in lines.items()
        for point, time_s in line
    )
    limits = () if limit_s is None else ({"limit": limit_s, "label": f"limit {seconds(limit_s)}"},)
    return {
        "spec": _latency_spec(rows, columns, colours, limit_s, below=below),
        "columns": columns,
        "rows": rows,
        "extra": {"limits": limits, "marks": marks},
        "height": 360,
    }


def _words(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> str:
    kept, first, last = words.limited(told), one.loads[0], one.loads[-1]
    low, high = (
        f"{seconds(words.latency(told, point))} at {words.requests(point.rate_per_s)}"
        for point in (first, last)
    )
    what = " to the first token" if words.generates(told) else ""
    said = f"{kept}{what} of one {words.name(option)}: {low}, {high}. The limit is {seconds(told.limit_s)}"
    if option.highest_rate_per_s is None:
        return f"{said}."
    # Of two limits it may be the other that is reached there.
    kept = "; both limits are kept" if told.tpot_limit_s is not None else ", kept"
    return f"{said}{kept} up to {words.requests(option.highest_rate_per_s)}."


def _further(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> Chart | None:
    """Each further token; None where the answers have none, or too few loads of them are known."""
    loads = tuple(point for point in one.loads if point.tpot_p50_s and point.tpot_p99_s)
    if not words.generates(told) or len(loads) < 2:
        return None
    colours = {name: _PERCENTILES[name] for name in ("p50", "p99")}
    kept, limit_s = words.further(told), words.further_limit_s(told)
    least = min(words.further_s(told, point) or 0.0 for point in loads)
    thick = f" The thick line is {kept}, which is limited." if limit_s is not None else ""
    low, high = (
        f"{seconds(words.further_s(told, point))} at {words.requests(point.rate_per_s)}"
        for point in (loads[0], loads[-1])
    )
    limit = f" The limit is {seconds(limit_s)}." if limit_s is not None else ""
    return Chart(
        name="capacity-tpot",
        title="Further tokens by load",
        lead=(
            f"Of one {words.name(option)}, a request's mean after its first token: longer the more sequences "
            f"run and the more prompts are read.{thick}"
        ),
        alternative=f"{kept} of each further token of one {words.name(option)}: {low}, {high}.{limit}",
        **_drawn(
            _columns("Time of each further token"),
            colours,
            {name: [(point, getattr(point, f"tpot_{name}_s")) for point in loads] for name in colours},
            kept if limit_s is not None else "",
            limit_s,
            marks=_marks(told, option, loads[-1].rate_per_s),
            below=least > (limit_s or least),
        ),
    )


def _batch(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> Chart:
    rows: tuple[Row, ...] = tuple(
        (point.rate_per_s, point.mean_batch, point.utilisation) for point in one.loads
    )
    generates = words.generates(told)
    busy = "of what could be finished" if generates else "busy"
    low, high = (
        f"{digits(point.mean_batch, 2)} at {words.requests(point.rate_per_s)}, "
        f"{share(point.utilisation)} {busy}"
        for point in (one.loads[0], one.loads[-1])
    )
    most = f", at most {count(option.max_batch)}" if option.max_batch is not None else ""
    lead = f"How many requests form a batch on average{most}. The more wait, the larger the batches."
    if generates:
        lead = (
            f"How many sequences run on average on each copy of the model{most}. The longer a token takes, the "
            "longer each of them stays."
        )
    columns = _SEQUENCES if generates else _BATCH
    return Chart(
        name="capacity-batch",
        title="Sequences by load" if generates else "Batch by load",
        lead=lead,
        alternative=f"{'Sequences that run' if generates else 'Requests in a batch'}: {low}; {high}.",
        spec=_batch_spec(option, columns, max(row[1] for row in rows)),
        columns=columns,
        rows=rows,
        extra={"marks": _marks(told, option, one.loads[-1].rate_per_s)},
        height=360,
    )


def _latency_spec(
    rows: tuple[Row, ...],
    columns: tuple[Column, ...],
    colours: dict[str, str],
    limit_s: float | None,
    *,
    below: bool,
) -> dict[str, Any]:
    x, across = _rates()
    # No whole decade below the lines, where nothing is.
    y = quantity("latency", type="log", nice=False, padding=18)
    up = axis("seconds", columns[2].title, values=decades([*(row[2] for row in rows), limit_s]))
    scale = {"domain": list(colours), "range": list(colours.values())}
    colour = {**series("of", scale), "sort": list(colours)}
    pale = faded("latencies", 0.1)
    thick = {"condition": {"test": "datum.limited === 'yes'", "value": 3.5}, "value": 1.5}
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "line"},
            "encoding": {
                "x": {**x, "axis": across},
                "y": {**y, "axis": up},
                "color": colour,
                "strokeWidth": thick,
                "opacity": pale,
            },
        },
        {
            "params": [legend_selection("latencies", "of")],
            "mark": ring(40, 1.6),
            "encoding": {"x": x, "y": y, "color": colour, "opacity": pale, "tooltip": tooltip(*columns[:-1])},
        },
        *(_limit(y, below=below) if limit_s is not None else ()),
        *_vertical(x),
    ]
    return layered(280, layers)


def _batch_spec(option: CapacityOption, columns: tuple[Column, ...], most: float) -> dict[str, Any]:
    x, across = _rates()
    colour = f"var(--{option.kind})"
    y = quantity("batch", domain=[0, 1.1 * most], nice=False)
    up = axis("number", columns[1].title, tickCount=6)
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "line", "strokeWidth": 2.5, "color": colour},
            "encoding": {"x": {**x, "axis": across}, "y": {**y, "axis": up}},
        },
        {
            "mark": ring(40, 1.6, color=colour, opacity=1),
            "encoding": {"x": x, "y": y, "tooltip": tooltip(*columns)},
        },
        *_vertical(x),
    ]
    return layered(310, layers)


def _rates() -> tuple[dict[str, Any], dict[str, Any]]:
    x = quantity("rate", zero=True, nice=False)
    return x, axis("per_second", "Requests per second to one instance", grid=False, tickCount=6)


def _limit(y: dict[str, Any], *, below: bool) -> list[dict[str, Any]]:
    # The words stand on the side where the lines are not.
    place = {"y": {**y, "field": "limit"}}
    return lines_with_words("limits", place, rule="var(--bad)", align="left", dx=4, dy=8 if below else -7)


def _vertical(x: dict[str, Any]) -> list[dict[str, Any]]:
    words = {**by_line(6), "dy": {"expr": "datum.line"}}
    return lines_with_words("marks", {"x": x}, rule="var(--muted)", words="var(--text)", **words)
