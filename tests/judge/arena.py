"""Runs beside the stand-in libraries: what nodes ask the CUDA provider's arena for.

    LD_LIBRARY_PATH=FOLDER python arena.py MODEL...

Prints one JSON list a model: [name, bytes asked for, bytes held after it] of every node on CUDA.
"""

from __future__ import annotations

import json
import sys
import tempfile

import numpy as np


def states(path: str, folder: str) -> list[list[object]]:
    """The nodes of one run, in the order of execution."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.enable_profiling = True
    options.enable_mem_pattern = False
    options.profile_file_prefix = f"{folder}/profile"
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = ort.InferenceSession(path, options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    session.run(None, {given.name: np.ones(given.shape, np.float32) for given in session.get_inputs()})
    with open(session.end_profiling(), encoding="utf-8") as stream:
        events = [event for event in json.load(stream) if event["name"].endswith("_kernel_time")]
    return [
        [
            event["name"].removesuffix("_kernel_time"),
            int(event["args"]["mem_requested_in_use_delta"]),
            int(event["args"]["mem_bytes_requested_in_use"]),
        ]
        for event in events
        if event["args"]["provider"] == "CUDAExecutionProvider"
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for path in sys.argv[1:]:
            print(json.dumps(states(path, folder)), flush=True)
