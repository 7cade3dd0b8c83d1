"""Our placement against the real CUDA provider of the installed release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import agreement
import pytest
from symbolic_sizes import opened

from analyzer.loading.onnx_graph.build import to_graph

if TYPE_CHECKING:
    from court import Judge

KNOWN_DIFFERENCES = 2  # listed in agreement.py
LEAST_CASES = 1500  # 1,533 load in ONNX Runtime 1.31.1 with onnx 1.23.2


def test_every_loadable_backend_case_is_placed_as_the_real_provider_does(judge: Judge) -> None:
    loaded, total = agreement.of_backend_cases(judge)
    print(f"{loaded} cases, {total.nodes} nodes, {total.share:.2%} agree, {total.copies} copies")
    assert loaded >= LEAST_CASES
    assert total.share >= 0.995
    assert len(total.differences) <= KNOWN_DIFFERENCES, "\n".join(total.differences)


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize("name", ["residual", "mobile", "encoder", "decoder", "recurrent", "unet"])
def test_every_node_and_copy_of_a_small_model_is_as_the_real_provider_has_it(
    judge: Judge, name: str, opset: int
) -> None:
    small_models = pytest.importorskip("small_models")
    model = small_models.exported(name, opset)
    found = agreement.compare(to_graph(model), judge.rule(model))
    assert found.nodes > 5
    assert found.differences == ()


@pytest.mark.parametrize("name", ["encoder", "decoder", "recurrent"])
def test_shape_arithmetic_of_a_symbolic_batch_goes_where_the_real_provider_puts_it(
    judge: Judge, name: str
) -> None:
    small_models = pytest.importorskip("small_models")
    model = small_models.exported(name, 20, symbolic=True)
    symbols = to_graph(model).open_dimensions
    graphs = (to_graph(model, bindings=dict.fromkeys(symbols, size)) for size in (5, 7))
    ruling = judge.rule(model)
    found = agreement.compare(opened(*graphs), ruling)
    assert "cpu" in ruling.assigned.values()
    assert found.differences == ()


@pytest.mark.parametrize("name", ["residual", "mobile"])
def test_half_precision_models_are_placed_as_the_real_provider_does(judge: Judge, name: str) -> None:
    small_models = pytest.importorskip("small_models")
    model = small_models.exported(name, 23, half=True)
    ruling = judge.rule(model)
    found = agreement.compare(to_graph(model), ruling)
    assert "cpu" in ruling.assigned.values()
    assert found.differences == ()
