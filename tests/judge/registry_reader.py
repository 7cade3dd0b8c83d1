"""Runs inside a child process with stand-ins for CUDA and TensorRT: prints ONNX Runtime's registry as JSON."""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Prints every kernel and every operator schema that this build knows."""
    import onnxruntime
    import onnxruntime.capi.onnxruntime_pybind11_state as state

    kernels = [
        [kernel.provider, kernel.domain, kernel.op_name, kernel.version_range, kernel.type_constraints]
        for kernel in state.get_all_opkernel_def()
    ]
    schemas = [
        [schema.domain, schema.name, schema.since_version, *map(_parameters, (schema.inputs, schema.outputs))]
        for schema in state.get_all_operator_schema()
    ]
    json.dump({"version": onnxruntime.__version__, "kernels": kernels, "schemas": schemas}, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # providers that never really loaded must not be unloaded


def _parameters(parameters: list[object]) -> list[list[str]]:
    return [[p.name, p.typeStr, p.option.name] for p in parameters]  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
