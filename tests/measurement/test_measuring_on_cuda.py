"""Measuring the CUDA provider: with a GPU for real, else with stand-in libraries that compute nothing.

With the stand-ins the release's CUDA provider loads and "runs"; what it shows of time means nothing, what is
tested is the way through: three ways end to end, the fall-back to blocking launches, and the words.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measuring_models import one_node, perceptron, save

from analyzer.errors import MeasurementError
from analyzer.measurement.child_process import measure
from analyzer.measurement.cuda_ceilings import has_cuda
from analyzer.measurement.output_agreement import agreement
from analyzer.measurement.request import Measurement, MeasureRequest
from analyzer.measurement.tensor_files import load_tensors

needs_gpu = pytest.mark.skipif(not has_cuda(), reason="needs an NVIDIA GPU and ONNX Runtime's CUDA libraries")
needs_none = pytest.mark.skipif(has_cuda(), reason="this machine has a GPU")


def request(path: Path, **options: Any) -> MeasureRequest:
    return MeasureRequest(
        model_path=path, **{"provider": "cuda", "time_budget_s": 0.5, "threads": 1, "timeout_s": 900, **options}
    )


@pytest.fixture(scope="module")
def measured(stand_in_libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Measurement:
    folder = tmp_path_factory.mktemp("cuda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(stand_in_libraries))
        return measure(request(save(perceptron(), folder)))


@needs_none
def test_without_cuda_the_reason_is_named_and_nothing_runs_on_the_cpu(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"CUDA|NVIDIA") as caught:
        measure(request(save(perceptron(), tmp_path)))
    assert caught.value.hint


@needs_none
def test_the_latency_is_taken_three_ways(measured: Measurement) -> None:
    assert set(measured.ways) == {"copies", "resident", "graph"}
    assert measured.latency == measured.ways["copies"]
    assert len({latency.method for latency in measured.ways.values()}) == 3


@needs_none
def test_where_nothing_can_be_recorded_launches_block_and_the_report_says_so(measured: Measurement) -> None:
    assert any("could not be recorded" in text for text in measured.messages)
    assert any("blocking launches" in text for text in measured.messages)
    assert all("blocking" in node.method for node in measured.nodes)
    assert {node.provider for node in measured.nodes} == {"cuda"}
    total = sum(node.time.value for node in measured.nodes)
    assert total == pytest.approx(measured.ways["resident"].value)


@needs_none
def test_the_graph_that_ran_and_its_circumstances_come_along(measured: Measurement) -> None:
    assert [node.name for node in measured.nodes] == [node.name for node in measured.optimized.graph.node]
    assert measured.environment["tf32"] is True
    assert measured.environment["cuda_options"]["use_tf32"] == "1"
    assert measured.environment["providers"][0] == "CUDAExecutionProvider"
    assert measured.arena_peak_bytes >= 3 * 256 * 256 * 4


@needs_none
def test_tf32_can_be_turned_off(
    stand_in_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in_libraries))
    measured = measure(request(save(perceptron(), tmp_path), tf32=False, profile=False))
    assert measured.environment["cuda_options"]["use_tf32"] == "0"


@needs_none
def test_without_a_cuda_graph_the_rest_is_there(
    stand_in_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tan has no CUDA kernel, and a CUDA graph cannot hold nodes on the CPU."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in_libraries))
    measured = measure(request(save(one_node("Tan"), tmp_path), profile=False))
    assert set(measured.ways) == {"copies", "resident"}
    assert any(text.startswith("CUDA graph: none") for text in measured.messages)


@needs_gpu
@pytest.mark.gpu
def test_on_a_gpu_operators_come_from_its_own_records(tmp_path: Path) -> None:
    measured = measure(request(save(perceptron(width=1024, rows=256), tmp_path), time_budget_s=3))
    assert set(measured.ways) == {"copies", "resident", "graph"}
    assert all("CUPTI" in node.method for node in measured.nodes if node.provider == "cuda")
    assert sum(node.time.value for node in measured.nodes) == pytest.approx(
        measured.ways["resident"].value, rel=0.03
    )


@needs_gpu
@pytest.mark.gpu
def test_on_a_gpu_the_answers_are_the_cpus(tmp_path: Path) -> None:
    path = save(perceptron(), tmp_path)
    np.savez(tmp_path / "feeds.npz", x0=np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32))
    outputs = {}
    for provider in ("cpu", "cuda"):
        asked = request(
            path,
            provider=provider,
            feeds=tmp_path / "feeds.npz",
            outputs=tmp_path / f"{provider}.npz",
            profile=False,
            tf32=False,
        )
        written = measure(asked).outputs
        assert written is not None
        outputs[provider] = load_tensors(written)
    assert all(one.agrees for one in agreement(outputs["cpu"], outputs["cuda"]))
