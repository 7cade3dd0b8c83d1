"""A training step under ONNX Runtime against PyTorch: gradients in float64, updates with the same gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference

LIMIT = 1e-5


@pytest.mark.parametrize("name", ["mlp", "convnet", "transformer", "lstm", "upward"])
def test_gradients_are_those_of_pytorch_in_float64(
    name: Any, step_of: Any, run_step: Any, relative: Any
) -> None:
    loaded = step_of(name)
    _, given, reference = run_step(loaded)
    assert set(loaded.step.gradients.values()) <= set(reference)
    errors = {key: relative(given[key], value) for key, value in reference.items()}
    assert max(errors.values()) < LIMIT, errors


LOSSES = {
    "class weights, ignored labels and smoothing": """
        weights = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5])
        def loss(outputs, targets):
            return nn.functional.cross_entropy(
                outputs, targets, weight=weights.to(outputs.dtype), ignore_index=2, label_smoothing=0.1)
        """,
    "a sum over classes": """
        criterion = nn.CrossEntropyLoss(reduction="sum")
        """,
    "binary cross-entropy": """
        criterion = nn.BCEWithLogitsLoss()
        """,
    "smooth absolute error": """
        criterion = nn.SmoothL1Loss()
        """,
}


@pytest.mark.parametrize("more", LOSSES.values(), ids=LOSSES.keys())
def test_gradients_follow_the_loss_of_the_file(more: Any, step_of: Any, run_step: Any, relative: Any) -> None:
    _, given, reference = run_step(step_of("mlp", more))
    assert max(relative(given[key], value) for key, value in reference.items()) < LIMIT


def test_running_statistics_are_those_of_pytorch(step_of: Any, run_step: Any, relative: Any) -> None:
    loaded = step_of("convnet")
    feeds, given, _ = run_step(loaded)
    x = torch.from_numpy(feeds["images"])
    stem = torch.nn.functional.conv2d(x, torch.from_numpy(feeds["stem.weight"]), stride=2, padding=3)
    norm = torch.nn.BatchNorm2d(8).train()
    norm(stem)
    assert relative(given["norm.running_mean.new"], norm.running_mean.numpy()) < LIMIT
    assert relative(given["norm.running_var.new"], norm.running_var.numpy()) < LIMIT
    assert given["norm.num_batches_tracked.new"] == 1


OPTIMIZERS = {
    "plain descent": "torch.optim.SGD, dict(lr=0.1)",
    "momentum and decay": "torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01)",
    "Nesterov": "torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)",
    "Adam": "torch.optim.Adam, dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.01)",
    "AdamW": "torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1)",
    "RMSprop": "torch.optim.RMSprop, dict(lr=0.01, momentum=0.5)",
    "Adagrad": "torch.optim.Adagrad, dict(lr=0.01)",
    "Adamax": "torch.optim.Adamax, dict(lr=0.01, weight_decay=0.1)",
    "Adadelta": "torch.optim.Adadelta, dict(lr=0.5, rho=0.8)",
}


@pytest.mark.parametrize("text", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_updates_are_those_of_torch_optim(text: Any, step_of: Any, run_step: Any, relative: Any) -> None:
    loaded = step_of("mlp", f"optimizer = ({text})")
    feeds, given, _ = run_step(loaded)
    kind, options = eval(text)
    parameters = {
        name: torch.nn.Parameter(torch.from_numpy(feeds[name].copy())) for name in loaded.step.gradients
    }
    built = kind(parameters.values(), **options)
    for name, parameter in parameters.items():
        parameter.grad = torch.from_numpy(given[loaded.step.gradients[name]].copy())
    built.step()
    for name, parameter in parameters.items():
        assert relative(given[name + ".new"], parameter.detach().numpy()) < 1e-6
    states = {value for name in parameters for value in built.state[parameters[name]]} - {"step"}
    assert len(loaded.step.states) - (1 if "Adam" in text and "grad" not in text else 0) == len(
        [state for state in states if _is_tensor(built, parameters, state)]
    ) * len(parameters)


def _is_tensor(built: Any, parameters: Any, state: Any) -> Any:
    values = [built.state[parameter].get(state) for parameter in parameters.values()]
    return all(isinstance(value, torch.Tensor) for value in values)


def test_two_steps_carry_the_state_on(step_of: Any, run_step: Any, tmp_path: Path) -> None:
    import onnxruntime

    loaded = step_of("mlp", "optimizer = torch.optim.Adam")
    feeds, given, _ = run_step(loaded)
    session = onnxruntime.InferenceSession(
        str(tmp_path / "run" / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    second = {**feeds, **{name: given[new] for name, new in loaded.step.carried.items() if new in given}}
    (loss, count) = session.run(["loss", "optimizer.step.new"], second)
    assert loss < given["loss"]
    assert count == 2


def test_dropout_is_told_not_to_be_comparable(step_of: Any, run_step: Any) -> None:
    loaded = step_of(
        """
        def build_model():
            return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))

        def example_inputs(batch=2):
            return (torch.randn(batch, 4),)
        """
    )
    assert loaded.step.random
    assert any("cannot be compared" in note for note in loaded.notes)
    _, given, reference = run_step(loaded)
    assert reference == {}
    assert np.isfinite(given["loss"])


def test_a_loss_over_many_outputs_is_summed_in_rounds(step_of: Any, run_step: Any, relative: Any) -> None:
    # 8 x 16 x 130 x 130 outputs: added one by one, the mean is off in the fifth digit.
    loaded = step_of(
        """
        def build_model():
            return nn.Conv2d(3, 16, 1)

        def example_inputs(batch=8):
            return (torch.randn(batch, 3, 130, 130),)
        """
    )
    means = [node for node in loaded.graph().nodes if node.op_type == "ReduceMean"]
    assert [node.outputs[0].shape for node in means] == [(8, 16, 1, 1), ()]
    _, given, reference = run_step(loaded)
    assert relative(given["loss"], reference["loss"]) < 1e-6


def test_arguments_may_be_called_as_operators_parameters_the_loss_and_targets_are(
    tmp_path: Path, run_step: Any, relative: Any
) -> None:
    path = tmp_path / "net.py"
    path.write_text("""
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.add = nn.Parameter(torch.ones(6))
        self.linear = nn.Linear(6, 3)
    def forward(self, cat, add, loss, targets):
        return self.linear(torch.cat([cat, add], 1) + self.add) + loss * targets
def build_model(): return Net()
def example_inputs(batch=4):
    return torch.randn(batch, 2), torch.randn(batch, 4), torch.randn(batch, 3), torch.randn(batch, 3)
""")
    loaded = load(parse_reference(str(path)), training=True, use_cache=False)
    assert loaded.step is not None
    assert loaded.step.fed == ("cat", "add_input", "loss_input", "targets", "targets_1")
    _, given, reference = run_step(loaded)
    assert max(relative(given[key], value) for key, value in reference.items()) < LIMIT
