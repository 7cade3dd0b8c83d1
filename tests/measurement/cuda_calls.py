"""Run as a script with the stand-in libraries: prints what a session asks of CUDA, a letter a call.

The letters are those of ``tests/judge/standins.c``.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring_models import perceptron, sized, token_step

from analyzer.measurement.on_cuda import bound_call
from analyzer.measurement.request import MeasureRequest
from analyzer.measurement.session import SessionSettings, bind_session, create


def main(library: str) -> None:
    runtime = ctypes.CDLL(library)
    runtime.standin_calls.restype = ctypes.c_char_p
    feeds = {"x0": np.ones((32, 256), np.float32)}

    def asked(step: Callable[[], Any]) -> tuple[Any, str]:
        """What the step gives, and what CUDA was asked for meanwhile."""
        runtime.standin_forget()
        result = step()
        return result, runtime.standin_calls().decode()

    def way(options: dict[str, str]) -> dict[str, Any]:
        settings = SessionSettings(provider="cuda", cuda={"device_id": "0", "use_tf32": "1", **options})
        session = create(perceptron().SerializeToString(), settings)
        copies = []
        if not options:
            session.run(None, feeds)
            copies = [asked(lambda: session.run(None, feeds))[1] for _ in range(2)]
        bound, binding = asked(lambda: bind_session(session, feeds, "cuda"))
        return {
            "copies": copies,
            "binding": binding,
            "calls": [asked(bound.call)[1] for _ in range(3)],
            "options": session.get_provider_options()["CUDAExecutionProvider"],
        }

    def step(options: dict[str, str]) -> dict[str, Any]:
        """A token whose cache is written in place; its id goes to the GPU, and one comes back."""
        settings = SessionSettings(provider="cuda", cuda={"device_id": "0", **options})
        session = create(token_step().SerializeToString(), settings)
        fed = {"ids": np.zeros(1, np.int64), "past": np.ones((4, 8), np.float32)}
        request = MeasureRequest(
            model_path=Path("step.onnx"),
            provider="cuda",
            in_place={"past": "present"},
            ids=("ids",),
            ids_back=1,
        )
        call = bound_call(session, fed, request)
        return {"calls": [asked(call)[1] for _ in range(3)]}

    def size_from_the_host() -> dict[str, Any]:
        """A tensor of a size that the host reads: it is given in the host's memory."""
        session = create(sized().SerializeToString(), SessionSettings(provider="cuda", optimize=False))
        fed = {"x": np.ones((4, 8), np.float32), "shape": np.array([8, 4], np.int64)}
        bound = bind_session(session, fed, "cuda")
        devices = {name: value.device_name() for name, value in bound.inputs.items()}
        return {"devices": devices, "calls": [asked(bound.call)[1] for _ in range(2)]}

    told = {
        "resident": way({}),
        "graph": way({"enable_cuda_graph": "1"}),
        "step": step({}),
        "step as a graph": step({"enable_cuda_graph": "1"}),
        "size": size_from_the_host(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
