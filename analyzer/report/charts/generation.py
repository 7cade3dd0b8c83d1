"""Reporting: a model that generates, over batch and context: times of tokens, tokens a second, what fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from analyzer.record.generation import GenerationPoint, GenerationResult
from analyzer.report.charts import vega
from analyzer.report.charts.chart import Chart, Column, ColumnKind, Row, rows_of
from analyzer.report.generation_text import rate
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
# Of each chart: its title and lead, and the kind and title of its axis.
_CHARTS: dict[Field, tuple[str, str, ColumnKind, str]] = {
    "tpot": (
        "Each further token by batch",
        "Time of a token behind a context so long (TPOT).",
        "seconds",
        "Time per token",
    ),
    "tokens": (
        "Tokens per second by batch",
        "Of the whole batch while it decodes. Where a line flattens, larger batches gain nothing.",
        "per_second",
        "Tokens per second",
    ),
    "ttft": (
        "Time to first token by batch",
        "Time until a prompt so long is read and the first token is there (TTFT), for each of the batch.",
        "seconds",
        "Time to first token",
    ),
}
# What has no room is crossed out.
_CROSS = "M-0.7,-0.7L0.7,0.7M0.7,-0.7L-0.7,0.7"


def charts(result: GenerationResult) -> tuple[Chart, ...]:
    """Return the three; nothing where fewer than two batches are known."""
    points = sorted(result.sweep, key=lambda point: (point.context, point.batch))
    if len({point.batch for point in points}) < 2:
        return ()
    return tuple(_chart(field, points, result) for field in _CHARTS)


def _chart(field: Field, points: Sequence[GenerationPoint], result: GenerationResult) -> Chart:
    title, lead, kind, axis = _CHARTS[field]
    at = next(place for place, column in enumerate(_COLUMNS) if column.name == field)
    # The context whose line is the question's: a first token sees the prompt alone.
    length = result.prompt_tokens if field == "ttft" else result.prompt_tokens + result.output_tokens
    rows = tuple(
        (*row, "yes" if point.context == length else "no")
        for row, point in zip(rows_of(_COLUMNS, points), points, strict=True)
    )
    contexts = list(dict.fromkeys(row[1] for row in rows))
    limit_s = {"tpot": result.tpot_limit_s, "ttft": result.ttft_limit_s, "tokens": None}[field]
    banded = field != "tokens"
    lead += " A line for each context; points are predicted."
    if any(row[-1] == "yes" for row in rows):
        band = ", the band its 90 % interval" if banded else ""
        lead += f" The thick line is the context that was asked for{band}."
    if any(not point.fits for point in points):
        lead += " Crosses do not fit in memory."
    limit = [f"The limit is {seconds(limit_s)}."] if limit_s is not None else []
    line = {
        "x": vega.doublings("batch", "Batch", (point.batch for point in points)),
        "y": vega.logarithmic(field, kind, axis, [*(row[at] for row in rows), limit_s]),
        "color": vega.coloured("context", contexts, title="Context, tokens", columns=3),
        "opacity": vega.faded("context"),
    }
    interval = {**line, "y": vega.on(line["y"], f"{field}_low"), "y2": {"field": f"{field}_high"}}
    fits = vega.shaped("fits", ["yes", "no"], ["circle", _CROSS], legend=None)
    return Chart(
        name=f"generation-{field}",
        title=title,
        lead=lead,
        alternative=" ".join([*_ends(field, at, contexts, rows), *limit]),
        spec=vega.layered(
            270,
            *(
                [vega.layer("area", {**interval, "opacity": {"value": 0.14}}, only="datum.asked === 'yes'")]
                if banded
                else ()
            ),
            vega.layer("line", {**line, "strokeWidth": vega.if_so("asked", 3.5, 1.5)}),
            vega.ring({**line, "shape": fits, "tooltip": vega.tooltip(*_COLUMNS[:-1])}, select=("context",)),
            *(vega.limits(line["y"]) if limit_s is not None else ()),
        ),
        columns=_COLUMNS,
        rows=rows,
        extra={"limits": vega.limit_rows(limit_s)},
        origin=result.origin,
    )


def _ends(field: Field, at: int, contexts: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """Say each line's first and last figure, and up to which batch it fits."""
    for context in contexts:
        line = [row for row in rows if row[1] == context]
        ends = [
            f"{f'{rate(row[at])} tokens/s' if field == 'tokens' else seconds(row[at])} at batch {row[0]}"
            for row in (line[0], line[-1])
        ]
        room = max((row[0] for row in line if row[9] == "yes"), default=0)
        within = "" if room == line[-1][0] else f"; up to batch {room} fits" if room else "; none fits"
        yield f"At {context} tokens: {' to '.join(ends)}{within}."


_FRONTIER = (
    Column(name="devices", title="Devices"),
    Column(name="context", title="Context", kind="count"),
    Column(name="batch", title="Largest batch", kind="count"),
)


def frontier(result: GenerationResult) -> Chart | None:
    """Return the largest batch by context; None where nothing fits anywhere or there is one context alone."""
    rows = tuple(
        (plural(gpus, "GPU") if gpus else "the CPU", context, batch)
        for gpus, batches in sorted(result.frontier.items())
        for context, batch in sorted(batches.items())
    )
    if not any(row[2] for row in rows) or len({row[1] for row in rows}) < 2:
        return None
    # A logarithm has no place for none; the words and the table tell it.
    lines = {
        name: [row for row in rows if row[0] == name and row[2]]
        for name in dict.fromkeys(row[0] for row in rows)
    }
    none = [name for name, line in lines.items() if not line]
    lead = "What lies below a line fits in memory: weights, cache and activations, whatever time it takes."
    line = {
        "x": vega.doublings("context", "Context, tokens", (row[1] for row in rows)),
        "y": vega.logarithmic("batch", "count", "Largest batch", [*(row[2] for row in rows), 1, result.batch]),
        "color": vega.coloured("devices", [*lines], columns=3),
        "opacity": vega.faded("devices"),
    }
    point = {"x": line["x"], "y": line["y"]}
    return Chart(
        name="generation-frontier",
        title="Largest batch by context",
        lead=f"{lead} Nothing fits {listed(none)}." if none else lead,
        alternative=" ".join(
            f"On {name}: batch {count(line[0][2])} at {count(line[0][1])} tokens to {count(line[-1][2])} at "
            f"{count(line[-1][1])}."
            if line
            else f"Nothing fits {name}."
            for name, line in lines.items()
        ),
        spec=vega.layered(
            270,
            vega.layer("line", line, only="datum.batch > 0", strokeWidth=2),
            vega.ring({**line, "tooltip": vega.tooltip(*_FRONTIER)}, select=("devices",))
            | {"transform": [{"filter": "datum.batch > 0"}]},
            vega.layer(
                "point", point, data="asked", shape="diamond", filled=True, size=90, color="var(--text)"
            ),
            *vega.words("asked", {**point, "text": {"field": "label"}}, dx=9, dy=-1),
        ),
        columns=_FRONTIER,
        rows=rows,
        origin=result.origin,
        extra={
            "asked": (
                {
                    "context": result.prompt_tokens + result.output_tokens,
                    "batch": result.batch,
                    "label": "as asked",
                },
            )
        },
    )
