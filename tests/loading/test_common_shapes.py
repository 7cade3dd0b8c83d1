"""Types told by our own rules are those that ONNX's inference of the whole model finds."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from analyzer.graph import DEFAULT_DOMAIN, DTYPES, Graph, Tensor
from analyzer.loading.onnx_graph import build
from analyzer.loading.onnx_graph.normalize import normalized
from analyzer.loading.shape_inference.common_operators import common_output_types

node = helper.make_node
FLOAT, INT64 = DTYPES["float32"], DTYPES["int64"]


def both(model: onnx.ModelProto) -> tuple[Any, ...]:
    """The graph by our own rules, None where they leave a type open, and by ONNX's inference."""
    ready = normalized(model)
    opsets = {entry.domain or DEFAULT_DOMAIN: entry.version for entry in ready.model.opset_import}
    return build.from_common_rules(ready, opsets), build.from_onnx_inference(ready, opsets)


def types(graph: Graph) -> list[Any]:
    """Everything about a graph's tensors but their values."""
    tensors = [tensor for item in graph.nodes for tensor in (*item.inputs, *item.outputs)]
    return [
        tensor and (tensor.name, tensor.dtype.name, tensor.shape, tensor.constant, tensor.initializer)
        for tensor in (*graph.inputs, *graph.initializers, *tensors, *graph.outputs)
    ]


def values(graph: Graph) -> dict[Any, Any]:
    """The known values of a graph's tensors by name."""
    tensors = [tensor for item in graph.nodes for tensor in item.present_outputs]
    return {tensor.name: tensor.value.tolist() for tensor in tensors if tensor.value is not None}


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx makes its cases with overflows on purpose
        from onnx.backend.test.case.node import collect_testcases

        return collect_testcases()


def test_both_ways_give_the_same_graph_for_every_case_of_the_backend_suite(
    cases: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_COMMON_SHARE", 0)  # however many operators have no rule
    swift = 0
    for case in cases:
        ours, theirs = both(case.model)
        if ours is None:
            continue
        swift += 1
        assert types(ours) == types(theirs), case.name
        known = values(theirs)
        for name, value in values(ours).items():
            assert np.array_equal(value, known[name], equal_nan=True), (case.name, name)
    assert swift > 1700


def test_rules_tell_the_types_of_most_operators_of_the_backend_suite(cases: list[Any]) -> None:
    asked = found = 0
    for case in cases:
        graph = build.to_graph(case.model)
        for item in graph.nodes:
            closed = all(
                tensor.elements is not None for tensor in (*item.present_inputs, *item.present_outputs)
            )
            if item.domain != DEFAULT_DOMAIN or item.graphs or not closed or item.version < 7:
                continue
            asked += 1
            kinds = common_output_types(item.op_type, item.inputs, item.attributes, len(item.outputs))
            if kinds is not None:
                found += 1
                assert [(tensor.dtype, tensor.shape) for tensor in item.present_outputs] == [
                    kind for kind, tensor in zip(kinds, item.outputs, strict=False) if tensor is not None
                ], (case.name, item.name)
    assert found > 0.7 * asked


@pytest.mark.parametrize(
    "path", sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
)
def test_real_topologies_need_no_inference_by_onnx(path: Path) -> None:
    ours, theirs = both(onnx.load(path))
    assert types(ours) == types(theirs)


sizes = st.integers(1, 12)
small = st.integers(1, 3)


@given(
    op_type=st.sampled_from(["MaxPool", "AveragePool", "Conv"]),
    size=st.tuples(sizes, sizes),
    kernel=st.tuples(small, small),
    strides=st.tuples(small, small),
    dilations=st.tuples(small, small),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    ceil=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_windows_are_counted_as_onnx_counts_them(
    op_type: Any, size: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, ceil: Any
) -> None:
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    inputs = [Tensor(name="x", shape=(2, 3, *size), dtype=FLOAT)]
    if op_type == "Conv":
        inputs.append(Tensor(name="w", shape=(4, 3, *kernel), dtype=FLOAT))
    else:
        attributes["ceil_mode"] = int(ceil)
    kinds = common_output_types(op_type, inputs, attributes, 1)
    schema = onnx.defs.get_schema(op_type, 22, "")
    proto = node(op_type, [tensor.name for tensor in inputs], ["y"], **attributes)
    known = {tensor.name: helper.make_tensor_type_proto(TensorProto.FLOAT, tensor.shape) for tensor in inputs}
    opsets = [helper.make_opsetid("", 22)]
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, proto, known, {}, {}, opsets, 10)["y"]
    except onnx.shape_inference.InferenceError:
        assert kinds is None
        return
    shape = tuple(dim.dim_value for dim in found.tensor_type.shape.dim)
    if kinds is None:
        wide = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations, strict=True)]
        room = [size[0] + pads[0] + pads[2], size[1] + pads[1] + pads[3]]
        assert attributes.get("ceil_mode") or wide[0] > room[0] or wide[1] > room[1]
    else:
        assert kinds[0] == (FLOAT, shape)


def tensors(*shapes: Any, values: Any = ()) -> Any:
    known = dict(values)
    return [
        Tensor(
            name=str(position),
            shape=shape,
            dtype=INT64 if position in known else FLOAT,
            value=np.array(known[position]) if position in known else None,
        )
        for position, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Add", tensors((2, 3), (4,)), {}),
        ("MatMul", tensors((2, 3), (4, 5)), {}),
        ("Gemm", tensors((2, 3), (4, 5)), {"transB": 1}),
        ("Conv", tensors((1, 4, 8, 8), (2, 3, 3, 3)), {}),
        ("Conv", tensors((1, 3, 2, 2), (2, 3, 3, 3)), {}),
        ("Concat", tensors((2, 3), (4, 5)), {"axis": 0}),
        ("Concat", tensors((2, 3), (2, 3)), {"axis": 2}),
        ("Reshape", tensors((2, 3), (2,), values={1: [4, -1]}), {}),
        ("Reshape", tensors((2, 3), (1,)), {}),
        ("Transpose", tensors((2, 3)), {"perm": (0, 0)}),
        ("Squeeze", tensors((2, 3), (1,), values={1: [0]}), {}),
        ("Split", tensors((2, 3), (2,), values={1: [1, 2]}), {}),
        ("Expand", tensors((2, 3), (1,), values={1: [2**62]}), {}),
        ("ConstantOfShape", tensors((2,), values={0: [2**32, 2**32]}), {}),
        ("LSTM", tensors((2, 3, 4)), {}),
    ],
)
def test_what_does_not_fit_is_left_to_onnx(
    op_type: str, inputs: list[Tensor], attributes: dict[Any, Any]
) -> None:
    assert common_output_types(op_type, inputs, attributes, 1) is None


def test_a_type_that_stays_open_sends_the_whole_model_to_onnx(make_onnx: Callable[..., Any]) -> None:
    nodes = [node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["y"], to=1)]
    nodes += [node("Relu", [f"x{i - 1}" if i else "x"], [f"x{i}"]) for i in range(40)]
    ours, theirs = both(make_onnx(nodes, {"x": [2, 3]}, ["y"]))
    assert ours is None
    assert theirs.outputs[0].shape == (2, None)


def test_a_stated_size_that_the_inputs_contradict_does_not_count(make_onnx: Callable[..., Any]) -> None:
    """ONNX Runtime warns of it, and computes with the size that the inputs imply."""
    declared = [helper.make_tensor_value_info("a", TensorProto.FLOAT, [7, 3])]
    model = make_onnx(
        [node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["y"])], {"x": [2, 3]}, ["y"], value_info=declared
    )
    ours, theirs = both(model)
    assert types(ours) == types(theirs)
    assert ours.outputs[0].shape == (2, 3)


def test_older_opsets_are_left_to_onnx(make_onnx: Callable[..., Any]) -> None:
    model = make_onnx([node("Add", ["x", "b"], ["y"], broadcast=1)], {"x": [2, 3], "b": [3]}, ["y"])
    model.opset_import[0].version = 6
    ours, _ = both(model)
    assert ours is None
