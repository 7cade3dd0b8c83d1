"""Run as a script with the stand-in libraries: prints what a session asks of CUDA, a letter a call.

The letters are those of ``tests/judge/standins.c``.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from measuring_models import perceptron

from analyzer.measurement.io_binding import bind_session
from analyzer.measurement.session import SessionSettings, create


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

    print(json.dumps({"resident": way({}), "graph": way({"enable_cuda_graph": "1"})}))


if __name__ == "__main__":
    main(sys.argv[1])
