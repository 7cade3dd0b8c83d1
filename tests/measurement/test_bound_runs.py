"""Runs whose inputs and outputs lie in memory of their own."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from analyzer.measurement.io_binding import bind_session
from analyzer.measurement.session import SessionSettings, create


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
