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
    lines_with_words,
    page_colours,
    quantity,
    ring,
    series,
    tooltip,
)
from analyzer.report.generation_words import rate
from analyzer.units import count, seconds

Field = Literal["tpot", "tokens", "ttft"]
_COLUMNS = (
    Column(name="batch", title="Batch", kind="count"),
    Column(name="context", title="Context"),
    Column(name="tpot", title="TPOT", kind="seconds"),
    Column(name="tpot_low", title="TPOT, low (90 %)", kind="seconds"),
    Column(name="tpot_high", title="TPOT, high (90 %)", kind="seconds"),
    Column(name="tokens", title="Tokens per second", kind="per_second"),
    Column(name="ttft", title="TTFT", kind="seconds"),
    Column(name="ttft_low", title="TTFT, low (90 %)", kind="seconds"),
    Column(name="ttft_high", title="TTFT, high (90 %)", kind="seconds"),
    Column(name="fits", title="Fits in memory"),
    Column(name="asked", title="As asked"),
)
_TITLES: dict[Field, str] = {
    "tpot": "Each further token by batch",
    "tokens": "Tokens per second by batch",
    "ttft": "Time to first token by batch",
}
_LEADS: dict[Field, str] = {
    "tpot": "Time of a token behind a context so long (TPOT).",
    "tokens": "Of the whole batch while it decodes. Where a line flattens, larger batches gain nothing.",
    "ttft": "Time until a prompt so long is read and the first token is there (TTFT), for each of the batch.",
}
_AXES: dict[Field, tuple[ColumnKind, str]] = {
    "tpot": ("seconds", "Time per token"),
    "tokens": ("per_second", "Tokens per second"),
    "ttft": ("seconds", "Time to first token"),
}
_AT: dict[Field, int] = {name: place for place, name in ((2, "tpot"), (5, "tokens"), (6, "ttft"))}  # type: ignore[misc]


def charts(told: GenerationResult) -> tuple[Chart, ...]:
    """The three; nothing where fewer than two batches are known."""
    points = sorted(told.sweep, key=lambda point: (point.context, point.batch))
    if len({point.batch for point in points}) < 2:
        return ()
    return tuple(_chart(field, points, told) for field in _TITLES)


def _asked(field: Field, told: GenerationResult) -> int:
    """The context whose line is the question's: a first token sees the prompt alone."""
    return told.prompt_tokens if field == "ttft" else told.prompt_tokens + told.output_tokens


def _chart(field: Field, points: list[GenerationPoint], told: GenerationResult) -> Chart:
    asked = _asked(field, told)
    rows = tuple(_row(point, asked) for point in points)
    contexts = list(dict.fromkeys(row[1] for row in rows))
    limit = {"tpot": told.tpot_limit_s, "ttft": told.ttft_limit_s, "tokens": None}[field]
    lead = f"{_LEADS[field]} A line for each context; points are predicted."
    if any(point.context == asked for point in points):
        lead += " The thick line is the context that was asked for" + (
            ", the band its 90 % interval." if field != "tokens" else "."
        )
    if any(not point.fits for point in points):
        lead += " Crosses do not fit in memory."
    return Chart(
        name=f"generation-{field}",
        title=_TITLES[field],
        lead=lead,
        alternative=_words(field, rows, contexts, limit),
        spec=_spec(field, rows, contexts, limit),
        columns=_COLUMNS,
        rows=rows,
        extra={"limits": ({"limit": limit, "label": f"limit {seconds(limit)}"},) if limit is not None else ()},
        height=330,
    )


def _row(point: GenerationPoint, asked: int) -> Row:
    return (
        point.batch,
        count(point.context),
        point.tpot_s,
        point.tpot_low_s,
        point.tpot_high_s,
        point.tokens_per_s,
        point.ttft_s,
        point.ttft_low_s,
        point.ttft_high_s,
        "yes" if point.fits else "no",
        "yes" if point.context == asked else "no",
    )


def _words(field: Field, rows: tuple[Row, ...], contexts: list[str], limit: float | None) -> str:
    at = _AT[field]
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
    kind, title = _AXES[field]
    at = _AT[field]
    shown = [row[at] for row in rows] + [limit]
    x = quantity("batch", type="log", base=2)
    y = quantity(field, type="log")
    across = axis("count", "Batch", grid=False, values=batch_ticks(row[0] for row in rows))
    up = axis(kind, title, values=decades(shown))
    colour = series("context", page_colours(contexts), title="Context, tokens", columns=3)
    pale = faded("contexts", 0.1)
    line = {"x": {**x, "axis": across}, "y": {**y, "axis": up}, "color": colour}
    asked = {"filter": "datum.asked === 'yes'"}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {**line, "opacity": pale}},
        {
            "transform": [asked],
            "mark": {"type": "line", "strokeWidth": 3.5},
            "encoding": {"x": x, "y": y, "color": colour, "opacity": pale},
        },
        _points(x, y, colour, pale),
    ]
    if field != "tokens":
        band = {"x": x, "y": {**y, "field": f"{field}_low"}, "y2": {"field": f"{field}_high"}, "color": colour}
        layers.insert(0, {"transform": [asked], "mark": {"type": "area", "opacity": 0.14}, "encoding": band})
    if limit is not None:
        layers += lines_with_words(
            "limits", {"y": quantity("limit")}, rule="var(--bad)", align="left", dx=4, dy=-7
        )
    return layered(270, layers)


def _points(
    x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any], pale: dict[str, Any]
) -> dict[str, Any]:
    # Rings, as everywhere what was predicted is; what has no room is crossed out.
    shapes = {"domain": ["yes", "no"], "range": ["circle", "M-0.7,-0.7L0.7,0.7M0.7,-0.7L-0.7,0.7"]}
    return {
        "params": [legend_selection("contexts", "context")],
        "mark": ring(46, 1.8),
        "encoding": {
            "x": x,
            "y": y,
            "color": colour,
            "shape": {"field": "fits", "type": "nominal", "scale": shapes, "legend": None},
            "opacity": pale,
            "tooltip": tooltip(*_COLUMNS[:-1]),
        },
    }
