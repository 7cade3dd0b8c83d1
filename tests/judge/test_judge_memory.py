"""Which kernels of the CUDA provider write over their input, and that our plan holds what its arena holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import standins
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, save

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.operators import IN_PLACE_ON_CUDA
from analyzer.pipeline.prepared import prepare

node = helper.make_node
BYTES = 64 * 64 * 4
_ONE_INPUT = """
Abs Ceil Clip Cos Elu Erf Exp Floor HardSigmoid LeakyRelu Log LogSoftmax Neg Reciprocal Relu Round Selu Sigmoid
Sign Sin Softmax Softplus Softsign Sqrt Tanh ThresholdedRelu
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = standins.missing()
    if reason:
        pytest.skip(reason)
    return standins.build(tmp_path_factory.mktemp("memory"))


def asked(folder: Path, tmp_path: Path, models: list[onnx.ModelProto]) -> list[list[list[int | str]]]:
    """For each model the nodes on CUDA with the bytes they asked for and what was held after them."""
    paths = [tmp_path / f"{number}.onnx" for number in range(len(models))]
    for path, proto in zip(paths, models, strict=True):
        save(proto, path)
    child = subprocess.run(
        [sys.executable, Path(__file__).with_name("arena.py"), *paths],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    return [json.loads(line) for line in child.stdout.splitlines() if line.startswith("[[")]


def model(
    nodes: list[onnx.NodeProto],
    given: list[int],
    result: list[int],
    weights: Mapping[str, NDArray[Any]] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "memory",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_kernels_in_place_are_those_that_ask_for_nothing(folder: Path, tmp_path: Path) -> None:
    operators = _ONE_INPUT.split()
    models = [
        model(
            [
                node("Abs", ["x"], ["a"], name="first"),
                node(operator, ["a"], ["y"], name="judged"),
                node("Transpose", ["y"], ["z"], name="last", perm=[1, 0]),
            ],
            [64, 64],
            [64, 64],
        )
        for operator in operators
    ]
    found = {}
    for operator, nodes in zip(operators, asked(folder, tmp_path, models), strict=True):
        found[operator] = next((delta for name, delta, _ in nodes if name == "judged"), None)
    judged = {operator: delta for operator, delta in found.items() if delta is not None}
    assert set(judged) >= IN_PLACE_ON_CUDA
    assert set(judged.values()) == {0, BYTES}
    assert {operator for operator, delta in judged.items() if delta == 0} == IN_PLACE_ON_CUDA


def test_the_plan_of_attention_on_cuda_holds_what_the_arena_holds(folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [node("MatMul", ["x", "w"], ["h"], name="in")]
    for part in "qkv":
        nodes += [
            node("MatMul", ["h", f"w{part}"], [f"{part}m"], name=f"{part}_product"),
            node("Add", [f"{part}m", "b"], [part], name=f"{part}_bias"),
            node("Reshape", [part, "heads"], [f"{part}h"], name=f"{part}_heads"),
            node(
                "Transpose",
                [f"{part}h"],
                [f"{part}t"],
                name=f"{part}_turned",
                perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3],
            ),
        ]
    nodes += [
        node("MatMul", ["qt", "kt"], ["s"], name="scores"),
        node("Softmax", ["s"], ["p"], name="softmax", axis=-1),
        node("MatMul", ["p", "vt"], ["c"], name="mixed"),
        node("Transpose", ["c"], ["ct"], name="back", perm=[0, 2, 1, 3]),
        node("Reshape", ["ct", "flat"], ["cf"], name="flattened"),
        node("Add", ["cf", "h"], ["r"], name="skip"),
        node("LayerNormalization", ["r", "b", "b"], ["n"], name="norm", axis=-1),
        node("ReduceMean", ["n"], ["z"], name="mean", axes=[1], keepdims=0),
    ]
    weights = {name: rng.standard_normal((32, 32)).astype(np.float32) for name in ("w", "wq", "wk", "wv")}
    weights |= {"b": np.ones(32, np.float32), "heads": np.array([1, 48, 4, 8]), "flat": np.array([1, 48, 32])}
    proto = model(nodes, [1, 48, 32], [1, 32], weights)
    (states,) = asked(folder, tmp_path, [proto])
    start = states[0][2] - states[0][1]
    prepared = prepare(to_graph(proto))
    given = 48 * 32 * 4
    assert prepared.cuda_peak == max(held for _, _, held in states) - start + given
