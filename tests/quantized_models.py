"""Small quantised models of all kinds: data, weights and results of each type, with and without zero points."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

UINT8, INT8, UINT16 = TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16
INT4, UINT4, FLOAT = TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT
OPSETS = (13, 17, 19, 21, 22, 23, 24, 25)
BLOCKS_SINCE = 21  # DequantizeLinear with block_size, and types of 4 and of 16 bits
_NUMPY: dict[int, Any] = {
    UINT8: np.uint8,
    INT8: np.int8,
    UINT16: np.uint16,
    FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.INT64: np.int64,
    TensorProto.BOOL: np.bool_,
}
_RANGE: dict[int, tuple[int, int]] = {INT8: (-100, 100), UINT8: (0, 200), INT4: (-7, 7), UINT4: (0, 15)}


class Builder:
    """Nodes and stored tensors under names of their own."""

    def __init__(self, floats: int = FLOAT) -> None:
        self.floats = floats
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def constant(self, values: Any, kind: int = 0) -> str:
        """A stored tensor."""
        name, kind = f"stored{len(self.stored)}", kind or self.floats
        array = np.asarray(values)
        if kind in (INT4, UINT4):
            self.stored.append(helper.make_tensor(name, kind, array.shape, array.reshape(-1).tolist()))
        else:
            self.stored.append(numpy_helper.from_array(array.astype(_NUMPY[kind]), name))
        return name

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """An operator; its result."""
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}_result"], name=name, **attributes))
        return f"{name}_result"

    def pair(self, data: str, kind: int = UINT8, *, scale: float = 0.02, zero: int | None = 10) -> str:
        """QuantizeLinear and DequantizeLinear."""
        for op_type in ("QuantizeLinear", "DequantizeLinear"):
            zero_point = [] if zero is None else [self.constant(np.array(zero), kind)]
            data = self.node(op_type, data, self.constant(np.array(scale)), *zero_point)
        return data

    def weights(
        self,
        shape: Sequence[int],
        kind: int = INT8,
        *,
        axis: int | None = None,
        block: int = 0,
        zero: bool = True,
    ) -> str:
        """Dequantised weights: with one scale, one for each index of an axis, or for each block along it."""
        stored = self.constant(self.random.integers(*_RANGE[kind], shape), kind)
        sizes: list[int] = []
        attributes: dict[str, int] = {}
        if block and axis is not None:
            sizes = [size // block if number == axis else size for number, size in enumerate(shape)]
            attributes = {"axis": axis, "block_size": block}
        elif axis is not None:
            sizes, attributes = [shape[axis]], {"axis": axis}
        zero_points = [self.constant(np.full(sizes, int(kind in (UINT8, UINT4))), kind)] if zero else []
        return self.node(
            "DequantizeLinear", stored, self.constant(np.full(sizes, 0.01)), *zero_points, **attributes
        )

    def row(self, size: int) -> str:
        """A stored row of floats."""
        return self.constant(self.random.normal(size=size))

    def model(self, result: str, shape: Sequence[int], opset: int) -> onnx.ModelProto:
        """The model that gives one result of one input ``x``."""
        graph = helper.make_graph(
            self.nodes,
            "quantised",
            [helper.make_tensor_value_info("x", self.floats, shape)],
            [helper.make_tensor_value_info(result, self.floats, None)],
            self.stored,
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


Case = tuple[Callable[[Builder], str], tuple[int, ...]]
IMAGE, ROWS, TOKENS = (1, 8, 16, 16), (4, 32), (1, 4, 32)
_PADS = {"pads": [1] * 4}


def cases(opset: int) -> Iterator[tuple[str, onnx.ModelProto]]:
    """All models of an opset, by name."""
    found = {**_products(), **_others()}
    if opset >= BLOCKS_SINCE:
        found |= _blocks()
    for name, (build, shape) in found.items():
        builder = Builder(TensorProto.FLOAT16 if name.endswith("float16") else FLOAT)
        yield name, builder.model(build(builder), shape, opset)


def _products() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for name, data, weight in (("u8u8", UINT8, UINT8), ("u8s8", UINT8, INT8), ("s8s8", INT8, INT8)):
        found |= _products_of(name, data, weight)
    found["product and bias to floats"] = (
        lambda b: b.node("Add", b.node("MatMul", b.pair("x"), b.weights((32, 32))), b.row(32)),
        TOKENS,
    )
    return found


def _products_of(name: str, data: int, weight: int) -> dict[str, Case]:
    zero = 10 if data == UINT8 else 1

    def q(b: Builder, tensor: str = "x") -> str:
        return b.pair(tensor, data, zero=zero)

    def w(b: Builder, *shape: int, axis: int | None = None) -> str:
        return b.weights(shape, weight, axis=axis)

    return {
        f"convolution and relu {name}": (
            lambda b: q(b, b.node("Relu", b.node("Conv", q(b), w(b, 8, 8, 3, 3), **_PADS))),
            IMAGE,
        ),
        f"convolution of float weights and bias {name}": (
            lambda b: q(
                b, b.node("Conv", q(b), b.constant(b.random.normal(size=(8, 8, 3, 3))), b.row(8), **_PADS)
            ),
            IMAGE,
        ),
        f"convolution by channel with float bias {name}": (
            lambda b: q(b, b.node("Conv", q(b), w(b, 8, 8, 3, 3, axis=0), b.row(8), **_PADS)),
            IMAGE,
        ),
        f"convolution to floats {name}": (
            lambda b: b.node("Conv", q(b), w(b, 8, 8, 3, 3), **_PADS),
            IMAGE,
        ),
        f"product {name}": (lambda b: q(b, b.node("MatMul", q(b), w(b, 32, 32))), TOKENS),
        f"product by column {name}": (
            lambda b: q(b, b.node("MatMul", q(b), w(b, 32, 32, axis=1))),
            TOKENS,
        ),
        f"gemm {name}": (
            lambda b: q(b, b.node("Gemm", q(b), w(b, 32, 32), b.row(32), transB=1)),
            ROWS,
        ),
        f"gemm to floats {name}": (
            lambda b: b.node("Gemm", q(b), w(b, 32, 32), b.row(32), transB=1),
            ROWS,
        ),
        f"gemm of float data {name}": (
            lambda b: b.node("Gemm", "x", w(b, 32, 32), b.row(32), transB=1),
            ROWS,
        ),
    }


def _others() -> dict[str, Case]:
    return {
        "convolution of float data": (
            lambda b: b.node("Relu", b.node("Conv", "x", b.weights((8, 8, 3, 3), axis=0), **_PADS)),
            IMAGE,
        ),
        "weights with one scale": (lambda b: b.node("MatMul", "x", b.weights((32, 32))), TOKENS),
        "weights by column": (lambda b: b.node("MatMul", "x", b.weights((32, 32), axis=1)), TOKENS),
        "weights by row": (lambda b: b.node("MatMul", "x", b.weights((32, 32), axis=0)), TOKENS),
        "transposed weights": (
            lambda b: b.node("MatMul", "x", b.node("Transpose", b.weights((32, 32), axis=0), perm=[1, 0])),
            TOKENS,
        ),
        "no zero points": (
            lambda b: b.pair(
                b.node("MatMul", b.pair("x", INT8, zero=None), b.weights((32, 32), zero=False)), INT8, zero=None
            ),
            TOKENS,
        ),
        "poolings": (
            lambda b: b.pair(
                b.node(
                    "GlobalAveragePool",
                    b.pair(b.node("MaxPool", b.pair("x"), kernel_shape=[2, 2], strides=[2, 2])),
                )
            ),
            IMAGE,
        ),
        "activations": (
            lambda b: b.pair(
                b.node("Softmax", b.pair(b.node("Sigmoid", b.pair(b.node("LeakyRelu", b.pair("x"))))))
            ),
            IMAGE,
        ),
        "sum and product of elements": (
            lambda b: b.pair(
                b.node("Mul", b.pair(b.node("Add", b.pair("x"), b.pair("x", scale=0.03))), b.pair("x"))
            ),
            IMAGE,
        ),
        "concatenation": (
            lambda b: b.pair(b.node("Concat", b.pair("x"), b.pair(b.node("Tanh", "x")), axis=1)),
            IMAGE,
        ),
        "a clip that the type does": (
            lambda b: b.pair(
                b.node(
                    "Clip",
                    b.node("Conv", b.pair("x"), b.weights((8, 8, 1, 1))),
                    b.constant(np.array(0.0)),
                    b.constant(np.array(6.0)),
                ),
                zero=0,
                scale=6 / 255,
            ),
            IMAGE,
        ),
        "a relu that the type does": (
            lambda b: b.pair(
                b.node("Relu", b.node("Add", b.pair("x"), b.pair("x", scale=0.5))), zero=0
            ),
            IMAGE,
        ),
        "a clip that the type exceeds": (lambda b: b.pair(_clipped(b, -1.0, 1.0)), IMAGE),
        "a clip that the type just fills": (lambda b: b.pair(_clipped(b, -10 * 0.02, 245 * 0.02)), IMAGE),
        "a clip of half a step less": (lambda b: b.pair(_clipped(b, -10 * 0.02, 244.4 * 0.02)), IMAGE),
        "a relu that the type exceeds": (lambda b: b.pair(b.node("Relu", _added(b)), zero=1), IMAGE),
        "a relu of signed data": (lambda b: b.pair(b.node("Relu", _added(b)), INT8, zero=-128), IMAGE),
        "a relu without a zero point": (lambda b: b.pair(b.node("Relu", _added(b)), zero=None), IMAGE),
        "a pool into other steps": (lambda b: b.pair(b.node("GlobalMaxPool", b.pair("x")), scale=0.03), IMAGE),
        "data moved into other steps": (lambda b: b.pair(b.node("Flatten", b.pair("x")), zero=9), IMAGE),
        "data moved in the same steps": (lambda b: b.pair(b.node("Flatten", b.pair("x"))), IMAGE),
        "gemm with a factor of its bias": (lambda b: b.pair(_gemm(b, beta=0.5)), ROWS),
        "gemm into signed data": (lambda b: b.pair(_gemm(b), INT8), ROWS),
        "argmax": (lambda b: b.node("Cast", b.node("ArgMax", b.pair("x"), axis=1), to=FLOAT), IMAGE),
        "maximum": (lambda b: b.pair(b.node("ReduceMax", b.pair("x"))), IMAGE),
        "resize by neighbours": (
            lambda b: b.pair(b.node("Resize", b.pair("x"), "", b.constant([1.0, 1, 2, 2]), mode="nearest")),
            IMAGE,
        ),
        "linear resize": (
            lambda b: b.pair(b.node("Resize", b.pair("x"), "", b.constant([1.0, 1, 2, 2]), mode="linear")),
            IMAGE,
        ),
        "moved data": (
            lambda b: b.node("Tanh", b.node("Transpose", b.pair("x"), perm=[0, 2, 3, 1])),
            IMAGE,
        ),
        "data moved before": (
            lambda b: b.pair(b.node("Transpose", b.node("Tanh", "x"), perm=[0, 2, 3, 1])),
            IMAGE,
        ),
        "a moved input": (lambda b: b.pair(b.node("Transpose", "x", perm=[0, 2, 3, 1])), IMAGE),
        "a choice between two": (lambda b: _choice(b, b.pair(b.node("Tanh", "x"))), IMAGE),
        "a choice with a number": (lambda b: _choice(b, b.constant(np.array(0.5))), IMAGE),
        "two pairs in a row": (lambda b: b.node("Tanh", b.pair(b.pair("x", scale=0.01), scale=0.03)), IMAGE),
        "one reader on integers, one on floats": (_shared, IMAGE),
    }  # fmt: skip


def _added(b: Builder) -> str:
    return b.node("Add", b.pair("x"), b.pair("x", scale=0.5))


def _clipped(b: Builder, low: float, high: float) -> str:
    return b.node("Clip", _added(b), b.constant(np.array(low)), b.constant(np.array(high)))


def _gemm(b: Builder, **factors: float) -> str:
    return b.node("Gemm", b.pair("x"), b.weights((32, 32), UINT8), b.row(32), **factors)


def _shared(b: Builder) -> str:
    data = b.pair("x")
    return b.node("Add", b.pair(b.node("Conv", data, b.weights((8, 8, 1, 1)))), b.node("Tanh", data))


def _choice(b: Builder, other: str) -> str:
    chosen = b.constant(b.random.normal(size=IMAGE) > 0, TensorProto.BOOL)
    return b.pair(b.node("Where", chosen, b.pair("x"), other))


def _blocks() -> dict[str, Case]:
    found: dict[str, Case] = {
        "data of 16 bits": (
            lambda b: b.pair(b.node("MatMul", b.pair("x", UINT16), b.weights((32, 32))), UINT16),
            TOKENS,
        ),
    }
    for name, kind in (("int4", INT4), ("uint4", UINT4), ("int8", INT8), ("uint8", UINT8)):
        found |= _blocks_of(name, kind)
    return found


def _blocks_of(name: str, kind: int) -> dict[str, Case]:
    def w(b: Builder, **options: Any) -> str:
        return b.weights((64, 64), kind, **options)

    found: dict[str, Case] = {}
    for block, axis, zero in itertools.product((16, 32), (0, 1), (False, True)):
        title = f"{name} in blocks of {block} along {axis}{' with zero points' if zero else ''}"
        found[title] = _product_and_bias(kind, axis, block, zero)
    found |= {
        f"{name} read twice": (lambda b: _read_twice(b, w(b, axis=0, block=32)), (1, 4, 64)),
        f"{name} by column": (lambda b: b.node("MatMul", "x", w(b, axis=1)), (1, 4, 64)),
        f"{name} in a Gemm": (
            lambda b: b.node("Gemm", "x", w(b, axis=0, block=32), b.row(64)),
            (4, 64),
        ),
        f"{name} in a transposed Gemm": (
            lambda b: b.node("Gemm", "x", w(b, axis=1, block=32), b.row(64), transB=1),
            (4, 64),
        ),
        f"{name} with a quantised result": (
            lambda b: b.pair(b.node("MatMul", "x", w(b, axis=0, block=32))),
            (1, 4, 64),
        ),
        f"{name} beside float16": (
            lambda b: b.node("MatMul", "x", w(b, axis=0, block=32)),
            (1, 4, 64),
        ),
    }
    return found


def _product_and_bias(kind: int, axis: int, block: int, zero: bool) -> Case:
    def build(b: Builder) -> str:
        weights = b.weights((64, 64), kind, axis=axis, block=block, zero=zero)
        return b.node("Add", b.node("MatMul", "x", weights), b.row(64))

    return build, (1, 4, 64)


def _read_twice(b: Builder, weights: str) -> str:
    return b.node("Add", b.node("MatMul", "x", weights), b.node("MatMul", b.node("Tanh", "x"), weights))
