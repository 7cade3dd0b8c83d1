"""What ONNX Runtime refuses to load is known without it: each small file here is given to a session too."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze, plan_capacity
from analyzer.errors import AnalyzerError
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.ort.kernels import registry

FLOAT, INT64, INT32, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.BOOL,
    TensorProto.STRING,
)
OPSET = helper.make_opsetid("", 18)
ROWS = (FLOAT, [4, 8])
IMAGE = (FLOAT, [1, 3, 8, 8])


class Case(NamedTuple):
    """A file of one operator."""

    name: str
    op_type: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] | None = None
    opset: int = 18
    outputs: int = 1
    output_type: int = FLOAT
    domain: str = ""


def stored(value: Any, kind: Any = np.float32) -> Any:
    return np.asarray(value, kind)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def model_of(case: Case) -> onnx.ModelProto:
    """Inputs are a type with a shape, an array (stored) or None (absent)."""
    names = [f"i{place}" if item is not None else "" for place, item in enumerate(case.inputs)]
    fed = [
        helper.make_tensor_value_info(name, *item)
        for name, item in zip(names, case.inputs, strict=True)
        if isinstance(item, tuple)
    ]
    weights = [
        numpy_helper.from_array(item, name)
        for name, item in zip(names, case.inputs, strict=True)
        if isinstance(item, np.ndarray)
    ]
    results = [f"o{place}" for place in range(case.outputs)]
    node = helper.make_node(
        case.op_type, names, results, name="node", domain=case.domain, **(case.attributes or {})
    )
    graph = helper.make_graph(
        [node], "g", fed, [helper.make_tensor_value_info("o0", case.output_type, None)], weights
    )
    imports = [helper.make_opsetid("", case.opset)]
    if case.domain:
        imports.append(helper.make_opsetid(case.domain, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


NORMALISED = (IMAGE, *[ones(3)] * 4)
ALONG_0 = stored([0], np.int64)

BROKEN = [
    Case("types that disagree", "Add", [ROWS, (INT64, [4, 8])]),
    Case("shapes that do not fit", "MatMul", [ROWS, (FLOAT, [9, 8])]),
    Case("one open size beside one that never fits", "MatMul", [(FLOAT, ["N", 7]), (FLOAT, [9, 8])]),
    Case("a scalar as weight", "Conv", [IMAGE, (FLOAT, [])]),
    Case("a weight of another rank", "Conv", [IMAGE, ones(4, 3, 3)]),
    Case("a type without a schema", "Conv", [(INT32, [1, 3, 8, 8]), stored(ones(4, 3, 3, 3), np.int32)]),
    Case("an attribute that it lacks", "Relu", [ROWS], {"foo": 1}),
    Case("axes of Squeeze as attribute", "Squeeze", [(FLOAT, [1, 8])], {"axes": [0]}, 13),
    Case("axes of Unsqueeze as attribute", "Unsqueeze", [ROWS], {"axes": [0]}),
    Case("axes of ReduceSum as attribute", "ReduceSum", [ROWS], {"axes": [1]}, 13),
    Case("axes of ReduceMean as attribute", "ReduceMean", [ROWS], {"axes": [1]}, 18),
    Case("ratio of Dropout as attribute", "Dropout", [ROWS], {"ratio": 0.5}, 13),
    Case("limits of Clip as attributes", "Clip", [ROWS], {"min": 0.0, "max": 6.0}, 13),
    Case("pads of Pad as attribute", "Pad", [ROWS], {"pads": [0, 1, 0, 1]}, 11),
    Case("k of TopK as attribute", "TopK", [ROWS], {"k": 2}, 10, 2),
    Case("parts of Split as attribute", "Split", [ROWS], {"axis": 1, "split": [4, 4]}, 13, 2),
    Case("Split without parts", "Split", [ROWS], {"axis": 1}, 18, 2),
    Case("Upsample after its end", "Upsample", [IMAGE, stored([1, 1, 2, 2])], {}, 11),
    Case("Scatter after its end", "Scatter", [ROWS, (INT64, [1, 8]), (FLOAT, [1, 8])], {}, 11),
    Case("spatial of BatchNormalization", "BatchNormalization", NORMALISED, {"spatial": 1}, 9),
    Case("five outputs of BatchNormalization", "BatchNormalization", NORMALISED, {}, 15, 5),
    Case("a scale of another size", "BatchNormalization", [IMAGE, ones(2), *[ones(3)] * 3], {}, 15),
    Case("Cast to nothing", "Cast", [ROWS]),
    Case("Cast to no type", "Cast", [ROWS], {"to": 99}),
    Case("a pool without a window", "MaxPool", [IMAGE]),
    Case("an LSTM without its size", "LSTM", [(FLOAT, [5, 2, 8]), ones(1, 16, 8), ones(1, 16, 4)]),
    Case("an attribute of another type", "Concat", [ROWS, ROWS], {"axis": 1.0}),
    Case("one input too many", "Relu", [ROWS, ROWS]),
    Case("one input too few", "Add", [ROWS]),
    Case("an input that is absent", "Conv", [IMAGE, None]),
    Case("one output too many", "Relu", [ROWS], outputs=2),
    Case("another type of an output", "Relu", [ROWS], output_type=INT64),
    Case("Relu of truths", "Relu", [(BOOL, [4])], output_type=BOOL),
    Case("Relu of integers before opset 14", "Relu", [(INT32, [4])], {}, 13, output_type=INT32),
    Case("a sum of texts", "Add", [(STRING, [4]), (STRING, [4])], output_type=STRING),
    Case("a condition of floats", "Where", [ROWS, ROWS, ROWS]),
    Case("indices of floats", "Gather", [ROWS, (FLOAT, [2])]),
    Case("a shape of floats", "Reshape", [ROWS, stored([-1])]),
    Case("a shape that does not divide", "Reshape", [ROWS, stored([5, -1], np.int64)]),
    Case("joined sizes that differ", "Concat", [ROWS, (FLOAT, [4, 9])], {"axis": 0}),
    Case("an axis that is not there", "Concat", [ROWS, ROWS], {"axis": 5}),
    Case("a softmax of an axis that is not there", "Softmax", [ROWS], {"axis": 3}),
    Case("sizes that do not broadcast", "Add", [ROWS, (FLOAT, [4, 7])]),
    Case("an order of too many axes", "Transpose", [ROWS], {"perm": [0, 1, 2]}),
    Case("a product of three axes", "Gemm", [(FLOAT, [2, 4, 8]), (FLOAT, [8, 8])]),
    Case("an axis of more than 1 squeezed", "Squeeze", [ROWS, ALONG_0]),
    Case("parts of another sum", "Split", [ROWS, stored([4, 5], np.int64)], {"axis": 1}, 18, 2),
    Case("a zero point of another type", "QuantizeLinear", [ROWS, stored(1.0), stored(0, np.int32)]),
    Case("a power of another type before opset 12", "Pow", [ROWS, stored(2, np.int64)], {}, 7),
    Case("old broadcasting", "Add", [ROWS, (FLOAT, [8])], {"axis": 0, "broadcast": 1}, 7),
    Case("an attribute that a contrib operator lacks", "FastGelu", [ROWS], {"foo": 1}, domain="com.microsoft"),
    Case(
        "a type that a contrib operator lacks",
        "Gelu",
        [(INT64, [4])],
        output_type=INT64,
        domain="com.microsoft",
    ),
    Case(
        "two types of a contrib operator",
        "BiasGelu",
        [ROWS, stored([1] * 8, np.float16)],
        domain="com.microsoft",
    ),
    Case("an equation of another rank", "Einsum", [ROWS, (FLOAT, [8, 3])], {"equation": "ijk,kl->ijl"}),
    Case("an equation of other operands", "Einsum", [ROWS, (FLOAT, [8, 3])], {"equation": "ij,jk,kl->il"}),
]
DOUBLED = stored([1, 1, 2, 2])
RECURRENT = [(FLOAT, [5, 2, 8]), ones(1, 16, 8), ones(1, 16, 4)]
# Loaded, but a kernel's constructor refuses the node, so that there is no session.
UNMADE = [
    Case("a mode of Pad", "Pad", [IMAGE, stored([0] * 8, np.int64)], {"mode": "mirror"}),
    Case("a padding of Conv", "Conv", [IMAGE, ones(4, 3, 3, 3)], {"auto_pad": "SAME"}),
    Case("a padding beyond the window", "AveragePool", [IMAGE], {"kernel_shape": [2, 2], "pads": [3] * 4}),
    Case("a mode of Resize", "Resize", [IMAGE, None, DOUBLED], {"mode": "lanczos"}),
    Case("a grid of Resize", "Resize", [IMAGE, None, DOUBLED], {"coordinate_transformation_mode": "corner"}),
    Case("a rounding of Resize", "Resize", [IMAGE, None, DOUBLED], {"nearest_mode": "up"}),
    Case("lines over the batch", "Resize", [IMAGE, None, stored([2, 1, 2, 2])], {"mode": "linear"}),
    Case("lines over channels", "Resize", [IMAGE, None, stored([1, 2, 2, 2])], {"mode": "linear"}),
    Case(
        "cubes of a volume",
        "Resize",
        [(FLOAT, [1, 2, 4, 4, 4]), None, stored([1, 1, 2, 2, 2])],
        {"mode": "cubic"},
    ),
    Case("a direction", "LSTM", RECURRENT, {"hidden_size": 4, "direction": "both"}),
    Case("an activation", "LSTM", RECURRENT, {"hidden_size": 4, "activations": ["Foo", "Tanh", "Tanh"]}),
    Case("too few activations", "LSTM", RECURRENT, {"hidden_size": 4, "activations": ["Tanh"]}),
    Case("a mode of GridSample", "GridSample", [IMAGE, (FLOAT, [1, 5, 5, 2])], {"mode": "linear"}),
    Case("a later mode of GridSample", "GridSample", [IMAGE, (FLOAT, [1, 5, 5, 2])], {"mode": "bilinear"}, 20),
    Case("a mode of DepthToSpace", "DepthToSpace", [(FLOAT, [1, 4, 8, 8])], {"blocksize": 2, "mode": "RCD"}),
    Case("an even window of LRN", "LRN", [IMAGE], {"size": 2}),
    Case("a division by 0", "Div", [(INT64, [4]), stored([1, 0, 1, 1], np.int64)], output_type=INT64),
    Case(
        "blocks of packed weights",
        "MatMulNBits",
        [ROWS, np.zeros((4, 1, 6), np.uint8), ones(4)],
        {"K": 8, "N": 4, "bits": 4, "block_size": 12},
        domain="com.microsoft",
    ),
]
FINE = [
    Case("open sizes that may fit", "MatMul", [(FLOAT, ["N", "K"]), (FLOAT, [9, 8])]),
    Case("two open sizes", "Add", [(FLOAT, ["N", 8]), (FLOAT, ["M", 8])]),
    Case("integers", "Add", [(INT64, [4]), (INT64, [4])], output_type=INT64),
    Case("axes of Squeeze as attribute", "Squeeze", [(FLOAT, [1, 8])], {"axes": [0]}, 11),
    Case("axes of ReduceMean as attribute", "ReduceMean", [ROWS], {"axes": [1]}, 17),
    Case("ratio of Dropout as attribute", "Dropout", [ROWS], {"ratio": 0.5}, 11),
    Case("limits of Clip as attributes", "Clip", [ROWS], {"min": 0.0, "max": 6.0}, 7),
    Case("one limit of Clip", "Clip", [ROWS, None, stored(6.0)]),
    Case("pads of Pad as attribute", "Pad", [ROWS], {"pads": [0, 1, 0, 1]}, 10),
    Case("Upsample before its end", "Upsample", [IMAGE, stored([1, 1, 2, 2])], {}, 9),
    Case("Scatter before its end", "Scatter", [ROWS, (INT64, [1, 8]), (FLOAT, [1, 8])], {}, 10),
    Case("spatial of BatchNormalization", "BatchNormalization", NORMALISED, {"spatial": 1}, 8),
    Case("five outputs of BatchNormalization", "BatchNormalization", NORMALISED, {}, 9, 5),
    Case("Split in even parts", "Split", [ROWS], {"axis": 1}, 17, 2),
    Case("Split in a number of parts", "Split", [ROWS], {"axis": 1, "num_outputs": 2}, 18, 2),
    Case("Relu of integers", "Relu", [(INT64, [4])], output_type=INT64),
    Case("a power of another type", "Pow", [ROWS, stored(2, np.int64)], {}, 13),
    Case("an LSTM", "LSTM", [(FLOAT, [5, 2, 8]), ones(1, 16, 8), ones(1, 16, 4)], {"hidden_size": 4}),
    Case("a zero point", "QuantizeLinear", [ROWS, stored(1.0), stored(0, np.uint8)], output_type=2),
    Case(
        "an operator of the classical domain",
        "Scaler",
        [ROWS],
        {"offset": [0.0], "scale": [1.0]},
        domain="ai.onnx.ml",
    ),
    Case("an operator of the runtime's domain", "Gelu", [ROWS], domain="com.microsoft"),
    Case("a bias beside it", "BiasGelu", [ROWS, ones(8)], domain="com.microsoft"),
    Case("Affine, which the runtime kept", "Affine", [ROWS], {"alpha": 1.0, "beta": 0.0}, 9),
    Case("ImageScaler, which the runtime kept", "ImageScaler", [IMAGE], {"scale": 1.0, "bias": [0.0] * 3}, 9),
    Case("an older normalisation", "MeanVarianceNormalization", [IMAGE], {"across_channels": 1}, 8),
    Case(
        "a deprecated one with a definition",
        "GroupNormalization",
        [(FLOAT, [1, 4, 8, 8]), ones(2), ones(2)],
        {"num_groups": 2},
    ),
    Case("a bias of another size", "Gemm", [ROWS, (FLOAT, [8, 8]), (FLOAT, ["b"])]),
    Case("an equation", "Einsum", [ROWS, (FLOAT, [8, 3])], {"equation": "ij,jk->ik"}),
    Case("an equation that loads", "Einsum", [ROWS, (FLOAT, [8, 3])], {"equation": "ij,jk->im"}),
    Case("lines over the middle", "Resize", [IMAGE, None, stored([1, 2, 2, 1])], {"mode": "linear"}),
    Case("cubes of an image", "Resize", [IMAGE, None, DOUBLED], {"mode": "cubic"}),
    Case("activations in lower case", "LSTM", RECURRENT, {"hidden_size": 4, "activations": ["tanh"] * 3}),
    Case("boxes", "NonMaxSuppression", [(FLOAT, [1, 6, 4]), (FLOAT, [1, 1, 6])], output_type=INT64),
    Case("a shape that is known later", "ConstantOfShape", [(INT64, ["rank"])]),
    Case("attention", "Attention", [(FLOAT, [1, 2, 4, 8])] * 3, {}, 23),
    Case("a layer's normalisation", "LayerNormalization", [ROWS, ones(8)], {}, 17),
    Case("Gelu", "Gelu", [ROWS], {}, 20),
    Case("a sequence", "SplitToSequence", [ROWS], {"axis": 0}),
    Case("truths", "And", [(BOOL, [4]), (BOOL, [4])], output_type=BOOL),
    Case("a choice", "Where", [(BOOL, [4, 8]), ROWS, ROWS]),
    Case("a grid", "GridSample", [IMAGE, (FLOAT, [1, 8, 8, 2])], {}, 16),
    Case("a resize", "Resize", [IMAGE, None, stored([1, 1, 2, 2])]),
    Case("a top", "TopK", [ROWS, stored([2], np.int64)], {}, 11, 2),
    Case("texts", "Identity", [(STRING, [4])], output_type=STRING),
]


def loads(model: onnx.ModelProto) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # of many types, by what is wrong
        return False
    return True


def refused(model: onnx.ModelProto, folder: Path) -> bool:
    """Whether the file is an error of its own, or one that the gate reports."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    try:
        loaded = load(parse_reference(str(path)))
        return bool(loaded.problems or loaded.graph().problems)
    except AnalyzerError:
        return True


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_file_that_a_session_refuses_is_refused(case: Case, tmp_path: Path) -> None:
    model = model_of(case)
    assert not loads(model)
    assert refused(model, tmp_path)


@pytest.mark.parametrize("case", UNMADE, ids=lambda case: case.name)
def test_a_node_whose_kernel_cannot_be_made_fails_the_gate(case: Case, tmp_path: Path) -> None:
    model = model_of(case)
    assert not loads(model)
    assert set(errors(model, tmp_path)) == {"A104"}
    assert analyze(tmp_path / "model.onnx", run=False, gpu="l4").verdict.device is None


@pytest.mark.parametrize("case", FINE, ids=lambda case: case.name)
def test_a_file_that_a_session_loads_is_not_refused(case: Case, tmp_path: Path) -> None:
    model = model_of(case)
    if case.op_type == "SplitToSequence":
        model.graph.output[0].type.CopyFrom(
            helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
        )
    assert loads(model)
    assert not refused(model, tmp_path)


def relu() -> onnx.ModelProto:
    return model_of(Case("", "Relu", [ROWS]))


def chain() -> onnx.ModelProto:
    """A Sigmoid before a Relu."""
    model = relu()
    model.graph.node[0].input[0] = "between"
    model.graph.node.insert(0, helper.make_node("Sigmoid", ["i0"], ["between"], name="first"))
    return model


def with_branch(node: onnx.NodeProto, kind: int = FLOAT) -> onnx.ModelProto:
    """An If whose one branch is this node, which writes ``t``, and whose other one is a Relu."""

    def branch(inner: onnx.NodeProto, of: int) -> onnx.GraphProto:
        return helper.make_graph([inner], "b", [], [helper.make_tensor_value_info(inner.output[0], of, None)])

    choice = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch(node, kind),
        else_branch=branch(helper.make_node("Relu", ["x"], ["e"]), FLOAT),
    )
    fed = [helper.make_tensor_value_info("x", *ROWS), helper.make_tensor_value_info("c", BOOL, [])]
    graph = helper.make_graph([choice], "g", fed, [helper.make_tensor_value_info("y", FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def rename(model: onnx.ModelProto, node: int, *, reads: str = "", writes: str = "") -> None:
    if reads:
        model.graph.node[node].input[0] = reads
    if writes:
        model.graph.node[node].output[0] = model.graph.output[0].name = writes


def names(model: onnx.ModelProto, first: str, second: str) -> None:
    model.graph.node[0].name, model.graph.node[1].name = first, second


def state(model: onnx.ModelProto, name: str, kind: int, shape: list[int]) -> None:
    model.graph.value_info.append(helper.make_tensor_value_info(name, kind, shape))


def store(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [9]))
    model.graph.initializer.append(numpy_helper.from_array(ones(8), "w"))


def turn(model: onnx.ModelProto) -> None:
    model.graph.node.append(model.graph.node[0])
    del model.graph.node[0]


WRONG = {
    "names of nodes twice": lambda model: names(model, "same", "same"),
    "inputs twice": lambda model: model.graph.input.append(model.graph.input[0]),
    "an input without a type": lambda model: model.graph.input[0].ClearField("type"),
    "an output that nothing writes": lambda model: setattr(model.graph.output[0], "name", "nowhere"),
    "an input that nothing writes": lambda model: rename(model, 0, reads="nowhere"),
    "a tensor written twice": lambda model: rename(model, 1, writes="between"),
    "a cycle": lambda model: rename(model, 0, reads="o0"),
    "another type of an inner tensor": lambda model: state(model, "between", TensorProto.DOUBLE, [4, 8]),
    "no operator set": lambda model: model.ClearField("opset_import"),
    "a weight of another size than its input": store,
    "an operator set that is too new": lambda model: model.opset_import.append(
        helper.make_opsetid("ai.onnx.ml", 6)
    ),
}
UNUSUAL = {
    "an order that is none": turn,
    "another size of an inner tensor": lambda model: state(model, "between", FLOAT, [1, 8]),
    "another rank of an output": lambda model: model.graph.output[0].type.CopyFrom(
        helper.make_tensor_type_proto(FLOAT, [8])
    ),
    "names of nodes that are empty": lambda model: names(model, "", ""),
}


@pytest.mark.parametrize("what", [*WRONG, *UNUSUAL])
def test_what_a_session_says_of_a_file_is_said_of_it(what: str, tmp_path: Path) -> None:
    model = chain()
    change: Callable[[onnx.ModelProto], object] = (WRONG | UNUSUAL)[what]
    change(model)
    assert loads(model) == (what in UNUSUAL)
    assert refused(model, tmp_path) == (what in WRONG)


@pytest.mark.parametrize(
    ("node", "kind", "fine"),
    [
        (helper.make_node("Sigmoid", ["x"], ["t"]), FLOAT, True),
        (helper.make_node("Sigmoid", ["x"], ["t"], foo=2), FLOAT, False),
        (helper.make_node("MatMul", ["x", "x"], ["t"]), FLOAT, False),
        (helper.make_node("Cast", ["x"], ["t"], to=INT64), INT64, False),
    ],
    ids=["fine", "an attribute that it lacks", "shapes that do not fit", "another type than the other branch"],
)
def test_branches_are_looked_at_too(node: onnx.NodeProto, kind: int, fine: bool, tmp_path: Path) -> None:
    model = with_branch(node, kind)
    assert loads(model) == fine
    assert refused(model, tmp_path) != fine


def errors(model: onnx.ModelProto, folder: Path, **options: Any) -> dict[str, str]:
    """Messages of the gate's errors by code."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    analysis = analyze(path, run=False, gpu="l4", cpu="epyc-9654", **options)
    return {one.code: one.message for one in analysis.findings if one.severity == "error"}


def test_the_gate_names_the_operator_that_no_session_loads(tmp_path: Path) -> None:
    message = errors(model_of(Case("", "Relu", [ROWS], {"foo": 1})), tmp_path)["A704"]
    assert "'node' (Relu) has an attribute 'foo'" in message


def test_a_newer_format_than_the_release_reads_fails_the_gate(tmp_path: Path) -> None:
    model = relu()
    model.ir_version = 14
    assert not loads(model)
    assert "up to IR version 13" in errors(model, tmp_path)["A704"]
    model.ir_version = 13
    assert loads(model)
    assert errors(model, tmp_path) == {}


@pytest.mark.parametrize(("release", "newest"), [("1.28", 13), ("1.31", 13)])
def test_a_release_reads_the_formats_of_the_onnx_that_it_was_built_with(release: str, newest: int) -> None:
    """ONNX 1.21 (opset 26) writes IR version 13 (onnx/helper.py, VERSION_TABLE)."""
    known = registry(release)
    assert known.refuses_ir(newest) == ""
    assert known.refuses_ir(newest + 1)


def test_an_operator_that_the_opset_lacks_fails_the_gate(tmp_path: Path) -> None:
    model = model_of(Case("", "Gelu", [ROWS], {}, 19))
    assert not loads(model)
    assert "no operator Gelu at opset 19" in errors(model, tmp_path)["A704"]
    assert analyze(tmp_path / "model.onnx", run=False, gpu="l4").verdict.device is None


@pytest.mark.parametrize("domain", ["com.microsoft", "ai.onnx.preview.training"])
def test_an_operator_that_its_domain_lacks_fails_the_gate_once(domain: str, tmp_path: Path) -> None:
    model = model_of(Case("", "Nothing", [ROWS], domain=domain))
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(FLOAT, [4, 8]))
    assert not loads(model)
    assert set(errors(model, tmp_path)) == {"A704"}
    with pytest.raises(AnalyzerError, match="cannot run the model"):
        plan_capacity(tmp_path / "model.onnx", rate=10, p99="50ms", run=False, gpu="l4")


def test_a_function_whose_domain_is_not_imported_fails_the_gate(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["a"], ["b"])]
    inside = helper.make_function("own", "Own", ["a"], ["b"], nodes, [OPSET])
    model = relu()
    model.graph.node[0].op_type, model.graph.node[0].domain = "Own", "own"
    model.functions.append(inside)
    assert not loads(model)
    assert "operator set 'own'" in errors(model, tmp_path)["A704"]
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert loads(model)
    assert errors(model, tmp_path) == {}


# Each loads, and each run ends in an error.
UNFIT = [
    Case("a window of another size", "Conv", [IMAGE, ones(4, 3, 3, 3)], {"kernel_shape": [5, 5]}),
    Case("groups", "Conv", [(FLOAT, [1, 6, 8, 8]), ones(5, 3, 3, 3)], {"group": 2}),
    Case("channels of blocks", "DepthToSpace", [(FLOAT, [1, 4, 8, 8])], {"blocksize": 3}),
    Case("a label of two sizes", "Einsum", [ROWS, (FLOAT, [7, 3])], {"equation": "ij,jk->ik"}),
]


@pytest.mark.parametrize("case", UNFIT, ids=lambda case: case.name)
def test_sizes_that_no_run_executes_are_an_error(case: Case, tmp_path: Path) -> None:
    model = model_of(case)
    assert loads(model)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(AnalyzerError, match="cannot be executed at these sizes"):
        analyze(tmp_path / "model.onnx", run=False, gpu="l4")


def test_a_batch_that_a_constant_forbids_is_an_error_and_not_a_count(tmp_path: Path) -> None:
    """Each run ends in an error: 8 x 4 elements cannot take the shape of one row of 4."""
    model = model_of(Case("", "Reshape", [(FLOAT, ["N", 4, 1]), stored([1, 4], np.int64)]))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(AnalyzerError, match=r"it makes \[1, 4\] of \[8, 4, 1\]"):
        analyze(path, batch=8, run=False, gpu="l4")
    assert analyze(path, batch=1, run=False, gpu="l4").model.problems == ()
