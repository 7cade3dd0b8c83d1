"""Sizes that nobody knows are told in the headline, wherever the report is read."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.record.analysis import Analysis


def places_of_ones(*, sequence: int | str) -> onnx.ModelProto:
    """Where a mask is not zero: how many places there are the data decide."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("NonZero", ["a"], ["n"], name="places"),
        helper.make_node("Cast", ["n"], ["y"], name="last", to=TensorProto.FLOAT),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", sequence, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "places", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def assumed() -> Analysis:
    return analyze(places_of_ones(sequence="words"), run=False, gpu="l4")


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_the_headline_says_which_sizes_were_assumed_and_which_the_data_decide(
    assumed: Analysis, form: str
) -> None:
    # Within the lines of the verdict, before the plans; a terminal breaks them anywhere.
    headline = " ".join(assumed.render(form).split())
    headline = headline[: headline.index("Throughput" if form == "html" else "emory")]
    assert "this is for words = 1" in headline.replace("\\", "")
    assert "The data decide the size of what 2 of 3 operators write" in headline.replace("\\", "")


def test_a_record_decided_anew_still_says_so(assumed: Analysis) -> None:
    again = analyze_record(assumed, gpu="t4")
    assert again.model.assumed_sizes == {"words": 1}
    assert "this is for words = 1" in again.render("markdown").replace("\\", "")


def test_where_all_sizes_are_given_nothing_is_assumed() -> None:
    given = analyze(places_of_ones(sequence=16), run=False, gpu="l4")
    assert given.model.assumed_sizes == {}
    assert "Nothing says how large" not in given.render("text")
