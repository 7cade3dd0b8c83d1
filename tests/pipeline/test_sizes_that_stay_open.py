"""Sizes that nobody knows are told in the headline, wherever the report is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze
from analyzer.api import analyze_record, apply_plan
from analyzer.errors import InputError
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


def filtered(*shapes: list[Any], pads: int = 1) -> onnx.ModelProto:
    """A convolution of 3 taps a side over each input."""
    channels, sides = shapes[0][1], len(shapes[0]) - 2
    weight = numpy_helper.from_array(np.ones((4, channels, *[3] * sides), np.float32), "w")
    nodes = [
        helper.make_node("Conv", [f"x{place}", "w"], [f"y{place}"], pads=[pads] * 2 * sides)
        for place in range(len(shapes))
    ]
    graph = helper.make_graph(
        nodes,
        "filtered",
        [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, each) for i, each in enumerate(shapes)],
        [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(len(shapes))],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("shapes", "guesses"),
    [
        ([["N", 3, 64, "W"]], ["x0=B,3,64,224:float32"]),
        ([["N", 3, "H", 512]], ["x0=B,3,512,512:float32"]),
        ([["N", 1, "D", "H", "W"]], ["x0=B,1,16,112,112:float32"]),
        ([[1, 3, 8, "H", "W"]], ["x0=1,3,8,112,112:float32"]),
        ([["N", 3, "H", "W"], ["N", 3, "H2", "W2"]], [f"x{i}=B,3,224,224:float32" for i in (0, 1)]),
    ],
)
def test_what_a_convolution_reads_is_an_image_whichever_side_is_open(
    shapes: list[list[Any]], guesses: list[str]
) -> None:
    assert list(analyze(filtered(*shapes), run=False, gpu="l4").model.guessed_inputs) == guesses


def test_an_image_of_guessed_size_can_be_run_and_applied(tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    onnx.save(filtered(["N", 3, "H", "W"]), path)
    analysis = analyze(path, gpu="l4", time_budget=0.2)
    assert analysis.plan("cpu").origin == "measured"
    applied = apply_plan(path, output=tmp_path / "applied", gpu="none", run=False)
    assert applied.folder.joinpath("model.onnx").exists()


@pytest.mark.parametrize(
    ("shape", "perm", "dtype"),
    [
        (["a", "b", 3], [2, 0, 1], TensorProto.UINT8),
        (["H", "W", 3], [2, 0, 1], TensorProto.FLOAT),
        ([3, "height", "width"], [0, 1, 2], TensorProto.FLOAT),
    ],
)
def test_a_single_image_has_no_batch(shape: list[int | str], perm: list[int], dtype: int) -> None:
    """Its height is no number of inferences: 222 x 222 outputs, 8 channels of 27 products each, are one."""
    nodes = [
        helper.make_node("Cast", ["x"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["channels"], perm=perm),
        helper.make_node("Unsqueeze", ["channels", "first"], ["batch"]),
        helper.make_node("Conv", ["batch", "w"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w"),
        numpy_helper.from_array(np.array([0]), "first"),
    ]
    graph = helper.make_graph(
        nodes,
        "image",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_empty_tensor_value_info("y")],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    found = analyze(model, run=False, gpu="l4")
    assert found.model.batch is None
    assert found.totals.macs == 222 * 222 * 8 * 27
    assert found.plans[0].throughput_per_s == pytest.approx(1 / found.plans[0].latency_s)
    with pytest.raises(InputError, match="no axis of it is a batch"):
        analyze(model, run=False, gpu="l4", batch=4)


def network(*nodes: onnx.NodeProto, **shapes: list[int | str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "network",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array([0, 1, 1, 0, 1, 1], np.int64), "pads"),
            numpy_helper.from_array(np.array(1, np.int64), "second"),
            numpy_helper.from_array(np.ones((12, 5), np.float32), "w"),
            numpy_helper.from_array(np.ones((2, 4, 9), np.float32), "taps"),
            numpy_helper.from_array(np.ones(25, np.float32), "frame"),
            numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "window"),
            numpy_helper.from_array(np.ones((8 * 14 * 14, 5), np.float32), "head"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        # A reflection of 1 needs an axis of 2, on both open axes.
        (
            network(helper.make_node("Pad", ["x", "pads"], ["y"], mode="reflect"), x=["N", "rows", "words"]),
            {"rows": 2, "words": 2},
        ),
        (network(helper.make_node("Gather", ["x", "second"], ["y"], axis=1), x=["N", "words"]), {"words": 2}),
        (network(helper.make_node("MatMul", ["x", "w"], ["y"]), x=["N", "features"]), {"features": 12}),
        (network(helper.make_node("Conv", ["x", "taps"], ["y"]), x=["N", 4, "samples"]), {"samples": 9}),
        # ONNX's inference rounds (6 - 9) / 4 to 0, and has one output for 6 samples.
        (
            network(helper.make_node("Conv", ["x", "taps"], ["y"], strides=[4]), x=["N", 4, "samples"]),
            {"samples": 9},
        ),
        (
            network(helper.make_node("STFT", ["x", "second", "frame"], ["y"]), x=["N", "samples", 1]),
            {"samples": 25},
        ),
        (network(helper.make_node("Relu", ["x"], ["y"]), x=["N", "words"]), {"words": 1}),
    ],
)
def test_open_sizes_are_the_smallest_that_a_session_runs(model: onnx.ModelProto, sizes: dict[str, int]) -> None:
    analysis = analyze(model, run=False, gpu="l4")
    assert analysis.model.assumed_sizes == sizes
    runs(model, [size or 0 for size in analysis.model.inputs[0].shape or ()])
    for name, size in sizes.items():
        if size > 1:
            smaller = {"N": 1} | sizes | {name: size - 1}
            with pytest.raises(Exception, match=r"Error|INVALID|FAIL|RUNTIME"):
                runs(model, [axis if isinstance(axis, int) else smaller[axis] for axis in axes(model)])


def test_sides_of_an_image_are_those_that_a_product_behind_it_reads() -> None:
    """8 channels of 14 x 14 are 1,568; a stride of 2 makes 14 of 28."""
    model = network(
        helper.make_node("Conv", ["x", "window"], ["a"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "head"], ["y"]),
        x=["N", 3, "rows", "columns"],
    )
    analysis = analyze(model, run=False, gpu="l4")
    assert analysis.totals.macs == 14 * 14 * 8 * 27 + 1568 * 5
    runs(model, [size or 0 for size in analysis.model.inputs[0].shape or ()])


def axes(model: onnx.ModelProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]


def runs(model: onnx.ModelProto, sizes: list[int]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.zeros(sizes, np.float32)})


def test_the_hint_names_an_input_for_each_open_size_and_can_be_followed() -> None:
    """The features must be the weight's 12; of the four inputs three say all sizes."""
    model = network(
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["x2"], ["b"], keepdims=0),
        helper.make_node("ReduceSum", ["x3"], ["c"], keepdims=0),
        helper.make_node("ReduceSum", ["x4"], ["d"], keepdims=0),
        helper.make_node("Sum", ["a", "b", "c", "d"], ["y"]),
        x=["N", "features"],
        x2=["N", "features"],
        x3=["N", "words"],
        x4=["words", "places"],
    )
    note = next(text for text in analyze(model, run=False, gpu="l4").model.notes if "for example" in text)
    lines = re.findall(r"--input (\S+:float32)", note)
    assert lines == ["x=B,12:float32", "x3=B,128:float32", "x4=128,128:float32"]
    given = analyze(model, input=lines, run=False, gpu="l4")
    assert given.model.assumed_sizes == {}
