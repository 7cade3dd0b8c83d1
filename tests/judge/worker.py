"""Runs inside the judge's child process: the real CUDA provider says where it puts every node of a model.

Reads one JSON line per model from standard input and answers with one JSON line each. Run with
``LD_LIBRARY_PATH`` naming the folder of stand-in libraries; nothing is ever executed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def judge(request: dict[str, Any]) -> dict[str, Any]:
    """Creates a session for the model at ``path`` and tells assignments and the optimised graph's nodes."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[request.get("level", 3)])
    options.optimized_model_filepath = request["optimized"]
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    for key, value in request.get("config", {}).items():
        options.add_session_config_entry(key, value)
    providers = {"cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"], "cpu": ["CPUExecutionProvider"]}
    session = ort.InferenceSession(
        request["path"], options, providers=providers[request.get("session", "cuda")]
    )
    nodes = [
        [node.name, node.op_type, part.ep_name.removesuffix("ExecutionProvider").lower()]
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]
    answer = {"nodes": nodes, "providers": session.get_providers(), **_optimized(request["optimized"])}
    if request.get("feeds"):
        answer["launches"] = _launches(session, request["feeds"])
    return answer


def _launches(session: Any, feeds: str) -> int:
    """Kernels that the second run hands to the stand-in device; what comes out has no meaning."""
    import numpy as np

    with np.load(feeds) as arrays:
        inputs = {name: arrays[name] for name in arrays.files}
    libraries = [ctypes.CDLL(str(path)) for path in Path(os.environ["LD_LIBRARY_PATH"]).glob("lib*.so.*[0-9]")]
    session.run(None, inputs)
    before = sum(library.standin_count() for library in libraries)
    session.run(None, inputs)
    return int(sum(library.standin_count() for library in libraries) - before)


def _optimized(path: str) -> dict[str, Any]:
    """Every copy in the optimised graph's own level and in its subgraphs, and the names of its constants."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    inner = [copy for body in _bodies(graph) for copy in _copies(body)]
    constants = [tensor.name for tensor in graph.initializer]
    return {"copies": _copies(graph), "inner_copies": inner, "constants": constants}


def _copies(graph: Any) -> list[list[str]]:
    return [[n.op_type, n.input[0], n.output[0]] for n in graph.node if n.op_type.startswith("Memcpy")]


def _bodies(graph: Any) -> list[Any]:
    """All subgraphs, however deep."""
    own = [item.g for node in graph.node for item in node.attribute if item.HasField("g")]
    return [*own, *(inner for body in own for inner in _bodies(body))]


def main() -> None:
    """Answers until standard input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = judge(request)
        except Exception as error:  # ONNX Runtime's own exception types share no base of ours
            answer = {"error": f"{type(error).__name__}: {error}"}
        if not request.get("keep"):
            Path(request["optimized"]).unlink(missing_ok=True)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
