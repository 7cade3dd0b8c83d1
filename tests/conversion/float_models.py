"""Small models of floats with random weights: what quantisers meet, each with an input ``x``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from quantized_models import Builder

OPSET = 20
_SAME = {"pads": [1] * 4}


def cases() -> Iterator[tuple[str, onnx.ModelProto]]:
    """All models, by name."""
    for name, (build, shape) in _CASES.items():
        builder = Builder()
        yield name, builder.model(build(builder), shape, OPSET)


def weights(b: Builder, *shape: int) -> str:
    """Stored floats."""
    return b.constant(b.random.normal(size=shape) * 0.1)


def conv(b: Builder, data: str, into: int, out: int, *, bias: bool = True, size: int = 3) -> str:
    """A convolution that keeps the size of its image."""
    filters = weights(b, out, into, size, size)
    pads = _SAME if size == 3 else {}
    return b.node("Conv", data, filters, *([b.row(out)] if bias else []), **pads)


def norm(b: Builder, data: str, channels: int) -> str:
    """A BatchNormalization of inference."""
    stored = [b.row(channels), b.row(channels), b.row(channels), b.constant(np.ones(channels))]
    return b.node("BatchNormalization", data, *stored)


def linear(b: Builder, data: str, into: int, out: int) -> str:
    """MatMul and the Add of a bias."""
    return b.node("Add", b.node("MatMul", data, weights(b, into, out)), b.row(out))


def _convolutions(b: Builder) -> str:
    first = b.node("Relu", norm(b, conv(b, "x", 8, 16, bias=False), 16))
    second = b.node("Clip", conv(b, first, 16, 16), b.constant(np.array(0.0)), b.constant(np.array(6.0)))
    pooled = b.node("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2])
    flat = b.node("Flatten", b.node("GlobalAveragePool", pooled))
    return b.node("Gemm", flat, weights(b, 10, 16), b.row(10), transB=1)


def _activations(b: Builder) -> str:
    limits = (b.constant(np.array(0.0)), b.constant(np.array(6.0)))
    first = b.node("Clip", b.node("Relu", conv(b, "x", 8, 16)), *limits)
    return b.node("Relu", b.node("Clip", conv(b, first, 16, 8), *limits))


def _affine(b: Builder) -> str:
    added = b.node("Add", conv(b, "x", 8, 16, bias=False), b.constant(np.ones((16, 1, 1))))
    scaled = b.node("Mul", added, b.constant(np.full((16, 1, 1), 0.5)))
    return conv(b, b.node("Relu", scaled), 16, 8)


def _residual(b: Builder) -> str:
    first = b.node("Relu", conv(b, "x", 8, 8))
    second = b.node("Relu", b.node("Add", first, conv(b, first, 8, 8)))
    return b.node("Sigmoid", b.node("Add", second, conv(b, second, 8, 8, size=1)))


def _attention(b: Builder) -> str:
    heads = [b.constant(np.array([1, 4, 2, 16]), onnx.TensorProto.INT64)]

    def split(data: str, *perm: int) -> str:
        return b.node("Transpose", b.node("Reshape", data, heads[0]), perm=list(perm))

    def attend(data: str) -> str:
        q, k, v = (linear(b, data, 32, 32) for _ in range(3))
        scores = b.node("MatMul", split(q, 0, 2, 1, 3), split(k, 0, 2, 3, 1))
        scaled = b.node("Div", scores, b.constant(np.array(4.0)))
        context = b.node("MatMul", b.node("Softmax", scaled, axis=-1), split(v, 0, 2, 1, 3))
        rows = b.constant(np.array([1, 4, 32]), onnx.TensorProto.INT64)
        return linear(b, b.node("Reshape", b.node("Transpose", context, perm=[0, 2, 1, 3]), rows), 32, 32)

    def block(data: str) -> str:
        return b.node("LayerNormalization", b.node("Add", data, attend(data)), b.row(32), b.row(32))

    return linear(b, block(block("x")), 32, 8)


def _movement(b: Builder) -> str:
    image = conv(b, "x", 8, 8)
    pads = b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]), onnx.TensorProto.INT64)
    padded = b.node("Pad", image, pads)
    scales = b.constant(np.array([1.0, 1.0, 2.0, 2.0]))
    larger = b.node("Resize", padded, "", scales, mode="nearest")
    joined = b.node("Concat", larger, larger, axis=1)
    averaged = b.node("AveragePool", joined, kernel_shape=[2, 2], strides=[2, 2])
    first = b.node("Split", averaged, axis=1, num_outputs=1)
    return b.node("LeakyRelu", b.node("Mul", first, b.constant(np.array(0.5))), alpha=0.1)


def _shared(b: Builder) -> str:
    table, bias = weights(b, 32, 32), b.row(32)
    first = b.node("Add", b.node("MatMul", "x", table), bias)
    second = b.node("Add", b.node("MatMul", b.node("Tanh", first), table), bias)
    return b.node("Where", b.node("Greater", first, second), first, second)


def _embedding(b: Builder) -> str:
    rows = b.node("Cast", "x", to=onnx.TensorProto.INT64)
    table = weights(b, 100, 32)
    return linear(b, b.node("Gather", table, rows), 32, 8)


_IMAGE, _TOKENS = (1, 8, 12, 12), (1, 4, 32)
_CASES: dict[str, tuple[Callable[[Builder], str], tuple[int, ...]]] = {
    "convolutions": (_convolutions, _IMAGE),
    "activations in a row": (_activations, _IMAGE),
    "addition and factor": (_affine, _IMAGE),
    "residual": (_residual, _IMAGE),
    "attention": (_attention, _TOKENS),
    "movement": (_movement, _IMAGE),
    "shared weights": (_shared, _TOKENS),
    "embedding": (_embedding, (1, 4)),
    "one product to the end": (lambda b: b.node("MatMul", "x", weights(b, 32, 32)), (4, 32)),
}
