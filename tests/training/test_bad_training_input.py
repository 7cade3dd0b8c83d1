"""What cannot be trained ends with one clear message and exit status 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzer.cli import run_command_line

CASES = {
    "a loss that does not fit names both shapes": (
        "mlp",
        """
        criterion = nn.CrossEntropyLoss()
        def example_targets(batch):
            return torch.zeros(batch + 1, dtype=torch.int64)
        """,
        ["does not fit", "[6, 5]", "[7]"],
    ),
    "a mean square that would broadcast is refused": (
        "mlp",
        """
        criterion = nn.MSELoss()
        def example_targets(batch):
            return torch.zeros(batch, 1)
        """,
        ["does not fit", "[6, 5]", "[6, 1]"],
    ),
    "a loss that is no single number": (
        "mlp",
        """
        def loss(outputs, targets):
            return (outputs - 1) ** 2
        """,
        ["not one number", "[6, 5]"],
    ),
    "a model without parameters": (
        """
        class Plain(nn.Module):
            def forward(self, x):
                return torch.relu(x)

        def example_inputs(batch=2):
            return (torch.randn(batch, 3),)
        """,
        "",
        ["has no parameters", "nothing to train"],
    ),
    "a model that is frozen": (
        "mlp",
        """
        plain = build_model
        def build_model():
            return plain().requires_grad_(False)
        """,
        ["No parameter", "nothing to train"],
    ),
    "an operator without a gradient": (
        """
        class Rounded(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(3, 4)

            def forward(self, x):
                best = self.first(x).argmax(-1)
                return best.float().unsqueeze(-1) * x

        def example_inputs(batch=2):
            return (torch.randn(batch, 3),)
        """,
        "",
        ["has no gradient", "argmax"],
    ),
    "values chosen by a mask, in the model": (
        """
        class Chosen(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 6)

            def forward(self, x):
                y = self.first(x)
                return y[y > 0].sum().reshape(1, 1)

        def example_inputs(batch=2):
            return (torch.randn(batch, 4),)
        """,
        "",
        ["nonzero gives shapes", "return y[y > 0].sum()", "torch.where"],
    ),
    "values chosen by a mask, in the loss": (
        "mlp",
        """
        def loss(outputs):
            return outputs[outputs > 0].mean()
        """,
        ["The loss cannot be traced", "nonzero gives shapes", "torch.where"],
    ),
    "complex numbers": (
        """
        class Filter(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 8)

            def forward(self, x):
                return torch.fft.irfft(2 * torch.fft.rfft(self.first(x)))

        def example_inputs(batch=2):
            return (torch.randn(batch, 4),)
        """,
        "",
        ["cannot be translated to ONNX", "complex"],
    ),
    "a criterion that is no loss": ("mlp", "criterion = 3", ["criterion is a int"]),
    "an optimizer that is none": ("mlp", "optimizer = 'adam'", ["optimizer is a str"]),
    "an optimizer with arguments that it does not take": (
        "mlp",
        "optimizer = (torch.optim.SGD, dict(rate=1.0))",
        ["optimizer cannot be built", "rate"],
    ),
}


@pytest.mark.parametrize(("source", "more", "said"), CASES.values(), ids=CASES.keys())
def test_is_refused(
    source: Any,
    more: Any,
    said: Any,
    model_file: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = model_file(source, more)
    assert run_command_line([str(path), "--training", "--no-run", "--no-cache", "--quiet"]) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    for words in said:
        assert words in message


def test_an_onnx_file_has_no_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    assert run_command_line([str(path), "--training", "--quiet"]) == 2
    assert "Python code" in capsys.readouterr().err


def test_a_size_of_the_data_set_below_one_is_refused(
    model_file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([str(model_file("mlp")), "--training", "--dataset-size", "0", "--quiet"]) == 2
    assert "--dataset-size" in capsys.readouterr().err


def test_a_pytorch_without_the_interface_is_one_clear_error(
    step_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch._functorch.aot_autograd as aot

    from analyzer.errors import LibraryError

    monkeypatch.delattr(aot, "aot_export_joint_with_descriptors")
    with pytest.raises(LibraryError, match="lacks an interface that the analysis needs"):
        step_of("mlp")
