"""Small models to train, as a user would write them, and their steps run under ONNX Runtime."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference

HEAD = "import torch\nfrom torch import nn\n"

SOURCES = {
    "mlp": """
        def build_model():
            return nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 5))

        def example_inputs(batch=6):
            return (torch.randn(batch, 12),)
        """,
    "convnet": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False)
                self.norm = nn.BatchNorm2d(8)
                self.pool = nn.MaxPool2d(3, stride=2, padding=1)
                self.grouped = nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=4)
                self.dilated = nn.Conv2d(12, 6, 3, padding=2, dilation=2)
                self.even = nn.AvgPool2d(2)
                self.head = nn.Linear(6, 4)

            def forward(self, images):
                x = self.pool(nn.functional.relu6(torch.relu(self.norm(self.stem(images)))))
                x = self.even(nn.functional.silu(self.dilated(torch.sigmoid(self.grouped(x)))))
                return self.head(x.mean((2, 3)))

        def example_inputs(batch=4):
            return (torch.randn(batch, 3, 38, 38),)
        """,
    "transformer": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(19, 16)
                self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
                self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
                self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
                self.head = nn.Linear(16, 19, bias=False)
                self.head.weight = self.words.weight

            def forward(self, tokens):
                x = self.words(tokens)
                b, n, d = x.shape
                q, k, v = (t.view(b, n, 2, 8).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
                y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
                x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
                x = x + nn.functional.gelu(x, approximate="tanh")
                return self.head(x)

        def build_model():
            return Block()

        def example_inputs(batch=3):
            return (torch.randint(0, 19, (batch, 5)),)
        """,
    "lstm": """
        class Predictor(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(5, 6, num_layers=2, batch_first=True)
                self.head = nn.Linear(6, 3)

            def forward(self, series):
                states, _ = self.lstm(series)
                return self.head(states[:, -1])

        def example_inputs(batch=3):
            return (torch.randn(batch, 2, 5),)
        """,
    "upward": """
        class Up(nn.Module):
            def __init__(self):
                super().__init__()
                self.up = nn.ConvTranspose2d(3, 4, 4, stride=2, padding=1)
                self.odd = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1)

            def forward(self, images):
                return self.odd(torch.tanh(self.up(images)))

        def example_inputs(batch=2):
            return (torch.randn(batch, 3, 5, 6),)
        """,
}


@pytest.fixture
def model_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of a model, one of ``SOURCES`` or text, with more text after it."""

    def write(source: str, more: str = "") -> Path:
        text = SOURCES.get(source, source)
        path = tmp_path / f"{source if source in SOURCES else 'model'}.py"
        path.write_text(HEAD + textwrap.dedent(text) + "\n" + textwrap.dedent(more), encoding="utf-8")
        return path

    return write


@pytest.fixture
def step_of(model_file: Callable[..., Path]) -> Callable[..., Loaded]:
    """Loads the training step of such a file."""

    def make(source: str, more: str = "", **options: Any) -> Loaded:
        path = model_file(source, more)
        return load(parse_reference(str(path)), training=True, use_cache=False, **options)

    return make


@pytest.fixture
def run_step(tmp_path: Path) -> Callable[[Loaded], tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Runs a step on the CPU: what it was fed, what it gave, and PyTorch's gradients in float64."""

    def run(loaded: Loaded) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        import onnxruntime

        from analyzer.loading.weights import materialise

        folder = tmp_path / "run"
        folder.mkdir()
        runnable = materialise(loaded, loaded.batch, folder)
        session = onnxruntime.InferenceSession(str(runnable.model_path), providers=["CPUExecutionProvider"])
        names = [item.name for item in session.get_outputs()]
        given = dict(zip(names, session.run(names, dict(runnable.feeds)), strict=True))
        reference = dict(runnable.gradients()) if runnable.gradients is not None else {}
        return dict(runnable.feeds), given, reference

    return run


@pytest.fixture
def relative() -> Callable[[Any, Any], float]:
    """The largest difference over the largest magnitude of the reference."""

    def error(found: Any, reference: Any) -> float:
        difference = np.max(np.abs(np.asarray(found, np.float64) - np.asarray(reference, np.float64)))
        return float(difference / max(float(np.max(np.abs(reference))), 1e-300))

    return error
