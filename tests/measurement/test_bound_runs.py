"""Runs whose inputs and outputs lie in memory of their own."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

from analyzer.measurement.session import SessionSettings, bind_session, create, undisturbed_seconds


@pytest.mark.parametrize(("in_place", "runs_seen"), [({"past": "present"}, 4), ({}, 0)])
def test_a_cache_in_place_is_written_where_it_was_read(in_place: dict[str, str], runs_seen: int) -> None:
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    past, present = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("past", "present")
    )
    graph = helper.make_graph(
        [helper.make_node("Add", ["past", "one"], ["present"], name="add")], "counter", [past], [present], [one]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = create(model.SerializeToString(), SessionSettings())
    # On the CPU a value has the array's own memory.
    array = np.zeros(3, np.float32)
    bound = bind_session(session, {"past": array}, "cpu", in_place=in_place)
    bound.call()
    # Three runs while it is bound, and one more.
    assert array.tolist() == [runs_seen] * 3


@pytest.mark.skipif(sys.platform == "win32", reason="a thread's clock there has ticks of 15.6 ms")
def test_one_thread_is_not_charged_for_the_time_that_others_had_its_core() -> None:
    def off_the_core() -> None:
        time.sleep(0.004)

    assert undisturbed_seconds(off_the_core, 0.0) >= 0.004
    assert undisturbed_seconds(off_the_core, 0.0, alone=True) < 0.004


def test_one_threads_own_work_counts_in_full() -> None:
    def on_the_core() -> None:
        begin = time.thread_time()
        while time.thread_time() - begin < 0.004:
            pass

    assert undisturbed_seconds(on_the_core, 0.0, alone=True) >= 0.004
