"""What a model hands on from run to run, told by names and by what writes it; what is only alike is not."""

from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from analyzer.errors import UsageError
from analyzer.graph import Graph
from analyzer.loading.load import load_live
from analyzer.loading.state_pairs import corrected, state_pairs

CACHE = ["batch", 4, 16, 8]


def graph_of(model: Any, inputs: Any = None) -> Graph:
    return load_live(model, inputs=inputs, batch=2, specs=(), opset=None, progress=lambda _: None).graph()


def pairs_of(module: nn.Module, *inputs: Any) -> dict[str, str]:
    return state_pairs(graph_of(module.eval(), inputs))


def declared(shapes: dict[str, list[Any]]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]


def named(ins: dict[str, list[Any]], outs: dict[str, list[Any]]) -> Graph:
    """A graph of these inputs and outputs, whose outputs are made by operators that tell nothing."""
    first = next(iter(ins))
    nodes = [helper.make_node("Custom", [first], [name], domain="com.example") for name in outs]
    inputs, outputs = map(declared, (ins, outs))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)]
    return graph_of(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets))


def cache() -> torch.Tensor:
    return torch.randn(2, 4, 5, 8)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], 1, 4, 8).transpose(1, 2)

    def attended(self, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = nn.functional.scaled_dot_product_attention(self.heads(self.q(x)), k, v)
        return y.transpose(1, 2).reshape(x.shape[0], 1, 32)

    def grown(self, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        k, v = torch.cat([k, self.heads(self.k(x))], 2), torch.cat([v, self.heads(self.v(x))], 2)
        return self.attended(x, k, v), k, v


class Flat(Attending):
    def forward(self, x: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> Any:
        return self.grown(x, one, two)


class Tuples(Attending):
    def forward(self, x: torch.Tensor, past: Any) -> Any:
        caches = []
        for k, v in past:
            x, k, v = self.grown(x, k, v)
            caches.append((k, v))
        return x, tuple(caches)


class Lists(Attending):
    def forward(self, x: torch.Tensor, cache: Any) -> Any:
        y, k, v = self.grown(x, *cache)
        return y, [k, v]


class Static(Attending):
    def forward(self, x: torch.Tensor, at: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> Any:
        k, v = one.index_copy(2, at, self.heads(self.k(x))), two.clone()
        v[:, :, at] = self.heads(self.v(x))
        return self.attended(x, k, v), k, v


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 8, num_layers=2)

    def forward(self, x: torch.Tensor, one: torch.Tensor, two: torch.Tensor) -> Any:
        y, (h, c) = self.lstm(x, (one, two))
        return y, h, c


class Cell(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(8, 3)


class Gru(Cell):
    def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
        h = self.cell(x, h)
        return self.head(h), h


class LstmCell(Cell):
    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        h, c = self.cell(x, (h, c))
        return self.head(h), h, c


class Mamba(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decay, self.taps = nn.Parameter(torch.randn(16, 4)), nn.Parameter(torch.randn(16, 4))
        self.step, self.key = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, conv_state: torch.Tensor, ssm_state: torch.Tensor) -> Any:
        conv = torch.cat([conv_state[:, :, 1:], x[:, :, None]], -1)
        seen = (conv * self.taps).sum(-1)
        step, key = torch.sigmoid(self.step(seen))[:, :, None], self.key(seen)[:, None]
        state = ssm_state * torch.exp(step * self.decay) + step * seen[:, :, None] * key
        return (state * key).sum(-1), conv, state


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.0.key", "present_key_values.0.key"),
        ("past_key_self_0", "present_key_self_0"),
        ("past_0", "present_0"),
        ("past_key_values.0.decoder.key", "present.0.decoder.key"),
        ("past_key_values.0.encoder.key", "present.0.encoder.key"),
        ("past_conv.3", "present_conv.3"),
        ("cache_k", "new_cache_k"),
        ("state", "stateN"),
        ("h0", "hn"),
        ("h_0", "h_n"),
        ("state_in", "state_out"),
        ("prev_hidden", "hidden"),
    ],
)
def test_names_that_differ_by_past_and_present_are_one_state(past: str, present: str) -> None:
    grown = [*CACHE[:2], 17, CACHE[3]]
    graph = named({"input_ids": ["batch", 1], past: CACHE}, {"logits": ["batch", 1, 99], present: grown})
    assert state_pairs(graph) == {past: present}


def test_what_an_encoder_said_is_its_own_next_value_beside_a_cache_that_grows() -> None:
    ins = {
        f"past_key_values.0.{side}.{kind}": CACHE
        for side in ("decoder", "encoder")
        for kind in ("key", "value")
    }
    outs = {f"present.0.decoder.{kind}": CACHE for kind in ("key", "value")}
    found = state_pairs(named({"input_ids": ["batch", 1], **ins}, {"logits": ["batch", 1, 99], **outs}))
    assert found["past_key_values.0.decoder.key"] == "present.0.decoder.key"
    for kind in ("key", "value"):
        assert found[f"past_key_values.0.encoder.{kind}"] == f"past_key_values.0.encoder.{kind}"


def test_a_past_of_other_axes_or_of_two_that_differ_is_none() -> None:
    for shape in (["batch", 4, 17, 9], ["batch", 4, 15, 8], ["batch", 64, 8]):
        graph = named({"x": ["batch", 1], "past_0": CACHE}, {"y": ["batch", 1], "present_0": shape})
        assert state_pairs(graph) == {}, shape


@pytest.mark.parametrize(
    ("module", "inputs", "past", "result"),
    [
        (Flat(), (cache(), cache()), ["one", "two"], 1),
        (
            Tuples(),
            (((cache(), cache()), (cache(), cache())),),
            [f"past_{i}_{j}" for i in "01" for j in "01"],
            1,
        ),
        (Lists(), ([cache(), cache()],), ["cache_0", "cache_1"], 1),
        (Static(), (torch.tensor([3]), cache(), cache()), ["one", "two"], 1),
    ],
    ids=["tensors", "tuples", "a list", "a static cache"],
)
def test_a_cache_that_a_module_takes_and_returns_is_paired_in_its_order(
    module: nn.Module, inputs: Any, past: list[str], result: int
) -> None:
    graph = graph_of(module.eval(), (torch.randn(2, 1, 32), *inputs))
    presents = [tensor.name for tensor in graph.outputs[result:]]
    assert state_pairs(graph) == dict(zip(past, presents, strict=True))


@pytest.mark.parametrize(
    ("module", "inputs", "past"),
    [
        (Lstm(), (torch.randn(7, 2, 16), torch.randn(2, 2, 8), torch.randn(2, 2, 8)), ["one", "two"]),
        (Gru(nn.GRUCell(16, 8)), (torch.randn(2, 16), torch.randn(2, 8)), ["h"]),
        (LstmCell(nn.LSTMCell(16, 8)), (torch.randn(2, 16), torch.randn(2, 8), torch.randn(2, 8)), ["h", "c"]),
        (
            Mamba(),
            (torch.randn(2, 16), torch.randn(2, 16, 4), torch.randn(2, 16, 4)),
            ["conv_state", "ssm_state"],
        ),
    ],
    ids=["LSTM", "GRU cell", "LSTM cell", "Mamba"],
)
def test_recurrent_state_is_paired_with_what_follows_from_it(
    module: nn.Module, inputs: Any, past: list[str]
) -> None:
    graph = graph_of(module.eval(), inputs)
    assert state_pairs(graph) == dict(zip(past, [tensor.name for tensor in graph.outputs[1:]], strict=True))


def test_the_past_of_an_attention_operator_is_paired_whatever_it_is_called() -> None:
    sizes: dict[str, list[Any]] = {"q": ["batch", 1, 32], "a": CACHE, "b": CACHE}
    outs: dict[str, list[Any]] = {"y": ["batch", 1, 32], "c": ["batch", 4, 17, 8], "d": ["batch", 4, 17, 8]}
    node = helper.make_node(
        "MultiHeadAttention",
        ["q", "q", "q", "", "", "", "a", "b"],
        ["y", "c", "d"],
        domain="com.microsoft",
        num_heads=4,
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph([node], "g", declared(sizes), declared(outs)), opset_imports=opsets
    )
    assert state_pairs(graph_of(model)) == {"a": "c", "b": "d"}


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, 3, 2, 2)
        self.last = nn.Conv2d(6, 3, 3, 1, 1)

    def forward(self, image: torch.Tensor) -> Any:
        joined = torch.cat([image, self.up(self.down(image))], 1)
        return self.last(joined), joined


class Inpainting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, 3, 2, 2)
        self.last = nn.Conv2d(6, 3, 3, 1, 1)

    def forward(self, image: torch.Tensor, mask: torch.Tensor) -> Any:
        filled = torch.where(mask > 0, image, self.up(self.down(image)))
        return filled, self.last(torch.cat([filled, image], 1))


class TwoOfOneShape(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> Any:
        return self.one(left) + right, self.two(right) + left


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(8, 8)

    def forward(self, hidden_states: torch.Tensor, mask: torch.Tensor) -> Any:
        weights = torch.softmax(hidden_states @ hidden_states.transpose(1, 2) + mask, -1)
        return hidden_states + self.attention(weights @ hidden_states), weights


class Joined(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> Any:
        both = torch.cat([left, right], 1)
        return both, both.sum(-1)


class PictureBeforeText(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.token = nn.Embedding(9, 8), nn.Parameter(torch.zeros(1, 1, 8))

    def forward(self, picture: torch.Tensor, ids: torch.Tensor) -> Any:
        joined = torch.cat([picture, self.embedding(ids)], 1)
        return joined, torch.cat([joined, self.token.expand(joined.shape[0], 1, 8)], 1).mean(-1)


class WithTokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 8))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> Any:
        token = self.token.expand(left.shape[0], 1, 8)
        left, right = torch.cat([token, left], 1), torch.cat([token, right], 1)
        return left, right, left @ right.transpose(1, 2)


IMAGE = torch.randn(2, 3, 8, 8)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (nn.Sequential(nn.Linear(8, 2), nn.Linear(2, 8)), (torch.randn(2, 8),)),
        (UNet(), (IMAGE,)),
        (Inpainting(), (IMAGE, torch.ones(2, 3, 8, 8))),
        (TwoOfOneShape(), (torch.randn(2, 8), torch.randn(2, 8))),
        (Block(), (torch.randn(2, 4, 8), torch.zeros(4, 4))),
        (Joined(), (torch.randn(2, 4, 8), torch.randn(2, 4, 8))),
        (PictureBeforeText(), (torch.randn(2, 4, 8), torch.zeros(2, 3, dtype=torch.long))),
        (WithTokens(), (torch.randn(2, 4, 8), torch.randn(2, 4, 8))),
    ],
    ids=[
        *("autoencoder", "image to image", "inpainting", "two inputs", "block of a transformer", "two joined"),
        *("picture before text", "tokens for the class"),
    ],
)
def test_what_only_has_the_shape_of_an_input_is_no_state(module: nn.Module, inputs: Any) -> None:
    assert pairs_of(module, *inputs) == {}


def test_an_image_and_a_new_image_are_no_state() -> None:
    shape = ["batch", 3, 8, 8]
    for past, present in (("old_image", "new_image"), ("input", "output"), ("x", "x_out"), ("k", "new_k")):
        assert state_pairs(named({past: shape}, {present: shape})) == {}, past


def test_a_given_pair_takes_the_place_of_what_was_found_and_adds_what_was_not() -> None:
    ins = {"x": ["batch", 1], "past_0": CACHE, "past_1": CACHE, "seen": ["batch", 3]}
    outs = {"y": ["batch", 3], "present_0": CACHE, "present_1": CACHE}
    graph = named(ins, outs)
    assert state_pairs(graph) == {"past_0": "present_0", "past_1": "present_1"}
    assert corrected(graph, [("past_0", "present_1")]) == {"past_0": "present_1"}
    assert corrected(graph, [("seen", "y")]) == {**state_pairs(graph), "seen": "y"}
    assert corrected(graph, [("seen", "seen")])["seen"] == "seen"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("past_1", "present_0"), r"no input 'past_1'"),
        (("past_0", "presnt_0"), r"no output 'presnt_0'"),
        (("past_0", "y"), r"cannot be y"),
    ],
)
def test_a_pair_of_other_names_or_shapes_is_refused(given: tuple[str, str], said: str) -> None:
    graph = named({"x": ["batch", 1], "past_0": CACHE}, {"y": ["batch", 3], "present_0": CACHE})
    with pytest.raises(UsageError, match=said) as error:
        corrected(graph, [given])
    assert "present_0" in (error.value.hint or "") or "past_0" in (error.value.hint or "") or given[1] == "y"


def test_a_cache_of_transformers_is_state(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=100
    )
    model = transformers.LlamaForCausalLM(config).eval()
    past = transformers.DynamicCache(config=config)
    for layer in range(2):
        past.update(torch.randn(2, 4, 5, 16), torch.randn(2, 4, 5, 16), layer)
    graph = graph_of(model, {"input_ids": torch.ones(2, 1, dtype=torch.long), "past_key_values": past})
    names = [tensor.name for tensor in graph.inputs[1:]]
    assert state_pairs(graph) == dict(zip(names, [tensor.name for tensor in graph.outputs[1:]], strict=True))


def test_the_graph_of_a_file_carries_its_state_and_none_where_that_is_refused(tmp_path: Any) -> None:
    from dataclasses import replace

    node = helper.make_node("Add", ["past_0", "x"], ["present_0"])
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "past_0", "present_0")
    ]
    graph = helper.make_graph([node], "g", value[:2], value[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    assert isinstance(model, onnx.ModelProto)
    loaded = load_live(model, inputs=None, batch=None, specs=(), opset=None, progress=lambda _: None)
    assert loaded.graph().carried == {"past_0": "present_0"}
    assert replace(loaded, state=None).graph().carried == {}
    assert not loaded.graph().is_training_step


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.next, self.value = nn.Linear(24, 16), nn.Linear(24, 1)

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> Any:
        both = torch.cat([state, action], -1)
        return self.next(both), self.value(both)


def test_the_state_of_a_world_is_no_state_of_the_model() -> None:
    assert state_pairs(graph_of(Policy().eval(), (torch.randn(2, 16), torch.randn(2, 8)))) == {}
