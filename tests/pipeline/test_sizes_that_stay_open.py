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


def frames(shape: list[int | str], dtype: int = TensorProto.UINT8) -> onnx.ModelProto:
    """A float of each pixel of a camera."""
    node = helper.make_node("Cast", ["camera"], ["y"], to=TensorProto.FLOAT)
    x = helper.make_tensor_value_info("camera", dtype, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "frames", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("shape", "guess"),
    [
        (["frames", "height", "width", 3], "camera=B,224,224,3:uint8"),
        (["N", 3, "H", "W"], "camera=B,3,224,224:uint8"),
        ([2, 1, "H", "W"], "camera=2,1,224,224:uint8"),
        # A cache of one head and 64 features, and what has more channels than an image.
        (["N", 1, "past", 64], None),
        (["N", 8, "H", "W"], None),
    ],
)
def test_an_image_of_open_size_is_taken_as_224_and_told_as_a_guess(
    shape: list[int | str], guess: str | None
) -> None:
    analysis = analyze(frames(shape), run=False, gpu="l4")
    assert analysis.model.guessed_inputs == ((guess,) if guess else ())
    if guess:
        sizes = [224 if size in ("height", "width", "H", "W") else size for size in shape]
        assert (analysis.model.inputs[0].shape or ())[1:] == tuple(sizes[1:])
        assert analysis.model.assumed_sizes == {}
        assert guess in analysis.render("text")


def test_an_image_that_is_given_is_no_guess() -> None:
    analysis = analyze(frames(["N", "H", "W", 3]), input="camera=B,1080,1920,3:uint8", run=False, gpu="l4")
    assert analysis.model.guessed_inputs == ()
    assert analysis.model.inputs[0].shape == (1, 1080, 1920, 3)


def test_other_open_sizes_are_told_with_the_line_that_gives_them(assumed: Analysis) -> None:
    line = "x=B,128,64:float32"
    assert f"Open sizes are given with, for example, --input {line}." in assumed.model.notes
    given = analyze(places_of_ones(sequence="words"), input=line, run=False, gpu="l4")
    assert given.model.inputs[0].shape == (1, 128, 64)
    assert not any("Open sizes" in note for note in given.model.notes)
