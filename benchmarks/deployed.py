"""Predicted over measured of quantised and classical models on this CPU; prints two tables.

    python benchmarks/deployed.py FOLDER [FOLDER...] [--visits 6] [--one-thread] [--markdown]

The folders are those that ``deployed_quantized.py``, ``deployed_generators.py``, ``deployed_classical.py`` and
``deployed_trees.py`` write. Each model is measured in visits that take turns with all others, so that a slow
minute of the machine is nobody's; the best visit counts, as in a calibration. Predictions execute nothing
(``run=False``) and use this machine's calibration: run ``analyze calibrate`` before. ``--one-thread`` runs and
predicts one thread, and measures what the processor spends on it: what other processes take meanwhile is not
counted, as it is on the clock. The second table is the gain of each quantised model over the network that it
came from.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
import onnxruntime
from rich.console import Console
from rich.table import Table

from analyzer import analyze

_VISIT_S, _LEAST_RUNS = 0.2, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model: seconds measured and predicted, with the interval."""

    name: str
    measured_s: float
    time_s: float
    low_s: float
    high_s: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.time_s / self.measured_s


def main() -> None:
    """Measures, predicts and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rows", type=int, default=1000, help="of classical models, as their inputs have")
    parser.add_argument("--visits", type=int, default=6)
    parser.add_argument("--one-thread", action="store_true", help="processor time of one thread")
    parser.add_argument("--markdown", action="store_true", help="tables as in deployed.md")
    arguments = parser.parse_args()
    alone: bool = arguments.one_thread
    paths = sorted(path for folder in arguments.folders for path in folder.glob("*.onnx"))
    calls = {path: call for path in paths if (call := _call(path, alone)) is not None}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(arguments.visits):
        for path, call in calls.items():
            best[path] = min(best[path], _visit(call, time.thread_time if alone else time.perf_counter))
    rows = {path.stem: _row(path, best[path], arguments.rows, alone) for path in calls}
    print_table = _print_markdown if arguments.markdown else Console(width=120).print
    quantised = [row for row in rows.values() if _origin(row.name) in rows]
    classical = [
        row for path in calls if path.with_suffix(".npz").exists() and (row := rows[path.stem]) is not None
    ]
    for title, group in (("Quantised", quantised), ("Classical", classical)):
        if group:
            _print(print_table, title, group)
    if quantised:
        _print_gains(print_table, quantised, rows)


def _print_markdown(table: Table) -> None:
    print(f"\n### {table.title}\n")
    print(f"| {' | '.join(str(column.header) for column in table.columns)} |")
    print(f"|---|{'---:|' * (len(table.columns) - 1)}")
    for cells in zip(*(list(column.cells) for column in table.columns), strict=True):
        print(f"| {' | '.join(map(str, cells))} |")
    print()


def _origin(name: str) -> str:
    """The float network that a quantised model came from; itself for that network."""
    network, _, form = name.partition(" ")
    return network if form.startswith(("static", "dynamic", "blocks")) else ""


def _call(path: Path, alone: bool) -> Callable[[], object] | None:
    options = onnxruntime.SessionOptions()
    if alone:  # then everything runs on the thread that calls
        options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # what this machine lacks: a locale, an operator
        print(f"{path.stem}: no session ({str(error)[:100]})", file=sys.stderr)
        return None
    stored = path.with_suffix(".npz")
    feeds = dict(np.load(stored, allow_pickle=True)) if stored.exists() else _feeds(path)
    return lambda: session.run(None, feeds)


def _feeds(path: Path) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    feeds = {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in dims]
        integers = value.type.tensor_type.elem_type == onnx.TensorProto.INT64
        floats = random.standard_normal(shape).astype(np.float32)
        feeds[value.name] = random.integers(0, 5, shape) if integers else floats
        if "mask" in value.name:  # of a language model: every token counts
            feeds[value.name] = np.ones(shape, dtype=np.int64)
    return feeds


def _visit(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Median seconds of a call within one visit."""
    call()
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < _VISIT_S or len(times) < _LEAST_RUNS:
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


def _row(path: Path, measured_s: float, rows: int, alone: bool) -> Row:
    batch = rows if path.with_suffix(".npz").exists() else None
    plans = analyze(path, run=False, gpu="none", batch=batch, threads=1 if alone else None).plans
    plan = next(plan for plan in plans if plan.name == "cpu")
    return Row(
        name=path.stem,
        measured_s=measured_s,
        time_s=plan.latency_s,
        low_s=plan.low_s or 0.0,
        high_s=plan.high_s or float("inf"),
    )


def _print(print_table: Callable[[Table], None], title: str, rows: list[Row]) -> None:
    table = Table("model", "measured", "predicted", "90 %", "ratio", title=title)
    for row in rows:
        interval = f"{row.low_s * 1e3:.3f} to {row.high_s * 1e3:.3f}"
        table.add_row(
            row.name,
            f"{row.measured_s * 1e3:.3f} ms",
            f"{row.time_s * 1e3:.3f} ms",
            interval,
            f"{row.ratio:.2f}",
        )
    print_table(table)
    errors = sorted(max(row.ratio, 1 / row.ratio) - 1 for row in rows)
    beyond = sum(error > 1 for error in errors)
    held = sum(row.low_s <= row.measured_s <= row.high_s for row in rows) / len(rows)
    print(
        f"{len(rows)} models: median error {statistics.median(errors):.1%}, {beyond} beyond 2x, "
        f"90 % intervals hold {held:.0%}"
    )


def _print_gains(print_table: Callable[[Table], None], quantised: list[Row], rows: Mapping[str, Row]) -> None:
    table = Table("model", "gain measured", "predicted", "ratio", title="Gain over the float network")
    errors = []
    for row in quantised:
        floats = rows[_origin(row.name)]
        measured, predicted = floats.measured_s / row.measured_s, floats.time_s / row.time_s
        errors.append(max(predicted / measured, measured / predicted) - 1)
        table.add_row(row.name, f"{measured:.2f}", f"{predicted:.2f}", f"{predicted / measured:.2f}")
    print_table(table)
    within = sum(error <= 0.25 for error in errors)
    print(f"gain: median error {statistics.median(errors):.1%}, {within} of {len(errors)} within 25 %")


if __name__ == "__main__":
    main()
