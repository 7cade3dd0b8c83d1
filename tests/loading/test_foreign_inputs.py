"""What strangers call their models with, and what those give back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import UsageError
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.weights import materialise


def test_a_dict_that_is_the_only_argument_stays_whole(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, batch):
                return self.a(batch["x"]) + batch["y"]
        def example_inputs(batch):
            return {"x": torch.randn(batch, 8), "y": torch.randn(batch, 4)}
    """)
    assert found.symbol == "batch"
    assert [tensor.shape for tensor in found.graph(3).inputs] == [(3, 8), (3, 4)]


def test_a_list_for_the_only_argument_stays_whole(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, images):
                return [self.a(image) for image in images]
        def example_inputs(batch):
            return [torch.randn(batch, 8), torch.randn(batch, 8)]
    """)
    assert len(found.graph().inputs) == len(found.graph().outputs) == 2


def test_a_mapping_that_is_no_dict_gives_keywords(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        from collections import UserDict
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, x, shift=None):
                return self.a(x) + shift
        example_inputs = UserDict(shift=torch.randn(2, 4), x=torch.randn(2, 8))
    """)
    assert {tensor.name: tensor.shape for tensor in found.graph(5).inputs} == {"x": (5, 8), "shift": (5, 4)}


def test_torchscript_takes_keywords_and_gives_records(loaded: Callable[..., Any], tmp_path: Path) -> None:
    found = loaded("""
        from dataclasses import dataclass
        @dataclass
        class Out:
            y: torch.Tensor
            path: str
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, x, mask=None, *, scale=1.0, extra=None):
                if x.sum() > 0:
                    return Out(self.a(x) * scale + extra["e"], "up")
                return Out(x, "down")
        def example_inputs(batch):
            return {"x": torch.ones(batch, 8), "scale": 3.0, "extra": {"e": torch.full((batch, 4), 2.0)}}
    """)
    assert found.exporter == "torchscript"
    assert found.notes[0].count("..") == 0
    assert [node.op_type for node in found.graph().nodes] == ["Gemm", "Mul", "Add"]
    folder = tmp_path / "run"
    folder.mkdir()
    runnable = materialise(found, found.batch, folder)
    assert {name: array.shape for name, array in runnable.feeds.items()} == {"x": (1, 8), "extra_e": (1, 4)}
    assert runnable.feeds["extra_e"].tolist() == [[2.0] * 4]
    import onnxruntime

    session = onnxruntime.InferenceSession(str(runnable.model_path), providers=["CPUExecutionProvider"])
    assert runnable.eager is not None
    assert session.run(None, runnable.feeds)[0] == pytest.approx(runnable.eager()[0], rel=1e-5)


@pytest.mark.parametrize(
    ("code", "shape", "dtype"),
    [
        ("model = nn.Linear(8, 4).half()", (3, 8), "float16"),
        ("model = nn.TransformerEncoderLayer(16, 2)", (128, 3, 16), "float32"),
        ("model = nn.TransformerEncoderLayer(16, 2, batch_first=True)", (3, 128, 16), "float32"),
        (
            "class Net(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.words = nn.Embedding(10, 4)\n"
            "    def forward(self, ids=None, embedded=None):\n"
            "        return (self.words(ids) if embedded is None else embedded).relu()",
            (3, 128),
            "int64",
        ),
    ],
)
def test_inferred_inputs_have_the_layers_type_and_layout(
    loaded: Callable[..., Any], code: str, shape: tuple[int, ...], dtype: str
) -> None:
    found = loaded(code, batch=3)
    (only,) = found.graph().inputs
    assert (only.shape, only.dtype.name) == (shape, dtype)
    assert (found.inputs_origin, found.symbol) == ("inferred", "batch")


def test_outputs_that_hold_settings_and_themselves_are_taken_apart(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Cache:
            def __init__(self, keys, owner):
                self.keys, self.dtype, self.owner, self.me = keys, keys.dtype, owner, self
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, x):
                h = self.a(x)
                return {"out": h.relu(), "cache": Cache(h, self)}
    """)
    assert (found.exporter, found.symbol) == ("torch.export", "batch")
    assert len(found.proto.graph.output) == 2


@pytest.mark.parametrize(("parameter", "batch"), [("batch", 1), ("batch=4", 4), ("", 20)])
def test_the_batch_is_the_one_that_example_inputs_was_called_with(
    loaded: Callable[..., Any], parameter: str, batch: int
) -> None:
    rows = {"batch": "batch * 5", "batch=4": "batch * 5", "": "20"}[parameter]
    found = loaded(f"""
        model = nn.EmbeddingBag(10, 4, mode="sum")
        def example_inputs({parameter}):
            return torch.zeros({rows}, dtype=torch.long), torch.arange(0, {rows}, 5)
    """)
    assert found.batch == batch


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("self, **given", '{"x": torch.randn(batch, 8), "y": torch.randn(batch, 8)}'),
        ("self, x, **given", '{"y": torch.randn(batch, 8), "x": torch.randn(batch, 8)}'),
        ("self, *given", "(torch.randn(batch, 8), torch.randn(batch, 8))"),
        ("self, x, *given", "(torch.randn(batch, 8), torch.randn(batch, 8))"),
    ],
)
def test_the_batch_varies_among_inputs_without_a_parameter_of_their_own(
    loaded: Callable[..., Any], forward: str, inputs: str
) -> None:
    body = "sum(given.values())" if "**" in forward else "sum(given)"
    found = loaded(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward({forward}):
                return self.a({body} {"+ x" if "x" in forward else ""})
        def example_inputs(batch):
            return {inputs}
    """)
    assert found.symbol == "batch"
    assert [tensor.shape for tensor in found.graph(3).inputs] == [(3, 8), (3, 8)]


@pytest.mark.parametrize("given", ["(data,)", '{"data": data}', "data"])
def test_inputs_of_a_class_of_ones_own_are_looked_into(
    loaded: Callable[..., Any], given: str, tmp_path: Path
) -> None:
    found = loaded(f"""
        from dataclasses import dataclass
        @dataclass(frozen=True, slots=True)
        class Layer:
            keys: torch.Tensor
            length: int = 5
        class Data:
            def __init__(self, x, name):
                self.x, self.name, self.layers, self.device = x, name, [Layer(x + 1)], x.device
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, data):
                return self.a(data.x + data.layers[0].keys) * data.layers[0].length
        def example_inputs(batch):
            data = Data(torch.randn(batch, 8), "rows")
            return {given}
    """)
    assert (found.exporter, found.symbol) == ("torch.export", "batch")
    assert [tensor.shape for tensor in found.graph(3).inputs] == [(3, 8), (3, 8)]
    folder = tmp_path / "run"
    folder.mkdir()
    assert [array.shape for array in materialise(found, 3, folder).feeds.values()] == [(3, 8), (3, 8)]


@pytest.mark.parametrize(
    ("parameters", "specs", "told"),
    [
        ("x, mask=None", (), ("mask was left out (None); --input mask=... gives it.",)),
        (
            "x, mask: torch.Tensor | None = None, bias=None, scale=1.0, state: list | None = None",
            (),
            ("mask and bias were left out (None); --input mask=... --input bias=... gives them.",),
        ),
        ("x, mask=None", ("x=B,8", "mask=B,8"), ()),
        (
            "x, mask=None, bias=None",
            ("x=B,8", "bias=B,8"),
            ("mask was left out (None); --input mask=... gives it.",),
        ),
    ],
)
def test_inputs_that_stay_none_are_named(
    loaded: Callable[..., Any], parameters: str, specs: tuple[str, ...], told: tuple[str, ...]
) -> None:
    found = loaded(
        f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 8)
            def forward(self, {parameters}):
                x = self.a(x)
                return x if mask is None else x * mask
        """,
        specs=[parse_input(text) for text in specs],
    )
    assert found.notes == told


@pytest.mark.parametrize(
    ("parameter", "body", "given"),
    [
        ("state=None", "y, state = self.lstm(x, state)", "state.0=... --input state.1=..."),
        ("state=None", "y, _ = self.lstm(x, hx=state)", "state.0=... --input state.1=..."),
        ("state=None", "y, _ = self.gru(x, state)", "state=..."),
        ("state=None", "y = x if state is None else x + state", "state=..."),
        (
            "state=None",
            "if state is not None:\n                    state = state.unbind()\n"
            "                    a, b = state\n                y = x",
            "state=...",
        ),
    ],
)
def test_a_state_that_is_a_tuple_is_named_by_its_parts(
    loaded: Callable[..., Any], parameter: str, body: str, given: str
) -> None:
    """The state of nn.LSTM is (h_0, c_0), that of nn.GRU one tensor; what is unpacked has its parts."""
    found = loaded(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(8, 8, batch_first=True)
                self.gru = nn.GRU(8, 8, batch_first=True)
            def forward(self, x, {parameter}):
                {body}
                return y
        def example_inputs(batch=2): return torch.randn(batch, 4, 8)
        """)
    assert found.notes == (f"state was left out (None); --input {given} gives it.",)


@pytest.mark.parametrize("shape", ["(2,B,256;2,B,256)", "[2,B,256]"])
def test_brackets_in_a_shape_are_told_how_a_tuple_is_given(shape: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_input(f"state={shape}")
    assert "--input state.0=... --input state.1=..." in (caught.value.hint or "")


def test_optional_inputs_of_a_librarys_module_are_not_named(loaded: Callable[..., Any]) -> None:
    code = (
        "model = nn.TransformerEncoderLayer(8, 2)\ndef example_inputs(batch=2): return torch.randn(4, batch, 8)"
    )
    assert loaded(code).notes == ()
