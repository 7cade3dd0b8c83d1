"""Values made the fast way are what the dataclasses' own constructors make."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from analyzer.costs.cost import Cost, cost
from analyzer.graph import DTYPES, Node, Source, Tensor
from analyzer.loading.onnx_graph.construction import make_node, make_tensor, renumbered

X = Tensor(name="x", shape=(2, 3), dtype=DTYPES["float32"])
SOURCE = Source(file="model.py", line=3)


def fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def relu(index: int) -> Node:
    return Node(
        index=index,
        name="n",
        op_type="Relu",
        domain="ai.onnx",
        version=20,
        inputs=(X,),
        outputs=(X,),
        attributes={"a": 1},
        graphs={},
        module="layer",
        module_class="Layer",
        source=SOURCE,
        phase="forward",
    )


def made() -> Node:
    whence = ("layer", "Layer", SOURCE, "forward")
    return make_node(4, "n", ("Relu", "ai.onnx", 20), (X,), (X,), {"a": 1}, {}, whence)


def test_a_tensor_has_every_field_of_its_class() -> None:
    tensor = make_tensor("x", (2, 3), DTYPES["float32"], constant=True)
    assert type(tensor) is Tensor
    assert fields(tensor) == fields(Tensor(name="x", shape=(2, 3), dtype=DTYPES["float32"], constant=True))


def test_a_node_has_every_field_of_its_class() -> None:
    assert type(made()) is Node
    assert fields(made()) == fields(relu(4))


def test_a_renumbered_node_differs_by_its_index_alone() -> None:
    assert fields(renumbered(made(), 7)) == fields(relu(7))


def test_a_cost_is_equal_to_one_made_by_its_constructor() -> None:
    assert cost(relu(0), flops=6) == Cost(flops=6, macs=0, bytes_read=24, bytes_written=24)


def test_made_values_stay_frozen_and_survive_pickling() -> None:
    tensor = make_tensor("x", (2,), DTYPES["int64"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        tensor.name = "y"  # type: ignore[misc]
    assert fields(pickle.loads(pickle.dumps(tensor))) == fields(tensor)
