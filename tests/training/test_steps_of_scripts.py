"""The loss and the optimizer of a script that trains, which were written for the script and not for us."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.user_source.own_calls import own_optimizer

SCRIPT = """
import argparse
import torch
from torch import nn, optim
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=2e-4)
args = parser.parse_args()
net = nn.Linear(6, 3)
{optimizer}
{loss}
def example_inputs(batch=2): return torch.randn(batch, 6)
"""


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Loaded]:
    monkeypatch.chdir(tmp_path)

    def loaded(optimizer: str = "", loss: str = "") -> Loaded:
        Path("train.py").write_text(SCRIPT.format(optimizer=textwrap.dedent(optimizer), loss=loss))
        return load(parse_reference("train.py"), training=True, use_cache=False)

    return loaded


def update_of(found: Loaded) -> str:
    (kind,) = {node.op_type for node in found.graph().nodes if node.op_type in ("Adam", "AdamW", "Sgd")}
    return kind


def test_what_a_loop_left_in_loss_is_no_loss(step: Callable[..., Loaded]) -> None:
    for left in ("loss = torch.tensor(0.5)", "loss = 0.5", "loss = []"):
        assert "The loss is assumed to be cross-entropy" in " ".join(step(loss=left).notes)


def test_a_criterion_stands_where_loss_is_what_a_loop_left(step: Callable[..., Loaded]) -> None:
    notes = " ".join(step(loss="criterion = nn.MSELoss(); loss = torch.tensor(0.5)").notes)
    assert "Targets are assumed to look like the outputs" in notes


@pytest.mark.parametrize("name", ["opt", "optimiser"])
def test_the_one_optimizer_of_the_file_is_taken_under_any_name(step: Callable[..., Loaded], name: str) -> None:
    found = step(f"{name} = optim.SGD(net.parameters(), lr=args.lr)")
    assert update_of(found) == "Sgd"
    assert f"The optimizer is the variable {name} of the file: SGD" in " ".join(found.notes)


def test_the_optimizer_that_a_function_builds_is_taken_as_its_call_has_it(step: Callable[..., Loaded]) -> None:
    found = step("""
        def main():
            opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=1e-4)
    """)
    assert update_of(found) == "AdamW"
    assert "The optimizer is AdamW(lr=0.0002, weight_decay=0.0001), as line 11 builds it" in " ".join(
        found.notes
    )


def test_of_two_optimizers_neither_is_taken_and_the_note_says_so(step: Callable[..., Loaded]) -> None:
    found = step("a = optim.SGD(net.parameters(), lr=0.1); b = optim.AdamW(net.parameters())")
    assert update_of(found) == "Adam"
    assert "The optimizer is assumed to be Adam (the file builds 2)" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("line", "kind", "options", "unknown"),
    [
        ("optim.SGD(p, 0.1, momentum=0.9)", "SGD", {"lr": 0.1, "momentum": 0.9}, ()),
        ("torch.optim.Adam(p, lr=rate())", "Adam", {}, ("lr",)),
        # Whether a state is kept would be a guess.
        ("optim.SGD(p, 0.1, momentum=rate())", None, {}, ()),
        ("optim.SGD(p, **options)", None, {}, ()),
        # Another library's class of that name.
        ("other.optim.Adam(p, lr=0.1)", None, {}, ()),
    ],
)
def test_a_call_of_an_optimizer_is_read_with_what_is_known_of_it(
    tmp_path: Path, line: str, kind: str | None, options: dict[str, float], unknown: tuple[str, ...]
) -> None:
    module = ModuleType("train")
    module.__file__ = str(tmp_path / "train.py")
    module.torch, module.optim = torch, torch.optim  # type: ignore[attr-defined]  # what the file imports
    (tmp_path / "train.py").write_text(f"def main(p):\n    o = {line}\n")
    found = own_optimizer(module)
    assert (found and found.kind) == kind
    if found is not None:
        assert (found.options, found.unknown, found.line) == (options, unknown, 2)
