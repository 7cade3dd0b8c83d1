"""What the source of ``forward`` tells of its inputs: types, shapes, and a call where all are told."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analyzer.errors import InputError, UsageError
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.example_inputs import resolve_inputs
from analyzer.loading.python.forward_reads import told_inputs
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.python.user_model import load_user_model
from analyzer.loading.weights import materialise

LAYERS = {
    "words": "nn.Embedding(100, 16)",
    "fc": "nn.Linear(12, 4)",
    "half": "nn.Linear(12, 4).half()",
    "conv": "nn.Conv2d(3, 8, 3)",
    "mono": "nn.Conv2d(1, 8, 3)",
    "lstm": "nn.LSTM(16, 4, batch_first=True)",
    "gru": "nn.GRU(16, 4, num_layers=2)",
    "norm": "nn.LayerNorm(12)",
    "attention": "nn.MultiheadAttention(16, 2, batch_first=True)",
    "both": "nn.Bilinear(5, 7, 3)",
    "body": "nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(12, 4))",
    "blocks": "nn.ModuleList([nn.Linear(12, 12), nn.Linear(12, 12)])",
    "decoder": "nn.TransformerDecoderLayer(16, 2, batch_first=True)",
}


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Any]:
    """Runs a file with this code; torch and nn are imported for it."""

    def build(code: str, name: str = "") -> Any:
        path = tmp_path / "user_model.py"
        path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(code))
        return load_user_model(parse_reference(f"{path}:{name}" if name else str(path)), weights="real")

    return build


def model_with(parameters: str, body: str, load: Callable[..., Any]) -> Any:
    """A user's model with those layers, a table and an inner module, whose forward is this body."""
    layers = "\n".join(f"        self.{name} = {code}" for name, code in LAYERS.items())
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return load(
        "import torch.nn.functional as F\n"
        "def scaled(x): return x / 255\n"
        "class Inner(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(9, 4)\n"
        "    def forward(self, features, gate=None): return self.fc(features)\n"
        "class Child(nn.Linear): pass\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"{layers}\n"
        "        self.inner, self.child = Inner(), Child(6, 2)\n"
        "        self.table = nn.Parameter(torch.zeros(10, 4))\n"
        "    def embedded(self, tokens): return self.words(tokens)\n"
        f"    def forward(self, {parameters}):\n"
        f"{lines}\n"
        "def build_model(): return Net()\n"
    )


# The types and widths are those of the layers above: PyTorch's documentation says what each takes.
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return self.words(x)", "x=B,128:int64"),
        ("return self.lstm(self.words(x))", "x=B,128:int64"),
        ("y = x\nh = self.embedded(y)\nreturn self.lstm(h)", "x=B,128:int64"),
        ("return F.embedding(x, self.table)", "x=B,128:int64"),
        ("return self.table[x]", "x=B,...:int64"),
        ("return self.table.index_select(0, x)", "x=B,...:int64"),
        ("return torch.gather(self.table, 1, x)", "x=B,...:int64"),
        ("return F.one_hot(x, 4)", "x=B,128:int64"),
        ("return self.fc(x)", "x=B,12:float32"),
        ("return self.half(x)", "x=B,12:float16"),
        ("return self.conv(x / 255)", "x=B,3,224,224:float32"),
        ("return self.conv(x.permute(0, 3, 1, 2))", "x=B,224,224,3:float32"),
        ("return self.conv(torch.permute(x, (0, 3, 1, 2)))", "x=B,224,224,3:float32"),
        ("return self.gru(x.transpose(0, 1))", "x=B,128,16:float32"),
        ("return self.lstm(x.mT)", "x=B,16,128:float32"),
        ("return self.lstm(x.transpose(1, 2).transpose(-1, 1))", "x=B,128,16:float32"),
        ("return self.mono(x.unsqueeze(1))", "x=B,224,224:float32"),
        ("return self.mono(x[:, None])", "x=B,224,224:float32"),
        ("return self.fc(x.squeeze(-1))", "x=B,12,1:float32"),
        # Which axis it is stands nowhere in numbers; three channels are not one; no such axis.
        ("return self.conv(x.unsqueeze(self.axis))", "x=B,...:float32"),
        ("return self.conv(x.unsqueeze(1))", "x=B,...:float32"),
        ("return self.fc(x.transpose(1, 5))", "x=B,...:float32"),
        ("return self.fc(x[:, :5])", "x=B,...:float32"),
        ("return self.conv(scaled(x))", "x=B,3,224,224:float32"),
        ("return self.lstm(x)", "x=B,128,16:float32"),
        ("return self.gru(x)", "x=128,B,16:float32"),
        ("return self.gru(self.table, x)", "x=2,B,4:float32"),
        ("return self.norm(x)", "x=B,12:float32"),
        ("return self.body(x)", "x=B,12:float32"),
        ("for block in self.blocks:\n    x = block(x)\nreturn x", "x=B,12:float32"),
        ("return self.blocks[0](x)", "x=B,12:float32"),
        ("return self.inner(features=x)", "x=B,9:float32"),
        ("return self.child(x)", "x=B,6:float32"),
        ("return self.decoder(x, self.table)", "x=B,128,16:float32"),
        ("return self.decoder(self.table, x)", "x=B,128,16:float32"),
        ("return self.attention(self.table, self.table, self.table, key_padding_mask=x)", "x=B,128:bool=0"),
        ("return self.table.masked_fill(x, 0.0)", "x=B,...:bool"),
        ("return torch.where(x, self.table, 0.0)", "x=B,...:bool"),
        ("return self.table * x", "x=B,...:float32"),
        ("return self.table.masked_fill(x[:, None] == 0, 0.0)", "x=B,...:int64"),
        ("h = x.abs()\nreturn self.lstm(self.table, (h, h))", "x=1,B,4:float32"),
        # A tuple of two tensors.
        ("return self.lstm(self.table, x)", "x=B,...:float32"),
        ("return " + " + ".join(["x"] * 500), "x=B,...:float32"),
        # A result of a layer is no input any more, whatever reads it.
        ("x = self.conv(x)\nreturn self.words(x)", "x=B,3,224,224:float32"),
        # An index is surer than the arithmetic on it.
        ("y = x * 0.5\nreturn self.words(x)", "x=B,128:int64"),
        ("return self.words(x.long())", "x=B,128:int64"),
        ("return 1", "x=B,...:float32"),
    ],
)
def test_the_reader_of_an_input_tells_its_type_and_shape(
    load: Callable[..., Any], body: str, told: str
) -> None:
    user = model_with("x", body, load)
    assert [item.text for item in told_inputs(user.model, ["x"])] == [told]


def test_all_inputs_without_a_default_are_named_each_with_its_own_type(load: Callable[..., Any]) -> None:
    user = model_with(
        "tokens, image, mask, rows, scale=1.0",
        "h = self.words(tokens).mean(1).masked_fill(mask, 0.0)\n"
        "return h.sum() + self.conv(image).sum() + self.table[rows].sum()",
        load,
    )
    with pytest.raises(InputError) as caught:
        resolve_inputs(user, [], None)
    assert caught.value.hint == (
        "Add example_inputs(batch) to the file, or give --input tokens=B,128:int64 "
        "--input image=B,3,224,224:float32 --input mask=B,...:bool --input rows=B,...:int64, "
        "with the sizes of mask and rows behind the batch in place of `...`."
    )
    # Typed as it stands, the line is told what is missing in it.
    with pytest.raises(
        UsageError, match=r"mask=B,\.\.\.:bool: `\.\.\.` stands for sizes that you must fill in"
    ):
        parse_input("mask=B,...:bool")


def test_what_else_the_model_needs_is_offered_with_its_own_type(load: Callable[..., Any]) -> None:
    user = model_with("x, tokens", "return self.fc(x).sum() + self.words(tokens).sum()", load)
    with pytest.raises(InputError, match="also needs tokens") as caught:
        resolve_inputs(user, [parse_input("x=B,12")], None)
    assert caught.value.hint == "Add --input tokens=B,128:int64."


@pytest.mark.parametrize(
    ("parameters", "body", "told"),
    [
        (
            "x, tokens",
            "return self.fc(x).sum() + self.words(tokens).sum()",
            ["x=B,12:float32", "tokens=B,128:int64"],
        ),
        ("left, right", "return self.both(left, right)", ["left=B,5:float32", "right=B,7:float32"]),
        # A row of words each and one word each do not join, one word each and another do.
        (
            "user, item",
            "return (torch.cat([self.words(user), self.words(item)], dim=1)[:, :12] @ self.fc.weight.T)",
            ["user=B:int64", "item=B:int64"],
        ),
        ("x, *, tokens", "return self.fc(x).sum() + self.words(tokens).sum()", None),
    ],
)
def test_inputs_that_are_all_told_are_inferred(
    load: Callable[..., Any], parameters: str, body: str, told: list[str] | None
) -> None:
    inputs = resolve_inputs(model_with(parameters, body, load), [], 3)
    assert inputs.origin == "inferred"
    if told is not None:
        assert [spec.text for spec in inputs.guessed] == told
    shapes = [value.shape[0] for value in (*inputs.arguments, *inputs.keywords.values())]
    assert shapes == [3, 3]


def test_a_single_input_that_does_not_fit_is_offered_as_its_reader_takes_it(load: Callable[..., Any]) -> None:
    # The first layer in the order of definition is an embedding, which reads positions and not the input.
    user = load("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.places, self.fc = nn.Embedding(4, 8), nn.Linear(12, 8)
            def forward(self, x):
                return self.fc(x)[:, None] + self.places(torch.arange(4)) + self.missing
        def build_model(): return Net()
    """)
    with pytest.raises(InputError, match="do not fit") as caught:
        resolve_inputs(user, [], None)
    assert caught.value.hint == "Give the right shape, for example --input x=B,12:float32."


def test_lengths_of_sequences_are_as_long_as_the_sequences(load: Callable[..., Any]) -> None:
    user = model_with(
        "x, lengths",
        "packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)\n"
        "return self.lstm(packed)[1][0]",
        load,
    )
    inputs = resolve_inputs(user, [], 2)
    assert [spec.text for spec in inputs.guessed] == ["x=B,128,16:float32", "lengths=B:int64=128"]
    assert torch.equal(inputs.arguments[1], torch.tensor([128, 128]))


def test_a_docstring_names_sizes_that_the_model_was_built_with(load: Callable[..., Any]) -> None:
    """Log-mel features of a speech encoder: a plane of frames and features is no image of 224 by 224."""
    user = load(
        """
        class Subsampling(nn.Module):
            def __init__(self, n_mels):
                super().__init__()
                self.conv = nn.Conv2d(1, 4, 3, stride=4, padding=1)
                self.out = nn.Linear(4 * ((n_mels + 3) // 4), 16)
            def forward(self, feats, lengths):
                x = self.conv(feats.unsqueeze(1))
                b, c, t, f = x.shape
                x = self.out(x.transpose(1, 2).reshape(b, t, c * f))
                return x, (lengths + 3) // 4

        class Net(nn.Module):
            '''An encoder. feats: (B, T, n_mels) log-mel; lengths: (B,) frames.'''
            def __init__(self, n_mels):
                super().__init__()
                self.front = Subsampling(n_mels)
                self.head = nn.Linear(16, 5)
            def forward(self, feats, lengths):
                x, left = self.front(feats, lengths)
                mask = torch.arange(x.size(1))[None, :] < left[:, None]
                return self.head(x) * mask[..., None]
        """,
        "Net(n_mels=80)",
    )
    inputs = resolve_inputs(user, [], 2)
    assert [spec.text for spec in inputs.guessed] == ["feats=B,128,80:float32", "lengths=B:int64=128"]


# Hugging Face's glossary: ids and masks are whole numbers, a row of them for each text.
TOKENS, MASK = "input_ids=B,128:int64", "attention_mask=B,128:int64=1"


@pytest.mark.parametrize(
    ("parameters", "body", "told"),
    [
        (
            "input_ids, attention_mask",
            "return self.words(input_ids) * attention_mask[..., None]",
            [TOKENS, MASK],
        ),
        # A cast says nothing of what is cast.
        (
            "input_ids, attention_mask, labels=None",
            "return self.words(input_ids) * attention_mask.unsqueeze(-1).float()",
            [TOKENS, MASK],
        ),
        (
            "input_ids, attention_mask, token_type_ids",
            "return self.words(input_ids) * attention_mask[..., None] + self.words(token_type_ids)",
            [TOKENS, MASK, "token_type_ids=B,128:int64=0"],
        ),
        # All have defaults, and the masks are needed nonetheless.
        (
            "input_ids=None, attention_mask=None, labels=None",
            "return self.words(input_ids) * attention_mask.unsqueeze(-1).float()",
            [TOKENS, MASK],
        ),
        # What reads it is surer than its name.
        (
            "input_ids, attention_mask",
            "return self.words(input_ids).mean(1) + self.fc(attention_mask).sum()",
            [TOKENS, "attention_mask=B,12:float32"],
        ),
    ],
)
def test_the_standard_names_of_tokenizers_are_inferred(
    load: Callable[..., Any], parameters: str, body: str, told: list[str]
) -> None:
    inputs = resolve_inputs(model_with(parameters, body, load), [], 2)
    assert inputs.origin == "inferred"
    assert [spec.text for spec in inputs.guessed] == told


def test_what_a_model_of_transformers_takes_by_a_standard_name_is_known_under_any_other(
    load: Callable[..., Any],
) -> None:
    user = load("""
        from transformers import AutoModel, DistilBertConfig
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                sizes = dict(vocab_size=99, dim=32, n_layers=1, n_heads=4, hidden_dim=37)
                self.encoder = AutoModel.from_config(DistilBertConfig(**sizes))
            def forward(self, ids, mask):
                return self.encoder(ids, attention_mask=mask)[0] * mask.unsqueeze(-1).float()
        def build_model(): return Net()
    """)
    inputs = resolve_inputs(user, [], 2)
    assert [spec.text for spec in inputs.guessed] == ["ids=B,128:int64", "mask=B,128:int64=1"]


def test_a_mask_that_is_missing_is_offered_as_long_as_the_tokens_that_are_given(
    load: Callable[..., Any],
) -> None:
    body = "return self.words(input_ids) * attention_mask[..., None]"
    user = model_with("input_ids, attention_mask", body, load)
    with pytest.raises(InputError, match="also needs attention_mask") as caught:
        resolve_inputs(user, [parse_input("input_ids=B,77:int64")], None)
    assert caught.value.hint == "Add --input attention_mask=B,77:int64=1."


def test_lengths_behind_a_convolution_over_frames_are_inferred_with_the_frames(
    load: Callable[..., Any],
) -> None:
    user = load("""
        from torch.nn.utils.rnn import pack_padded_sequence
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Sequential(nn.Conv1d(40, 16, 5, stride=2, padding=2), nn.ReLU())
                self.rnn = nn.GRU(16, 8, batch_first=True)
            def forward(self, x, lengths):
                h = self.conv(x.transpose(1, 2)).transpose(1, 2)
                packed = pack_padded_sequence(h, ((lengths - 1) // 2 + 1).cpu(), batch_first=True)
                return self.rnn(packed)[1]
        def build_model(): return Net()
    """)
    inputs = resolve_inputs(user, [], 2)
    # Frames of 40 channels, which a convolution takes second and the model takes last.
    assert [spec.text for spec in inputs.guessed] == ["x=B,128,40:float32", "lengths=B:int64=128"]


def test_reading_the_source_executes_nothing_but_forward(load: Callable[..., Any], tmp_path: Path) -> None:
    user = load("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.calls = nn.Linear(4, 4), []
            @property
            def secret(self): raise SystemExit("was executed")
            def helper(self, x): self.calls.append("helper"); return x
            def forward(self, x, y):
                if False: self.secret(x)
                return self.fc(x) + y
        def build_model(): return Net()
    """)
    assert [item.text for item in told_inputs(user.model, ["x", "y"])] == ["x=B,4:float32", "y=B,...:float32"]
    assert user.model.calls == []


def test_a_function_that_calls_itself_is_read_to_an_end(load: Callable[..., Any]) -> None:
    user = load("""
        class Net(nn.Module):
            def turned(self, x): return self.turned(self.turned(x)) + self.turned(x * 0.5)
            def forward(self, x): return self.turned(x)
        def build_model(): return Net()
    """)
    assert [item.text for item in told_inputs(user.model, ["x"])] == ["x=B,...:float32"]


def test_a_model_of_two_kinds_of_inputs_runs_without_a_word_about_them(
    loaded: Callable[..., Loaded], tmp_path: Path
) -> None:
    found = loaded(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.fc = nn.Embedding(100, 8), nn.Linear(12, 8)
            def forward(self, features, tokens):
                return self.words(tokens).mean(1) + self.fc(features)
        """,
        batch=4,
    )
    assert (found.inputs_origin, found.symbol) == ("inferred", "batch")
    (tmp_path / "run").mkdir()
    feeds = materialise(found, 4, tmp_path / "run").feeds
    assert {name: (value.shape, value.dtype.name) for name, value in feeds.items()} == {
        "features": ((4, 12), "float32"),
        "tokens": ((4, 128), "int64"),
    }
