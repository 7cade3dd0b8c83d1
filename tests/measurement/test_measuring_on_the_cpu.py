"""Measuring on the CPU provider, for real: no figure is asserted, only what must hold between them."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from measuring_models import FLOAT, branching, model, perceptron, save
from onnx import TensorProto, helper

from analyzer.measurement.child_process import measure
from analyzer.measurement.noise import chain
from analyzer.measurement.request import Measurement, MeasureRequest
from analyzer.measurement.tensor_files import load_tensors, save_tensors


def request(path: Path, **options: Any) -> MeasureRequest:
    return MeasureRequest(model_path=path, **{"time_budget_s": 0.6, "threads": 1, "timeout_s": 900, **options})


@pytest.fixture(scope="module")
def seen() -> list[tuple[str, Any]]:
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.fixture(scope="module")
def measured(folder: Path, seen: list[tuple[str, Any]]) -> Measurement:
    path = save(perceptron(), folder, external=True)
    feeds = folder / "feeds.npz"
    np.savez(feeds, x0=np.random.default_rng(1).standard_normal((32, 256)).astype(np.float32))
    asked = request(path, feeds=feeds, outputs=folder / "outputs.npz")
    return measure(asked, progress=lambda stage, fraction: seen.append((stage, fraction)))


def test_node_times_add_up_to_the_unprofiled_latency(measured: Measurement) -> None:
    assert sum(node.time.value for node in measured.nodes) == pytest.approx(measured.latency.value)


def test_nodes_are_those_of_the_optimized_graph_that_comes_along(measured: Measurement) -> None:
    assert [node.name for node in measured.nodes] == [node.name for node in measured.optimized.graph.node]
    assert {node.op_type for node in measured.nodes} == {"FusedGemm"}
    assert {node.provider for node in measured.nodes} == {"cpu"}


def test_the_optimized_graph_comes_without_weights_but_with_their_shapes(measured: Measurement) -> None:
    weights = {tuple(tensor.dims): tensor for tensor in measured.optimized.graph.initializer}
    assert (256, 256) in weights
    assert not weights[256, 256].raw_data
    assert measured.optimized.ByteSize() < 10_000  # three matrices alone would be 786,432


def test_intervals_hold_their_middle(measured: Measurement) -> None:
    latency = measured.latency
    assert latency.low <= latency.p10_s <= latency.value <= latency.p90_s <= latency.high
    assert latency.min_s <= latency.value
    assert all(node.time.low <= node.time.value <= node.time.high for node in measured.nodes)


def test_circumstances_are_told(measured: Measurement) -> None:
    assert measured.latency.warmup_runs >= 3
    assert measured.latency.runs >= 5
    assert measured.first_run_s > 0
    assert measured.load_s > 0
    assert measured.bias_s is not None
    assert measured.factor > 0
    # Of the runs beside the profiled ones, which need not be those of the latency.
    beside = measured.latency.value * (1 - 1 / measured.factor)
    assert measured.residual_s == pytest.approx(beside, rel=0.5)
    assert {"threads", "spinning", "others_cores", "onnxruntime", "load_before", "load_after"} <= set(
        measured.environment
    )
    assert measured.environment["threads"] == 1
    assert "unprofiled" in measured.latency.method
    assert all(node.method for node in measured.nodes)


def test_memory_holds_at_least_the_weights(measured: Measurement) -> None:
    weights = 3 * (256 * 256 + 256) * 4
    assert measured.arena_peak_bytes >= weights
    assert measured.rss_peak_bytes > weights
    assert measured.device_peak_bytes is None


def test_outputs_are_those_of_the_model(measured: Measurement, folder: Path) -> None:
    assert measured.outputs is not None
    outputs = load_tensors(measured.outputs)
    weights = {
        t.name: np.frombuffer(t.raw_data, np.float32).reshape(t.dims) for t in perceptron().graph.initializer
    }
    x = load_tensors(folder / "feeds.npz")["x0"]
    for i in range(3):
        x = np.maximum(x @ weights[f"w{i}"] + weights[f"b{i}"], 0)
    np.testing.assert_allclose(outputs["x3"], x, rtol=1e-4, atol=1e-5)


def test_progress_goes_forward_to_the_end(measured: Measurement, seen: list[tuple[str, Any]]) -> None:
    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert {"loading", "warming up", "measuring", "profiling"} <= {stage for stage, _ in seen}


def test_no_file_stays_behind(measured: Measurement, folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "feeds.npz",
        "model.onnx",
        "model.onnx.data",
        "outputs.npz",
    ]


def test_what_onnx_runtime_leaves_among_the_temporary_files_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, temporary = save(perceptron(layers=1), tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    measure(request(path, runs=3, profile=False))
    assert list(temporary.iterdir()) == []


def test_exactly_the_runs_asked_for_are_timed(tmp_path: Path) -> None:
    path = save(perceptron(layers=1), tmp_path)
    assert measure(request(path, runs=7, profile=False)).latency.runs == 7


def test_a_chain_of_operators_that_do_nothing_shows_their_dispatch_not_the_profilers_cost(
    tmp_path: Path,
) -> None:
    """The profiler shows over 1 microsecond for each; a node's true cost is a fraction of that."""
    path = tmp_path / "chain.onnx"
    path.write_bytes(chain(200))
    measured = measure(request(path))
    shown = sum(node.raw_s for node in measured.nodes)
    told = sum(node.time.value for node in measured.nodes)
    assert len(measured.nodes) == 200
    assert told == pytest.approx(measured.latency.value)
    assert told < shown
    assert any("alone" in node.method for node in measured.nodes)


def test_a_branchs_nodes_are_counted_with_their_if(tmp_path: Path) -> None:
    path = save(branching(), tmp_path)
    measured = measure(request(path))
    assert [node.name for node in measured.nodes] == ["if", "exp"]
    times = {node.name: node.time.value for node in measured.nodes}
    assert times["if"] > times["exp"]


def test_inputs_and_outputs_of_types_that_numpy_lacks_survive(tmp_path: Path) -> None:
    import ml_dtypes

    kind = TensorProto.BFLOAT16
    nodes = [
        helper.make_node("Identity", ["x"], ["y"], name="keep"),
        helper.make_node("Cast", ["x"], ["z"], name="cast", to=FLOAT),
    ]
    path = save(model(nodes, [("x", kind, [3])], [("y", kind, [3]), ("z", FLOAT, [3])]), tmp_path)
    x = np.array([1.5, -2.0, 3.140625], ml_dtypes.bfloat16)
    save_tensors(tmp_path / "feeds.npz", {"x": x})
    measured = measure(request(path, feeds=tmp_path / "feeds.npz", outputs=tmp_path / "out.npz", profile=False))
    assert measured.outputs is not None
    outputs = load_tensors(measured.outputs)
    assert outputs["y"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(outputs["y"], x)
    np.testing.assert_array_equal(outputs["z"], [1.5, -2.0, 3.140625])


def test_open_dimensions_are_made_up_and_told(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    path = save(model([node], [("x", FLOAT, ["batch", 8])], [("y", FLOAT, ["batch", 8])]), tmp_path)
    measured = measure(request(path, profile=False))
    assert any("'batch' of input x taken as 1" in text for text in measured.messages)


_KEYS: dict[str, Any] = {"classlabels_int64s": [3, 5, 7], "classlabels_strings": ["a", "b", "c"]}


def scored(
    results: list[tuple[str, onnx.TypeProto]], *nodes: onnx.NodeProto, rows: int = 64
) -> onnx.ModelProto:
    """A product of three columns, ``y``, and what nodes make of it."""
    weights = [("w", np.arange(12, dtype=np.float32).reshape(4, 3))]
    product = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    made = model([product, *nodes], [("x", FLOAT, [rows, 4])], [], weights, domains=["ai.onnx.ml"], opset=18)
    made.graph.output.extend(helper.make_value_info(name, kind) for name, kind in results)
    return made


_TENSOR = helper.make_tensor_type_proto(FLOAT, [64, 3])


@pytest.mark.parametrize(
    ("attribute", "key"),
    [("classlabels_int64s", TensorProto.INT64), ("classlabels_strings", TensorProto.STRING)],
)
def test_a_classifier_whose_probabilities_are_maps_is_measured_operator_by_operator(
    tmp_path: Path, attribute: str, key: int
) -> None:
    """ZipMap, with which skl2onnx and onnxmltools end a classifier unless told otherwise."""
    zipped = helper.make_node(
        "ZipMap", ["y"], ["z"], name="zip", domain="ai.onnx.ml", **{attribute: _KEYS[attribute]}
    )
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, []))
    )
    path = save(scored([("z", kind)], zipped), tmp_path)
    np.savez(tmp_path / "feeds.npz", x=np.eye(64, 4, dtype=np.float32))
    measured = measure(request(path, feeds=tmp_path / "feeds.npz", outputs=tmp_path / "out.npz"))
    assert not [text for text in measured.messages if "not complete" in text]
    assert {node.op_type for node in measured.nodes} == {"MatMul", "ZipMap"}
    assert sum(node.time.value for node in measured.nodes) == pytest.approx(measured.latency.value)
    assert measured.outputs is not None
    outputs = load_tensors(measured.outputs)
    np.testing.assert_array_equal(outputs["z.keys"], _KEYS[attribute] * 64)
    # The first four rows of an identity pick the rows of the weights.
    np.testing.assert_array_equal(outputs["z.values"][:12], np.arange(12))
    assert outputs["z.values"].dtype == np.float32


def test_sequences_and_optional_outputs_are_measured_like_tensors(tmp_path: Path) -> None:
    sequence = helper.make_sequence_type_proto(_TENSOR)
    empty = helper.make_node("Optional", [], ["none"], name="none")
    empty.attribute.append(helper.make_attribute("type", _TENSOR))
    path = save(
        scored(
            [
                ("both", sequence),
                ("some", helper.make_optional_type_proto(_TENSOR)),
                ("none", helper.make_optional_type_proto(_TENSOR)),
            ],
            helper.make_node("Relu", ["y"], ["r"], name="relu"),
            helper.make_node("SequenceConstruct", ["y", "r"], ["both"], name="both"),
            helper.make_node("Optional", ["y"], ["some"], name="some"),
            empty,
        ),
        tmp_path,
    )
    measured = measure(request(path, outputs=tmp_path / "out.npz"))
    assert not [text for text in measured.messages if "not complete" in text]
    assert {node.op_type for node in measured.nodes} >= {"MatMul", "Relu", "SequenceConstruct"}
    assert sum(node.time.value for node in measured.nodes) == pytest.approx(measured.latency.value)
    assert measured.outputs is not None
    outputs = load_tensors(measured.outputs)
    assert set(outputs) == {"both", "some"}  # an empty optional holds nothing
    np.testing.assert_array_equal(outputs["both"][0], outputs["some"])
    np.testing.assert_array_equal(outputs["both"][1], np.maximum(outputs["some"], 0))
