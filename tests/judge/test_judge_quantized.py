"""Placement, groups and copies of quantised models against the real CUDA provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import agreement
import onnx
import pytest
from quantized_models import cases

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.fusion import groups_from_optimized, predicted_groups

if TYPE_CHECKING:
    from court import Judge


@pytest.mark.parametrize("opset", [13, 21, 25])
def test_quantised_models_are_placed_and_fused_as_the_cuda_session_does(
    judge: Judge, opset: int, tmp_path: Path
) -> None:
    wrong: dict[str, object] = {}
    for name, model in cases(opset):
        graph = to_graph(model)
        ruling = judge.rule(model, keep=tmp_path / "optimized.onnx")
        optimized = onnx.load(tmp_path / "optimized.onnx", load_external_data=False)
        groups = groups_from_optimized(graph, optimized, "cuda")
        real = {group.members: group.provider for group in groups if group.members}
        predicted = {group.members: group.provider for group in predicted_groups(graph, "cuda")}
        differences = agreement.compare(graph, ruling).differences
        if predicted != real or differences:
            wrong[name] = (predicted, real, differences)
    assert wrong == {}
