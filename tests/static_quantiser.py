"""ONNX Runtime's own tools for int8, with their defaults: what the forms of a model are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Noise(CalibrationDataReader):  # type: ignore[misc]  # it ships no types
    """Random data for an input ``x``, by which scales are found."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(0)
        self._left: Iterator[dict[str, Any]] = iter(
            [{"x": random.normal(size=shape).astype(np.float32)} for _ in range(2)]
        )

    def get_next(self) -> dict[str, Any] | None:
        """The next data; None where there are no more."""
        return next(self._left, None)


def quantised(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """What the tools write of it, one after the other."""
    onnx.save(model, folder / "floats.onnx")
    quant_pre_process(str(folder / "floats.onnx"), str(folder / "ready.onnx"), skip_symbolic_shape=True)
    shape = tuple(size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim)
    quantize_static(str(folder / "ready.onnx"), str(folder / "int8.onnx"), Noise(shape))
    return onnx.load(folder / "int8.onnx")
