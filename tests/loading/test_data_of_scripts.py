"""Scripts are executed once where nothing is run, and again where they changed."""

from pathlib import Path

import pytest
import torch

from analyzer.api import analyze
from analyzer.errors import ModelError
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.user_model import load_user_model
from analyzer.loading.python.user_source.kept_executions import executions_kept

HEAD = """
import argparse
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
device = torch.device("cpu")
"""
LOOP = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(x).sum().backward()
"""
COUNTED = """
with open("count", "a") as file: file.write("x")
"""
COUNTED_SCRIPT = HEAD + COUNTED + "x = torch.rand(8, 4)\nnet = nn.Linear(4, 2).to(device)" + LOOP


@pytest.mark.parametrize("training", [False, True])
def test_a_script_is_executed_once_where_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(COUNTED_SCRIPT)
    analyze("train.py", training=training, run=False, cache=False, batch=(2, 4))
    assert Path("count").read_text() == "x"


def test_a_script_is_executed_again_for_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(COUNTED_SCRIPT)
    analyze("train.py", training=True, cache=False, batch=2)
    assert Path("count").read_text() == "xx"


def test_a_file_that_changed_is_executed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("width.py").write_text("WIDTH = 4")
    Path("train.py").write_text(HEAD + COUNTED + "import width\nnet = nn.Linear(width.WIDTH, 2)\nx = 1" + LOOP)
    reference = parse_reference("train.py")
    with executions_kept():
        first, second = (load_user_model(reference, weights="meta") for _ in range(2))
        assert Path("count").read_text() == "x"
        assert first.model is not second.model  # what one was used for is not in the other
        Path("width.py").write_text("WIDTH = 40")
        third = load_user_model(reference, weights="meta")
    assert third.model.in_features == 40
    load_user_model(reference, weights="meta")
    assert Path("count").read_text() == "xxx"


def test_weights_of_a_kept_execution_are_those_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(HEAD + "class Net(nn.Linear):\n    def __init__(self): super().__init__(4, 2)\n")
    with executions_kept():
        first, second = (load_user_model(parse_reference("net.py"), weights="real") for _ in range(2))
    assert torch.equal(first.model.get_parameter("weight"), second.model.get_parameter("weight"))


def test_what_failed_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + COUNTED + "net = nn.Linear(int(torch.ones(()).item()), 2)\nx = 1" + LOOP)
    with executions_kept():
        for _ in range(2):
            with pytest.raises(ModelError, match="raises while it is imported"):
                load_user_model(parse_reference("train.py"), weights="meta")
    assert Path("count").read_text() == "x"


@pytest.mark.parametrize(("batch", "told"), [(None, True), (1, False)])
def test_a_step_says_with_which_batch_the_script_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int | None, told: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(f"BATCH_SIZE = 64\n{COUNTED_SCRIPT}")
    loaded = load(parse_reference("train.py"), batch=batch, training=True, use_cache=False)
    assert any("trains with BATCH_SIZE = 64 (--batch 64)" in note for note in loaded.notes) is told


def test_a_file_beside_the_script_is_looked_for_where_a_relative_path_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "train.py").write_text("text = open('input.txt').read()")
    with pytest.raises(ModelError) as caught:
        load_user_model(parse_reference("../train.py"), weights="meta")
    assert "or put a small file of the same form there" in (caught.value.hint or "")
    (tmp_path / "input.txt").write_text("words")
    with pytest.raises(ModelError) as caught:
        load_user_model(parse_reference("../train.py"), weights="meta")
    assert f"go to {tmp_path} " in (caught.value.hint or "")
