"""A model's card for a hub: Hugging Face's metadata in YAML with a ``model-index``, and the answer in Markdown.

https://github.com/huggingface/hub-docs/blob/main/modelcard.md has the keys of the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.record.outcome import Answer
from analyzer.report.document import ANSWER
from analyzer.report.markdown import markdown
from analyzer.report.record_document import document
from analyzer.text import loggable, printable

_METRICS = {
    "latency_s": "Latency in seconds",
    "throughput_per_s": "Throughput a second",
    "ttft_s": "Seconds to the first token",
    "tpot_s": "Seconds of each further token",
    "usd_per_million": "US dollars a million",
}


def render(analysis: Analysis) -> str:
    """Return the card; its first comment tells it from a card by another hand."""
    values: dict[str, Any] = {"tags": ["onnx" if analysis.model.exporter == "onnx" else "pytorch"]}
    if analysis.answer is not None:
        values["model-index"] = [{"name": analysis.model.name, "results": [_result(analysis.answer)]}]
    head = "\n".join(("---", f"# Written by analyze {printable(analysis.tool.version)}", *_yaml(values), "---"))
    return f"{loggable(head)}\n\n{markdown(document(analysis), ANSWER)}"


def _result(answer: Answer) -> Mapping[str, Any]:
    """Return the figures of the answer, as an entry of ``model-index``."""
    place = f"{answer.device_name}, {answer.origin}"
    metrics = [(name, title, getattr(answer, name)) for name, title in _METRICS.items()]
    return {
        "task": {"type": "other", "name": "Inference with ONNX Runtime"},
        "dataset": {"type": "other", "name": f"Batch {answer.batch or 1}, {answer.precision}"},
        "metrics": [
            {"type": name, "value": value, "name": f"{title} ({place})"}
            for name, title, value in metrics
            if value is not None
        ],
    }


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of plain values as YAML in block style."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, Mapping | list):
                yield f"{indent}{key}:"
                yield from _yaml(inner, f"{indent}  ")
            else:
                yield f"{indent}{key}: {_scalar(inner)}"
        return
    for item in value:
        first, *rest = _yaml(item, f"{indent}  ") if isinstance(item, Mapping) else [_scalar(item)]
        yield f"{indent}- {first.strip()}"
        yield from rest


def _scalar(value: object) -> str:
    # Every JSON text is one of YAML; YAML 1.1 takes 5e-05 without a point for a text.
    text = json.dumps(printable(value) if isinstance(value, str) else value, ensure_ascii=False)
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text
