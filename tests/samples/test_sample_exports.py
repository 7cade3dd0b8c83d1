"""Each sample exports with an open batch, and ONNX Runtime computes what PyTorch does."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzer.loading.torch_private import translations_gathered_once


def two_blocks(original: Any) -> Any:
    return staticmethod(lambda *widths, blocks, stride: original(*widths, blocks=min(blocks, 2), stride=stride))


# Where layers repeat or weights fill the memory, fewer and narrower ones: the code is the same.
SMALLER: dict[str, dict[str, Any]] = {
    # Each kind of block: without widening, with and without a residual, with and without a stride.
    "mobilenet_v2": {"STAGES": ((1, 16, 1, 1), (6, 24, 2, 2), (6, 320, 1, 1))},
    "recommender": {"TABLES": 6, "ROWS": 1000},
    "unet": {"WIDTHS": (4, 8, 16, 32, 64)},
    # A block that changes the shape and one that does not.
    "resnet50": {"ResNet50._stage": two_blocks},
    "vit_b16": {"LAYERS": 2},
    "bert_base": {"LAYERS": 2},
    "gpt2": {"SIZE": {"layers": 2, "width": 64, "heads": 4}},
    "gpt3_175b": {"SIZE": {"layers": 2, "width": 64, "heads": 4, "context": 96}},
    "llama_7b": {"VOCABULARY": 500, "WIDTH": 64, "LAYERS": 2, "HEADS": 4, "HIDDEN": 172, "TOKENS": 96},
}
CORNERS: dict[str, Any] = {
    **dict.fromkeys(("resnet50", "mobilenet_v2", "unet"), (..., slice(64), slice(64))),
    "lstm": (slice(None), slice(5)),
}
NAMES = [
    *("linear", "mlp", "batch_matmul", "conv", "attention", "lstm", "preprocessing"),
    *SMALLER,
]


def make_smaller(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    for constant, value in SMALLER.get(name, {}).items():
        if callable(value):
            owner, method = getattr(module, constant.partition(".")[0]), constant.partition(".")[2]
            monkeypatch.setattr(owner, method, value(getattr(owner, method)))
        else:
            monkeypatch.setattr(module, constant, module.Size(**value) if constant == "SIZE" else value)


def corner(inputs: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Of images and series that may have any size, a part: a hundredth of the arithmetic."""
    return tuple(tensor[CORNERS[name]] for tensor in inputs) if name in CORNERS else inputs


def settle_norms(model: Any, inputs: tuple[Any, ...]) -> None:
    """Gives batch norms the statistics of a batch, as training would: else deep activations fade to nothing."""
    import torch
    from torch import nn

    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = None
    model.train()
    with torch.no_grad():
        model(*inputs)
    model.eval()


def export(model: Any, inputs: tuple[Any, ...], folder: Path) -> Path:
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    shapes = tuple({0: torch.export.Dim("batch")} for _ in inputs)
    with warnings.catch_warnings(), translations_gathered_once():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, inputs, dynamo=True, optimize=False, dynamic_shapes=shapes, verbose=False
        )
    path = folder / "model.onnx"
    program.save(path, external_data=True)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_onnx_runtime_gives_what_pytorch_gives_at_a_batch_it_was_not_exported_with(
    sample: Callable[[str], Any],
    build: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
) -> None:
    import onnxruntime
    import torch

    torch.manual_seed(0)
    module = sample(name)
    make_smaller(monkeypatch, module, name)
    model = build(name).eval()
    settle_norms(model, corner(module.example_inputs(2), name))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    path = export(model, corner(module.example_inputs(2), name), tmp_path)
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    assert {item.shape[0] for item in session.get_inputs()} == {"batch"}
    inputs = corner(module.example_inputs(3), name)
    with torch.no_grad():
        expected = model(*inputs)
    feeds = {item.name: tensor.numpy() for item, tensor in zip(session.get_inputs(), inputs, strict=True)}
    results = session.run(None, feeds)
    for wanted, got in zip(expected if isinstance(expected, tuple) else (expected,), results, strict=True):
        scale = max(1.0, wanted.abs().max().item())
        spread = (wanted.amax(0) - wanted.amin(0)).max().item()
        assert spread > 10 * 1e-4 * scale, "an output that hardly depends on the input compares nothing"
        np.testing.assert_allclose(got, wanted.numpy(), rtol=0, atol=1e-4 * scale)
