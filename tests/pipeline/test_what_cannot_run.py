"""What ONNX Runtime refuses is still counted, predicted and reported, and the report says so."""

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze


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
