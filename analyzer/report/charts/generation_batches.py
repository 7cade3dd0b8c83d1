"""Reporting: time of a token, tokens a second and time to the first token over the batch, by context."""

from __future__ import annotations

from typing import Any, Literal

from analyzer.record.generation import GenerationPoint, GenerationResult
from analyzer.report.charts.chart import (
    Chart,
    Column,
    ColumnKind,
    Row,
    axis,
    batch_ticks,
    decades,
    faded,
    layered,
    legend_selection,
    limit_lines,
    limit_rows,
    nominal,
    page_colours,
    quantity,
    ring,
    rows_of,
    series,
    text_over_marks,
    tooltip,
)
from analyzer.report.generation_words import rate
from analyzer.text import listed, plural
from analyzer.units import count, seconds

Field = Literal["tpot", "tokens", "ttft"]
_COLUMNS = (
    Column(name="batch", title="Batch", kind="count", read="batch"),
    Column(name="context", title="Context", read=lambda point: count(point.context)),
    Column(name="tpot", title="TPOT", kind="seconds", read="tpot.value"),
    Column(name="tpot_low", title="TPOT, low (90 %)", kind="seconds", read="tpot.low"),
    Column(name="tpot_high", title="TPOT, high (90 %)", kind="seconds", read="tpot.high"),
    Column(name="tokens", title="Tokens per second", kind="per_second", read="tokens_per_s"),
    Column(name="ttft", title="TTFT", kind="seconds", read="ttft.value"),
    Column(name="ttft_low", title="TTFT, low (90 %)", kind="seconds", read="ttft.low"),
    Column(name="ttft_high", title="TTFT, high (90 %)", kind="seconds", read="ttft.high"),
    Column(name="fits", title="Fits in memory", read=lambda point: "yes" if point.fits else "no"),
    Column(name="asked", title="As asked"),
)
# Of each chart: its title and lead, the kind and title of its axis, and where a row has its figure.
_CHARTS: dict[Field, tuple[str, str, ColumnKind, str, int]] = {
    "tpot": (
        "Each further token by batch",
        "Time of a token behind a context so long (TPOT).",
        *("seconds", "Time per token", 2),
    ),
    "tokens": (
        "Tokens per second by batch",
        "Of the whole batch while it decodes. Where a line flattens, larger batches gain nothing.",
        *("per_second", "Tokens per second", 5),
    ),
    "ttft": (
        "Time to first token by batch",
        "Time until a prompt so long is read and the first token is there (TTFT), for each of the batch.",
        *("seconds", "Time to first token", 6),
    ),
}


def charts(told: GenerationResult) -> tuple[Chart, ...]:
    """The three; nothing where fewer than two batches are known."""
    points = sorted(told.sweep, key=lambda point: (point.context, point.batch))
    if len({point.batch for point in points}) < 2:
        return ()
    return tuple(_chart(field, points, told) for field in _CHARTS)


def _chart(field: Field, points: list[GenerationPoint], told: GenerationResult) -> Chart:
    # The context whose line is the question's: a first token sees the prompt alone.
    asked = told.prompt_tokens if field == "ttft" else told.prompt_tokens + told.output_tokens
    as_asked = ("yes" if point.context == asked else "no" for point in points)
    rows = tuple((*row, one) for row, one in zip(rows_of(_COLUMNS, points), as_asked, strict=True))
    contexts = list(dict.fromkeys(row[1] for row in rows))
    limit = {"tpot": told.tpot_limit_s, "ttft": told.ttft_limit_s, "tokens": None}[field]
    lead = f"{_CHARTS[field][1]} A line for each context; points are predicted."
    if any(point.context == asked for point in points):
        lead += " The thick line is the context that was asked for" + (
            ", the band its 90 % interval." if field != "tokens" else "."
        )
    if any(not point.fits for point in points):
        lead += " Crosses do not fit in memory."
    return Chart(
        name=f"generation-{field}",
        title=_CHARTS[field][0],
        lead=lead,
        alternative=_words(field, rows, contexts, limit),
        spec=_spec(field, rows, contexts, limit),
        columns=_COLUMNS,
        rows=rows,
        extra={"limits": limit_rows(limit)},
        height=330,
    )


def _words(field: Field, rows: tuple[Row, ...], contexts: list[str], limit: float | None) -> str:
    at = _CHARTS[field][-1]
    figure = (lambda value: f"{rate(value)} tokens/s") if field == "tokens" else seconds
    parts = []
    for context in contexts:
        line = [row for row in rows if row[1] == context]
        first, last = line[0], line[-1]
        room = max((row[0] for row in line if row[9] == "yes"), default=0)
        within = (
            f"; up to batch {room} fits" if room and room < last[0] else ("; none fits" if not room else "")
        )
        parts.append(
            f"At {context} tokens: {figure(first[at])} at batch {first[0]} to {figure(last[at])} at batch "
            f"{last[0]}{within}."
        )
    return " ".join(parts) + (f" The limit is {seconds(limit)}." if limit is not None else "")


def _spec(field: Field, rows: tuple[Row, ...], contexts: list[str], limit: float | None) -> dict[str, Any]:
    _, _, kind, title, at = _CHARTS[field]
    shown = [row[at] for row in rows] + [limit]
    x = quantity("batch", type="log", base=2)
    y = quantity(field, type="log")
    across = axis("count", "Batch", grid=False, values=batch_ticks(row[0] for row in rows))
    up = axis(kind, title, values=decades(shown))
    colour = series("context", page_colours(contexts), title="Context, tokens", columns=3)
    drawn = {"x": x, "y": y, "color": colour, "opacity": faded("contexts", 0.1)}
    asked = [{"filter": "datum.asked === 'yes'"}]
    band = {"x": x, "y": {**y, "field": f"{field}_low"}, "y2": {"field": f"{field}_high"}, "color": colour}
    # What has no room is crossed out.
    shapes = {"domain": ["yes", "no"], "range": ["circle", "M-0.7,-0.7L0.7,0.7M0.7,-0.7L-0.7,0.7"]}
    return layered(
        270,
        [
            *(
                [{"transform": asked, "mark": {"type": "area", "opacity": 0.14}, "encoding": band}]
                if field != "tokens"
                else []
            ),
            {
                "mark": {"type": "line", "strokeWidth": 1.5},
                "encoding": {**drawn, "x": {**x, "axis": across}, "y": {**y, "axis": up}},
            },
            {"transform": asked, "mark": {"type": "line", "strokeWidth": 3.5}, "encoding": drawn},
            {
                "params": [legend_selection("contexts", "context")],
                "mark": ring(46, 1.8),
                "encoding": {
                    **drawn,
                    "shape": nominal("fits", scale=shapes, legend=None),
                    "tooltip": tooltip(*_COLUMNS[:-1]),
                },
            },
            *(limit_lines(quantity("limit")) if limit is not None else ()),
        ],
    )


_FRONTIER = (
    Column(name="devices", title="Devices"),
    Column(name="context", title="Context", kind="count"),
    Column(name="batch", title="Largest batch", kind="count"),
)


def frontier(told: GenerationResult) -> Chart | None:
    """The frontier; None where nothing fits anywhere or there is one context alone."""
    rows = tuple(
        (plural(gpus, "GPU") if gpus else "the CPU", context, batch)
        for gpus, batches in sorted(told.frontier.items())
        for context, batch in sorted(batches.items())
    )
    if not any(row[2] for row in rows) or len({row[1] for row in rows}) < 2:
        return None
    names = list(dict.fromkeys(row[0] for row in rows))
    none = [name for name in names if not any(row[2] for row in rows if row[0] == name)]
    lead = "What lies below a line fits in memory: weights, cache and activations, whatever time it takes."
    if none:
        lead += f" Nothing fits {listed(none)}."
    context = told.prompt_tokens + told.output_tokens
    return Chart(
        name="generation-frontier",
        title="Largest batch by context",
        lead=lead,
        alternative=_frontier_words(rows, names),
        spec=_frontier_spec(rows, names),
        columns=_FRONTIER,
        rows=rows,
        extra={"asked": ({"context": context, "batch": told.batch, "label": "as asked"},)},
        height=330,
    )


def _frontier_words(rows: tuple[Row, ...], names: list[str]) -> str:
    parts = []
    for name in names:
        line = [row for row in rows if row[0] == name and row[2]]
        if line:
            first, last = line[0], line[-1]
            parts.append(
                f"On {name}: batch {count(first[2])} at {count(first[1])} tokens to {count(last[2])} at "
                f"{count(last[1])}."
            )
        else:
            parts.append(f"Nothing fits {name}.")
    return " ".join(parts)


def _frontier_spec(rows: tuple[Row, ...], names: list[str]) -> dict[str, Any]:
    contexts = sorted({row[1] for row in rows})
    x = quantity("context", type="log", base=2)
    y = quantity("batch", type="log")
    drawn = {
        "x": {**x, "axis": axis("count", "Context, tokens", grid=False, values=contexts)},
        "y": {**y, "axis": axis("count", "Largest batch", values=decades([*(row[2] for row in rows), 1]))},
        "color": series("devices", page_colours(names), columns=3),
        "opacity": faded("widths", 0.1),
    }
    asked = {"x": x, "y": y}
    diamond = {"type": "point", "shape": "diamond", "filled": True, "size": 90, "color": "var(--text)"}
    text = {"type": "text", "align": "left", "dx": 9, "dy": -1, "fontSize": 11, "color": "var(--text)"}
    # A logarithm has no place for none; the words and the table tell it.
    some = [{"filter": "datum.batch > 0"}]
    return layered(
        270,
        [
            {"transform": some, "mark": {"type": "line", "strokeWidth": 2}, "encoding": drawn},
            {
                "transform": some,
                "params": [legend_selection("widths", "devices")],
                "mark": ring(46, 1.8),
                "encoding": {**drawn, "tooltip": tooltip(*_FRONTIER)},
            },
            {"data": {"name": "asked"}, "mark": diamond, "encoding": asked},
            *text_over_marks("asked", text, {**asked, "text": {"field": "label"}}),
        ],
    )
