"""Graphs that are asked for before they are needed."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import onnx
import pytest
from onnx import helper

from analyzer.errors import GraphError, ModelError
from analyzer.loading.from_onnx import from_proto
from analyzer.loading.reader import ReadAhead
from analyzer.reading import READING, NotRunningError


def test_a_graph_that_was_read_ahead_is_the_one_that_is_read_when_asked(
    make_onnx: Callable[..., onnx.ModelProto],
) -> None:
    def loaded() -> Any:
        proto = make_onnx([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 3]}, ["y"])
        return from_proto(proto, name="m", source="m.onnx", batch=1)

    ahead = loaded()
    ahead.read_ahead([2, 4])
    for batch in (2, 4, 8):  # 8 was not asked for ahead
        (tensor,) = ahead.graph(batch).outputs
        assert tensor.shape == loaded().graph(batch).outputs[0].shape == (batch, 3)


def test_each_answer_is_given_once() -> None:
    ahead = ReadAhead()
    ahead.begin([{"N": 2}], lambda sizes: str(sizes).encode())
    assert ahead.take({"N": 3}) is None
    assert ahead.take({"N": 2}) == b"{'N': 2}"
    assert ahead.take({"N": 2}) is None


def test_a_batch_that_the_model_forbids_leaves_the_others() -> None:
    def ask(sizes: Mapping[str, int]) -> bytes:
        if sizes["N"] == 2:
            raise GraphError("not this one")
        return b"graph"

    ahead = ReadAhead()
    ahead.begin([{"N": 2}, {"N": 4}], ask)
    with pytest.raises(GraphError, match="not this one"):
        ahead.take({"N": 2})
    assert ahead.take({"N": 4}) == b"graph"


def test_after_a_crash_nothing_more_is_asked_ahead() -> None:
    asked = []

    def ask(sizes: Mapping[str, int]) -> bytes:
        asked.append(sizes["N"])
        raise ModelError("crashed")

    ahead = ReadAhead()
    ahead.begin([{"N": 2}, {"N": 4}], ask)
    with pytest.raises(ModelError, match="crashed"):
        ahead.take({"N": 2})
    assert ahead.take({"N": 4}) is None  # whoever needs it asks, and is told
    assert asked == [2]


def test_a_reading_process_that_has_ended_is_begun_by_who_waits_not_by_the_thread(
    make_onnx: Callable[..., onnx.ModelProto],
) -> None:
    proto = make_onnx([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 3]}, ["y"])
    loaded = from_proto(proto, name="m", source="m.onnx", batch=1)
    loaded.graph()
    READING.end()
    loaded.read_ahead([2])
    time.sleep(0.2)  # a thread that begins it has begun it by then
    with pytest.raises(NotRunningError):
        READING.ask("graph", {}, loaded.limits, subject="it", begins=False)
    (tensor,) = loaded.graph(2).outputs
    assert tensor.shape == (2, 3)
