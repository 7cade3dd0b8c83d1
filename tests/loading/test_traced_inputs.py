"""Inputs that the first layers decide, by a trace of ``forward``: types, shapes, and a call of all."""

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
from analyzer.loading.python.inferred_inputs import infer_inputs
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.python.user_model import load_user_model
from analyzer.loading.weights import materialise

LAYERS = {
    "words": "nn.Embedding(100, 16)",
    "fc": "nn.Linear(12, 4)",
    "brief": "nn.Linear(12, 4).half()",
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
        ("return self.brief(x)", "x=B,12:float16"),
        ("return self.conv(x / 255)", "x=B,3,224,224:float32"),
        ("return self.conv(x.permute(0, 3, 1, 2))", "x=B,224,224,3:float32"),
        ("return self.conv(torch.permute(x, (0, 3, 1, 2)))", "x=B,224,224,3:float32"),
        ("return self.gru(x.transpose(0, 1))", "x=B,32,16:float32"),
        ("return self.lstm(x.mT)", "x=B,16,32:float32"),
        ("return self.lstm(x.transpose(1, 2).transpose(-1, 1))", "x=B,32,16:float32"),
        ("return self.mono(x.unsqueeze(1))", "x=B,224,224:float32"),
        ("return self.mono(x[:, None])", "x=B,224,224:float32"),
        # Which axis it is stands nowhere in numbers; three channels are not one; no such axis.
        ("return self.conv(x.unsqueeze(self.axis))", "x=B,...:float32"),
        ("return self.conv(x.unsqueeze(1))", "x=B,...:float32"),
        ("return self.fc(x.transpose(1, 5))", "x=B,...:float32"),
        ("return self.conv(scaled(x))", "x=B,3,224,224:float32"),
        ("return self.lstm(x)", "x=B,32,16:float32"),
        ("return self.gru(x)", "x=32,B,16:float32"),
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
        # A tuple of two tensors, as a whole or taken apart.
        ("return self.lstm(self.table, x)", "x.0=1,B,4:float32 x.1=1,B,4:float32"),
        ("h, c = x\nreturn self.lstm(self.table, (h, c))", "x.0=1,B,4:float32 x.1=1,B,4:float32"),
        # A column each of whole numbers.
        ("return self.words(x[:, 0]) + self.words(x[:, 2])", "x=B,3:int64"),
        # Frames of a video, which are no layer's; the names of the sizes tell how many there are.
        ("b, t, c, h, w = x.shape\nreturn self.conv(x.view(b * t, c, h, w))", "x=B,8,3,224,224:float32"),
        ("b, t, c = x.shape\nreturn self.fc(x)", "x=B,128,12:float32"),
        # Conditions that depend on values end no trace.
        ("if x.sum() > 0: return x\nreturn self.fc(x)", "x=B,12:float32"),
        ("assert x.dim() == 2\nreturn self.fc(x)", "x=B,12:float32"),
        # Loops over values do: nothing is read before.
        ("for row in x: y = self.fc(row)\nreturn y", "x=B,...:float32"),
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
    assert " ".join(item.text for item in infer_inputs(user.model, ["x"])) == told


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
        "--input image=B,3,224,224:float32 --input mask=B,128:bool=0 --input rows=B,...:int64, "
        "with the sizes of rows behind the batch in place of `...`."
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
    assert caught.value.hint == "Give the right shape: --input x=B,12:float32."


def test_lengths_of_sequences_are_as_long_as_the_sequences(load: Callable[..., Any]) -> None:
    user = model_with(
        "x, lengths",
        "packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)\n"
        "return self.lstm(packed)[1][0]",
        load,
    )
    inputs = resolve_inputs(user, [], 2)
    assert [spec.text for spec in inputs.guessed] == ["x=B,32,16:float32", "lengths=B:int64=32"]
    assert torch.equal(inputs.arguments[1], torch.tensor([32, 32]))


def test_a_later_layer_decides_how_wide_a_plane_of_frames_is(load: Callable[..., Any]) -> None:
    """Log-mel features of a speech encoder: 4 * ((80 + 3) // 4) = 80 features, which 77 to 80 give."""
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
    assert [spec.text for spec in inputs.guessed] == ["feats=B,224,80:float32", "lengths=B:int64=128"]


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


def test_a_trace_leaves_the_model_as_it_was(load: Callable[..., Any]) -> None:
    user = load("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
            def forward(self, x):
                self.last, self.fc.seen = x, x
                return self.norm(self.fc(x))
        def build_model(): return Net()
    """)
    before = dict(user.model.state_dict())
    assert [item.text for item in infer_inputs(user.model, ["x"])] == ["x=B,4:float32"]
    assert not hasattr(user.model, "last")
    assert not hasattr(user.model.fc, "seen")
    assert all(
        value is not None and torch.equal(value, before[name])
        for name, value in user.model.state_dict().items()
    )


def test_a_function_that_calls_itself_is_traced_to_an_end(load: Callable[..., Any]) -> None:
    user = load("""
        class Net(nn.Module):
            def turned(self, x): return self.turned(self.turned(x)) + self.turned(x * 0.5)
            def forward(self, x): return self.turned(x)
        def build_model(): return Net()
    """)
    assert [item.text for item in infer_inputs(user.model, ["x"])] == ["x=B,...:float32"]


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


LANGUAGE_MODEL = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.5), nn.Embedding(100, 16)
            self.rnn, self.decoder = nn.LSTM(16, 8, 2{options}), nn.Linear(8, 100)
        def forward(self, input, hidden):
            output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
            return self.decoder(output), hidden
"""
TRANSFORMER = """
    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("pe", torch.zeros(5000, 1, 16))
        def forward(self, x): return x + self.pe[: x.size(0)]
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.places = nn.Embedding(100, 16), Places()
            self.encoder = nn.TransformerEncoderLayer(16, 2, 32)
        def forward(self, src, src_key_padding_mask):
            return self.encoder(self.places(self.embedding(src)), src_key_padding_mask=src_key_padding_mask)
"""


@pytest.mark.parametrize(
    ("code", "inferred"),
    [
        # nn.LSTM takes (T, B, width) unless batch_first; its states are (2 layers, B, 8).
        (LANGUAGE_MODEL.format(options=""), "input=128,B:int64 hidden.0=2,B,8:float32 hidden.1=2,B,8:float32"),
        (
            LANGUAGE_MODEL.format(options=", batch_first=True"),
            "input=B,128:int64 hidden.0=2,B,8:float32 hidden.1=2,B,8:float32",
        ),
        # The masks of padding are (B, T) whatever the sequences are.
        (TRANSFORMER, "src=128,B:int64 src_key_padding_mask=B,128:bool=0"),
    ],
)
def test_a_sequence_comes_before_the_batch_where_the_layer_behind_the_table_takes_it_so(
    load: Callable[..., Any], code: str, inferred: str
) -> None:
    inputs = resolve_inputs(load(code), [], 3)
    assert " ".join(spec.text for spec in inputs.guessed) == inferred
    tokens = inputs.guessed[0]
    assert inputs.batch_axes[0] == (tokens.shape.index(None),)


CLIP = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.table = nn.Conv2d(3, 16, 8, 8), nn.Embedding(1000, 16)
            self.pixel_places = nn.Parameter(torch.zeros(16 + 1, 16))
            self.places = nn.Parameter(torch.zeros(77, 16))
            self.word, self.attention = nn.Parameter(torch.zeros(16)), nn.MultiheadAttention(16, 2)
        def forward(self, image, text):
            x = self.patches(image)
            x = x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
            word = self.word + torch.zeros(x.shape[0], 1, x.shape[-1], device=x.device)
            x = (torch.cat([word, x], dim=1) + self.pixel_places).mean(1)
            y = (self.table(text) + self.places).permute(1, 0, 2)
            return x @ self.attention(y, y, y)[0].mean(0).T
"""
GPT = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(100, 16), nn.Embedding(48, 16)
            self.head = nn.Linear(16, 100)
        def forward(self, idx, targets=None):
            b, t = idx.size()
            assert t <= 48, f"{t} is too long"
            x = self.tokens(idx) + self.places(torch.arange(0, t, dtype=torch.long, device=idx.device))
            return self.head(x[:, [-1], :])
"""
NAMED_PLACES = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places, self.head = nn.Embedding(100, 8), nn.Embedding(64 + 1, 8), nn.Linear(8, 4)
            self.first = nn.Parameter(torch.zeros(1, 1, 8))
        def forward(self, ids, mask):
            x = self.tokens(ids)
            x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
            x = (x + self.places(torch.arange(x.shape[1], device=x.device)))[:, 1:]
            return self.head(x * mask.unsqueeze(-1))
"""


@pytest.mark.parametrize(
    ("code", "inferred"),
    [
        # 32 / 8 squared patches and one more are 17; CLIP's text has 77 positions (openai/CLIP, model.py).
        (CLIP, "image=B,3,32,32:float32 text=B,77:int64"),
        (GPT, "idx=B,48:int64"),
        # 65 positions, of which the first is of the word that is joined before; a mask is as long.
        (NAMED_PLACES, "ids=B,64:int64 mask=B,64:int64=1"),
    ],
)
def test_a_table_of_positions_decides_the_length(load: Callable[..., Any], code: str, inferred: str) -> None:
    assert " ".join(spec.text for spec in resolve_inputs(load(code), [], 2).guessed) == inferred


def images(convolutions: str, features: str) -> str:
    return f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.fc = nn.Sequential({convolutions}), nn.Linear({features}, 10)
            def forward(self, x):
                x = self.body(x)
                return self.fc(x.view(x.size(0), -1))
    """


@pytest.mark.parametrize(
    ("code", "inferred"),
    [
        # MNIST: two convolutions of 3 leave 24 of 28, the pool 12: 64 * 12 * 12 = 9216.
        (images("nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3), nn.MaxPool2d(2)", "9216"), "x=B,1,28,28:float32"),
        # Faces: three strides of 2 bring 153 to 160 pixels to 20, of which 160 is a multiple of 8.
        (
            images("*(nn.Conv2d(c, 4, 3, 2, 1) for c in (3, 4, 4))", "4 * 20 * 20"),
            "x=B,3,160,160:float32",
        ),
    ],
)
def test_a_linear_layer_behind_the_images_decides_their_side(
    load: Callable[..., Any], code: str, inferred: str
) -> None:
    assert [spec.text for spec in resolve_inputs(load(code), [], 2).guessed] == [inferred]


def test_the_layer_that_reads_columns_and_numbers_together_decides_how_many_numbers_there_are(
    load: Callable[..., Any],
) -> None:
    user = load("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.tables = nn.ModuleList([nn.Embedding(rows, 4) for rows in (3, 10, 7)])
                self.head = nn.Linear(3 * 4 + 5, 1)
            def forward(self, cat, numbers):
                columns = [table(cat[:, i]) for i, table in enumerate(self.tables)]
                return self.head(torch.cat([*columns, numbers], 1))
    """)
    inputs = resolve_inputs(user, [], 2)
    assert [spec.text for spec in inputs.guessed] == ["cat=B,3:int64", "numbers=B,5:float32"]


def test_a_layer_whose_width_its_first_call_decides_decides_none(load: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="cannot be inferred from its layers"):
        resolve_inputs(load("model = nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU())"), [], None)


IMAGE = "--input x=B,3,224,224:float32"


@pytest.mark.parametrize(
    ("parameters", "body", "line"),
    [
        # A condition is no batch, and which way it goes is the user's to say.
        (
            "x, is_training",
            "return F.dropout(self.conv(x), training=is_training)",
            f"{IMAGE} --input is_training=:bool=0",
        ),
        (
            "x, is_training",
            "x = self.conv(x)\nreturn x.relu() if is_training else x",
            f"{IMAGE} --input is_training=:bool=0",
        ),
        (
            "x, t",
            "return self.conv(x) * t[:, None]",
            f"{IMAGE} --input t=B,...:float32, with the sizes of t behind the batch in place of `...`",
        ),
        (
            "images",
            "return [self.conv(image) for image in images]",
            "--input images=B,...:float32, with the sizes of images behind the batch in place of `...`",
        ),
    ],
)
def test_an_input_that_no_layer_decides_is_to_be_given(
    load: Callable[..., Any], parameters: str, body: str, line: str
) -> None:
    with pytest.raises(InputError, match="cannot be inferred from its layers") as caught:
        resolve_inputs(model_with(parameters, body, load), [], None)
    assert caught.value.hint == f"Add example_inputs(batch) to the file, or give {line}."
