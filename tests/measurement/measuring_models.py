"""Small models for the tests of measuring, built with onnx.helper alone."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def model(
    nodes: Iterable[onnx.NodeProto],
    inputs: Iterable[tuple[str, int, Sequence[Any]]],
    outputs: Iterable[tuple[str, int, Sequence[Any]]],
    initializers: Iterable[tuple[str, NDArray[Any]]] = (),
    *,
    opset: int = 20,
    ir_version: int = 10,
    domains: Iterable[str] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs],
        [numpy_helper.from_array(array, name) for name, array in initializers],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def perceptron(width: int = 256, rows: int = 32, layers: int = 3) -> onnx.ModelProto:
    """Layers of MatMul, Add and Relu; ONNX Runtime fuses each into one FusedGemm."""
    generator = np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(layers):
        weights += [
            (f"w{i}", (generator.standard_normal((width, width)) / width**0.5).astype(np.float32)),
            (f"b{i}", generator.standard_normal(width).astype(np.float32)),
        ]
        nodes += [
            helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"], name=f"matmul{i}"),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], name=f"add{i}"),
            helper.make_node("Relu", [f"a{i}"], [f"x{i + 1}"], name=f"relu{i}"),
        ]
    shape = [rows, width]
    return model(nodes, [("x0", FLOAT, shape)], [(f"x{layers}", FLOAT, shape)], weights)


def token_step() -> onnx.ModelProto:
    """A row of a table is chosen by an id and added to a cache, which is as large before as after."""
    table = np.ones((16, 8), np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["row"], name="row"),
        helper.make_node("Add", ["past", "row"], ["present"], name="present"),
    ]
    sides = [("ids", TensorProto.INT64, [1]), ("past", FLOAT, [4, 8])], [("present", FLOAT, [4, 8])]
    return model(nodes, *sides, [("table", table)])


def sized() -> onnx.ModelProto:
    """A reshape to a size that is an input."""
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="positive"),
        helper.make_node("Reshape", ["positive", "shape"], ["y"], name="y"),
    ]
    return model(nodes, [("x", FLOAT, [4, 8]), ("shape", TensorProto.INT64, [2])], [("y", FLOAT, ["a", "b"])])


def save(proto: onnx.ModelProto, folder: Path, name: str = "model.onnx", *, external: bool = False) -> Path:
    path = Path(folder) / name
    if external:
        onnx.save(proto, path, save_as_external_data=True, location=f"{name}.data", size_threshold=0)
    else:
        onnx.save(proto, path)
    return path


def endless() -> onnx.ModelProto:
    """A loop of very many turns: hangs inside one call of ONNX Runtime."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"], name="still"),
            helper.make_node("Sin", ["state"], ["next"], name="sin"),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [8]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, [8]),
        ],
    )
    turns = [("turns", np.array(2**60, np.int64)), ("yes", np.array(True))]
    node = helper.make_node("Loop", ["turns", "yes", "x"], ["y"], name="loop", body=body)
    return model([node], [("x", FLOAT, [8])], [("y", FLOAT, [8])], turns)


def branching() -> onnx.ModelProto:
    """An If whose branch holds a product: the branch's nodes appear inside the If's window."""

    def branch(name: str) -> onnx.GraphProto:
        return helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "x"], [f"{name}_m"], name=f"{name}_matmul"),
                helper.make_node("Relu", [f"{name}_m"], [f"{name}_y"], name=f"{name}_relu"),
            ],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", FLOAT, [128, 128])],
        )

    nodes = [
        helper.make_node("If", ["c"], ["b"], name="if", then_branch=branch("then"), else_branch=branch("else")),
        helper.make_node("Exp", ["b"], ["y"], name="exp"),
    ]
    inputs = [("c", TensorProto.BOOL, []), ("x", FLOAT, [128, 128])]
    return model(nodes, inputs, [("y", FLOAT, [128, 128])])


def one_node(
    op_type: str,
    shape: Sequence[Any] = (4, 4),
    *,
    opset: int = 20,
    ir_version: int = 10,
    kind: int = FLOAT,
    domain: str = "",
    domains: Iterable[str] = (),
) -> onnx.ModelProto:
    node = helper.make_node(op_type, ["x"], ["y"], name="only", domain=domain)
    return model(
        [node], [("x", kind, shape)], [("y", kind, shape)], opset=opset, ir_version=ir_version, domains=domains
    )


def greedy() -> onnx.ModelProto:
    """Asks for some petabytes."""
    node = helper.make_node("Expand", ["x", "shape"], ["y"], name="expand")
    shape = [("shape", np.array([2**25, 2**25], np.int64))]
    return model([node], [("x", FLOAT, [1, 1])], [("y", FLOAT, [2**25, 2**25])], shape)
