"""Groups against the graphs that the real CUDA and CPU providers make of small models."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import Session
from analyzer.ort.fusion import groups_from_optimized, predicted_groups
from analyzer.ort.simplify import simplify

if TYPE_CHECKING:
    from court import Judge

NAMES = ["residual", "mobile", "encoder", "decoder", "recurrent", "unet"]


@cache
def exported(name: str) -> onnx.ModelProto:
    small_models = pytest.importorskip("small_models")
    model: onnx.ModelProto = small_models.export(small_models.MODELS[name](), 20)
    return model


@pytest.mark.parametrize("session", ["cpu", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_every_operator_that_is_not_folded_is_in_exactly_one_group_at_every_level(
    judge: Judge, name: str, session: Session, tmp_path: Path
) -> None:
    graph = to_graph(exported(name))
    folded = simplify(graph).folded
    for level in (1, 2, 3):
        judge.rule(exported(name), level=level, session=session, keep=tmp_path / "optimized.onnx")
        optimized = onnx.load(tmp_path / "optimized.onnx", load_external_data=False)
        groups = groups_from_optimized(graph, optimized, session)
        members = sorted(index for group in groups for index in group.members)
        assert members == [node.index for node in graph.nodes if node.index not in folded]
        executed = [
            node.name or f"{node.op_type}_?"
            for node in optimized.graph.node
            if not node.op_type.startswith("Memcpy")
        ]
        named = [name for group in groups for name in (group.name, *group.parts)]
        assert sorted(named) == sorted(executed)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_fusions_foretells_what_the_cuda_session_executes(
    judge: Judge, name: str, tmp_path: Path
) -> None:
    graph = to_graph(exported(name))
    judge.rule(exported(name), keep=tmp_path / "optimized.onnx")
    optimized = onnx.load(tmp_path / "optimized.onnx", load_external_data=False)
    real = {group.members: group.provider for group in groups_from_optimized(graph, optimized, "cuda")}
    assert {group.members: group.provider for group in predicted_groups(graph, "cuda")} == real


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_the_launches_of_all_groups_are_those_that_the_provider_hands_to_the_device(
    judge: Judge, name: str
) -> None:
    graph = to_graph(exported(name))
    feeds = {
        tensor.name: np.zeros([size or 0 for size in tensor.shape or ()], np.int64) for tensor in graph.inputs
    }
    ruling = judge.rule(exported(name), feeds=feeds)
    groups = predicted_groups(graph, "cuda")
    assert ruling.launches == sum(group.kernels for group in groups if group.provider == "cuda")
