"""Reporting: where the time goes, by operator type and by module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.report.charts import chart
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    SERIES_COLOURS,
    Chart,
    Column,
    ColumnKind,
    Row,
    axis,
    bars,
    colours,
    combined_origin,
    faded,
    legend_selection,
    nominal,
    origin_words,
    quantity,
    rows_of,
    tooltip,
)
from analyzer.report.module_tree import Module
from analyzer.units import seconds, share

# Types drawn, the others are one bar: two bars a type of 15 pixels each still fit on one screen.
LARGEST = 14
# Rows of the icicle that are reserved on the page, and the height of one in CSS pixels: two lines of text.
LEVELS, STEP = 9, 34
_BOTH, _UNTIMED = "CPU and GPU", "takes no time"
# Where a module's operators run in the best plan.
_WHERE = {
    CPU: SERIES_COLOURS[CPU],
    GPU: SERIES_COLOURS[GPU],
    _BOTH: "var(--hybrid)",
    _UNTIMED: "var(--muted)",
}
# How much of a cell is on the screen once one has looked inside a module.
_SEEN = "min(scale('x', datum.x1), width) - max(scale('x', datum.x0), 0)"
_TYPES = (
    Column(name="type", title="Operator type"),
    Column(name="device", title="Device"),
    Column(name="share", title="Share of the device's time", kind="share"),
    Column(name="time", title="Time", kind="seconds"),
    Column(name="operators", title="Operators", kind="count"),
    Column(name="origin", title="Origin"),
)
_MEASURES: Mapping[str, tuple[str, ColumnKind]] = {
    "best": ("time, best plan", "seconds"),
    "cpu": ("time, CPU", "seconds"),
    "gpu": ("time, GPU", "seconds"),
    "flops": ("FLOPs", "flops"),
}


def _measured(what: str, name: str, module: Module) -> float | None:
    measures: Mapping[str, float | None] = getattr(module, what)
    return measures[name]


_MODULES = (
    Column(name="id", title="Number", kind="count", read="number"),
    Column(name="parent", title="Parent", kind="count", lookup="modules.parent", read="parent"),
    Column(name="name", title="Name", lookup="modules.name", read="name"),
    Column(name="path", title="Module", lookup="modules.path", read="path"),
    Column(name="class", title="Class", lookup="modules.class", read="class_name"),
    Column(name="operators", title="Operators", kind="count", lookup="modules.operators", read="operators"),
    *(
        Column(name=f"own_{name}", title=f"Own {what}", kind=kind, read=partial(_measured, "own", name))
        for name, (what, kind) in _MEASURES.items()
    ),
    *(
        Column(
            name=name,
            title=what[0].upper() + what[1:],
            kind=kind,
            lookup=f"modules.{name}",
            read=partial(_measured, "total", name),
        )
        for name, (what, kind) in _MEASURES.items()
    ),
    Column(
        name="gpu_share",
        title="On the GPU, of those that take time",
        kind="share",
        # A Reshape that is folded away says nothing of where its module runs.
        read=lambda one: one.on_gpu / one.timed if one.timed else None,
    ),
)


def by_type(analysis: Analysis) -> Chart | None:
    """Share of each device's time by operator type; None where no operator has a time."""
    rows = _type_rows(analysis)
    if not rows:
        return None
    order = list(dict.fromkeys(row[0] for row in rows))
    sides = [side for side in (CPU, GPU) if any(row[1] == side for row in rows)]
    return Chart(
        name="by-type",
        title="Time by operator type",
        lead="What each type takes of the whole, on the CPU alone and in the CUDA session. "
        + " ".join(f"Times on the {side} are {_origin_on(side, rows)}." for side in sides),
        alternative=" ".join(_biggest(side, rows) for side in sides),
        spec=_bars(order, sides),
        columns=_TYPES,
        rows=rows,
        height=max(120, 34 * len(order) + 60),
    )


def _type_rows(analysis: Analysis) -> tuple[Row, ...]:
    sums: dict[str, dict[str, float]] = {CPU: defaultdict(float), GPU: defaultdict(float)}
    counts: dict[str, int] = defaultdict(int)
    origins: dict[str, set[str]] = {CPU: set(), GPU: set()}
    for operator in analysis.operators:
        counts[operator.op_type] += 1
        for side, time in ((CPU, operator.cpu), (GPU, operator.gpu)):
            if time is not None and time.time_s is not None:
                sums[side][operator.op_type] += time.time_s
                origins[side].add(time.origin)
    totals = {side: sum(times.values()) for side, times in sums.items()}
    op_types = {op_type for times in sums.values() for op_type in times}
    # By the larger of its two shares, as what is small on the one device may be all of the other's time; by
    # name among equals, so that the same record gives the same bytes.
    ranked = sorted(
        op_types,
        key=lambda op_type: (-max(_share(sums[side], op_type, totals[side]) for side in sums), op_type),
    )
    shown, rest = ranked[:LARGEST], ranked[LARGEST:]
    if rest:
        name = f"{len(rest)} other types"
        for times in sums.values():
            times[name] = sum(times.pop(op_type, 0.0) for op_type in rest)
        counts[name] = sum(counts[op_type] for op_type in rest)
        shown = [*shown, name]
    return tuple(
        (
            op_type,
            side,
            _share(sums[side], op_type, totals[side]),
            sums[side][op_type],
            counts[op_type],
            combined_origin(origins[side]),
        )
        for op_type in shown
        for side in (CPU, GPU)
        if totals[side]
    )


def _share(times: dict[str, float], op_type: str, total: float) -> float:
    return times.get(op_type, 0.0) / total if total else 0.0


def _origin_on(side: str, rows: tuple[Row, ...]) -> str:
    return origin_words(row[5] for row in rows if row[1] == side)


def _biggest(side: str, rows: tuple[Row, ...]) -> str:
    largest = sorted((row for row in rows if row[1] == side), key=lambda row: -float(row[2]))[:3]
    return f"{side}: " + ", ".join(f"{row[0]} {share(row[2])} ({seconds(row[3])})" for row in largest) + "."


def _bars(order: list[str], sides: list[str]) -> dict[str, Any]:
    encoding = {
        "y": nominal("type", sort=order, title=None, axis={"labelLimit": 150}),
        "yOffset": {"field": "device", "sort": sides},
        "x": quantity("share", axis("share", "Share of the device's time", tickCount=8)),
        "color": nominal("device", scale=colours(*sides), title=None),
        "opacity": faded("side", 0.1),
        "tooltip": tooltip(*_TYPES),
    }
    return bars({"step": 15}, legend_selection("side", "device"), {"cornerRadiusEnd": 2}, encoding)


def by_module(modules: tuple[Module, ...], origin: str = "") -> Chart | None:
    """An icicle of the modules; None where there is no structure or nothing to add up.

    Args:
        modules: The tree.
        origin: Of the times in the best plan.
    """
    # The first is the model itself.
    if len(modules) < 2 or not any(modules[0].total[name] for name in _MEASURES):
        return None
    depth = _depth(modules)
    return Chart(
        name="by-module",
        title="Time by module",
        lead="Each module is as wide as what it and its children take, in the order of the graph. Click one to "
        "look inside, the top row to go back." + (f" Times in the best plan are {origin}." if origin else ""),
        alternative=_module_words(modules),
        engine="vega",
        spec=_icicle(min(depth + 1, LEVELS) * STEP, _places(modules)),
        columns=_MODULES,
        rows=rows_of(_MODULES, modules),
        height=min(depth + 1, LEVELS) * STEP,
    )


def _places(modules: tuple[Module, ...]) -> list[str]:
    """What the legend names; a module with neither time nor FLOPs has no width."""
    return sorted({_where(module) for module in modules if module.timed or module.total["flops"]})


def _where(module: Module) -> str:
    """Where its operators run, of those that take time."""
    if not module.timed:
        return _UNTIMED
    return {0: CPU, module.timed: GPU}.get(module.on_gpu, _BOTH)


def _depth(modules: tuple[Module, ...]) -> int:
    depths = [0] * len(modules)
    # The tree lists parents before their children, so that a parent's depth is known.
    for module in modules[1:]:
        depths[module.number] = depths[module.parent or 0] + 1
    return max(depths)


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


def _icicle(height: int, places: list[str]) -> dict[str, Any]:
    """A partition that one can click into; ``measure`` and ``focus`` are its signals."""
    colours_of = {"domain": places, "range": [_WHERE[place] for place in places]}
    across = {
        "name": "x",
        "type": "linear",
        "domain": {"signal": "[focus.x0, focus.x1]"},
        "range": [0, {"signal": "width"}],
        "zero": False,
        "nice": False,
    }
    return {
        "width": 600,
        "height": height,
        "padding": 0,
        "signals": _signals(),
        "data": [{"name": "table"}, {"name": "cells", "source": "table", "transform": _partition()}],
        "scales": [across, {"name": "where", "type": "ordinal", **colours_of}],
        "legends": [
            {
                "fill": "where",
                "orient": "top",
                "direction": "horizontal",
                "symbolType": "square",
                "symbolOpacity": 0.5,
                "symbolStrokeWidth": 0,
            }
        ],
        "marks": [_cells(), _cell_words()],
    }


def _signals() -> list[dict[str, Any]]:
    """What the widths stand for, the module that is looked into, and the height of a row."""
    looked_into = "{id: datum.id, x0: datum.x0, x1: datum.x1, depth: datum.depth}"
    return [
        {"name": "measure", "value": "best"},
        {
            "name": "focus",
            "value": {"id": 0, "x0": 0, "x1": 1, "depth": 0},
            "on": [{"events": "@cell:click", "update": looked_into}],
        },
        {"name": "step", "value": STEP},
    ]


def _partition() -> list[dict[str, Any]]:
    """From rows to the cells that are wide enough to be seen at the present focus."""

    def keep(expression: str) -> dict[str, str]:
        return {"type": "filter", "expr": expression}

    def formula(name: str, expression: str) -> dict[str, str]:
        return {"type": "formula", "as": name, "expr": expression}

    return [
        # Vega's partition adds up the leaves' field by itself, so each module gives what is its own alone.
        formula("own", "datum['own_' + measure] || 0"),
        {"type": "stratify", "key": "id", "parentKey": "parent"},
        {"type": "partition", "field": "own", "size": [1, 1]},
        keep("datum.x1 > datum.x0"),
        keep("datum.x1 > focus.x0 && datum.x0 < focus.x1"),
        # Narrower than 0.7 pixels nothing can be seen or clicked, and thousands of such cells make it slow.
        keep("(datum.x1 - datum.x0) * width > 0.7 * (focus.x1 - focus.x0)"),
        formula("whole", "data('table')[0][measure]"),
        formula("words", f"datum.name + ' ' + {chart.share('datum.x1 - datum.x0')}"),
    ]


def _cells() -> dict[str, Any]:
    """A rectangle for each module, in the colour of where its time is spent."""
    colour = [
        {"test": "datum.gpu_share === 1", "value": _WHERE[GPU]},
        {"test": "datum.gpu_share === 0", "value": _WHERE[CPU]},
        {"test": "datum.gpu_share === null", "value": _WHERE[_UNTIMED]},
        {"value": _WHERE[_BOTH]},
    ]
    tip = (
        "{Module: datum.path || datum.name, Class: datum['class'] || '', "
        "Share: figure(datum.x1 - datum.x0, 'share'), "
        "'Best plan': figure(datum.best, 'seconds'), "
        "CPU: figure(datum.cpu, 'seconds'), GPU: figure(datum.gpu, 'seconds'), "
        "FLOPs: figure(datum.flops, 'flops'), Operators: datum.operators, "
        "'On the GPU': figure(datum.gpu_share, 'share')}"
    )
    update = {
        "x": {"scale": "x", "field": "x0"},
        "x2": {"scale": "x", "field": "x1"},
        "y": {"signal": "datum.depth * step"},
        "height": {"signal": "step"},
        "fill": colour,
        # ``picked`` is a signal that templates/js/charts.js adds: the module of the selected operator.
        "fillOpacity": {"signal": "datum.id === picked ? 0.55 : 0.2"},
        "stroke": {"value": "var(--surface)"},
        "strokeWidth": {"value": 2},
        "cursor": {"value": "pointer"},
        "tooltip": {"signal": tip},
    }
    encode = {"update": update, "hover": {"fillOpacity": {"value": 0.4}}}
    return {"type": "rect", "name": "cell", "clip": True, "from": {"data": "cells"}, "encode": encode}


def _cell_words() -> dict[str, Any]:
    """Name and share in each cell that has room for them."""
    # A cell that begins left of what is seen keeps its name in sight; below 34 pixels no letter would be whole.
    update = {
        "x": {"signal": "max(scale('x', datum.x0), 0) + 6"},
        "y": {"signal": "(datum.depth + 0.5) * step"},
        "baseline": {"value": "middle"},
        "text": {"field": "words"},
        "limit": {"signal": f"max({_SEEN} - 10, 1)"},
        "opacity": {"signal": f"{_SEEN} > 34 ? 1 : 0"},
        "fill": {"value": "var(--text)"},
        "fontSize": {"value": 12},
    }
    encode = {"update": update}
    return {"type": "text", "interactive": False, "clip": True, "from": {"data": "cells"}, "encode": encode}
