"""What a run needs on the CPU and on the GPU, and the batch that is named where the GPU has less.

The model is one product of [batch, 1000] with 4 MB of weights: at batch b it holds 4 MB of weights and, at its
peak, 4000 b bytes of input and as many of output; the context of CUDA (300 MB, ``memory.fit``) is added.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.errors import MemoryEndedError, MemoryForeseenError
from analyzer.graph import Graph
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.memory.fit import CUDA_CONTEXT_BYTES
from analyzer.pipeline import measure
from analyzer.pipeline.machine import does_not_fit, needed_bytes, smaller_batch
from analyzer.pipeline.options import make_options

FIXED = 4_000_000 + 300_000_000
EACH = 8000


def product(rows: int | str) -> onnx.ModelProto:
    weights = numpy_helper.from_array(np.zeros((1000, 1000), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 1000])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 1000])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def at(tmp_path: Path) -> Callable[..., tuple[Loaded, Graph]]:
    def loaded(batch: int | None, rows: int | str = "batch") -> tuple[Loaded, Graph]:
        path = tmp_path / "product.onnx"
        onnx.save(product(rows), path)
        found = load(parse_reference(str(path)), batch=batch)
        return found, found.graph(batch)

    return loaded


def test_weights_activations_and_the_context_are_counted(at: Callable[..., tuple[Loaded, Graph]]) -> None:
    loaded, graph = at(256)
    assert needed_bytes(loaded, graph) + CUDA_CONTEXT_BYTES == FIXED + 256 * EACH
    assert "it would need about 306 MB" in does_not_fit(loaded, graph, 256, FIXED + 256 * EACH - 1)


def test_a_run_that_fits_is_not_refused(at: Callable[..., tuple[Loaded, Graph]]) -> None:
    loaded, graph = at(256)
    assert does_not_fit(loaded, graph, 256, FIXED + 256 * EACH) == ""
    assert does_not_fit(loaded, graph, 256, None) == ""


@pytest.mark.parametrize("largest", [1, 2, 100, 255])
def test_a_run_that_does_not_fit_names_the_largest_batch_that_does(
    at: Callable[..., tuple[Loaded, Graph]], largest: int
) -> None:
    loaded, graph = at(256)
    text = does_not_fit(loaded, graph, 256, FIXED + largest * EACH + EACH - 1)
    assert f"Batch {largest} is the largest expected to fit: use --batch {largest}." in text


def test_where_not_even_one_fits_the_text_says_so(at: Callable[..., tuple[Loaded, Graph]]) -> None:
    loaded, graph = at(256)
    assert "Not even batch 1" in does_not_fit(loaded, graph, 256, FIXED)


def test_a_model_of_a_fixed_batch_gets_no_figure(at: Callable[..., tuple[Loaded, Graph]]) -> None:
    loaded, graph = at(None, rows=64)
    text = does_not_fit(loaded, graph, 64, FIXED)
    assert "Use a smaller --batch" in text
    assert "Batch" not in text


def test_after_memory_ended_the_arena_has_room_to_double(at: Callable[..., tuple[Loaded, Graph]]) -> None:
    loaded, graph = at(256)
    # 300 MB + 2 (4 MB + 100 batches) are free: batch 100 fits, 101 does not
    free = 300_000_000 + 2 * (4_000_000 + 100 * EACH)
    assert "Batch 100 is the largest" in smaller_batch(loaded, graph, 256, free)


def test_where_the_estimate_was_no_help_half_the_batch_is_named(
    at: Callable[..., tuple[Loaded, Graph]],
) -> None:
    loaded, graph = at(256)
    assert "--batch 128" in smaller_batch(loaded, graph, 256, 10**12)
    assert "smaller --batch" in smaller_batch(loaded, graph, 256, None)


def on_cuda(loaded: Loaded, graph: Graph, folder: Path) -> measure.Measured:
    options = make_options()
    run = measure._Run(
        loaded=loaded, graph=graph, batch=256, options=options, folder=folder, progress=lambda *_: None
    )
    return measure._on_cuda(measure.Measured(), run)


def test_the_message_of_a_failed_run_names_the_batch(
    at: Callable[..., tuple[Loaded, Graph]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, graph = at(256)
    free = 300_000_000 + 2 * (4_000_000 + 100 * EACH)

    def ended(*_: Any, **__: Any) -> None:
        raise MemoryEndedError("the GPU ran out of memory", hint="use a smaller --batch")

    monkeypatch.setattr(measure, "measure", ended)
    monkeypatch.setattr(measure, "free_bytes", lambda: free)
    measured = on_cuda(loaded, graph, tmp_path)
    (message,) = measured.messages
    assert message.startswith("Not measured on CUDA, predicted instead: the GPU ran out of memory.")
    assert "use --batch 100" in message


def test_a_run_foreseen_not_to_fit_is_not_started(
    at: Callable[..., tuple[Loaded, Graph]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, graph = at(256)

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("it was started")

    monkeypatch.setattr(measure, "measure", started)
    monkeypatch.setattr(measure, "free_bytes", lambda: FIXED + 7 * EACH)
    measured = on_cuda(loaded, graph, tmp_path)
    assert "use --batch 7" in measured.messages[0]


@pytest.mark.parametrize(
    ("carried", "slack", "said"),
    [({}, 2.7, "2.05 MB of activations"), ({"x": "y"}, 2.4, "of weights, states, gradients and activations")],
)
def test_a_run_on_the_cpu_needs_weights_and_what_the_arena_takes(
    at: Callable[..., tuple[Loaded, Graph]],
    monkeypatch: pytest.MonkeyPatch,
    carried: dict[str, str],
    slack: float,
    said: str,
) -> None:
    """Weights three times over, and input and output as often as ONNX Runtime was seen to hold them."""
    graph = at(256)[1]
    step = tuple(replace(node, phase="forward" if carried else None) for node in graph.nodes)
    graph = replace(graph, carried=carried, nodes=step)
    needed = 3 * 4_000_000 + int(256 * EACH * slack)

    def free(amount: int) -> None:
        memory = psutil.virtual_memory()._replace(available=amount)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    free(needed)
    measure.foresee_memory(graph)
    free(needed - 1)
    with pytest.raises(MemoryForeseenError, match=said) as caught:
        measure.foresee_memory(graph)
    assert "4.00 MB of weights three times over" in caught.value.message
    assert "--no-run" in caught.value.hint
