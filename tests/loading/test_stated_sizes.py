"""Sizes that a file states of its inner tensors and outputs, where its inputs and weights imply others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.tools import update_model_dims

from analyzer import analyze, plan_capacity
from analyzer.api import analyze_record
from analyzer.errors import AnalyzerError
from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph

BATCH = 8
# One image of 3x16x16: 4 filters of 3x3x3 at 16x16 places, then 10 outputs of 4 channels.
MACS_OF_AN_IMAGE = 4 * 27 * 256 + 10 * 4


def info(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def network() -> onnx.ModelProto:
    """A network of one image, with the sizes that exporters and simplifiers leave in it."""
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "weight"], ["y"]),
    ]
    weights = {"filters": (4, 3, 3, 3), "weight": (4, 10)}
    stored = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in weights.items()]
    graph = helper.make_graph(nodes, "g", [info("x", [1, 3, 16, 16])], [info("y", [1, 10])], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def rename(values: Any, symbol: str) -> None:
    for value in values:
        value.type.tensor_type.shape.dim[0].dim_param = symbol


def opened(model: onnx.ModelProto) -> onnx.ModelProto:
    rename((*model.graph.input, *model.graph.output), "N")
    return model


def inputs_opened(model: onnx.ModelProto) -> onnx.ModelProto:
    rename(model.graph.input, "N")
    return model


def opened_under_two_names(model: onnx.ModelProto) -> onnx.ModelProto:
    rename(model.graph.input, "N")
    rename(model.graph.output, "batch_size")
    return model


def updated(model: onnx.ModelProto) -> onnx.ModelProto:
    return update_model_dims.update_inputs_outputs_dims(model, {"x": ["N", 3, 16, 16]}, {"y": ["N", 10]})


def without_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    del model.graph.value_info[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return inputs_opened(model)


def record(model: onnx.ModelProto, path: Path, batch: int) -> tuple[dict[str, Any], list[str]]:
    """What a record says apart from the file's name and bytes, and its notes."""
    onnx.save(model, path)
    found = analyze(path, batch=batch, run=False, gpu="l4", cpu="epyc-9654").to_dict()
    notes = found["model"].pop("notes")
    for place, keys in ((found, ("environment", "invocation")), (found["model"], ("name", "source", "digest"))):
        for key in keys:
            place.pop(key)
    for change in found["opportunities"]:
        change.pop("command")  # it names the file
    return found, notes


OPENINGS = [opened, inputs_opened, opened_under_two_names, updated]


@pytest.mark.parametrize("opening", OPENINGS)
def test_a_file_whose_batch_was_opened_has_the_record_of_one_without_inner_sizes(
    opening: Callable[[onnx.ModelProto], onnx.ModelProto], tmp_path: Path
) -> None:
    clean, quiet = record(without_sizes(network()), tmp_path / "clean.onnx", BATCH)
    stale, notes = record(opening(network()), tmp_path / "stale.onnx", BATCH)
    assert stale == clean
    assert stale["totals"]["macs"] == BATCH * MACS_OF_AN_IMAGE
    assert quiet == []
    assert len(notes) == 1
    assert "states [1, 4, 16, 16] for 'a'" in notes[0]
    assert "imply [8, 4, 16, 16]" in notes[0]


def test_at_the_size_that_the_file_states_nothing_is_noted() -> None:
    assert to_graph(opened(network()), bindings={"N": 1}).notes == ()


def test_opened_height_and_width_count_too() -> None:
    model = network()
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"side{axis}"
    graph = to_graph(model, bindings={"side2": 32, "side3": 48})
    assert graph.nodes[0].outputs[0].shape == (1, 4, 32, 48)
    assert len(graph.notes) == 1


def test_a_fixed_batch_that_was_replaced_by_another_number_counts() -> None:
    model = network()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = BATCH
    assert to_graph(model).outputs[0].shape == (BATCH, 10)


def shapes(graph: Graph) -> dict[str, Any]:
    """Of all tensors, those of bodies too."""
    found: dict[str, Any] = {}
    for node in graph.nodes:
        found |= {tensor.name: tensor.shape for tensor in node.present_outputs}
        for body in node.graphs.values():
            found |= shapes(body)
    return found


def test_stale_sizes_in_the_branches_of_an_if_do_not_count() -> None:
    def branch(name: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("MatMul", ["x", "w"], [f"{name}_m"]),
            helper.make_node("Relu", [f"{name}_m"], [f"{name}_r"]),
        ]
        return helper.make_graph(
            nodes, name, [], [info(f"{name}_r", [1, 6])], value_info=[info(f"{name}_m", [1, 6])]
        )

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("yes"), else_branch=branch("no"))
    graph = helper.make_graph(
        [node],
        "g",
        [info("x", ["N", 4]), info("c", [], TensorProto.BOOL)],
        [info("y", [1, 6])],
        [numpy_helper.from_array(np.ones((4, 6), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = to_graph(model, bindings={"N": BATCH})
    assert shapes(found) == dict.fromkeys(("yes_m", "yes_r", "no_m", "no_r", "y"), (BATCH, 6))
    assert len(found.notes) == 1


def test_stale_sizes_of_what_a_loop_carries_do_not_count() -> None:
    kinds = {"i": TensorProto.INT64, "go": TensorProto.BOOL, "goes": TensorProto.BOOL}
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("MatMul", ["state", "w"], ["m"]),
            helper.make_node("Tanh", ["m"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [info("i", [], kinds["i"]), info("go", [], kinds["go"]), info("state", [1, 4])],
        [info("goes", [], kinds["goes"]), info("next", [1, 4]), info("row", [1, 4])],
        value_info=[info("m", [1, 4])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["last", "all"], body=body)],
        "g",
        [info("x", ["N", 4])],
        [info("last", [1, 4]), info("all", [3, 1, 4])],
        [
            numpy_helper.from_array(np.array(3, np.int64), "trips"),
            numpy_helper.from_array(np.ones((4, 4), np.float32), "w"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = shapes(to_graph(model, bindings={"N": BATCH}))
    assert found["m"] == found["next"] == found["row"] == found["last"] == (BATCH, 4)
    assert found["all"] == (3, BATCH, 4)


def of_own_operator(stated: list[Any], *, behind: bool) -> onnx.ModelProto:
    """A MatMul before or behind an operator of another domain, whose output's size the file alone tells."""
    first, second = ("own", "product") if behind else ("product", "own")
    nodes = [
        helper.make_node("Mystery", [read], [written], domain="my.ops")
        if kind == "own"
        else helper.make_node("MatMul", [read, "w"], [written])
        for kind, read, written in ((first, "x", "a"), (second, "a", "y"))
    ]
    weights = [numpy_helper.from_array(np.ones((4, 4), np.float32), "w")]
    graph = helper.make_graph(nodes, "g", [info("x", ["N", 4])], [info("y", stated)], weights)
    graph.value_info.append(info("a", stated))
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def test_a_stale_size_that_nothing_implies_counts_as_not_known() -> None:
    """The MatMul's own output shows that the file's sizes are of another batch."""
    graph = to_graph(of_own_operator([1, 4], behind=False), bindings={"N": BATCH})
    assert graph.nodes[0].outputs[0].shape == (BATCH, 4)
    assert graph.outputs[0].shape is None


def test_numbers_alone_beside_open_inputs_are_those_of_one_size() -> None:
    graph = to_graph(of_own_operator([1, 4], behind=True), bindings={"N": BATCH})
    assert graph.nodes[0].outputs[0].shape is None
    assert "'a'" in graph.notes[0]


def test_a_stated_symbol_tells_the_size_that_nothing_implies() -> None:
    graph = to_graph(of_own_operator(["N", 4], behind=True), bindings={"N": BATCH})
    assert shapes(graph) == {"a": (BATCH, 4), "y": (BATCH, 4)}
    assert graph.notes == ()


def emptied(*axes: int, path: Path) -> Path:
    """The network with inputs of size 0, as some exporters write an open size."""
    model = inputs_opened(network())
    for axis in axes:
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = 0
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("axes", [(0,), (0, 2, 3)])
def test_an_input_of_size_0_gets_no_verdict(axes: tuple[int, ...], tmp_path: Path) -> None:
    path = emptied(*axes, path=tmp_path / "empty.onnx")
    for run in (False, True):
        found = analyze(path, run=run, gpu="l4", cpu="epyc-9654")
        assert found.verdict.device is None
        assert "the size 0 at ax" in found.verdict.sentence
        assert "--input x=1,3," in found.verdict.sentence
        assert not found.costs
        assert not found.precisions
        assert found.answer is None
        assert not any(one.runs or one.latency_s for one in found.ranking)
        assert all(plan.usd_per_million is None and plan.origin == "predicted" for plan in found.plans)
        assert {one.severity for one in found.findings if one.code == "A705"} == {"warning"}
        assert not [one for one in found.findings if one.severity == "error"]
    assert analyze_record(found, gpu="a100").verdict.device is None
    with pytest.raises(AnalyzerError, match="the size 0"):
        plan_capacity(path, rate=10, p99="50ms", run=False, gpu="l4")


@pytest.mark.parametrize("options", [{"batch": BATCH}, {"input": f"x={BATCH},3,16,16"}])
def test_a_size_of_0_that_the_user_replaces_counts_and_is_noted(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """ONNX Runtime refuses any other size than 0 for such a file."""
    found = analyze(emptied(0, path=tmp_path / "empty.onnx"), run=False, gpu="l4", **options)
    assert found.totals.macs == BATCH * MACS_OF_AN_IMAGE
    assert any("declares a size of 0 for x" in note for note in found.model.notes)


def test_a_past_that_is_empty_is_no_open_size() -> None:
    node = helper.make_node("Concat", ["cache", "x"], ["y"], axis=2)
    graph = helper.make_graph(
        [node], "g", [info("cache", [1, 2, 0, 8]), info("x", [1, 2, 1, 8])], [info("y", [1, 2, 1, 8])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert analyze(model, run=False, gpu="l4").model.inputs[0].shape == (1, 2, 0, 8)
