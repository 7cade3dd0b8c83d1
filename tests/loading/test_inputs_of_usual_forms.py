"""Inputs of usual forms: diffusion, graphs, boxes, dicts of features, standard names."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analyzer.errors import InputError
from analyzer.loading.load import load as load_model
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.example_inputs import resolve_inputs
from analyzer.loading.python.input_spec import nested, parse_input
from analyzer.loading.python.user_model import load_user_model


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Any]:
    """Runs a file with this code; torch and nn are imported for it."""

    def build(code: str) -> Any:
        path = tmp_path / "user_model.py"
        path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(code))
        return load_user_model(parse_reference(str(path)), weights="real")

    return build


def guessed(user: Any) -> list[str]:
    return [spec.text for spec in resolve_inputs(user, [], 2).guessed]


def test_steps_of_a_diffusion_are_one_whole_number_each(load: Any) -> None:
    user = load("""
        class UNet(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem, self.mlp = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(16, 8)
            def forward(self, x, timesteps):
                angles = timesteps[:, None].float() * torch.exp(-torch.arange(8) / 8)[None]
                steps = self.mlp(torch.cat([angles.cos(), angles.sin()], dim=-1))
                return self.stem(x) + steps[:, :, None, None]
    """)
    assert guessed(user) == ["x=B,3,224,224:float32", "timesteps=B:int64"]


def test_an_attribute_of_the_model_sizes_its_one_image(load: Any) -> None:
    user = load("""
        class Net(nn.Module):
            def __init__(self, img_size=40):
                super().__init__()
                self.img_size, self.conv = img_size, nn.Conv2d(3, 8, 3)
            def forward(self, x):
                return self.conv(x)
    """)
    assert guessed(user) == ["x=B,3,40,40:float32"]


# Widths: 8 of a user, 8 of a bag and what the first linear layer has left of 21: 5.
TOWER = """
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.tags = nn.Embedding(1000, 8), nn.EmbeddingBag(50, 8, padding_idx=0)
            self.net = nn.Sequential(nn.Linear(21, 4), nn.ReLU())
        def forward(self, user_id, tags, dense):
            return self.net(torch.cat([self.users(user_id), self.tags(tags), dense], dim=-1))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = Tower()
        def encode(self, batch):
            return self.tower(batch["user_id"], batch["tags"], batch["dense"])
        def forward(self, batch: dict):
            return self.encode(batch).sum(-1)
    def build_model(): return Net()
"""
KEYS = ["batch.user_id=B:int64", "batch.tags=B,32:int64", "batch.dense=B,5:float32"]


def test_a_dict_is_inferred_by_the_keys_that_the_model_reads(load: Any) -> None:
    user = load(TOWER)
    inputs = resolve_inputs(user, [], 3)
    assert [spec.text for spec in inputs.guessed] == KEYS
    (batch,) = inputs.arguments
    assert {key: tuple(value.shape) for key, value in batch.items()} == {
        "user_id": (3,),
        "tags": (3, 32),
        "dense": (3, 5),
    }


@pytest.mark.parametrize("written", [".{}", "[{}]", "['{}']"])
def test_what_a_dict_holds_can_be_given_in_any_order_and_is_exported(load: Any, written: str) -> None:
    user = load(TOWER)
    texts = {"dense": "=B,5", "tags": "=B,7:int64=1..49", "user_id": "=B:int64=0..999"}
    specs = [parse_input("batch" + written.format(key) + text) for key, text in texts.items()]
    inputs = resolve_inputs(user, specs, 3)
    assert tuple(inputs.arguments[0]["tags"].shape) == (3, 7)
    loaded = load_model(parse_reference(user.module.__file__), batch=3, specs=specs, use_cache=False)
    assert [value.name for value in loaded.graph(3).inputs] == ["batch_dense", "batch_tags", "batch_user_id"]
    assert loaded.symbol == "batch"


def test_a_key_without_its_dict_is_answered_with_the_whole_line(load: Any) -> None:
    with pytest.raises(InputError, match="takes no input user_id") as caught:
        resolve_inputs(load(TOWER), [parse_input("user_id=B:int64")], 2)
    assert caught.value.hint == (
        "It takes batch, of which it reads --input batch.user_id=B,128:int64 --input batch.tags=B,128:int64 "
        "--input batch.dense=B,...:float32, with the sizes of batch.dense behind the batch in place of `...`."
    )


def test_positions_behind_the_dot_make_a_list() -> None:
    assert nested({"x.1": "b", "x.0": "a", "y.k.0": "c", "z": "d"}) == {
        "x": ["a", "b"],
        "y": {"k": ["c"]},
        "z": "d",
    }
    with pytest.raises(InputError, match="x is given twice"):
        nested({"x": "whole", "x.key": "part"})


def test_boxes_of_a_transformer_are_offered_with_values_that_are_boxes(load: Any) -> None:
    user = load("""
        from transformers import LayoutLMConfig, LayoutLMModel
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=37)
                self.encoder = LayoutLMModel(LayoutLMConfig(vocab_size=99, **sizes))
            def forward(self, input_ids, bbox):
                return self.encoder(input_ids=input_ids, bbox=bbox)[0]
        def build_model(): return Net()
    """)
    assert guessed(user) == ["input_ids=B,128:int64", "bbox=B,128,4:int64=0"]
    inputs = resolve_inputs(user, [], 2)
    assert torch.equal(inputs.arguments[1], torch.zeros(2, 128, 4, dtype=torch.int64))


@pytest.mark.parametrize("name", ["lengths", "input_lengths"])
def test_lengths_are_whole_numbers_by_their_name_too(load: Any, name: str) -> None:
    user = load(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(30, 8)
            def forward(self, tokens, {name}):
                kept = torch.arange(tokens.shape[1])[None] < {name}[:, None]
                return (self.table(tokens) * kept[..., None]).sum(1) / {name}[:, None]
    """)
    assert guessed(user) == ["tokens=B,128:int64", f"{name}=B:int64=128"]
