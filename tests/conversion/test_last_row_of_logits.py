"""Where logits can be cut to their last row: behind the last product everything works row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.conversion.last_logits import LastLogits, NoLogits, cut, last_logits
from analyzer.loading.onnx_graph.build import to_graph

VOCABULARY, WIDTH, TOKENS = 50, 8, 6


def decoder(
    tail: Sequence[onnx.NodeProto], *, opset: int = 20, tokens: int = TOKENS, more: Sequence[str] = ()
) -> onnx.ModelProto:
    """Words, a product and what stands behind it, which reads ``product`` and writes ``logits``."""

    def stored(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(np.ones(shape, dtype=np.float32), name)

    nodes = [
        helper.make_node("Gather", ["words", "tokens"], ["rows"], name="embedding"),
        helper.make_node("MatMul", ["rows", "head"], ["product"], name="head"),
        *tail,
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [2, tokens, VOCABULARY])]
    outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in more]
    weights = [
        stored("words", VOCABULARY, WIDTH),
        stored("head", WIDTH, VOCABULARY),
        stored("bias", VOCABULARY),
    ]
    weights += [stored("each_token", tokens, VOCABULARY), stored("cap", 1)]
    given = [helper.make_tensor_value_info("tokens", TensorProto.INT64, [2, tokens])]
    graph = helper.make_graph(nodes, "decoder", given, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def behind(*operators: tuple[str, list[str], dict[str, Any]]) -> list[onnx.NodeProto]:
    names = ["product", *(f"t{number}" for number in range(len(operators) - 1)), "logits"]
    return [
        helper.make_node(kind, [names[at], *others], [names[at + 1]], name=f"{kind}_{at}", **attributes)
        for at, (kind, others, attributes) in enumerate(operators)
    ]


@pytest.mark.parametrize(
    "tail",
    [
        behind(("Identity", [], {})),
        behind(("Add", ["bias"], {})),
        behind(("Div", ["cap"], {}), ("Tanh", [], {}), ("Mul", ["cap"], {})),
        behind(("Add", ["bias"], {}), ("LogSoftmax", [], {"axis": -1})),
    ],
    ids=["nothing", "a bias", "a soft cap", "a softmax of each row"],
)
def test_the_row_is_taken_before_the_product(tail: list[onnx.NodeProto]) -> None:
    found = last_logits(to_graph(decoder(tail)))
    assert found == LastLogits(
        output="logits", tokens=TOKENS, vocabulary=VOCABULARY, product="head", rows="rows"
    )


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (decoder(behind(("Softmax", [], {"axis": 1}))), "row by row"),
        (decoder(behind(("Softmax", [], {})), opset=12), "row by row"),  # there, of all that is behind axis 1
        (decoder(behind(("Add", ["each_token"], {}))), "row by row"),
        (decoder(behind(("Transpose", [], {"perm": [1, 0, 2]}))), "row by row"),
        (decoder(behind(("Identity", [], {})), more=["product"]), "row by row"),
        (decoder(behind(("Identity", [], {})), tokens=1), "one row already"),
    ],
    ids=["over tokens", "over all", "a row for each token", "turned", "read elsewhere", "one token"],
)
def test_what_does_more_than_work_on_rows_is_left_alone(model: onnx.ModelProto, why: str) -> None:
    found = last_logits(to_graph(model))
    assert isinstance(found, NoLogits)
    assert why in found.why


def test_the_cut_model_is_valid_and_its_output_has_one_row() -> None:
    model = decoder(behind(("Add", ["bias"], {})))
    # Somebody has taken the name that the row would get.
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, dtype=np.float32), "rows_last"))
    found = last_logits(to_graph(model))
    assert isinstance(found, LastLogits)
    cut(model, found)
    onnx.checker.check_model(model, full_check=True)
    logits = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0]
    assert [size.dim_value for size in logits.type.tensor_type.shape.dim] == [2, 1, VOCABULARY]
