"""Counts of training steps: by hand, and against PyTorch's own counter."""

from __future__ import annotations

import contextlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from analyzer.costs import count
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.memory.fit import step_bytes

SAMPLES = Path(__file__).parents[2] / "samples"


def macs_of(loaded: Any) -> Any:
    return count(loaded.graph()).total.macs


def test_a_perceptron_multiplies_as_derived_by_hand(step_of: Any) -> None:
    # Forward 12 x 7 + 7 x 5 a row; weights' gradients the same; the input's of the second layer alone: 7 x 5.
    loaded = step_of("mlp")
    assert macs_of(loaded) == 6 * (2 * (12 * 7 + 7 * 5) + 7 * 5)


def counted_by_pytorch(path: Any) -> Any:
    """FlopCounterMode over forward and backward, with attention and recurrence as operators that it sees."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from analyzer.loading.python.example_inputs import resolve_inputs
    from analyzer.loading.python.user_model import load_user_model
    from analyzer.loading.training.joint_graph import with_loss
    from analyzer.loading.training.recipe import find_recipe

    user = load_user_model(parse_reference(str(path)), weights="real")
    inputs = resolve_inputs(user, (), None)
    model = user.model.train()
    recipe = find_recipe(user, inputs, model(*inputs.arguments))
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        counter = FlopCounterMode(display=False)
        with counter:
            with_loss(model, recipe)(inputs.arguments, {}, recipe.targets).backward()
    return counter.get_total_flops()


# PyTorch's counter forgets the groups in the gradient of a grouped convolution's weight: it takes 4 groups of
# 2 to 3 channels (batch 4, 12 outputs, 5 x 5 positions, 3 x 3 taps) for one of 8 to 12, four times the work.
COUNTED_TOO_MUCH = {"convnet": 3 * 2 * (4 * 12 * 5 * 5 * 2 * 3 * 3)}


@pytest.mark.parametrize("name", ["mlp", "convnet", "transformer", "lstm", "upward"])
def test_products_are_as_many_as_pytorch_counts(name: Any, step_of: Any, model_file: Any) -> None:
    expected = counted_by_pytorch(model_file(name)) - COUNTED_TOO_MUCH.get(name, 0)
    assert 2 * macs_of(step_of(name)) == expected


# FlopCounterMode of PyTorch 2.13 over forward and backward, attention by its mathematical definition, of the
# samples with two blocks where they have up to twelve: all operators, at the widths of the whole.
@pytest.mark.parametrize(
    ("sample", "depth", "batch", "flops"),
    [
        ("resnet50", ("blocks=[346]", "blocks=2"), 2, 27_635_023_872),
        ("vit_b16", ("768, 12, 12, 3072", "768, 2, 12, 3072"), 1, 17_914_484_736),
        ("gpt2", ("layers=12", "layers=2"), 1, 40_816_410_624),
    ],
)
def test_products_of_large_models_are_as_many_as_pytorch_counts(
    sample: Any, depth: tuple[str, str], batch: Any, flops: Any, tmp_path: Path
) -> None:
    path = tmp_path / f"{sample}.py"
    whole, two = depth
    text, changes = re.subn(whole, two, (SAMPLES / path.name).read_text(encoding="utf-8"))
    assert changes
    path.write_text(text, encoding="utf-8")
    loaded = load(parse_reference(str(path)), batch=batch, training=True, use_cache=False)
    graph = loaded.graph()
    table = count(graph)
    assert 2 * table.total.macs == flops
    assert table.total.basis == "exact"
    assert {node.phase for node in graph.nodes} == {"forward", "backward", "optimizer"}


def test_every_operator_has_a_phase_and_backward_operators_their_module(step_of: Any) -> None:
    graph = step_of("convnet").graph()
    assert {node.phase for node in graph.nodes} == {"forward", "backward", "optimizer"}
    gradients = [node for node in graph.nodes if node.op_type == "ConvGrad"]
    assert {node.module for node in gradients} == {"stem", "grouped", "dilated"}
    assert all(node.phase == "backward" and node.source is not None for node in gradients)
    updated = [node.module for node in graph.nodes if node.op_type == "Adam"]
    assert sorted(set(updated)) == ["dilated", "grouped", "head", "norm", "stem"]


def test_there_is_one_update_for_each_parameter_and_tied_ones_are_one(step_of: Any) -> None:
    loaded = step_of("transformer")
    updates = [node for node in loaded.graph().nodes if node.op_type == "Adam"]
    assert len(updates) == 4 + 4 + 4 + 1  # two norms, two pairs of Linear, the shared table
    assert "words.weight" in loaded.step.gradients
    assert "head.weight" not in loaded.step.gradients


def test_frozen_parameters_stay_and_have_no_gradient(step_of: Any) -> None:
    more = """
        plain = build_model
        def build_model():
            model = plain()
            model[0].requires_grad_(False)
            return model
        """
    loaded = step_of("mlp", more)
    assert set(loaded.step.gradients) == {"2.weight", "2.bias"}
    assert loaded.step.carried["0.weight"] == "0.weight"
    assert macs_of(loaded) == 6 * (12 * 7 + 7 * 5 + 7 * 5)


def test_memory_is_weights_gradients_state_and_what_backward_reads(step_of: Any) -> None:
    loaded = step_of("mlp")
    step = loaded.step
    found = step_bytes(loaded.graph(), step.weights, step.states, step.gradients.values())
    parameters = 4 * (12 * 7 + 7 + 7 * 5 + 5)
    assert found.weights_bytes == parameters
    assert found.gradients_bytes == parameters
    assert found.optimizer_state_bytes == 2 * parameters + 4  # two moments, and the number of the step
    # The input, the hidden layer after its activation, log-probabilities, labels and the labels' total weight.
    assert found.activations_bytes == 4 * 6 * 12 + 4 * 6 * 7 + 4 * 6 * 5 + 8 * 6 + 4
    assert found.peak_bytes >= found.weights_bytes + found.optimizer_state_bytes + found.activations_bytes


def test_an_operator_without_a_translation_stays_with_shapes_and_unknown_cost(step_of: Any) -> None:
    loaded = step_of(
        """
        class Apart(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 6)

            def forward(self, x):
                return torch.i0(self.first(x))

        def example_inputs(batch=2):
            return (torch.randn(batch, 4),)
        """
    )
    graph = loaded.graph()
    table = count(graph)
    node = next(node for node in graph.nodes if node.op_type == "special_i1")
    assert node.domain == "pytorch.aten"
    assert node.outputs[0].shape == (2, 6)
    assert table.costs[node.index].basis == "unknown"
    assert table.total.basis == "unknown"
    assert any("unknown cost" in note for note in loaded.notes)
