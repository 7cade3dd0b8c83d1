"""A recurrence that reads lengths takes the steps of its longest sequence, where `--input` says it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.loading.weights import random_feeds
from analyzer.record import from_json
from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report import render

STEPS = 120


def recurrent(steps: int = STEPS, *, halved: bool = False, reads_lengths: bool = True) -> onnx.ModelProto:
    """An LSTM over so many steps; with ``halved`` its lengths are (n - 1) // 2 + 1, as behind a stride of 2."""
    generator = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(generator.standard_normal((1, 512, 128)).astype(np.float32), name)
        for name in ("w", "r")
    ]
    nodes = []
    lengths = "lengths"
    if halved:
        weights += [numpy_helper.from_array(np.array(n, np.int64), f"c{n}") for n in (1, 2)]
        nodes += [
            helper.make_node("Sub", [lengths, "c1"], ["less"], name="less"),
            helper.make_node("Div", ["less", "c2"], ["half"], name="half"),
            helper.make_node("Add", ["half", "c1"], ["long"], name="long"),
        ]
        lengths = "long"
    nodes += [
        helper.make_node("Cast", [lengths], ["short"], name="cast", to=TensorProto.INT32),
        helper.make_node(
            "LSTM", ["x", "w", "r", "", "short" if reads_lengths else ""], ["y"], name="lstm", hidden_size=128
        ),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 4, 128]),
        helper.make_tensor_value_info("lengths", TensorProto.INT64, [4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, 1, 4, 128]),
    ]
    first, given = (0, 2) if reads_lengths else (-1, 1)
    graph = helper.make_graph(nodes[first:], "recurrent", ends[:given], ends[2:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def floored(steps: int = STEPS, rows: int = 4) -> onnx.ModelProto:
    """As TorchScript writes ``torch.div(lengths - 1, 2, rounding_mode="floor") + 1``: corrected by its signs.

    Behind it lengths go through float32 and back, as a share of the longest does.
    """
    model = recurrent(steps)
    make = helper.make_node
    nodes = [
        make("Sub", ["lengths", "one"], ["less"], name="less"),
        make("Div", ["less", "two"], ["towards0"], name="towards0"),
        make("Mul", ["towards0", "two"], ["back"], name="back"),
        make("Equal", ["back", "less"], ["even"], name="even"),
        make("Not", ["even"], ["odd"], name="odd"),
        make("Less", ["less", "zero"], ["below"], name="below"),
        make("And", ["below", "odd"], ["one_lower"], name="one_lower"),
        make("Sub", ["towards0", "one"], ["lower"], name="lower"),
        make("Where", ["one_lower", "lower", "towards0"], ["floor"], name="floor"),
        make("Add", ["floor", "one"], ["long"], name="long"),
        make("Cast", ["long"], ["real"], name="real", to=TensorProto.FLOAT),
        make("Ceil", ["real"], ["whole"], name="whole"),
        make("Cast", ["whole"], ["short"], name="cast", to=TensorProto.INT32),
    ]
    del model.graph.node[0]
    for position, one in enumerate(nodes):
        model.graph.node.insert(position, one)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in (("zero", 0), ("one", 1), ("two", 2))
    )
    for entry, axis in ((model.graph.input[0], 1), (model.graph.input[1], 0), (model.graph.output[0], 2)):
        entry.type.tensor_type.shape.dim[axis].dim_value = rows
    return model


def lstm(analysis: Analysis) -> OperatorResult:
    return next(operator for operator in analysis.operators if operator.op_type == "LSTM")


def predicted(model: onnx.ModelProto, lengths: str = "", gpu: str = "l4") -> Analysis:
    given = [f"lengths=4:int64={lengths}"] if lengths else []
    return analyze(model, input=given, run=False, gpu=gpu)


@pytest.mark.parametrize(
    ("halved", "lengths", "most"), [(False, "30", 30), (True, "60", 30), (False, "500", STEPS)]
)
def test_it_takes_what_one_of_that_many_steps_takes_on_either_device(
    halved: bool, lengths: str, most: int
) -> None:
    """(60 - 1) // 2 + 1 is 30; and there are never more steps than there is input."""
    shortened = lstm(predicted(recurrent(halved=halved), lengths))
    whole = lstm(predicted(recurrent(most, reads_lengths=False)))
    for side in ("cpu", "gpu"):
        found, expected = getattr(shortened, side), getattr(whole, side)
        for end in ("low_s", "time_s", "high_s"):
            assert getattr(found, end) == pytest.approx(getattr(expected, end), rel=0.1)


def test_lengths_are_computed_through_whatever_operators_lie_between() -> None:
    """(60 - 1) // 2 + 1 is 30, and of 24 to 240 the ends are 12 and 120."""
    found, expected = predicted(floored(), "60"), predicted(recurrent(), "30")
    assert lstm(found).cpu.time_s == pytest.approx(lstm(expected).cpu.time_s, rel=0.05)
    assert lstm(found).cpu.low_s == pytest.approx(lstm(expected).cpu.low_s, rel=0.05)
    assert any("of sequences of 30 of 120 steps" in note for note in found.model.notes)
    ranged = predicted(floored(), "24..240")
    assert any("of sequences of 12 to 120 of 120 steps" in note for note in ranged.model.notes)


def test_lengths_of_thousands_of_rows_are_computed_too() -> None:
    found = analyze(floored(8, rows=4096), input=["lengths=4096:int64=11"], run=False, gpu="l4")
    assert any("of sequences of 6 of 8 steps" in note for note in found.model.notes)


def test_counts_stay_those_of_whole_sequences_and_a_note_says_so() -> None:
    shortened, whole = predicted(recurrent(), "30"), predicted(recurrent(reads_lengths=False))
    assert lstm(shortened).flops == lstm(whole).flops
    said = (
        "are those of sequences of 30 of 120 steps, as --input says; its FLOPs and bytes are counted for whole"
    )
    assert any(said in note for note in shortened.model.notes)


def test_a_range_of_lengths_widens_the_interval_down_to_the_shortest() -> None:
    found = predicted(recurrent(), "12..120")
    ranged, shortest, longest = (
        lstm(found), *(lstm(predicted(recurrent(), length)) for length in ("12", "120"))
    )  # fmt: skip
    for side in ("cpu", "gpu"):
        assert getattr(ranged, side).time_s == pytest.approx(getattr(longest, side).time_s)
        assert getattr(ranged, side).high_s == pytest.approx(getattr(longest, side).high_s)
        assert getattr(ranged, side).low_s == pytest.approx(getattr(shortest, side).low_s, rel=0.15)


def test_lengths_that_nobody_gave_are_taken_as_whole_with_a_low_end_of_one_step_and_a_note() -> None:
    found, whole = predicted(recurrent()), predicted(recurrent(reads_lengths=False))
    assert lstm(found).cpu.time_s == pytest.approx(lstm(whole).cpu.time_s, rel=0.05)
    assert (lstm(found).cpu.low_s or 0.0) < (lstm(whole).cpu.low_s or 0.0) / 10
    assert any("The lengths that LSTM reads are not known" in note for note in found.model.notes)


def test_a_record_keeps_the_lengths_for_another_device() -> None:
    again = analyze_record(from_json(predicted(recurrent(), "30").render("json")), gpu="a100")
    fresh = predicted(recurrent(), "30", gpu="a100")
    for side in ("cpu", "gpu"):
        assert getattr(lstm(again), side).time_s == pytest.approx(getattr(lstm(fresh), side).time_s)
        assert getattr(lstm(again), side).low_s == pytest.approx(getattr(lstm(fresh), side).low_s)


def test_what_is_run_of_unknown_lengths_are_whole_sequences() -> None:
    """As they are predicted; where no value is known to give that, the input is drawn as any other."""

    def filled(model: onnx.ModelProto) -> list[int]:
        graph = to_graph(model)
        return sorted(set(random_feeds(graph)["lengths"].tolist()))

    assert filled(recurrent()) == [STEPS]
    assert filled(recurrent(12)) == [12]
    # (lengths - 1) // 2 + 1 is never all of the steps for lengths up to them.
    assert set(filled(recurrent(halved=True))) <= {0, 1}


def test_a_measured_run_of_unknown_lengths_is_told_for_all_of_them() -> None:
    """Else a CPU with whole sequences would be compared with a GPU with sequences of one step."""
    found = analyze(recurrent(), runs=3, gpu="l4")
    cpu = found.plan("cpu")
    assert cpu is not None
    assert cpu.origin == "measured"
    # The LSTM is nearly all of it: one step of 120 takes a hundredth.
    assert cpu.low_s < cpu.latency_s / 5
    shown = " ".join(render(found, "text").split())
    assert "The lengths that LSTM reads are not known: this is for whole sequences" in shown
