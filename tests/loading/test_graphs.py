"""From a ModelProto to a Graph: sizes bound, shapes known, values folded, broken graphs refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.errors import GraphError, ModelError, UsageError
from analyzer.graph import DEFAULT_DOMAIN
from analyzer.loading.from_onnx import bound_proto
from analyzer.loading.onnx_graph.build import prune, to_graph
from analyzer.loading.onnx_graph.fitting_sizes import evaluate
from analyzer.loading.onnx_graph.normalize import name_nodes

node = helper.make_node


def relu_chain() -> list[onnx.NodeProto]:
    return [node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["y"])]


def test_nodes_keep_their_order_and_know_their_neighbours(make_onnx: Callable[..., Any]) -> None:
    graph = to_graph(make_onnx(relu_chain(), {"x": [2, 3]}, ["y"]))
    first, second = graph.nodes
    assert (first.index, second.index) == (0, 1)
    assert first.identity == (DEFAULT_DOMAIN, "Relu")
    assert first.version == 21
    assert first.outputs[0] is second.inputs[0]
    assert graph.outputs[0] is second.outputs[0]
    assert graph.outputs[0].shape == (2, 3)
    assert graph.opsets == {DEFAULT_DOMAIN: 21}


def test_attributes_are_plain_python_values(make_onnx: Callable[..., Any]) -> None:
    conv = node("Conv", ["x", "w"], ["y"], strides=[2, 2], auto_pad="SAME_UPPER", group=1)
    (found,) = to_graph(make_onnx([conv], {"x": [1, 3, 8, 8], "w": [4, 3, 3, 3]}, ["y"])).nodes
    assert found.attributes == {"strides": (2, 2), "auto_pad": "SAME_UPPER", "group": 1}
    assert found.outputs[0].shape == (1, 4, 4, 4)


def test_a_symbolic_dimension_is_bound_by_name(make_onnx: Callable[..., Any]) -> None:
    graph = to_graph(make_onnx(relu_chain(), {"x": ["batch", 3]}, ["y"]), bindings={"batch": 64})
    assert graph.inputs[0].shape == graph.outputs[0].shape == (64, 3)
    assert graph.open_dimensions == {}
    assert graph.notes == ()


def test_an_unbound_dimension_is_one_and_told(make_onnx: Callable[..., Any]) -> None:
    graph = to_graph(make_onnx(relu_chain(), {"x": ["batch", 3]}, ["y"]))
    assert graph.outputs[0].shape == (1, 3)
    assert graph.open_dimensions == {"batch": 1}
    assert "'batch'" in graph.notes[0]


def test_an_unnamed_dimension_is_bound_by_input_and_axis(make_onnx: Callable[..., Any]) -> None:
    model = make_onnx(relu_chain(), {"x": [None, 3]}, ["y"])
    assert to_graph(model).open_dimensions == {"x[0]": 1}
    assert to_graph(model, bindings={"x[0]": 5}).outputs[0].shape == (5, 3)


def test_expressions_of_a_symbol_are_found_again_once_it_is_bound(make_onnx: Callable[..., Any]) -> None:
    nodes = [node("Reshape", ["x", "shape"], ["a"]), node("Relu", ["a"], ["y"])]
    stale = [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["12*batch", 4])]
    model = make_onnx(nodes, {"x": ["batch", 12, 4]}, ["y"], {"shape": np.array([-1, 4])}, value_info=stale)
    assert to_graph(model, bindings={"batch": 8}).outputs[0].shape == (96, 4)


def test_a_size_of_an_input_may_be_an_expression(make_onnx: Callable[..., Any]) -> None:
    nodes = [node("Concat", ["x", "z"], ["y"], axis=0)]
    model = make_onnx(nodes, {"x": ["n", 3], "z": ["2*n + 1", 3]}, ["y"])
    assert to_graph(model, bindings={"n": 4}).outputs[0].shape == (4 + 9, 3)
    assert to_graph(model).outputs[0].shape == (1 + 3, 3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3*n", 12),
        ("n//3 + 1", 2),
        ("m", None),
        ("n - 9", None),
        ("__import__('os')", None),
        ("n/2", None),
        ("1//0", None),
    ],
)
def test_expressions_are_sums_and_products_alone(text: str, value: int | None) -> None:
    assert evaluate(text, {"n": 4}) == value


@pytest.mark.parametrize("size", [-1, 2.5, True, "8"])
def test_a_size_that_cannot_be_is_refused(make_onnx: Callable[..., Any], size: Any) -> None:
    with pytest.raises(UsageError, match="batch"):
        to_graph(make_onnx(relu_chain(), {"x": ["batch", 3]}, ["y"]), bindings={"batch": size})


def test_an_empty_axis_is_a_size(make_onnx: Callable[..., Any]) -> None:
    graph = to_graph(make_onnx(relu_chain(), {"x": ["past", 3]}, ["y"]), bindings={"past": 0})
    assert [tensor.shape for tensor in (*graph.inputs, *graph.outputs)] == [(0, 3), (0, 3)]


def test_a_binding_that_no_input_has_is_told(make_onnx: Callable[..., Any]) -> None:
    graph = to_graph(make_onnx(relu_chain(), {"x": [2, 3]}, ["y"]), bindings={"tokens": 7})
    assert "'tokens'" in graph.notes[0]


def test_chains_of_shape_arithmetic_resolve(make_onnx: Callable[..., Any]) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"]),
        node("Mul", ["batch", "two"], ["rows"]),
        node("Unsqueeze", ["rows", "axis"], ["rows1"]),
        node("Concat", ["rows1", "minus"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["a"]),
        node("ConstantOfShape", ["target_abs"], ["ones"], value=helper.make_tensor("v", 1, [1], [1.0])),
        node("Abs", ["target"], ["unused"]),
        node("Expand", ["a", "grown"], ["b"]),
        node("Range", ["zero", "batch", "one"], ["r"]),
        node("Slice", ["b", "axis", "one1", "axis"], ["y"]),
    ]
    constants = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "two": np.int64(2),
        "axis": np.array([0]),
        "one1": np.array([1]),
        "minus": np.array([-1]),
        "target_abs": np.array([3, 5]),
        "grown": np.array([7, 1, 1]),
    }
    graph = to_graph(make_onnx(nodes, {"x": ["n", 6]}, ["y", "r", "ones"], constants), bindings={"n": 4})
    y, r, ones = graph.outputs
    assert (y.shape, r.shape, ones.shape) == ((1, 8, 3), (4,), (3, 5))
    assert r.value.tolist() == [0, 1, 2, 3]
    assert graph.nodes[4].outputs[0].value.tolist() == [8, -1]


def test_shapes_behind_values_that_inference_does_not_follow_are_found_in_one_walk(
    make_onnx: Callable[..., Any],
) -> None:
    # Where and Equal choose a shape, as exporters write Expand: plain inference stops at the first of them
    nodes, name = [], "x"
    for layer in range(20):
        nodes += [
            node("Shape", [name], [f"s{layer}"]),
            node("Equal", ["wanted", "minus"], [f"e{layer}"]),
            node("Where", [f"e{layer}", f"s{layer}", "wanted"], [f"t{layer}"]),
            node("Expand", [name, f"t{layer}"], [f"y{layer}"]),
        ]
        name = f"y{layer}"
    constants = {"wanted": np.array([5, -1]), "minus": np.array([-1, -1])}
    graph = to_graph(make_onnx(nodes, {"x": [1, 3]}, [name], constants))
    assert graph.outputs[0].shape == (5, 3)


def test_constants_are_known_before_the_run_and_random_numbers_are_not(make_onnx: Callable[..., Any]) -> None:
    nodes = [
        node("Transpose", ["w"], ["wt"]),
        node("RandomNormal", [], ["noise"], shape=[3]),
        node("MatMul", ["x", "wt"], ["y"]),
        node("Shape", ["y"], ["s"]),
    ]
    model = make_onnx(nodes, {"x": [2, 3]}, ["y", "noise", "s"], {"w": np.zeros((4, 3), np.float32)})
    flags = [found.outputs[0].constant for found in to_graph(model).nodes]
    assert flags == [True, False, False, True]


def test_literals_become_initializers(make_onnx: Callable[..., Any]) -> None:
    nodes = [
        node("Constant", [], ["shape"], value=helper.make_tensor("v", TensorProto.INT64, [2], [3, 2])),
        node("Constant", [], ["half"], value_float=0.5),
        node("Reshape", ["x", "shape"], ["a"]),
        node("Mul", ["a", "half"], ["y"]),
    ]
    graph = to_graph(make_onnx(nodes, {"x": [2, 3]}, ["y"]))
    assert [found.op_type for found in graph.nodes] == ["Reshape", "Mul"]
    assert {tensor.name for tensor in graph.initializers} == {"shape", "half"}
    assert graph.outputs[0].shape == (3, 2)


def test_pruning_drops_resolved_shape_arithmetic_and_dead_nodes(make_onnx: Callable[..., Any]) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Relu", ["x"], ["dead"]),
        node("Exp", ["x"], ["a"]),
        node("Reshape", ["a", "s"], ["b"]),
        node("Transpose", ["w"], ["wt"]),
        node("MatMul", ["b", "wt"], ["y"]),
    ]
    graph = to_graph(make_onnx(nodes, {"x": [2, 40]}, ["y"], {"w": np.zeros((50, 40), np.float32)}))
    small = prune(graph)
    assert [found.op_type for found in small.nodes] == ["Exp", "Reshape", "Transpose", "MatMul"]
    assert [found.index for found in small.nodes] == [0, 1, 2, 3]
    assert {tensor.name for tensor in small.initializers} == {"w", "s"}
    assert small.outputs[0] is graph.outputs[0]


def test_modules_and_source_lines_come_from_the_metadata(make_onnx: Callable[..., Any]) -> None:
    first = node("Relu", ["x"], ["y"])
    values = {
        "analyzer.module": "layer1.0",
        "analyzer.class": "ReLU",
        "analyzer.file": "model.py",
        "analyzer.line": "12",
        "analyzer.code": "x = self.act(x)",
        "analyzer.phase": "forward",
    }
    for key, value in values.items():
        entry = first.metadata_props.add()
        entry.key, entry.value = key, value
    (found,) = to_graph(make_onnx([first], {"x": [2]}, ["y"])).nodes
    assert (found.module, found.module_class, found.phase) == ("layer1.0", "ReLU", "forward")
    assert (found.source.file, found.source.line, found.source.code) == ("model.py", 12, "x = self.act(x)")


def test_module_paths_are_read_from_the_names_and_scopes_that_torch_writes(
    make_onnx: Callable[..., Any],
) -> None:
    named = node("Relu", ["x"], ["a"], name="/layer1/layer1.0/act/Relu")
    scoped = node("Relu", ["a"], ["y"])
    for key, value in (
        ("pkg.torch.onnx.name_scopes", "['', 'head', 'head.1', 'relu']"),
        (
            "pkg.torch.onnx.class_hierarchy",
            "['Net', 'Sequential', 'torch.nn.modules.activation.ReLU', 'aten.relu']",
        ),
    ):
        entry = scoped.metadata_props.add()
        entry.key, entry.value = key, value
    one, two = to_graph(make_onnx([named, scoped], {"x": [2]}, ["y"])).nodes
    assert one.module == "layer1.0.act"
    assert (two.module, two.module_class) == ("head.1", "ReLU")


def test_names_are_unique_and_those_of_the_file_that_is_run(make_onnx: Callable[..., Any]) -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="same"),
        node("Relu", ["a"], ["b"], name="same"),
        node("Exp", ["b"], ["y"]),
    ]
    model = make_onnx(nodes, {"x": ["n", 2]}, ["y"])
    names = [found.name for found in to_graph(model).nodes]
    assert len(set(names)) == 3
    assert [found.name for found in model.graph.node] == ["same", "same", ""]
    name_nodes(model.graph)
    assert [found.name for found in model.graph.node] == names


def test_the_file_that_is_run_keeps_its_weights_and_has_its_sizes_bound(make_onnx: Callable[..., Any]) -> None:
    weights = np.arange(6000, dtype=np.float32).reshape(2, 3000)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3000])
    model = make_onnx([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 2]}, [y], {"w": weights})
    ready = bound_proto(model, {"n": 3})
    assert onnx.numpy_helper.to_array(ready.graph.initializer[0]).tolist() == weights.tolist()
    assert ready.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3
    onnx.checker.check_model(ready)


def test_nodes_out_of_order_are_sorted_and_told(make_onnx: Callable[..., Any]) -> None:
    graph = to_graph(make_onnx(list(reversed(relu_chain())), {"x": [2]}, ["y"]))
    assert [found.op_type for found in graph.nodes] == ["Relu", "Exp"]
    assert any("sorted" in note for note in graph.notes)


def test_a_cycle_is_refused_with_the_nodes_name(make_onnx: Callable[..., Any]) -> None:
    nodes = [node("Add", ["x", "b"], ["a"], name="first"), node("Relu", ["a"], ["b"], name="second")]
    with pytest.raises(GraphError, match=r"cycle.*'(first|second)'"):
        to_graph(make_onnx(nodes, {"x": [2]}, ["b"]))


def test_a_dangling_input_is_refused_with_the_nodes_name(make_onnx: Callable[..., Any]) -> None:
    with pytest.raises(GraphError, match=r"'lost' \(Relu\) reads 'ghost'"):
        to_graph(make_onnx([node("Relu", ["ghost"], ["y"], name="lost")], {"x": [2]}, ["y"]))


def test_a_dangling_input_of_a_branch_is_refused_with_the_nodes_name(make_onnx: Callable[..., Any]) -> None:
    def branch(source: Any) -> Any:
        inner = [node("Relu", [source], ["r"], name=f"reads {source}")]
        return helper.make_graph(inner, "branch", [], [helper.make_tensor_value_info("r", 1, [2])])

    choose = node("If", ["c"], ["y"], then_branch=branch("x"), else_branch=branch("ghost"))
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    with pytest.raises(GraphError, match="'reads ghost'"):
        to_graph(make_onnx([choose], {"x": [2], "c": condition}, ["y"]))


def test_a_tensor_written_twice_is_refused_with_the_nodes_name(make_onnx: Callable[..., Any]) -> None:
    nodes = [node("Relu", ["x"], ["y"], name="one"), node("Exp", ["x"], ["y"], name="two")]
    with pytest.raises(GraphError, match=r"'two' \(Exp\) writes 'y'"):
        to_graph(make_onnx(nodes, {"x": [2]}, ["y"]))


def test_an_output_that_nothing_writes_is_refused(make_onnx: Callable[..., Any]) -> None:
    with pytest.raises(GraphError, match="'nothing'"):
        to_graph(make_onnx([node("Relu", ["x"], ["y"])], {"x": [2]}, ["nothing"]))


@pytest.mark.parametrize("shape", [[2, -3], [2**40, 2**40]])
def test_an_absurd_shape_of_an_input_is_refused_with_the_tensors_name(
    make_onnx: Callable[..., Any], shape: list[int]
) -> None:
    with pytest.raises(GraphError, match="'x'"):
        to_graph(make_onnx([node("Relu", ["x"], ["y"])], {"x": shape}, ["y"]))


def test_an_absurd_shape_of_an_initializer_is_refused_with_the_tensors_name(
    make_onnx: Callable[..., Any],
) -> None:
    model = make_onnx([node("Relu", ["w"], ["y"])], {"x": [2]}, ["y"])
    model.graph.initializer.append(
        TensorProto(name="w", dims=[-4], data_type=1, data_location=TensorProto.EXTERNAL)
    )
    with pytest.raises(GraphError, match=r"'w'.*\[-4\]"):
        to_graph(model)


def test_an_absurd_shape_inside_is_refused_with_the_tensors_name(make_onnx: Callable[..., Any]) -> None:
    huge = [2**31, 2**31, 2**31]
    with pytest.raises(GraphError, match="'y'"):
        to_graph(make_onnx([node("Expand", ["x", "s"], ["y"])], {"x": [1]}, ["y"], {"s": np.array(huge)}))


def test_a_tensor_whose_data_do_not_fit_its_shape_is_refused_by_name(make_onnx: Callable[..., Any]) -> None:
    model = make_onnx([node("Add", ["x", "w"], ["y"])], {"x": [3]}, ["y"], {"w": np.zeros(3, np.float32)})
    model.graph.initializer[0].dims[0] = 4
    with pytest.raises(GraphError, match="'w'"):
        to_graph(model)


def test_functions_that_call_themselves_are_refused(make_onnx: Callable[..., Any]) -> None:
    again = helper.make_function(
        "local",
        "Again",
        ["a"],
        ["b"],
        [node("Again", ["a"], ["b"], domain="local")],
        [helper.make_opsetid("local", 1)],
    )
    model = make_onnx([node("Again", ["x"], ["y"], domain="local")], {"x": [2]}, ["y"], functions=[again])
    with pytest.raises((ModelError, GraphError)):
        to_graph(model)


def test_weights_without_data_have_shapes_and_no_values(make_onnx: Callable[..., Any]) -> None:
    model = make_onnx(
        [node("MatMul", ["x", "w"], ["y"]), node("Reshape", ["y", "s"], ["z"])], {"x": [2, 3]}, ["z"]
    )
    for name, dims, kind in (("w", [3, 4], 1), ("s", [1], 7)):
        model.graph.initializer.append(
            TensorProto(name=name, dims=dims, data_type=kind, data_location=TensorProto.EXTERNAL)
        )
    graph = to_graph(model)
    assert graph.nodes[0].outputs[0].shape == (2, 4)
    assert graph.outputs[0].shape in (None, (None,))


def test_outputs_of_onnx_runtimes_own_operators_have_shapes(make_onnx: Callable[..., Any]) -> None:
    ms = "com.microsoft"
    nodes = [
        node("FusedMatMul", ["x", "w"], ["a"], domain=ms, transB=1),
        node("SkipLayerNormalization", ["a", "a", "g"], ["b", "", "", "sum"], domain=ms),
        node("MultiHeadAttention", ["b", "b", "b"], ["c"], domain=ms, num_heads=2),
        node("FastGelu", ["c"], ["d"], domain=ms),
        node("Relu", ["d"], ["y"]),
    ]
    graph = to_graph(make_onnx(nodes, {"x": [2, 5, 6], "w": [8, 6], "g": [8]}, ["y", "sum"]))
    assert all(tensor.shape == (2, 5, 8) for found in graph.nodes for tensor in found.present_outputs)


def test_an_open_size_that_does_not_do_asks_for_the_inputs_shape(make_onnx: Callable[..., Any]) -> None:
    weights = {"w": np.ones((2, 3, 3, 3), np.float32)}
    model = make_onnx(
        [helper.make_node("Conv", ["x", "w"], ["y"])], {"x": ["batch", 3, "height", "width"]}, ["y"], weights
    )
    with pytest.raises(GraphError) as caught:
        to_graph(model, bindings={"batch": 2})
    assert "height, width" in caught.value.hint
    assert "--input" in caught.value.hint
