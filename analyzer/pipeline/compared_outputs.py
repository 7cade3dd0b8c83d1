"""Differences of a run's outputs, and whether the number of threads explains them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.graph import Graph
from analyzer.measurement.child_process import measure
from analyzer.measurement.output_agreement import agreement
from analyzer.measurement.request import MeasureRequest
from analyzer.measurement.tensor_files import load_tensors

_OUTPUTS = "outputs-cpu-one-thread.npz"


def agreement_rows(
    between: str,
    expected: Sequence[Any],
    outputs: Sequence[tuple[str, Any]],
    *,
    session: str,
    precision: str | None = None,
) -> list[dict[str, Any]]:
    """Return each output's difference; expected values have no names, so they pair by position."""
    if len(expected) != len(outputs):
        return []
    expected_by_name = {name: value for (name, _), value in zip(outputs, expected, strict=True)}
    return [
        {
            "between": between,
            "session": session,
            "output": output.name,
            "max_abs_error": output.max_absolute,
            "max_rel_error": output.max_relative,
            "agrees": output.agrees,
        }
        for output in agreement(expected_by_name, dict(outputs), precision=precision)
    ]


def with_one_thread(
    rows: list[dict[str, Any]], expected: Sequence[Any], graph: Graph, folder: Path, threads: int
) -> list[dict[str, Any]]:
    """Return rows of the CPU that differ, with what one thread gives in place of several.

    ``expected`` is by position; ``threads`` are those of the run that ``rows`` are of.
    """
    if threads == 1 or all(row["agrees"] for row in rows):
        return rows
    request = MeasureRequest(
        model_path=folder / "model.onnx",
        feeds=folder / "feeds.npz",
        outputs=folder / _OUTPUTS,
        runs=1,
        threads=1,
        profile=False,
        replay=False,
    )
    try:
        measure(request)
        outputs = list(load_tensors(folder / _OUTPUTS).items())
    except (AnalyzerError, OSError):  # another look at what is told already
        return rows
    again = {row["output"]: row for row in agreement_rows("", expected, outputs, session="cpu")}
    return [
        row
        if row["agrees"] or row["output"] not in again
        else {
            **row,
            "threads": threads,
            "one_thread_agrees": again[row["output"]]["agrees"],
            "one_thread_max_rel_error": again[row["output"]]["max_rel_error"],
            "reducing_scatters": reducing_scatters(graph),
        }
        for row in rows
    ]


def reducing_scatters(graph: Graph) -> int:
    """Return how many ScatterND add or compare with what is there: threads lose updates of a row hit twice.

    So did onnxruntime 1.31.1 with two threads: maxima, whose order cannot matter, of 1,700 rows into 800 were
    off by 3.2. Its ScatterElements, which one thread executes, were not.
    """
    return sum(
        node.op_type == "ScatterND" and node.attributes.get("reduction", "none") != "none"
        for node in graph.nodes
    )
