"""The graph of an integer form is the one that ONNX Runtime's own quantiser writes, and runs as that does."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from float_models import cases, conv, linear, weights
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from quantized_models import Builder
from static_quantiser import quantised

from analyzer.conversion import NoForm, convert, integer_form
from analyzer.graph import Graph, names_read
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import Session
from analyzer.ort.fusion import predicted_groups

CASES = dict(cases())


def form(model: onnx.ModelProto, precision: str) -> Graph:
    graph = convert(to_graph(model), precision)
    assert isinstance(graph, Graph)
    return graph


def operators(graph: Graph) -> Counter[tuple[str, str]]:
    return Counter(
        (node.op_type, ",".join(t.dtype.name if t else "" for t in node.inputs)) for node in graph.nodes
    )


def executed(graph: Graph, session: Session) -> Counter[tuple[str, str]]:
    return Counter((group.op_type, group.provider) for group in predicted_groups(graph, session))


@pytest.mark.filterwarnings("ignore")  # the tools' own, about NumPy
@pytest.mark.parametrize("name", CASES)
def test_int8_is_what_quantize_static_writes_and_runs_as_that_does(name: str, tmp_path: Path) -> None:
    graph, real = form(CASES[name], "int8"), to_graph(quantised(CASES[name], tmp_path))
    assert operators(graph) == operators(real)
    assert executed(graph, "cpu") == executed(real, "cpu")
    assert executed(graph, "cuda") == executed(real, "cuda")


def packed(model: onnx.ModelProto) -> onnx.ModelProto:
    config = DefaultWeightOnlyQuantConfig(
        block_size=32, is_symmetric=True, accuracy_level=4, quant_format=QuantFormat.QOperator
    )
    quantiser = MatMulNBitsQuantizer(copy.deepcopy(model), algo_config=config)
    quantiser.process()
    return quantiser.model.model


@pytest.mark.parametrize("name", ["attention", "shared weights", "embedding", "one product to the end"])
def test_int4_is_what_the_weight_quantiser_writes(name: str) -> None:
    graph, real = form(CASES[name], "int4"), to_graph(packed(CASES[name]))
    assert operators(graph) == operators(real)
    assert executed(graph, "cpu") == executed(real, "cpu")
    assert executed(graph, "cuda") == executed(real, "cuda")
    assert graph.parameter_bytes == real.parameter_bytes


def test_a_gemm_is_packed_as_the_product_and_the_addition_that_it_is() -> None:
    def model(op_type: str) -> onnx.ModelProto:
        b = Builder()
        result = linear(b, "x", 64, 32)
        if op_type == "Gemm":
            b = Builder()
            result = b.node("Gemm", "x", weights(b, 64, 32), b.row(32))
        return b.model(result, (4, 64), 20)

    gemm, product = form(model("Gemm"), "int4"), form(model("MatMul"), "int4")
    assert operators(gemm) == operators(product)
    assert gemm.parameter_bytes == product.parameter_bytes == 64 * 32 // 2 + 4 * (64 // 32) * 32 + 4 * 32


def test_inserted_tensors_take_no_name_that_the_model_has() -> None:
    b = Builder()
    product = b.node("MatMul", "x", b.constant(b.random.normal(size=(32, 32))))
    shift = b.constant(b.random.normal(size=(4, 32)))
    model = b.model(b.node("Sub", product, shift), (4, 32), 20)
    model.graph.initializer[1].name = model.graph.node[1].input[1] = f"{model.graph.initializer[0].name}_scale"
    for precision in ("int8", "int4"):
        graph = form(model, precision)
        subtraction = next(node for node in graph.nodes if node.op_type == "Sub")
        assert [tensor.shape for tensor in subtraction.present_inputs] == [(4, 32), (4, 32)]
        names = [tensor.name for node in graph.nodes for tensor in node.present_outputs]
        stored = [tensor.name for tensor in graph.initializers]
        assert len({*names, *stored}) == len(names) + len(stored)


def test_what_a_branch_reads_is_still_written() -> None:
    b = Builder()
    image = conv(b, "x", 8, 8)
    passed = b.node("Identity", image)
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branches = [
        helper.make_graph([helper.make_node(op_type, [passed], ["r"])], op_type, [], [result])
        for op_type in ("Neg", "Abs")
    ]
    flag = b.constant(np.array(1), TensorProto.INT64)
    condition = b.node("Cast", b.node("Mul", b.node("Shape", "x", start=0, end=1), flag), to=TensorProto.BOOL)
    chosen = b.node("If", condition, then_branch=branches[0], else_branch=branches[1])
    graph = form(b.model(chosen, (1, 8, 12, 12), 20), "int8")
    written = {tensor.name for node in graph.nodes for tensor in node.present_outputs}
    (decision,) = [node for node in graph.nodes if node.op_type == "If"]
    assert set(names_read(decision)) <= written | {tensor.name for tensor in graph.initializers}


def test_weights_that_two_products_read_are_packed_once() -> None:
    graph = form(CASES["shared weights"], "int4")
    assert [tensor.dtype.name for tensor in graph.initializers].count("uint8") == 1


def test_inserted_operators_have_the_source_of_what_they_serve() -> None:
    graph = to_graph(CASES["residual"])
    names = {node.name for node in graph.nodes}
    converted = form(CASES["residual"], "int8")
    assert {node.name for node in converted.nodes if node.op_type == "Conv"} <= names
    assert [node.index for node in converted.nodes] == list(range(len(converted.nodes)))
    made = {tensor.name for tensor in (*converted.inputs, *converted.initializers)}
    for node in converted.nodes:  # in an order in which it can be executed
        assert all(tensor.name in made for tensor in node.present_inputs), node.name
        made |= {tensor.name for tensor in node.present_outputs}
    assert {tensor.name for tensor in converted.outputs} <= made


def test_what_has_an_integer_form_keeps_it_and_gets_no_other(tmp_path: Path) -> None:
    graph = form(CASES["one product to the end"], "int4")
    assert integer_form(graph) == "int4"
    assert convert(graph, "int4") is graph
    refused = convert(graph, "int8")
    assert isinstance(refused, NoForm)
    assert "quantised already" in refused.why


def test_a_model_without_products_has_no_integer_form() -> None:
    b = Builder()
    graph = to_graph(b.model(b.node("Relu", "x"), (4, 4), 20))
    assert isinstance(convert(graph, "int8"), NoForm)
    assert isinstance(convert(graph, "int4"), NoForm)


def test_convolutions_alone_have_no_weights_to_pack() -> None:
    assert isinstance(convert(to_graph(CASES["residual"]), "int4"), NoForm)
