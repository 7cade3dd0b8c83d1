"""Operators on texts take the time of their bytes, and what follows them has the sizes that attributes tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.record import from_json
from analyzer.record.analysis import Analysis

ML, CONTRIB = "ai.onnx.ml", "com.microsoft"
WORDS = ["down", "login", "crash"]
# What the vectoriser writes is as wide as its largest index and one.
ROWS = 8


def vectoriser(**normalizer: Any) -> onnx.ModelProto:
    """Texts to lower case, to tokens, to counts of three words, scaled, and to classes."""
    nodes = [
        helper.make_node("Reshape", ["text", "flat"], ["row"]),
        helper.make_node(
            "StringNormalizer", ["row"], ["low"], case_change_action="LOWER", locale="C", **normalizer
        ),
        helper.make_node(
            "Tokenizer", ["low"], ["tokens"], domain=CONTRIB, mark=0, mincharnum=1, pad_value="#",
            tokenexp="[a-z]+",
        ),
        helper.make_node("Flatten", ["tokens"], ["words"]),
        helper.make_node(
            "TfIdfVectorizer", ["words"], ["counts"], mode="TF", min_gram_length=1, max_gram_length=1,
            max_skip_count=0, ngram_counts=[0], ngram_indexes=[0, 4, 2], pool_strings=WORDS,
        ),
        helper.make_node("Mul", ["counts", "weights"], ["scaled"]),
        helper.make_node("Normalizer", ["scaled"], ["unit"], domain=ML, norm="L2"),
        helper.make_node(
            "LinearClassifier", ["unit"], ["label", "scores"], domain=ML, coefficients=[0.1] * 15,
            intercepts=[0.1] * 3, classlabels_ints=[0, 1, 2],
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "tickets",
        [helper.make_tensor_value_info("text", TensorProto.STRING, [ROWS, 1])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [ROWS]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [ROWS, 3]),
        ],
        [
            helper.make_tensor("flat", TensorProto.INT64, [1], [-1]),
            helper.make_tensor("weights", TensorProto.FLOAT, [5], [0.5] * 5),
        ],
    )
    opsets = [helper.make_opsetid(name, version) for name, version in (("", 17), (ML, 1), (CONTRIB, 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model: onnx.ModelProto, texts: list[str]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor as ONNX Runtime gives it."""
    names = [name for node in model.graph.node for name in node.output]
    every = onnx.ModelProto()
    every.CopyFrom(model)
    known = {output.name for output in model.graph.output}
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    session = onnxruntime.InferenceSession(every.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(names, {"text": np.array([[text] for text in texts], dtype=object)})
    return {name: np.shape(value) for name, value in zip(names, found, strict=True)}


def shapes(graph: Graph) -> dict[str, tuple[int | None, ...] | None]:
    return {tensor.name: tensor.shape for node in graph.nodes for tensor in node.present_outputs}


def test_sizes_behind_a_tokenizer_are_those_that_onnxruntime_gives_and_its_own_width_is_open() -> None:
    model = vectoriser()
    expected = run(model, ["Server down", *["the login is down"] * 7])
    found = shapes(to_graph(model))
    for name in ("low", "counts", "scaled", "unit", "label", "scores"):
        assert found[name] == expected[name]
    assert expected["counts"] == (ROWS, 5)
    assert found["tokens"] == (ROWS, None)
    assert expected["tokens"] == (ROWS, 4)


def test_words_that_are_left_out_leave_the_number_of_texts_open() -> None:
    """ONNX Runtime drops the text that is such a word."""
    model = vectoriser(stopwords=["down"], is_case_sensitive=0)
    assert run(model, ["Down", *["the login is down"] * 7])["low"] == (ROWS - 1,)
    assert shapes(to_graph(model))["low"] == (None,)


def one(operator: str, domain: str = "", version: int = 20, **attributes: Any) -> onnx.ModelProto:
    """An operator on 1,024 texts."""
    kind = TensorProto.BOOL if operator == "RegexFullMatch" else TensorProto.STRING
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    if operator == "StringSplit":
        outputs.append(helper.make_tensor_value_info("n", TensorProto.INT64, None))
    node = helper.make_node(operator, ["x"], [item.name for item in outputs], domain=domain, **attributes)
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, [1024])]
    graph = helper.make_graph([node], "one", inputs, outputs)
    opsets = [helper.make_opsetid("", version), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


# Microseconds of one thread of an EPYC (Zen 4), by ONNX Runtime 1.31.1's own profile: 1,024 texts of 32 bytes.
LOWER: dict[str, Any] = {"case_change_action": "LOWER", "locale": "C"}
CUT: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": "#"}
TAKEN: dict[str, tuple[onnx.ModelProto, int]] = {
    "lower case": (one("StringNormalizer", version=17, **LOWER), 227),
    "lower case without some words": (one("StringNormalizer", version=17, stopwords=["the"], **LOWER), 405),
    "unchanged": (one("StringNormalizer", version=17, locale="C"), 47),
    "tokens by an expression": (one("Tokenizer", CONTRIB, tokenexp="[a-z]+", **CUT), 626),
    "tokens by one separator": (one("Tokenizer", CONTRIB, separators=[" "], **CUT), 519),
    "tokens by three separators": (one("Tokenizer", CONTRIB, separators=[" ", ",", "[.]"], **CUT), 991),
    "characters": (one("Tokenizer", CONTRIB, separators=[""], **CUT), 188),
    "a match": (one("RegexFullMatch", pattern="[a-z ]+"), 91),
    "splits": (one("StringSplit", delimiter=" "), 93),
}


def predicted(model: onnx.ModelProto, **options: Any) -> Analysis:
    """On the core that figures of the catalogue are scaled from, so that this machine does not matter."""
    return analyze(model, run=False, gpu="l4", cpu="epyc-9654", **options)


@pytest.mark.parametrize("case", TAKEN)
def test_times_of_texts_are_in_an_interval_of_five_either_way(case: str) -> None:
    model, microseconds = TAKEN[case]
    found = predicted(model, threads=1).operators[0].cpu
    assert (found.low_s or 0.0) < microseconds * 1e-6 < (found.high_s or 0.0)
    assert (found.high_s or 0.0) < 6 * (found.time_s or 0.0)


def test_a_record_with_texts_is_decided_for_another_device() -> None:
    found = predicted(TAKEN["tokens by one separator"][0])
    again = analyze_record(from_json(found.render("json")), gpu="a100")
    assert again.operators[0].cpu == found.operators[0].cpu


def test_threads_do_not_share_the_texts_of_a_tokenizer() -> None:
    model = TAKEN["tokens by an expression"][0]
    one_thread, many = (predicted(model, threads=count).operators[0].cpu.time_s for count in (1, 8))
    assert many == pytest.approx(one_thread, rel=0.05)


def test_a_whole_model_of_texts_has_a_time_for_each_operator() -> None:
    """Each operator on texts takes more than what an element of floats would."""
    found = predicted(vectoriser())
    shown = {operator.op_type: operator for operator in found.operators}
    # Eight texts of 32 bytes, over 5.2 ns a byte.
    assert (shown["Tokenizer"].cpu.time_s or 0.0) > 8 * 32 * 5.2e-9
    assert (shown["TfIdfVectorizer"].cpu.time_s or 0.0) > 8 * 32 * 5.2e-9
    assert shown["Mul"].flops == ROWS * 5
    assert "is not known: 1 is assumed" not in " ".join(operator.note for operator in found.operators)
