"""Reporting: where the time goes: by operator type, by part of a generating model, and by module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.record.generation import GenerationResult
from analyzer.report.charts import chart, vega
from analyzer.report.charts.chart import Chart, Column, ColumnKind, Row, combined_origin, origin_words, rows_of
from analyzer.report.charts.vega import CPU, DECODE, GPU, PREFILL
from analyzer.report.module_tree import Module
from analyzer.units import seconds, share

# Types drawn, the others are one bar: two bars a type of 15 pixels each still fit on one screen.
LARGEST = 14
# What is timed: its series, its part, seconds, the origin of these.
Timed = tuple[str, str, float, str]


def by_type(*records: Analysis, labels: Sequence[str] = ("",)) -> Chart | None:
    """Return the time by operator type: of one record on either device, of several in their best plans.

    None where no operator has a time.
    """
    several = len(records) > 1
    one_batch = len({analysis.model.batch for analysis in records}) < 2
    timed: list[Timed] = []
    for label, analysis in zip(labels, records, strict=True):
        per = 1 if one_batch else analysis.model.batch or 1
        for operator in analysis.operators:
            for side, time in ((CPU, operator.cpu), (GPU, operator.gpu)):
                there = not several or (operator.placement == "cpu") == (side == CPU)
                if there and time is not None and time.time_s:
                    timed.append((label if several else side, operator.op_type, time.time_s / per, time.origin))
    series = labels if several else [side for side in (CPU, GPU) if any(each[0] == side for each in timed)]
    if several:
        lead = "What each operator type takes in the best plan of each record, copies apart"
        lead += "." if one_batch else ", for one inference."
    else:
        origins = ((side, origin_words(each[3] for each in timed if each[0] == side)) for side in series)
        lead = "What each type takes of all operators, on the CPU alone and in the CUDA session. " + " ".join(
            f"Times on the {side} are {origin}." for side, origin in origins
        )
    return _parts(
        timed,
        series,
        Column(name="record", title="Record") if several else Column(name="device", title="Device"),
        Column(name="type", title="Operator type"),
        by="time" if several else "share",
        name="record-types" if several else "by-type",
        title="Time by operator type",
        lead=lead,
    )


def by_phase(result: GenerationResult) -> Chart | None:
    """Return what both phases of a model that generates spend their time on; None where no part takes time."""
    names = {"Mlp": "MLP", "Linear": "Head"}
    timed = [
        (phase.capitalize(), names.get(part, part), time, result.origin)
        for part, times in result.parts.items()
        for phase, time in times.items()
        if time
    ]
    totals = [sum(each[2] for each in timed if each[0] == phase) for phase in (PREFILL, DECODE)]
    if not all(totals):
        return None
    each = " a token" if result.output_tokens else ""
    return _parts(
        timed,
        (PREFILL, DECODE),
        Column(name="phase", title="Phase"),
        Column(name="part", title="Part"),
        by="share",
        counted=False,
        name="generation-parts",
        title="What both phases spend their time on",
        lead="All layers together, by the class of the modules. Prefill is "
        f"{seconds(totals[0])} and decode is {seconds(totals[1])}{each}.",
    )


def _parts(
    timed: Iterable[Timed],
    series: Sequence[str],
    of: Column,
    part: Column,
    *,
    by: str,
    counted: bool = True,
    **named: Any,
) -> Chart | None:
    """Return bars by part, one for each series; None where nothing takes time.

    ``of`` is the column of the series, ``part`` that of the parts, ``by`` what a bar is as long as: ``share``,
    ``time``. ``counted``: what is timed is one for each operator, so that its number says something.
    """
    times: dict[str, dict[str, list[float]]] = {one: defaultdict(list) for one in series}
    origins: dict[str, set[str]] = defaultdict(set)
    for one, name, time, origin in timed:
        times[one][name].append(time)
        origins[one].add(origin)
    totals = {one: sum(map(sum, parts.values())) for one, parts in times.items()}
    # By the larger of its shares, as what is small in the one may be all of the other's time; by name among
    # equals, so that the same record gives the same bytes.
    largest = {
        name: max(sum(times[one].get(name, ())) / (totals[one] or 1.0) for one in series)
        for name in {name for parts in times.values() for name in parts}
    }
    ranked = sorted(largest, key=lambda name: (-largest[name], name))
    if not ranked:
        return None
    shown, rest = ranked[:LARGEST], ranked[LARGEST:]
    if rest:
        shown.append(f"{len(rest)} other types")
        for parts in times.values():
            parts[shown[-1]] = [time for name in rest for time in parts.pop(name, ())]
    rows: tuple[Row, ...] = tuple(
        (
            name,
            one,
            sum(inside) / totals[one],
            sum(inside),
            *((len(inside),) if counted else ()),
            combined_origin(origins[one]),
        )
        for name in shown
        for one in series
        # A series without this part has no bar: one of no length could not be result from a short one.
        if (inside := times[one].get(name)) and totals[one]
    )
    columns = (
        part,
        of,
        Column(name="share", title=f"Share of the {of.title.lower()}'s time", kind="share"),
        Column(name="time", title="Time", kind="seconds"),
        *((Column(name="operators", title="Operators", kind="count"),) if counted else ()),
        Column(name="origin", title="Origin"),
    )
    length = columns[2] if by == "share" else columns[3]
    encoding = {
        "y": vega.lanes(part.name, shown, labelLimit=150),
        "yOffset": {"field": of.name, "sort": list(series)},
        "x": vega.amount(by, length.kind, length.title if by == "share" else "Time in the best plan", 8),
        "color": vega.coloured(of.name, series),
        "opacity": vega.faded(of.name),
        "tooltip": vega.tooltip(*columns),
    }
    return Chart(
        alternative=" ".join(_biggest(one, rows) for one in series),
        spec=vega.layered(
            (13 * len(series) + 6) * len(shown),
            vega.layer("bar", encoding, select=(of.name,), cornerRadiusEnd=2),
        ),
        columns=columns,
        rows=rows,
        **named,
    )


def _biggest(series: str, rows: Sequence[Row]) -> str:
    largest = sorted((row for row in rows if row[1] == series), key=lambda row: -float(row[2]))[:3]
    if not largest:
        return f"{series}: no time is known."
    return f"{series}: " + ", ".join(f"{row[0]} {share(row[2])} ({seconds(row[3])})" for row in largest) + "."


# Rows of the icicle, and the height of one in CSS pixels: two lines of text.
LEVELS, STEP = 9, 34
_BOTH, _UNTIMED = "CPU and GPU", "takes no time"
# Where a module's operators run in the best plan.
_WHERE = {CPU: "var(--cpu)", GPU: "var(--gpu)", _BOTH: "var(--hybrid)", _UNTIMED: "var(--muted)"}
_MEASURES: Mapping[str, tuple[str, ColumnKind]] = {
    "best": ("time, best plan", "seconds"),
    "cpu": ("time, CPU", "seconds"),
    "gpu": ("time, GPU", "seconds"),
    "flops": ("FLOPs", "flops"),
}


def _measured(of: str, name: str, module: Module) -> float | None:
    measures: Mapping[str, float | None] = getattr(module, of)
    return measures[name]


_MODULES = (
    Column(name="id", title="Number", kind="count", read="number"),
    Column(name="parent", title="Parent", kind="count", lookup="modules.parent", read="parent"),
    Column(name="name", title="Name", lookup="modules.name", read="name"),
    Column(name="path", title="Module", lookup="modules.path", read="path"),
    Column(name="class", title="Class", lookup="modules.class", read="class_name"),
    *(
        Column(
            name=name,
            title=title[0].upper() + title[1:],
            kind=kind,
            lookup=f"modules.{name}",
            read=partial(_measured, "total", name),
        )
        for name, (title, kind) in _MEASURES.items()
    ),
    Column(name="operators", title="Operators", kind="count", lookup="modules.operators", read="operators"),
    Column(
        name="gpu_share",
        title="On the GPU, of those that take time",
        kind="share",
        # A Reshape that is folded away says nothing of where its module runs.
        read=lambda module: module.on_gpu / module.timed if module.timed else None,
    ),
    Column(name="where", title="Runs on", read=lambda module: _where(module)),
    *(
        Column(name=f"own_{name}", title=f"Own {title}", kind=kind, read=partial(_measured, "own", name))
        for name, (title, kind) in _MEASURES.items()
    ),
    Column(name="depth", title="Depth", kind="count"),
    Column(name="order", title="Order in the tree", kind="count"),
)


def by_module(modules: tuple[Module, ...], origin: str = "", apart: str = "") -> Chart | None:
    """Return an icicle of the modules; None where there is no structure or nothing to add up.

    ``origin`` is that of the times in the best plan, ``apart`` says what is in none of them.
    """
    # The first is the model itself.
    if len(modules) < 2 or not any(modules[0].total[name] for name in _MEASURES):
        return None
    places = _preorder(modules)
    times = ", ".join(filter(None, (origin, apart)))
    return Chart(
        name="by-module",
        title="Time by module",
        lead="Each module is as wide as what it and its children take, in the order of the graph. Click one to "
        "look inside, the top row to go back." + (f" Times in the best plan are {times}." if origin else ""),
        alternative=_module_words(modules),
        spec=_icicle(
            min(max(depth for depth, _ in places) + 1, LEVELS),
            # A module with neither time nor FLOPs has no width.
            sorted({_where(module) for module in modules if module.timed or module.total["flops"]}),
        ),
        columns=_MODULES,
        rows=tuple((*row, *place) for row, place in zip(rows_of(_MODULES, modules), places, strict=True)),
        origin=origin,
    )


def _preorder(modules: tuple[Module, ...]) -> list[tuple[int, int]]:
    """Return the depth of each module and its place where each stands before all that is inside it."""
    inside: dict[int | None, list[int]] = defaultdict(list)
    for module in modules:
        inside[module.parent].append(module.number)
    places: dict[int, tuple[int, int]] = {}
    waiting = [(0, 0)]
    while waiting:
        number, depth = waiting.pop()
        places[number] = depth, len(places)
        waiting += [(child, depth + 1) for child in reversed(inside[number])]
    return [places[module.number] for module in modules]


def _where(module: Module) -> str:
    """Return where its operators run, of those that take time."""
    if not module.timed:
        return _UNTIMED
    return {0: CPU, module.timed: GPU}.get(module.on_gpu, _BOTH)


def _module_words(modules: tuple[Module, ...]) -> str:
    root = modules[0]
    measure = next(name for name in _MEASURES if root.total[name])
    whole = root.total[measure] or 1.0
    children = sorted(
        (module for module in modules if module.parent == 0),
        key=lambda module: -(module.total[measure] or 0.0),
    )
    shares = ", ".join(
        f"{module.name} {share((module.total[measure] or 0.0) / whole)}" for module in children[:8]
    )
    what = "FLOPs" if measure == "flops" else "time"
    return f"Of the model's {what}: {shares}."


def _icicle(levels: int, places: Sequence[str]) -> vega.Spec:
    """Return rows of cells that one can click into.

    Its parameters: ``measure`` is what the widths are, ``focus`` the module that is looked into, ``picked``
    that of the operator which is selected on the page.
    """
    tints = {"domain": places, "range": [_WHERE[place] for place in places]}
    legend = {"symbolType": "square", "symbolOpacity": 0.5, "symbolStrokeWidth": 0}
    y = {"field": "depth", "type": "ordinal", "axis": None, "scale": {"domain": [*range(levels)], "padding": 0}}
    across = {"type": "quantitative", "axis": None, "scale": {"domain": [0, 1], "nice": False}}
    share_column = Column(name="share", title="Share", kind="share")
    cell = {
        "x": {"field": "left", **across},
        "x2": {"field": "right"},
        "y": y,
        "color": {"field": "where", "type": "nominal", "scale": tints, "title": None, "legend": legend},
        "fillOpacity": {
            "condition": [
                {"test": "datum.id === picked", "value": 0.55},
                {"param": "pointed", "empty": False, "value": 0.4},
            ],
            "value": 0.2,
        },
        "tooltip": vega.tooltip(*_MODULES[3:5], share_column, *_MODULES[5:12]),
    }
    pointed = {"type": "point", "on": "pointerover", "clear": "pointerout", "fields": ["id"]}
    # A cell that begins left of what is seen keeps its name in sight; below 34 pixels no letter would be whole.
    seen = "(min(datum.right, 1) - max(datum.left, 0)) * width"
    name = {
        "x": {"field": "seen_from", **across},
        "y": y,
        "text": {"field": "words"},
        "opacity": {"condition": {"test": f"{seen} > 34", "value": 1}, "value": 0},
    }
    return vega.layered(
        levels * STEP,
        vega.layer("rect", cell, clip=True, stroke="var(--surface)", strokeWidth=2, cursor="pointer")
        | {"params": [{"name": "pointed", "select": pointed}]},
        vega.layer(
            "text",
            name,
            clip=True,
            align="left",
            dx=6,
            fontSize=12,
            limit={"expr": f"max({seen} - 10, 1)"},
            tooltip=None,
        ),
        params=[
            {"name": name, "value": value}
            for name, value in (("measure", "best"), ("focus", 0), ("picked", -1))
        ],
        transform=[
            # A module begins where all that stands before it ends: its own part first, then its children.
            {"calculate": "datum['own_' + measure] || 0", "as": "own"},
            {"window": [{"op": "sum", "field": "own", "as": "end"}], "sort": [{"field": "order"}]},
            {"calculate": "datum[measure] || 0", "as": "total"},
            {"joinaggregate": [{"op": "max", "field": "total", "as": "whole"}]},
            {"calculate": "datum.total / datum.whole", "as": "share"},
            {"calculate": "(datum.end - datum.own) / datum.whole", "as": "begin"},
            {"calculate": "datum.id === focus ? datum.begin : 0", "as": "focus_begin"},
            {"calculate": "datum.id === focus ? datum.share : 0", "as": "focus_share"},
            {
                "joinaggregate": [
                    {"op": "max", "field": "focus_begin", "as": "from"},
                    {"op": "max", "field": "focus_share", "as": "wide"},
                ]
            },
            {"calculate": "(datum.begin - datum.from) / datum.wide", "as": "left"},
            {"calculate": "datum.left + datum.share / datum.wide", "as": "right"},
            # Narrower than 0.7 pixels nothing can be seen or clicked, and thousands of such cells make it slow.
            {"filter": f"datum.depth < {levels} && datum.right > 0 && datum.left < 1"},
            {"filter": "(datum.right - datum.left) * width > 0.7"},
            {"calculate": "max(datum.left, 0)", "as": "seen_from"},
            {"calculate": f"datum.name + ' ' + {chart.share('datum.share')}", "as": "words"},
        ],
    )
