"""The loss and the optimizer of a script that trains, which were written for the script and not for us."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference

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
    assert "The optimizer is the SGD that the file builds" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("offered", "batch"), [("", 4), ("def example_inputs(batch=9): return torch.randn(batch, 6)", 9)]
)
def test_the_optimizer_that_a_script_builds_on_its_way_to_the_first_forward_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: str, batch: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        textwrap.dedent(f"""
        import torch
        from torch import nn
        {offered}
        class Net(nn.Linear):
            def __init__(self, width): super().__init__(width, 3)
        def main():
            net = Net(6)
            opt = torch.optim.AdamW(net.parameters(), lr=2e-4, weight_decay=1e-4)
            for step in range(2):
                loss = net(torch.randn(4, 6)).sum()
                loss.backward()
                opt.step()
        if __name__ == "__main__":
            main()
        """)
    )
    found = load(parse_reference("train.py"), training=True, use_cache=False)
    assert (update_of(found), found.batch) == ("AdamW", batch)
    assert "The optimizer is the AdamW that the file builds" in " ".join(found.notes)


def test_of_two_optimizers_neither_is_taken_and_the_note_says_so(step: Callable[..., Loaded]) -> None:
    found = step("a = optim.SGD(net.parameters(), lr=0.1); b = optim.AdamW(net.parameters())")
    assert update_of(found) == "Adam"
    assert "The optimizer is assumed to be Adam (the file builds 2)" in " ".join(found.notes)
