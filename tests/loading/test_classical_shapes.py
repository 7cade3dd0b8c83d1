"""Sizes of what ai.onnx.ml operators write, against the arrays that ONNX Runtime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.loading.onnx_graph.build import to_graph

ROWS, FEATURES = 7, 4
VECTORS = {"support_vectors": [0.5] * (6 * FEATURES), "coefficients": [0.1] * 6, "kernel_type": "RBF"}
KERNEL = {"kernel_params": [0.1, 0.0, 3.0]}
TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
LEAVES = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 1], "weights": [0.2, 0.8]}


def leaves(side: str) -> dict[str, Any]:
    return {f"{side}_{name}": values for name, values in LEAVES.items()}


CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "scaler": ("Scaler", 1, {"offset": [0.0] * FEATURES, "scale": [1.0] * FEATURES}),
    "imputer": ("Imputer", 1, {"imputed_value_floats": [0.0], "replaced_value_float": 1.0}),
    "normalizer": ("Normalizer", 1, {"norm": "L2"}),
    "binarizer": ("Binarizer", 1, {"threshold": 0.5}),
    "two targets": ("LinearRegressor", 1, {"coefficients": [0.1] * 2 * FEATURES, "targets": 2}),
    "two classes of one row": (
        "LinearClassifier",
        2,
        {"coefficients": [0.1] * FEATURES, "intercepts": [0.0], "classlabels_ints": [0, 1]},
    ),
    "three named classes": (
        "LinearClassifier",
        2,
        {
            "coefficients": [0.1] * 3 * FEATURES,
            "intercepts": [0.0] * 3,
            "classlabels_strings": ["a", "b", "c"],
        },
    ),
    "support vector regression": ("SVMRegressor", 1, {**VECTORS, **KERNEL, "n_supports": 6, "rho": [0.0]}),
    "two classes by support vectors": (
        "SVMClassifier",
        2,
        {**VECTORS, **KERNEL, "vectors_per_class": [3, 3], "rho": [0.0], "classlabels_ints": [0, 1]},
    ),
    "four classes by support vectors": (
        "SVMClassifier",
        2,
        {
            **VECTORS,
            **KERNEL,
            "coefficients": [0.1] * 18,
            "vectors_per_class": [2, 2, 1, 1],
            "rho": [0.0] * 6,
            "classlabels_ints": [0, 1, 2, 3],
        },
    ),
    "trees of two targets": ("TreeEnsembleRegressor", 1, {**TREE, **leaves("target"), "n_targets": 2}),
    "trees of two classes": (
        "TreeEnsembleClassifier",
        2,
        {**TREE, **leaves("class"), "classlabels_int64s": [0, 1]},
    ),
}


def model(op_type: str, outputs: int, attributes: dict[str, Any]) -> onnx.ModelProto:
    """One operator on an open number of rows, as the exporters leave it."""
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(op_type, ["x"], names, name="only", domain="ai.onnx.ml", **attributes)
    fed = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, FEATURES])]
    given = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "classical", fed, given)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("name", CASES)
def test_as_many_rows_come_out_as_onnx_runtime_writes(name: str) -> None:
    proto = model(*CASES[name])
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    arrays = session.run(None, {"x": np.ones((ROWS, FEATURES), np.float32)})
    (node,) = to_graph(proto, bindings={"x[0]": ROWS}).nodes
    assert [tensor.shape for tensor in node.present_outputs] == [array.shape for array in arrays]
    assert [tensor.dtype.name == "string" for tensor in node.present_outputs] == [
        array.dtype == object for array in arrays
    ]


def two_inputs() -> onnx.ModelProto:
    node = helper.make_node("Add", ["a", "b"], ["y"], name="sum")
    fed = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 8]) for name in ("a", "b")]
    given = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8])]
    return helper.make_model(
        helper.make_graph([node], "two", fed, given),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )


def test_first_axes_without_names_are_one_batch() -> None:
    analysis = analyze(two_inputs(), batch=64, run=False, gpu="none")
    assert [tensor.shape for tensor in analysis.model.inputs] == [(64, 8), (64, 8)]
    assert analysis.totals.flops == 64 * 8
