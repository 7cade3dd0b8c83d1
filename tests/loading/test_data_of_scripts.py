"""Inputs of scripts: of the data that they have ready before they train, and of the sizes that they name."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from analyzer.api import analyze
from analyzer.errors import ModelError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.example_inputs import ExampleInputs, resolve_inputs
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
TOKENS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 8), nn.Linear(8, 10)
    def forward(self, idx): return self.head(self.table(idx))
net = Net().to(device)
"""
IMAGES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
    def forward(self, x): return self.head(self.conv(x).mean((2, 3)))
net = Net().to(device)
"""


Resolve = Callable[..., ExampleInputs]


@pytest.fixture(params=["meta", "small", "real"])
def inputs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., ExampleInputs]:
    monkeypatch.chdir(tmp_path)

    def resolve(*parts: str, behind: str = "", batch: int = 3) -> ExampleInputs:
        Path("train.py").write_text(HEAD + "\n".join(map(textwrap.dedent, parts)) + LOOP)
        user = load_user_model(parse_reference("train.py" + behind), weights=request.param)
        return resolve_inputs(user, (), batch)

    return resolve


def shapes(found: ExampleInputs) -> list[tuple[int, ...]]:
    return [tuple(item.shape) for item in (*found.arguments, *found.keywords.values())]


@pytest.mark.parametrize(
    "named",
    [
        "block_size = 24",
        "SEQ_LEN = 24",
        "MAX_LEN = 24",
        "context_length = 24\nmax_len = 5000",  # the surer name
        "args = argparse.Namespace(seq_len=24, lr=0.1)",
        "config = {'block_size': 24}",
    ],
)
def test_a_length_that_the_file_names_is_that_of_its_sequences(inputs: Resolve, named: str) -> None:
    found = inputs(named, TOKENS)
    assert shapes(found) == [(3, 24)]
    assert found.origin == "inferred"
    assert "= 24 of " in found.notes[0]


@pytest.mark.parametrize("named", ["block_size = 24\nseq_len = 48", "block_size = 'long'", "block_size = True"])
def test_names_that_differ_or_hold_no_length_tell_none(inputs: Resolve, named: str) -> None:
    found = inputs(named, TOKENS)
    assert found.notes == ()
    assert shapes(found) == shapes(inputs(TOKENS))


@pytest.mark.parametrize(
    ("named", "sides"),
    [
        ("IMG_SIZE = 48", (48, 48)),
        ("image_size = (40, 72)", (40, 72)),
        ("IMG_HEIGHT, IMG_WIDTH = 40, 72", (40, 72)),
    ],
)
def test_a_side_that_the_file_names_is_that_of_its_images(
    inputs: Resolve, named: str, sides: tuple[int, int]
) -> None:
    assert shapes(inputs(named, IMAGES)) == [(3, 3, *sides)]


def test_a_width_that_equals_a_usual_length_is_no_length(inputs: Resolve) -> None:
    found = inputs("block_size = 24\nnet = nn.Sequential(nn.LSTM(128, 4, batch_first=True))[0]")
    assert shapes(found) == [(3, 24, 128)]


@pytest.mark.parametrize(
    "data",
    [
        "loader = DataLoader(TensorDataset(torch.rand(9, 3, 20, 36), torch.zeros(9)), 4, num_workers=2)",
        "train_set = TensorDataset(torch.rand(9, 3, 20, 36), torch.zeros(9))",
        "X_train = torch.rand(9, 3, 20, 36)",
        "dummy_input = torch.rand(1, 3, 20, 36)",
        """
        class Pairs(Dataset):
            def __len__(self): return 5
            def __getitem__(self, i): return {"label": i, "x": torch.rand(3, 20, 36)}
        data = DataLoader(Pairs(), batch_size=2)
        """,
    ],
)
def test_data_that_stands_before_the_loop_gives_the_inputs(inputs: Resolve, data: str) -> None:
    found = inputs("IMG_SIZE = 48", data, IMAGES)
    assert shapes(found) == [(3, 3, 20, 36)]
    assert (found.origin, found.batch, dict(found.batch_axes)) == ("file", 3, {0: (0,)})
    assert "have the shapes and types of" in found.notes[0]


@pytest.mark.parametrize(
    "data",
    [
        "loader = DataLoader(TensorDataset(torch.rand(9, 5, 20, 36)))",  # other channels
        "x = torch.zeros(9, 3, 20, 36, dtype=torch.float64)",  # another type than the weights
        "loader = DataLoader([torch.rand(3, 20, 36), torch.rand(3, 20, 44)])",  # sizes differ
        "loader = DataLoader(TensorDataset(torch.rand(9, 3, 20, 36)), batch_size=None)",
    ],
)
def test_data_that_the_model_does_not_take_gives_no_inputs(inputs: Resolve, data: str) -> None:
    found = inputs("IMG_SIZE = 48", data, IMAGES)
    assert shapes(found) == [(3, 3, 48, 48)]


def test_rows_of_several_tables_are_those_of_the_data(inputs: Resolve) -> None:
    found = inputs("""
        sizes = (3, 1000)
        columns = torch.stack([torch.randint(0, size, (50,)) for size in sizes], dim=1)
        loader = DataLoader(TensorDataset(columns, torch.rand(50, 2), torch.rand(50)))
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.tables = nn.ModuleList([nn.Embedding(size, 4) for size in sizes])
                self.head = nn.Linear(10, 1)
            def forward(self, ids, numbers):
                rows = [table(ids[:, i]) for i, table in enumerate(self.tables)]
                return self.head(torch.cat([*rows, numbers], dim=1))
        net = Net()
    """)
    assert shapes(found) == [(3, 2), (3, 2)]
    ids = found.arguments[0]
    assert ids.dtype is torch.int64
    assert ids.is_meta or int(ids[:, 0].max()) < 3


def test_each_of_two_models_takes_what_is_its_own(inputs: Resolve) -> None:
    code = """
        noise = torch.randn(64, 100, 1, 1)
        loader = DataLoader(TensorDataset(torch.rand(9, 3, 4, 4)))
        net = nn.ConvTranspose2d(100, 3, 4).to(device)
        judge = nn.Conv2d(3, 1, 4).to(device)
        opts = [torch.optim.SGD(judge.parameters()), torch.optim.SGD(net.parameters())]
    """
    assert shapes(inputs(code, behind=":net")) == [(3, 100, 1, 1)]
    assert shapes(inputs(code, behind=":judge")) == [(3, 3, 4, 4)]


def test_a_report_says_what_gave_the_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + "block_size = 24" + TOKENS + LOOP)
    loaded: Loaded = load(parse_reference("train.py"), use_cache=False)
    assert loaded.guessed == ("idx=B,24:int64",)
    assert any("sized by block_size = 24 of train.py" in note for note in loaded.notes)


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
