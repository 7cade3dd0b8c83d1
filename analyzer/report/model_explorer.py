"""Node data for Google's Model Explorer: how long each node takes on the device that the answer gives it.

The keys of ``results`` are names of nodes, which an adapter for ONNX takes as ids; the schema is
``GraphNodeData`` of model_explorer/node_data_builder.py (ai-edge-model-explorer 0.1.34).
"""

from __future__ import annotations

from analyzer.record.analysis import Analysis
from analyzer.report.markdown import ascii_json
from analyzer.report.module_tree import time_in_plan
from analyzer.report.ranking_text import as_answered
from analyzer.text import printable

_MICRO = 1e6
_GRADIENT = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#d32f2f"})


def render(analysis: Analysis) -> str:
    """Return the times of all operators whose time is known, in microseconds, coloured from white to red."""
    times = {operator.name: time_in_plan(operator) for operator in as_answered(analysis).operators}
    results = {name: {"value": _MICRO * time_s} for name, time_s in times.items() if time_s is not None}
    name = printable(f"analyze: µs of {analysis.model.name}")
    return ascii_json({"name": name, "results": results, "gradient": _GRADIENT})
