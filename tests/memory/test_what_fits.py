"""Whether a model fits a GPU is one answer: in the verdict, for a training step and before a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.api import analyze
from analyzer.devices.catalogue import device
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.memory.fit import (
    context_note,
    cuda_room_if_arena_grows,
    fits,
    largest_between,
    largest_by_growth,
    largest_from,
    room,
)
from analyzer.pipeline.machine import does_not_fit
from analyzer.record.training_step import StepMemory

L4 = device("l4")


def product(rows: int, path: Path) -> str:
    """[batch, rows] times [rows, 4096] stored numbers."""
    weights = numpy_helper.from_array(np.zeros((1, 1), np.float32), "w")
    weights.ClearField("raw_data")
    weights.dims[:] = [rows, 4096]
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="none.bin")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4096])],
        [weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(made, path / "product.onnx")
    return str(path / "product.onnx")


@pytest.mark.parametrize("beside", [0, 150_000_000, 310_000_000])
def test_the_verdict_and_a_run_say_alike_whether_a_model_fits(beside: int, tmp_path: Path) -> None:
    """Weights that leave 0, 150 or 310 MB of an L4: the first two leave too little for CUDA's 300 MB."""
    assert L4.memory_bytes is not None
    file = product((L4.memory_bytes - beside) // 4 // 4096 - 1000, tmp_path)
    loaded = load(parse_reference(file), batch=1)
    refused = does_not_fit(loaded, loaded.graph(1), 1, L4.memory_bytes)
    plan = analyze(file, run=False, cpu="epyc-9654", gpu="l4", batch=1).plan("gpu")
    assert plan is not None
    assert plan.fits == (refused == "")
    assert plan.fits == (beside > 300_000_000)


def test_the_largest_batch_of_a_step_leaves_room_for_cuda() -> None:
    # 1 GB of weights, 1 GB of gradients, 2 GB of state and 4 GB at batch 8: 24 - 0.3 - 4 GB at 0.5 GB each.
    gpu = replace(L4, memory_bytes=24 * 10**9)
    memory = StepMemory(
        weights_bytes=10**9, gradients_bytes=10**9, optimizer_state_bytes=2 * 10**9, peak_bytes=8 * 10**9
    )
    assert largest_by_growth(memory.fixed_bytes, memory.peak_bytes, 8, room(gpu)) == 39
    assert (
        largest_by_growth(
            memory.fixed_bytes, memory.peak_bytes, 8, room(replace(gpu, memory_bytes=23_800_000_000))
        )
        == 39
    )
    assert (
        largest_by_growth(
            memory.fixed_bytes, memory.peak_bytes, 8, room(replace(gpu, memory_bytes=23_799_999_999))
        )
        == 38
    )


def test_a_gpu_has_room_beside_the_context_and_a_cpu_has_all_of_its_memory() -> None:
    assert room(replace(L4, memory_bytes=10**9)) == 700_000_000
    assert room(replace(L4, memory_bytes=10**8)) == 0
    assert room(replace(L4, kind="cpu", memory_bytes=10**9)) == 10**9
    assert room(replace(L4, memory_bytes=None)) is None
    assert room(None) is None
    assert [fits(None, 1), fits(1, None), fits(1, 1), fits(2, 1)] == [True, True, True, False]


def test_a_note_names_the_context_where_it_alone_is_too_much() -> None:
    # 1 GB less 300 MB of the context; the arena doubles, so that half of that may be in use.
    needed = (None, 700_000_000, 700_000_001, 10**9, 10**9 + 1)
    assert [bool(context_note(bytes_needed, 10**9)) for bytes_needed in needed] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert context_note(1, None) == ""
    assert cuda_room_if_arena_grows(10**9) == 350_000_000


@pytest.mark.parametrize("largest", [0, 1, 2, 7, 100, 4096])
@pytest.mark.parametrize("guess", [0, 1, 3, 99, 5000])
def test_the_largest_batch_is_found_from_any_guess(largest: int, guess: int) -> None:
    assert largest_from(lambda batch: batch <= largest, guess) == largest
    assert largest_between(lambda batch: batch <= largest, 0, 5000) == largest


@pytest.mark.parametrize(
    ("guess", "largest", "tried"),
    [
        (100, 110, [100, 101, 103, 107, 115, 111, 109, 110]),  # strides 1, 2, 4, 8; then 107 to 115 in halves
        (100, 90, [100, 99, 97, 93, 85, 89, 91, 90]),
        (0, 1, [1, 2]),
        (4, 0, [4, 3, 1]),
    ],
)
def test_the_largest_batch_is_sought_in_growing_strides(guess: int, largest: int, tried: list[int]) -> None:
    batches: list[int] = []

    def batch_fits(batch: int) -> bool:
        batches.append(batch)
        return batch <= largest

    assert largest_from(batch_fits, guess) == largest
    assert batches == tried


def test_growth_alone_tells_the_largest_batch() -> None:
    # 100 bytes whatever the batch, 10 for each of 4: 260 bytes leave 160.
    assert largest_by_growth(100, 140, 4, 260) == 16
    assert largest_by_growth(100, 140, 4, 269) == 16
    assert largest_by_growth(100, 140, 4, 99) == 0
    assert largest_by_growth(100, 100, 4, 260) is None
    assert largest_by_growth(100, None, 4, 260) is None
