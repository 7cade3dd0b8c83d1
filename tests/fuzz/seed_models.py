"""What graphs are mutated from: the cases of ONNX's backend suite, and small models of what they lack.

Collecting the suite runs its reference implementations, which takes ten seconds: the models are kept in
``tests/output/fuzz``, under the version of ONNX that they come from.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx import numpy_helper as arrays

OUTPUT = Path(__file__).parent.parent / "output" / "fuzz"

F, I64, U8, I8, STRING, BOOL = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8, TensorProto.STRING,
    TensorProto.BOOL,
)  # fmt: skip

WEIGHTS_FILE = "weights.bin"
"""What models with external data point at; it lies beside them."""


@cache
def backend_models() -> tuple[bytes, ...]:
    """The models of the suite's cases in the order of their names, serialised."""
    kept = OUTPUT / f"backend-{onnx.__version__}.pb"
    if not kept.exists():
        _keep(kept, _collected())
    whole = ModelProto()
    whole.ParseFromString(kept.read_bytes())
    return tuple(entry.value.encode("latin-1") for entry in whole.metadata_props)


def _collected() -> list[bytes]:
    """Random constants of the suite come from numpy's own generator, which is set to one state."""
    np.random.seed(0)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # onnx makes its cases with overflows on purpose
        from onnx.backend.test.case.model import collect_testcases as of_models
        from onnx.backend.test.case.node import collect_testcases

        found = [*collect_testcases(), *of_models()]
    cases = sorted((case for case in found if case.model is not None), key=lambda case: case.name)
    return [case.model.SerializeToString(deterministic=True) for case in cases]


def _keep(path: Path, models: Sequence[bytes]) -> None:
    """Whole or not at all: tests side by side may keep them at once."""
    # A message of ONNX's own, which has a place for many texts: no format to invent.
    whole = ModelProto()
    for index, model in enumerate(models):
        whole.metadata_props.add(key=str(index), value=model.decode("latin-1"))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(whole.SerializeToString())
    os.replace(temporary, path)


def value(name: str, shape: Sequence[int | str | None] | None, kind: int = F) -> ValueInfoProto:
    """A tensor of a graph's border."""
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int) -> TensorProto:
    """An initializer of ones with data."""
    return arrays.from_array(np.ones(shape, np.float32), name)


def numbers(name: str, *items: int) -> TensorProto:
    """An initializer of sizes or axes."""
    return arrays.from_array(np.array(items, np.int64), name)


def graph(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Sequence[TensorProto] = (),
    name: str = "g",
) -> GraphProto:
    """A graph by its parts."""
    return helper.make_graph(nodes, name, inputs, outputs, list(weights))


def model(of: GraphProto, functions: Sequence[FunctionProto] = (), opset: int = 20) -> ModelProto:
    """A model that imports every domain that mutations may use."""
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    opsets[0].version = opset
    return helper.make_model(of, opset_imports=opsets, functions=list(functions), ir_version=10)


OPSETS = {"": 20, "ai.onnx.ml": 5, "com.microsoft": 1, "local": 1}

node = helper.make_node


def perceptron() -> ModelProto:
    """A symbolic batch, products, a softmax."""
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h1"], transB=1),
        node("Relu", ["h1"], ["h2"]),
        node("MatMul", ["h2", "w2"], ["h3"]),
        node("Softmax", ["h3"], ["y"], axis=-1),
    ]
    weights = [weight("w1", 16, 8), weight("b1", 16), weight("w2", 16, 4)]
    return model(graph(nodes, [value("x", ["batch", 8])], [value("y", ["batch", 4])], weights))


def convolutions() -> ModelProto:
    """An image net in small."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], group=1),
        node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"], epsilon=1e-5),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ConvTranspose", ["p", "t"], ["u"], strides=[2, 2]),
        node("Resize", ["u", "", "scales"], ["z"], mode="nearest"),
        node("GlobalAveragePool", ["z"], ["a"]),
        node("Flatten", ["a"], ["y"]),
    ]
    weights = [weight("w", 8, 3, 3, 3), weight("s", 8), weight("t", 8, 4, 2, 2)]
    weights.append(arrays.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    return model(graph(nodes, [value("x", ["n", 3, 16, 16])], [value("y", None)], weights))


def control_flow() -> ModelProto:
    """An If in a Loop, and a Scan."""
    more = graph([node("Add", ["v", "one"], ["t"])], [], [value("t", [2])])
    less = graph([node("Mul", ["v", "one"], ["e"])], [], [value("e", [2])])
    body = graph(
        [
            node("If", ["go"], ["v2"], then_branch=more, else_branch=less),
            node("Identity", ["go"], ["go2"]),
            node("Identity", ["v2"], ["seen"]),
        ],
        [value("i", [], I64), value("go", [], BOOL), value("v", [2])],
        [value("go2", [], BOOL), value("v2", [2]), value("seen", [2])],
    )
    step = graph(
        [node("Add", ["state", "row"], ["next"]), node("Identity", ["next"], ["out"])],
        [value("state", [2]), value("row", [2])],
        [value("next", [2]), value("out", [2])],
    )
    nodes = [
        node("Loop", ["trips", "yes", "x"], ["last", "all"], body=body),
        node("Scan", ["last", "all"], ["y", "rows"], body=step, num_scan_inputs=1),
    ]
    weights = [numbers("trips", 5), arrays.from_array(np.array(True), "yes"), weight("one", 2)]
    weights[0].ClearField("dims")
    return model(graph(nodes, [value("x", [2])], [value("y", [2]), value("rows", None)], weights))


def nested_functions() -> ModelProto:
    """A function that calls another twice, with an attribute handed on."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    inner = node("LeakyRelu", ["a"], ["b"])
    inner.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    call = node("Inner", ["p"], ["q"], domain="local")
    call.attribute.add(name="slope", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    again = node("Inner", ["q"], ["r"], domain="local", slope=0.5)
    functions = [
        helper.make_function("local", "Inner", ["a"], ["b"], [inner], opsets, ["slope"]),
        helper.make_function("local", "Outer", ["p"], ["r"], [call, again], opsets, ["slope"]),
    ]
    nodes = [node("Outer", ["x"], ["h"], domain="local", slope=0.1), node("Tanh", ["h"], ["y"])]
    return model(graph(nodes, [value("x", ["batch", 4])], [value("y", None)]), functions)


def external_weights() -> ModelProto:
    """Weights in a file beside the model."""
    outside = TensorProto(name="w", dims=[8, 8], data_type=F, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", WEIGHTS_FILE), ("offset", "0"), ("length", "256")):
        outside.external_data.add(key=key, value=text)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])]
    return model(graph(nodes, [value("x", ["batch", 8])], [value("y", None)], [outside]))


def microsoft_operators() -> ModelProto:
    """Operators of ONNX Runtime's own domain."""
    ms = {"domain": "com.microsoft"}
    nodes = [
        node("Attention", ["x", "wqkv", "bqkv", "", "", ""], ["a"], num_heads=2, unidirectional=1, **ms),
        node("SkipLayerNormalization", ["a", "x", "g", "g", "g"], ["n", "", "", "s"], epsilon=1e-5, **ms),
        node("BiasGelu", ["n", "g"], ["b"], **ms),
        node("FusedMatMul", ["b", "wo"], ["m"], transB=1, alpha=0.5, **ms),
        node("MatMulNBits", ["m", "q", "qs"], ["k"], K=8, N=8, bits=4, block_size=16, **ms),
        node("QuickGelu", ["k"], ["z"], alpha=1.7, **ms),
        node("MultiHeadAttention", ["z", "z", "z"], ["h"], num_heads=2, **ms),
        node("GroupQueryAttention", ["h", "z", "z", "", "", "l", "t"], ["y", "pk", "pv"], num_heads=2,
        kv_num_heads=1, **ms),
        node("RotaryEmbedding", ["h", "p", "g", "g"], ["r"], **ms),
    ]  # fmt: skip
    weights = [weight("wqkv", 8, 24), weight("bqkv", 24), weight("g", 8), weight("wo", 8, 8), weight("qs", 8)]
    weights.append(arrays.from_array(np.zeros((8, 1, 8), np.uint8), "q"))
    weights += [numbers("p", 0), numbers("l", 4), numbers("t", 4)]
    outputs = [value("y", None), value("r", None)]
    return model(graph(nodes, [value("x", ["batch", 4, 8])], outputs, weights))


def classic_learning() -> ModelProto:
    """Operators of ai.onnx.ml, and a map."""
    ml = {"domain": "ai.onnx.ml"}
    nodes = [
        node("Scaler", ["x"], ["s"], offset=[0.0] * 3, scale=[1.0] * 3, **ml),
        node(
            "TreeEnsembleRegressor", ["s"], ["t"], n_targets=1, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1,
            2],
            nodes_featureids=[0, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.5, 0.0,
            0.0],
            nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0],
            target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.0, 2.0], **ml,
        ),
        node(
            "LinearClassifier", ["s"], ["c", "p"], coefficients=[1.0] * 6, intercepts=[0.0] * 2,
            classlabels_ints=[0, 1], **ml,
        ),
        node("ZipMap", ["p"], ["m"], classlabels_int64s=[0, 1], **ml),
        node("LabelEncoder", ["c"], ["y"], keys_int64s=[0, 1], values_strings=["no", "yes"], **ml),
    ]  # fmt: skip
    return model(graph(nodes, [value("x", ["n", 3])], [value("t", None), value("y", ["n"], STRING)]))


def quantised() -> ModelProto:
    """A convolution between QuantizeLinear and DequantizeLinear, and the integer operators."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], axis=0),
        node("Conv", ["xd", "wd"], ["c"], kernel_shape=[3, 3]),
        node("DynamicQuantizeLinear", ["c"], ["d", "ds", "dz"]),
        node("ConvInteger", ["d", "wq", "dz"], ["i"]),
        node("QLinearMatMul", ["xq", "s", "z", "xq", "s", "z", "s", "z"], ["m"]),
        node("Cast", ["i"], ["y"], to=1),
    ]
    weights = [
        arrays.from_array(np.array(0.1, np.float32), "s"), arrays.from_array(np.array(0, np.int8), "z"),
        arrays.from_array(np.ones((4, 4, 3, 3), np.int8), "wq"), weight("ws", 4),
        arrays.from_array(np.zeros(4, np.int8), "wz"),
    ]  # fmt: skip
    return model(graph(nodes, [value("x", [1, 4, 8, 8])], [value("y", None), value("m", None)], weights))


def between_pairs() -> ModelProto:
    """What becomes integer kernels, with what is passed on and shared before; weights in blocks."""
    pair = ["s", "z"]
    nodes = [
        node("QuantizeLinear", ["x", *pair], ["xq"]),
        node("DequantizeLinear", ["xq", *pair], ["xd"]),
        node("Transpose", ["xd"], ["t"], perm=[0, 2, 3, 1]),
        node("Reshape", ["t", "rows"], ["r"]),
        node("DequantizeLinear", ["w", "ws"], ["wd"], axis=0, block_size=16),
        node("MatMul", ["r", "wd"], ["p"]),
        node("Add", ["p", "b"], ["a"]),
        node("QuantizeLinear", ["a", *pair], ["aq"]),
        node("DequantizeLinear", ["aq", *pair], ["ad"]),
        node("QuantizeLinear", ["ad", *pair], ["bq"]),
        node("DequantizeLinear", ["bq", *pair], ["bd"]),
        node("Clip", ["bd", "low", "high"], ["k"]),
        node("QuantizeLinear", ["k", *pair], ["kq"]),
        node("DequantizeLinear", ["kq", *pair], ["kd"]),
        node("Where", ["c", "kd", "low"], ["y"]),
        node("Split", ["kd"], ["one", "two"], axis=1, num_outputs=2),
    ]
    weights = [
        arrays.from_array(np.array(0.1, np.float32), "s"), arrays.from_array(np.array(3, np.uint8), "z"),
        arrays.from_array(np.ones((16, 8), np.int8), "w"), weight("ws", 1, 8), weight("b", 8),
        arrays.from_array(np.array(0, np.float32), "low"), arrays.from_array(np.array(6, np.float32), "high"),
        numbers("rows", -1, 16), arrays.from_array(np.array(True), "c"),
    ]  # fmt: skip
    outputs = [value("y", None), value("one", None), value("two", None)]
    return model(graph(nodes, [value("x", [1, 16, 4, 4])], outputs, weights), opset=21)


def sequences_and_strings() -> ModelProto:
    """Types that are no tensors of numbers."""
    nodes = [
        node("Constant", [], ["words"], value_strings=["red", "green"]),
        node("StringConcat", ["words", "words"], ["twice"]),
        node("StringSplit", ["twice"], ["parts", "count"], delimiter="e"),
        node("RegexFullMatch", ["text"], ["fits"], pattern="(a|b)+c"),
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceInsert", ["s", "x", "zero"], ["s2"]),
        node("SequenceAt", ["s2", "zero"], ["at"]),
        node("ConcatFromSequence", ["s2"], ["y"], axis=0),
        node("SplitToSequence", ["x", "zero"], ["parts2"], axis=0),
        node("Optional", ["x"], ["o"]),
        node("OptionalGetElement", ["o"], ["e"]),
        node("StringNormalizer", ["text"], ["low"], case_change_action="LOWER", stopwords=["the"]),
        node(
            "TfIdfVectorizer", ["ids"], ["v"], max_gram_length=2, max_skip_count=0, min_gram_length=1,
            mode="TF",
            ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], pool_int64s=[1, 2, 1, 2],
        ),
    ]  # fmt: skip
    inputs = [value("x", [2, 3]), value("text", [4], STRING), value("ids", ["n"], I64)]
    outputs = [value("y", None), value("fits", [4], BOOL), value("twice", None, STRING), value("v", None)]
    return model(graph(nodes, inputs, outputs, [numbers("zero", 0)]))


def made_shapes() -> ModelProto:
    """Sizes worked out from shapes and constants, as exporters write them."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Concat", ["n", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["r"]),
        node("ConstantOfShape", ["to"], ["z"]),
        node("Range", ["i0", "i9", "i1"], ["range"]),
        node("Expand", ["range", "nine"], ["e"]),
        node("Tile", ["nine", "nine"], ["t"]),
        node("Pad", ["r", "pads"], ["p"]),
        node("Slice", ["p", "zero", "nine", "zero"], ["c"]),
        node("OneHot", ["nine", "i9", "hot"], ["o"]),
        node("NonZero", ["r"], ["nz"]),
        node("TopK", ["r", "nine"], ["k", "ki"]),
        node("HannWindow", ["i9"], ["w"]),
        node("EyeLike", ["e2"], ["eye"]),
        node("Split", ["r"], ["a", "b"], num_outputs=2, axis=1),
        node("CumSum", ["nine", "i0"], ["cs"]),
    ]
    weights = [
        numbers("zero", 0),
        numbers("rest", -1, 2),
        numbers("nine", 9),
        numbers("pads", 0, 0, 0, 1, 1, 1),
    ]
    weights.append(arrays.from_array(np.array([0, 1], np.float32), "hot"))
    weights += [arrays.from_array(np.array(item, np.int64), f"i{item}") for item in (0, 1, 9)]
    weights.append(weight("e2", 3, 3))
    outputs = [value(name, None) for name in ("z", "e", "t", "c", "o", "nz", "k", "w", "eye", "a", "cs")]
    return model(graph(nodes, [value("x", ["batch", 4, 2])], outputs, weights))


def recurrent() -> ModelProto:
    """The three recurrent operators."""
    nodes = [
        node("LSTM", ["x", "w4", "r4"], ["h", "hn", "cn"], hidden_size=4, direction="forward"),
        node("GRU", ["x", "w3", "r3"], ["g"], hidden_size=4),
        node("RNN", ["x", "w1", "r1"], ["n"], hidden_size=4, activations=["Tanh"]),
    ]
    weights = [
        weight(f"{kind}{gates}", 1, 4 * gates, size)
        for gates in (4, 3, 1)
        for kind, size in (("w", 3), ("r", 4))
    ]
    outputs = [value("h", None), value("g", None), value("n", None)]
    return model(graph(nodes, [value("x", [5, "batch", 3])], outputs, weights), opset=21)


def transformer() -> ModelProto:
    """A block as exporters write it."""
    nodes = [
        node("LayerNormalization", ["x", "g", "g"], ["n"], axis=-1),
        node("MatMul", ["n", "w"], ["q"]),
        node("Reshape", ["q", "heads"], ["q4"]),
        node("Transpose", ["q4"], ["qt"], perm=[0, 2, 1, 3]),
        node("Transpose", ["q4"], ["kt"], perm=[0, 2, 3, 1]),
        node("MatMul", ["qt", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "qt"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ot", "flat"], ["f"]),
        node("Einsum", ["f", "w"], ["e"], equation="bij,jk->bik"),
        node("Gelu", ["e"], ["u"], approximate="tanh"),
        node("Add", ["u", "x"], ["y"]),
    ]
    weights = [weight("g", 8), weight("w", 8, 8), numbers("heads", 0, 0, 2, 4), numbers("flat", 0, 0, 8)]
    return model(graph(nodes, [value("x", ["batch", "tokens", 8])], [value("y", None)], weights))


def growing_cache() -> ModelProto:
    """A decoder whose keys and values come out one token longer."""
    nodes = [
        node("Gather", ["e", "input_ids"], ["x"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("Reshape", ["k", "heads"], ["k4"]),
        node("Transpose", ["k4"], ["kt"], perm=[0, 2, 1, 3]),
        node("Concat", ["past_key_values.0.key", "kt"], ["present.0.key"], axis=2),
        node("Concat", ["past_key_values.0.value", "kt"], ["present.0.value"], axis=2),
        node("Transpose", ["present.0.key"], ["all"], perm=[0, 1, 3, 2]),
        node("MatMul", ["kt", "all"], ["s"]),
        node("Unsqueeze", ["attention_mask", "axes"], ["seen"]),
        node("Cast", ["seen"], ["open"], to=F),
        node("Mul", ["s", "open"], ["masked"]),
        node("Softmax", ["masked"], ["p"]),
        node("MatMul", ["p", "present.0.value"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ot", "flat"], ["f"]),
        node("MatMul", ["f", "wo"], ["logits"]),
    ]
    past: list[int | str | None] = ["batch", 2, "past", 4]
    caches = [value(f"past_key_values.0.{kind}", past) for kind in ("key", "value")]
    made = [value(f"present.0.{kind}", ["batch", 2, "context", 4]) for kind in ("key", "value")]
    inputs = [value("input_ids", ["batch", "tokens"], I64), value("attention_mask", ["batch", "context"], I64)]
    weights = [weight("e", 32, 8), weight("wk", 8, 8), weight("wo", 8, 32), numbers("heads", 0, 0, 2, 4)]
    weights += [numbers("flat", 0, 0, 8), numbers("axes", 1, 2)]
    return model(graph(nodes, [*inputs, *caches], [value("logits", None), *made], weights))


def shared_cache() -> ModelProto:
    """A decoder whose cache is one buffer, as ONNX Runtime GenAI builds them."""
    ms = {"domain": "com.microsoft"}
    nodes = [
        node("Gather", ["e", "input_ids"], ["x"]),
        node("SimplifiedLayerNormalization", ["x", "g"], ["n"], axis=-1),
        node("MatMul", ["n", "wq"], ["q"]),
        node("MatMul", ["n", "wk"], ["k"]),
        node("ReduceSum", ["attention_mask", "axis"], ["length"], keepdims=1),
        node("Sub", ["length", "one"], ["last"]),
        node("Cast", ["last"], ["seqlens"], to=TensorProto.INT32),
        node("Shape", ["attention_mask"], ["size"]),
        node("Gather", ["size", "where"], ["most"]),
        node("Cast", ["most"], ["total"], to=TensorProto.INT32),
        node(
            "GroupQueryAttention", ["q", "k", "k", "past_key_values.0.key", "past_key_values.0.value",
            "seqlens", "total"], ["a", "present.0.key", "present.0.value"], num_heads=4, kv_num_heads=2, **ms,
        ),
        node("SkipSimplifiedLayerNormalization", ["a", "x", "g"], ["h", "", "", "r"], epsilon=1e-5, **ms),
        node("MatMulNBits", ["h", "wn", "sn"], ["logits"], K=32, N=16, bits=4, block_size=32, **ms),
    ]  # fmt: skip
    past: list[int | str | None] = ["batch_size", 2, "past_sequence_length", 8]
    caches = [value(f"past_key_values.0.{kind}", past) for kind in ("key", "value")]
    made = [value(f"present.0.{kind}", ["batch_size", 2, "total", 8]) for kind in ("key", "value")]
    ids, mask = ["batch_size", "sequence_length"], ["batch_size", "total_sequence_length"]
    inputs = [value("input_ids", ids, I64), value("attention_mask", mask, I64)]
    weights = [
        weight("e", 48, 32),
        weight("g", 32),
        weight("wq", 32, 32),
        weight("wk", 32, 16),
        weight("sn", 16),
    ]
    weights += [numbers("axis", 1), numbers("one", 1), numbers("where", 1)]
    weights.append(arrays.from_array(np.zeros((16, 1, 16), np.uint8), "wn"))
    return model(graph(nodes, [*inputs, *caches], [value("logits", None), *made], weights))


def recurrent_state() -> ModelProto:
    """A decoder with a state of one size."""
    nodes = [
        node("Gather", ["e", "input_ids"], ["x"]),
        node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0),
        node("Unsqueeze", ["sum", "axis"], ["row"]),
        node("Add", ["past_state.0", "row"], ["mixed"]),
        node("Tanh", ["mixed"], ["present_state.0"]),
        node("MatMul", ["present_state.0", "w"], ["logits"]),
    ]
    weights = [weight("e", 32, 8), weight("w", 8, 32), numbers("axis", 1)]
    inputs = [value("input_ids", ["batch", "tokens"], I64), value("past_state.0", ["batch", 4, 8])]
    outputs = [value("logits", None), value("present_state.0", ["batch", 4, 8])]
    return model(graph(nodes, inputs, outputs, weights))


DECODERS: tuple[Callable[[], Any], ...] = (growing_cache, shared_cache, recurrent_state)

HAND_MADE: tuple[Callable[[], Any], ...] = (
    perceptron, convolutions, control_flow, nested_functions, external_weights, microsoft_operators,
    classic_learning, quantised, between_pairs, sequences_and_strings, made_shapes, recurrent, transformer,
)  # fmt: skip
