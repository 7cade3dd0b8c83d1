"""Files that are made to do harm, or damaged: one message in time, nothing executed, nothing overwritten."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import analyzer
from analyzer.costs import count
from analyzer.errors import GraphError, MeasurementError, ModelError
from analyzer.loading import load as loading
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.loading.onnx_graph.construction import from_message, to_message
from analyzer.loading.onnx_graph.node_validity import check_budget
from analyzer.loading.weights import materialise
from analyzer.pipeline.options import make_options
from analyzer.reading import DEFAULT_LIMITS, Limits

FLOAT, INT64, STRING, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL


def value(name: str, shape: Sequence[int | str] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto],
    *stored: onnx.TensorProto,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    inputs = [value("x", [1, 4, 8, 8]), value("c", [], BOOL)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 20), ("own", 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def whole(name: str, *numbers: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def doubling(count: int) -> onnx.ModelProto:
    """Functions that call the next one twice: 2 to the power of ``count`` - 1 operators in the end."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    functions = []
    for index in range(count):
        inner = helper.make_node(f"f{index + 1}", ["x"], ["m"], domain="own")
        outer = helper.make_node(f"f{index + 1}", ["m"], ["y"], domain="own")
        body = [helper.make_node("Relu", ["x"], ["y"])] if index == count - 1 else [inner, outer]
        functions.append(helper.make_function("own", f"f{index}", ["x"], ["y"], body, opsets))
    call = helper.make_node("f0", ["x"], ["y"], domain="own")
    return model([call], [value("y", [1, 4, 8, 8])], functions=functions)


def body(*results: str) -> onnx.GraphProto:
    """A body that takes what a Loop hands it and gives these."""
    nodes = [helper.make_node("Identity", ["going"], [name]) for name in results]
    inputs = [value("trip", [], INT64), value("going", [], BOOL)]
    return helper.make_graph(nodes, "body", inputs, [value(name, None, BOOL) for name in results])


def branch() -> onnx.GraphProto:
    return helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "branch", [], [value("b", None)])


def loaded(tmp_path: Path, content: onnx.ModelProto, limits: Limits = DEFAULT_LIMITS) -> Loaded:
    path = tmp_path / "strange.onnx"
    path.write_bytes(content.SerializeToString())
    return loading.load(parse_reference(str(path)), limits=limits)


# What unfolds


def test_functions_that_double_are_counted_before_they_are_unfolded(tmp_path: Path) -> None:
    # 30 of them are 2**29 operators: C++ takes gigabytes and minutes to find that out.
    with pytest.raises(ModelError, match="536,870,912 operators once its functions") as caught:
        loaded(tmp_path, doubling(30))
    assert "--limit nodes=" in (caught.value.hint or "")


def test_the_count_is_what_the_inliner_makes(tmp_path: Path) -> None:
    assert len(loaded(tmp_path, doubling(6)).graph().nodes) == 2**5
    check_budget(doubling(6), Limits(nodes=2**5), "it")
    with pytest.raises(ModelError, match="32 operators"):
        check_budget(doubling(6), Limits(nodes=2**5 - 1), "it")


def test_a_function_that_carries_data_is_counted_in_bytes() -> None:
    payload = numpy_helper.from_array(np.zeros(250_000, np.float32))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    constant = helper.make_node("Constant", [], ["y"], value=payload)
    function = helper.make_function("own", "f", [], ["y"], [constant], opsets)
    calls = [helper.make_node("f", [], [f"y{index}"], domain="own") for index in range(1000)]
    with pytest.raises(ModelError, match=r"takes 1\.00 GB without its weights"):
        check_budget(model(calls, [value("y0", None)], functions=[function]), Limits(), "it")


def test_functions_that_call_each_other_are_refused() -> None:
    opsets = [helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", one, ["x"], ["y"], [helper.make_node(other, ["x"], ["y"], domain="own")], opsets
        )
        for one, other in (("f", "g"), ("g", "f"))
    ]
    call = helper.make_node("f", ["x"], ["y"], domain="own")
    with pytest.raises(ModelError, match="calls itself"):
        check_budget(model([call], [value("y", None)], functions=functions), Limits(), "it")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(nodes=1), "2 operators; 1 is the limit"),
        (Limits(functions=1), "defines 2 functions; 1 is the limit"),
        (Limits(depth=1), "2 deep; 1 is the limit"),
        (Limits(attributes=1), "2 attributes; 1 is the limit"),
    ],
)
def test_each_limit_has_its_message(limits: Limits, said: str) -> None:
    opsets = [helper.make_opsetid("", 20)]
    relu = helper.make_node("Relu", ["x"], ["y"])
    functions = [helper.make_function("own", name, ["x"], ["y"], [relu], opsets) for name in "fg"]
    inner = helper.make_graph(
        [helper.make_node("If", ["c"], ["b"], then_branch=branch())], "i", [], [value("b", None)]
    )
    nested = helper.make_node("If", ["c"], ["y"], then_branch=inner)
    nodes = {
        "operators": [relu, helper.make_node("Relu", ["y"], ["z"])],
        "functions": [relu],
        "deep": [nested],
        "attributes": [helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.1, beta=0.1)],
    }
    kind = next(word for word in nodes if word in said)
    with pytest.raises(ModelError, match=said):
        check_budget(
            model(nodes[kind], [value("y", None)], functions=functions if kind == "functions" else ()),
            limits,
            "it",
        )


# What computes

SCALARS = [
    helper.make_tensor("n", INT64, [], [2**31]),
    helper.make_tensor("m", INT64, [], [100_000]),
    helper.make_tensor("f", FLOAT, [], [4000.0]),
    helper.make_tensor("z", FLOAT, [], [0.0]),
    *(numpy_helper.from_array(np.array(["a" * 60], object), name) for name in ("s", "s0")),
    numpy_helper.from_array(np.ones(2, np.float32), "d"),
    whole("p", 0, 2**31),
]


@pytest.mark.parametrize(
    "nodes",
    [
        # Backtracks for longer than anybody waits: (a*)* has a way for each partition of the text.
        [helper.make_node("RegexFullMatch", ["s"], ["y"], pattern="(a*)*(a*)*(a*)*b")],
        [helper.make_node("Pad", ["d", "p"], ["y"])],
        [helper.make_node("HannWindow", ["n"], ["y"])],
        [helper.make_node("BlackmanWindow", ["n"], ["y"])],
        [helper.make_node("MelWeightMatrix", ["m", "m", "m", "z", "f"], ["y"])],
        [helper.make_node("OneHot", ["p", "n", "d"], ["y"])],
        [helper.make_node("Tile", ["d", "p"], ["y"])],
        [helper.make_node("StringConcat", [f"s{i}"] * 2, [f"s{i + 1}"]) for i in range(28)]
        + [helper.make_node("Identity", ["s28"], ["y"])],
    ],
    ids=lambda nodes: nodes[0].op_type,
)
@pytest.mark.filterwarnings("ignore")
def test_what_would_compute_long_or_much_is_not_computed(tmp_path: Path, nodes: list[onnx.NodeProto]) -> None:
    strange = model(nodes, [value("y", None)], *SCALARS)
    graph = loaded(tmp_path, strange).graph()
    assert graph.outputs[0].value is None


def test_values_of_many_texts_are_counted_too(tmp_path: Path) -> None:
    texts = helper.make_node("Constant", [], ["s"], value_strings=[b"x" * 1000] * 1000)
    strange = model([texts, helper.make_node("Identity", ["s"], ["y"])], [value("y", None, STRING)])
    with pytest.raises(ModelError, match="known values take more than") as caught:
        loaded(tmp_path, strange, Limits(folded=999_999)).graph()
    assert "--limit folded=" in (caught.value.hint or "")


# What is no valid node

WEIGHT = numpy_helper.from_array(np.ones((4, 4, 3, 3), np.float32), "w")
INVALID = {
    "an If without a branch": helper.make_node("If", ["c"], ["y"], then_branch=branch()),
    "an If whose branch gives nothing": helper.make_node(
        "If", ["c"], ["y", "z"], then_branch=branch(), else_branch=branch()
    ),
    "a Loop with too few inputs": helper.make_node("Loop", ["n"], ["y"], body=body("going_on")),
    "a Loop whose body takes less": helper.make_node(
        "Loop", ["n", "c", "x"], ["y"], body=body("going_on", "r")
    ),
    "a Loop whose body gives less": helper.make_node("Loop", ["n", "c"], ["y", "z"], body=body("going_on")),
    "a Loop without a body": helper.make_node("Loop", ["n", "c"], ["y"]),
    "a Scan of more than there is": helper.make_node(
        "Scan", ["x", "x"], ["y"], body=body("r"), num_scan_inputs=3
    ),
    "a Scan with axes for others": helper.make_node(
        "Scan", ["x", "x"], ["y"], body=body("r", "q"), num_scan_inputs=1, scan_input_axes=[0, 0]
    ),
    "a Constant without a value": helper.make_node("Constant", [], ["y"]),
    "a Constant with two values": helper.make_node("Constant", [], ["y"], value_int=1, value_float=1.0),
    "a Constant of another kind": helper.make_node("Constant", [], ["y"], value=1),
    "group 0": helper.make_node("Conv", ["x", "w"], ["y"], group=0),
    "stride 0": helper.make_node("Conv", ["x", "w"], ["y"], strides=[0, 1]),
    "a MaxPool without a window": helper.make_node("MaxPool", ["x"], ["y"]),
    "a MaxPool with a window of 0": helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[0, 0]),
    "a float where a list belongs": helper.make_node("Conv", ["x", "w"], ["y"], strides=1.5),
    "a text where a number belongs": helper.make_node("Softmax", ["x"], ["y"], axis="last"),
    "no inputs": helper.make_node("Conv", [], ["y"]),
    "too many inputs": helper.make_node("Relu", ["x", "x"], ["y"]),
    "an input left out that must be there": helper.make_node("Conv", ["", "w"], ["y"]),
    "too many outputs": helper.make_node("Relu", ["x"], ["y", "z"]),
    "Concat of nothing": helper.make_node("Concat", [], ["y"], axis=0),
    "Concat without an axis": helper.make_node("Concat", ["x"], ["y"]),
    "an order that is none": helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0, 9, 1]),
    "Split into 0 parts": helper.make_node("Split", ["x"], ["y"], num_outputs=0),
    "ScatterND of one input": helper.make_node("ScatterND", ["x"], ["y"]),  # ONNX's inference crashed (1.20)
    "Cast to no type": helper.make_node("Cast", ["x"], ["y"]),
    "attention without heads": helper.make_node(
        "Attention", ["x", "w"], ["y"], domain="com.microsoft", num_heads=0
    ),
    "attention of too few inputs": helper.make_node(
        "GroupQueryAttention", ["x"], ["y"], domain="com.microsoft"
    ),
}


# Each with the domain; "s" and "t" are strings.
READS_STRINGS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "Add": ("", ["s", "t"], {}),
    "Mul": ("", ["x", "t"], {}),
    "Slice": ("", ["x", "t", "t"], {}),
    "LayerNormalization": ("", ["s", "x"], {}),
    "Concat": ("", ["s", "t", "t"], {"axis": 0}),
    "Sum": ("", ["x", "x", "t"], {}),
    "Equal": ("", ["s", "t"], {}),
    "StringConcat": ("", ["s", "t"], {}),
    "Gather": ("", ["t", "n"], {}),
    "Identity": ("", ["t"], {}),
    "Where": ("", ["c", "s", "t"], {}),
    "Relu": ("", ["s"], {}),
    "MurmurHash3": ("com.microsoft", ["s"], {}),
    "FastGelu": ("com.microsoft", ["s"], {}),
    "LabelEncoder": ("ai.onnx.ml", ["s"], {"keys_strings": ["a"], "values_floats": [1.0]}),
    "Scaler": ("ai.onnx.ml", ["s"], {"offset": [0.0], "scale": [1.0]}),
}


@pytest.mark.parametrize("name", READS_STRINGS)
def test_strings_are_read_where_onnx_runtime_reads_them(tmp_path: Path, name: str) -> None:
    domain, inputs, attributes = READS_STRINGS[name]
    node = helper.make_node(name, inputs, ["y"], name="the/culprit", domain=domain, **attributes)
    text = TensorProto(name="t", data_type=STRING, dims=[1], string_data=[b"]]>"])
    strange = model([node], [], text, whole("n", 0))
    strange.graph.input.append(value("s", [1], STRING))
    strange.graph.output.append(onnx.ValueInfoProto(name="y"))
    strange.opset_import.extend([helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)])
    graph = loaded(tmp_path, strange).graph()
    count(graph)
    refused = [text for text in graph.problems if text.startswith(f"node 'the/culprit' ({name}) reads ")]
    try:
        ort.InferenceSession(strange.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        assert refused
    else:
        assert not refused


def test_an_operator_that_no_schema_describes_reads_strings(tmp_path: Path) -> None:
    node = helper.make_node("Mystery", ["t"], ["y"], domain="own")
    text = TensorProto(name="t", data_type=STRING, dims=[1], string_data=[b"a"])
    assert loaded(tmp_path, model([node], [value("y", [1])], text)).graph().nodes[0].op_type == "Mystery"


@pytest.mark.parametrize("node", INVALID.values(), ids=INVALID.keys())
def test_a_node_that_cannot_be_is_named(tmp_path: Path, node: onnx.NodeProto) -> None:
    node = onnx.NodeProto.FromString(node.SerializeToString())
    node.name = "the/culprit"
    strange = model([node], [value("y", None)], WEIGHT, whole("n", 3))
    with pytest.raises(GraphError, match=r"'the/culprit' \(\w+\)"):
        loaded(tmp_path, strange).graph()
    strange.graph.node[0].output[0] = "inner"
    strange.graph.node[0].name = "the/culprit"
    inside = helper.make_graph(strange.graph.node, "b", [], [value("inner", None)])
    outside = helper.make_node("If", ["c"], ["y"], name="outside", then_branch=inside, else_branch=branch())
    with pytest.raises(GraphError, match=r"'the/culprit' \(\w+\)"):
        to_graph(model([outside], [value("y", None)], WEIGHT, whole("n", 3)))


@pytest.mark.skipif(sys.platform == "win32", reason="names of files are text there")
def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    content = model(
        [helper.make_node("Relu", ["x"], ["y"], name="QQQQ")], [value("y", None)]
    ).SerializeToString()
    path = tmp_path / "strange.onnx"
    path.write_bytes(content.replace(b"QQQQ", b"\xff\xfe\xed\xa0"))
    with pytest.raises(ModelError, match="of a Node that is no text"):
        loading.load(parse_reference(str(path)))


@pytest.mark.parametrize(("ir_version", "opset"), [(-1, 20), (10, -8), (10, 0)])
def test_versions_below_one_are_refused(tmp_path: Path, ir_version: int, opset: int) -> None:
    strange = model([helper.make_node("Relu", ["x"], ["y"])], [value("y", None)])
    strange.ir_version, strange.opset_import[0].version = ir_version, opset
    with pytest.raises(ModelError, match="version"):
        loaded(tmp_path, strange)


def test_a_stranger_cannot_pass_a_graph_off_as_a_training_step(tmp_path: Path) -> None:
    strange = model([helper.make_node("Relu", ["x"], ["y"])], [value("y", None)])
    strange.metadata_props.add(key="analyzer.step", value='{"carried": 1}')
    assert loaded(tmp_path, strange).step is None


# What comes back from the reading process


def test_a_graph_survives_the_way_between_processes() -> None:
    inner = helper.make_graph([helper.make_node("Add", ["x", "b"], ["i"])], "t", [], [value("i", None)])
    nodes = [
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=inner, else_branch=branch()),
        helper.make_node("Clip", ["y", "", "b"], ["z"], name="clip"),
        helper.make_node("Cast", ["z"], ["h"], name="cast", to=TensorProto.BFLOAT16),
    ]
    stored = [
        numpy_helper.from_array(np.array([1.5], np.float32), "b"),
        numpy_helper.from_array(np.array(["one", "two"], object), "t"),
        helper.make_tensor("q", TensorProto.INT4, [3], [1, -2, 3]),
    ]
    graph = to_graph(model(nodes, [value("h", None, TensorProto.BFLOAT16)], *stored))
    again = from_message(to_message(graph))
    for one, two in zip(graph.nodes, again.nodes, strict=True):
        assert (one.name, one.op_type, one.version, dict(one.attributes)) == (
            two.name,
            two.op_type,
            two.version,
            dict(two.attributes),
        )
        for before, after in zip((*one.inputs, *one.outputs), (*two.inputs, *two.outputs), strict=True):
            assert (before is None) == (after is None)
            if before is not None and after is not None:
                assert (before.name, before.shape, before.dtype) == (after.name, after.shape, after.dtype)
                assert before.dtype is after.dtype
    assert again.nodes[1].inputs[0] is again.nodes[0].outputs[0]
    taken = again.nodes[0].graphs["then_branch"].nodes[0]
    assert taken.inputs[0] is again.inputs[0]
    assert [tensor.value is not None and tensor.value.tolist() for tensor in again.initializers] == [
        [1.5],
        ["one", "two"],
        [1, -2, 3],
    ]


def test_what_is_no_graph_is_refused() -> None:
    for content in (b"", b"\x90", b"\xc1", to_message(to_graph(doubling(2)))[:-20]):
        with pytest.raises(ValueError, match="no graph"):
            from_message(content)


# Files beside the model


@pytest.fixture
def with_weights_at(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model beside a file of weights at a location of one's choice."""

    def make(location: str, *, at: str | None = None) -> Path:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        stored = onnx.TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        stored.external_data.add(key="location", value=location)
        nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
        graph = helper.make_graph(nodes, "g", [value("x", [4])], [value("y", [4])], [stored])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        (home / "net.onnx").write_bytes(proto.SerializeToString())
        if at is not None:
            (home / at).write_bytes(np.arange(4, dtype=np.float32).tobytes())
        return home / "net.onnx"

    return make


@pytest.mark.parametrize("location", ["model.onnx", "feeds.npz", "outputs-cpu.npz"])
def test_weights_named_like_the_runs_own_files_are_not_overwritten(
    with_weights_at: Callable[..., Path], location: str
) -> None:
    path = with_weights_at(location, at=location)
    before = (path.parent / location).read_bytes()
    analysis = analyzer.analyze(path, gpu="none", runs=1)
    assert (path.parent / location).read_bytes() == before
    assert analysis.plan("cpu").origin == "measured"  # with these weights


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/hostname", "a\x00b", "", ".", "sub/../../secret", "linked/secret", "pipe"]
)
def test_weights_never_come_from_outside_the_models_folder(
    with_weights_at: Callable[..., Path], tmp_path: Path, location: str
) -> None:
    path = with_weights_at(location)
    outside = tmp_path / "outside"
    outside.mkdir()
    for secret in (tmp_path / "secret", outside / "secret"):
        secret.write_bytes(b"\0" * 16)
    (path.parent / "linked").symlink_to(outside)
    os.mkfifo(path.parent / "pipe")
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(MeasurementError, match=r"outside its own folder|no plain file"):
        materialise(loading.load(parse_reference(str(path))), None, run)
    assert not [name for name in os.listdir(run) if name.startswith("weights")]


def test_weights_may_lie_beside_what_a_link_leads_to(
    with_weights_at: Callable[..., Path], tmp_path: Path
) -> None:
    """As in a store of files under their hashes, where a folder of links makes up each model."""
    path = with_weights_at("net.data", at="net.data")
    links, run = tmp_path / "links", tmp_path / "run"
    links.mkdir()
    run.mkdir()
    for name in ("net.onnx", "net.data"):
        (links / name).symlink_to(path.parent / name)
    materialise(loading.load(parse_reference(str(links / "net.onnx"))), None, run)
    assert (run / "weights-0.bin").read_bytes() == (path.parent / "net.data").read_bytes()


def test_options_carry_limits() -> None:
    assert make_options().limits == Limits()
    with pytest.raises(ModelError, match=r"4 operators once its functions .*; 3 is the limit"):
        analyzer.analyze(doubling(3), run=False, limit="nodes=3")
    assert len(analyzer.analyze(doubling(3), run=False, limit="nodes=4").operators) == 4
