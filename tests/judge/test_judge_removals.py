"""What level 1 takes out, against the graphs that the real session saves: one no-operation at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.simplify import simplify

if TYPE_CHECKING:
    from court import Judge

END = 2**63 - 1
CASES = {
    "Identity": "b = Identity (a)",
    "Dropout": "b = Dropout (a)",
    "Cast to its own type": "b = Cast <to = 1> (a)",
    "Cast to another type": "c = Cast <to = 10> (a) b = Cast <to = 1> (c)",
    "Cast there and back": "c = Cast <to = 11> (a) b = Cast <to = 1> (c)",
    "Slice to the end": "b = Slice (a, zero, end, one)",
    "Slice to the size": "b = Slice (a, zero, three, one)",
    "Expand to its own shape": "b = Expand (a, own)",
    "Expand by ones": "b = Expand (a, one)",
    "Reshape to its own shape": "b = Reshape (a, own)",
    "Transpose that changes nothing": "b = Transpose <perm = [0, 1, 2]> (a)",
    "Transpose there and back": "c = Transpose <perm = [0, 2, 1]> (a) b = Transpose <perm = [0, 2, 1]> (c)",
    "Add of 0": "b = Add (a, none)",
    "Sub of 0": "b = Sub (a, none)",
    "Mul by 1": "b = Mul (a, unit)",
    "Div by 1": "b = Div (a, unit)",
    "Add of 1": "b = Add (a, unit)",
    "equal operators": "c = Neg (a) d = Neg (a) b = Mul (c, d)",
    "constants": "c = Neg (unit) b = Mul (a, c)",
    "Concat of one": "b = Concat <axis = 0> (a)",
    "Sum of one": "b = Sum (a)",
}


@pytest.mark.parametrize("first", ["a = Identity (x)", "a = Sigmoid (x)"], ids=["fed", "computed"])
@pytest.mark.parametrize("case", list(CASES))
def test_a_no_operation_is_taken_out_where_the_real_session_does(
    judge: Judge, case: str, first: str, tmp_path: Path
) -> None:
    body = f"{{ {first} {CASES[case]} y = Exp (b) }}"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[2,3,4] x) => (float[2,3,4] y) {body}'
    )
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{index}"
    values = {"zero": [0], "one": [1], "three": [3], "end": [END], "own": [2, 3, 4]}
    for name, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    for name, number in (("none", 0), ("unit", 1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), name))
    graph = to_graph(model)
    ruling = judge.rule(model, keep=tmp_path / "kept.onnx")
    assert ruling.error == ""
    executed = len(onnx.load(tmp_path / "kept.onnx", load_external_data=False).graph.node)
    left = simplify(graph)
    assert len(graph.nodes) - len(left.folded) - len(left.removed) == executed


@pytest.mark.parametrize(
    "body",
    [
        "{ a = Sigmoid (x) y = Identity (a) }",
        "{ a = Sigmoid (x) y = Identity (a) z = Exp (a) }",
        "{ a = Sigmoid (x) y = Identity (a) z = Exp (y) }",
        "{ z = Sigmoid (x) y = Identity (z) }",
        "{ z = Sigmoid (x) y = Identity (x) }",
    ],
    ids=["alone", "beside another reader", "read itself", "of another output", "of what is fed"],
)
def test_what_writes_a_graph_output_is_taken_out_where_the_real_session_does(
    judge: Judge, body: str, tmp_path: Path
) -> None:
    outputs = "float[2] y" + (", float[2] z" if "z =" in body else "")
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => ({outputs}) {body}'
    )
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{index}"
    ruling = judge.rule(model, level=1, keep=tmp_path / "kept.onnx")
    assert not ruling.error
    kept = {node.op_type for node in onnx.load(tmp_path / "kept.onnx").graph.node}
    removed = simplify(to_graph(model)).removed
    left = {node.op_type for index, node in enumerate(model.graph.node) if index not in removed}
    assert left == kept
