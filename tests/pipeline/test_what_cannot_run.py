"""What ONNX Runtime refuses is still counted, predicted and reported, and the report says so."""

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.errors import InputError, ShapesRefusedError
from analyzer.measurement.session import explained


def relu(opset: int, ir_version: int, domain: str = "", op_type: str = "Relu") -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], domain=domain)], "g", [x], [y])
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def test_an_opset_newer_than_the_runtime_is_counted_with_a_finding() -> None:
    newest = onnx.defs.onnx_opset_version()
    analysis = analyze(relu(newest, onnx.IR_VERSION), batch=4, runs=2)
    assert analysis.totals.flops == 4 * 8
    assert analysis.plan("cpu").origin == "predicted"
    assert any("Not measured on the CPU" in message for message in analysis.environment.messages)
    assert "A701" in {finding.code for finding in analysis.findings}


def test_a_custom_operator_is_unknown_and_the_total_at_least() -> None:
    analysis = analyze(relu(20, 10, domain="com.acme", op_type="MatMul"), batch=4, run=False)
    (operator,) = analysis.operators
    assert operator.flops is None
    assert operator.basis == "unknown"
    assert analysis.totals.coverage.unknown == 1
    assert "at least" in analysis.render("text").lower() or "≥" in analysis.render("text")


@pytest.mark.parametrize("format_name", ["html", "json", "markdown", "csv", "text", "junit", "sarif", "github"])
def test_every_format_renders_it(format_name: str) -> None:
    analysis = analyze(relu(20, 10, domain="com.acme", op_type="Strange"), batch=4, run=False)
    assert analysis.render(format_name)


def test_shapes_that_onnx_runtime_refuses_are_an_error_and_get_no_verdict() -> None:
    # Weights for 5 features and an input of 4: ONNX's own inference of shapes does not look at them.
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [1, 8, width], [0.5] * 8 * width)
        for name, width in {"w": 5, "r": 2}.items()
    ]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)
    graph = helper.make_graph([node], "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(InputError) as caught:
        analyze(model, batch=2, runs=2)
    assert "Input W must have shape {1,8,4}. Actual:{1,8,5}" in caught.value.message
    assert "--no-run" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("matmul_helper.h:59 Compute MatMul dimension mismatch", True),
        ("GEMM: Dimension mismatch, W: {4,5} K: 3 N:5", True),
        ("Input channels C is not equal to kernel channels * group. C: 3 kernel channels: 5 group: 1", True),
        # Values that were filled in, not shapes: the times of such a run would be the same.
        ("indices element out of data bounds, idx=4 must be within the inclusive range [-2,1]", False),
    ],
)
def test_kernels_that_refuse_shapes_are_told_from_those_that_refuse_values(text: str, refused: bool) -> None:
    said = f"Non-zero status code returned while running Some node. Name:'n' Status Message: {text}"
    assert isinstance(explained(RuntimeError(said)), ShapesRefusedError) is refused
