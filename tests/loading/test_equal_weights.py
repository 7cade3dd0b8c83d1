"""Weights that are equal: a session keeps such once, so that what is timed has none."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

from analyzer.loading.load import load_live
from analyzer.loading.loaded import Loaded
from analyzer.loading.runnable_files import RandomWeights
from analyzer.loading.weights import distinguished, materialise
from analyzer.measurement import probes

LAYERS = 4


def cloned(**options: int) -> nn.Sequential:
    """Layers as ``nn.TransformerEncoder`` makes them: copies of one."""
    layer = nn.Linear(options.get("width", 64), options.get("width", 64))
    return nn.Sequential(*(copy.deepcopy(layer) for _ in range(LAYERS))).eval()


def exported(model: nn.Module) -> Loaded:
    inputs = (torch.ones(1, 64),)
    return load_live(model, inputs=inputs, batch=1, specs=(), opset=None, progress=lambda _: None)


def different(arrays: Iterable[np.ndarray]) -> int:
    return len({array.tobytes() for array in arrays})


def matrices(path: Path) -> list[np.ndarray]:
    found = onnx.load(path).graph.initializer
    return [array for array in map(numpy_helper.to_array, found) if array.ndim == 2]


def test_copies_of_a_layer_differ_by_one_value_and_the_model_keeps_its_own() -> None:
    model = cloned()
    before = [parameter.clone() for parameter in model.parameters()]
    apart = distinguished(dict(model.named_parameters()))
    assert set(apart) == {f"{number}.weight" for number in range(1, LAYERS)}
    weights = [model.get_parameter("0.weight"), *apart.values()]
    assert different(weight.detach().numpy() for weight in weights) == LAYERS
    assert all(int((weight != weights[0]).sum()) == 1 for weight in weights[1:])
    assert all(map(torch.equal, before, model.parameters()))


def test_tied_weights_stay_tied() -> None:
    model = cloned()
    model.append(nn.Linear(64, 64))
    model.get_submodule(str(LAYERS)).weight = model.get_submodule("1").weight
    apart = distinguished(dict(model.named_parameters(remove_duplicate=False)))
    assert apart[f"{LAYERS}.weight"] is apart["1.weight"]


def test_weights_that_differ_anyway_and_small_ones_are_left_alone() -> None:
    assert distinguished(dict(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).named_parameters())) == {}
    assert distinguished(dict(cloned(width=8).named_parameters())) == {}


def test_a_live_model_is_timed_with_different_weights_and_applied_with_its_own(tmp_path: Path) -> None:
    model = cloned()
    loaded = exported(model)
    timed = materialise(loaded, 1, folder(tmp_path / "timed"), as_if_trained=True)
    applied = materialise(loaded, 1, folder(tmp_path / "applied"))
    assert different(matrices(timed.model_path)) == LAYERS
    assert different(matrices(applied.model_path)) == 1
    # Held against a session's results: PyTorch computes with the same weights.
    assert timed.eager is not None
    assert applied.eager is not None
    x = np.ones((1, 64), np.float32)
    for path, eager in ((timed.model_path, timed.eager), (applied.model_path, applied.eager)):
        result = onnx_runtime(path, x)
        np.testing.assert_allclose(eager()[0], result, rtol=1e-4, atol=1e-5)


def onnx_runtime(path: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_random_weights_of_one_size_differ(tmp_path: Path) -> None:
    path = RandomWeights(folder=tmp_path).write(exported(cloned()).graph(1), "model.onnx")
    assert different(matrices(path)) == LAYERS


def test_copies_of_a_probe_have_weights_of_their_own() -> None:
    probe = probes.Probe(
        key="x",
        amount=1.0,
        per="rate",
        op_type="MatMul",
        inputs=(probes.floats(1, 64), probes.floats(64, 64)),
        constants=frozenset({1}),
    )
    stored = onnx.load_from_string(probes.model_of(probe.repeated(LAYERS, fresh_constants=True))).graph
    assert different(map(numpy_helper.to_array, stored.initializer)) == LAYERS
