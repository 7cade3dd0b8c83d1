"""Values of inputs, one of all (``=64``) or a range (``=0..29999``), wherever inputs are fed."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from analyzer.errors import ExportError, InputError, UsageError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.weights import materialise

LENGTHS = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(1000, 8)
        def forward(self, ids, lengths):
            return self.words(ids).sum((1, 2)) + lengths
    def build_model(): return Net()
"""
SPECS = ("ids=B,16:int64=200..999", "lengths=B:int64=7")


@pytest.fixture
def written_onnx(tmp_path: Path) -> Path:
    """A file that adds a whole number and a float of each row."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["whole"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["whole", "x"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 16]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 16])
    graph = helper.make_graph(nodes, "added", inputs, [output])
    path = tmp_path / "added.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def fed(found: Loaded, folder: Path, batch: int | None = None) -> dict[str, Any]:
    folder.mkdir()
    return dict(materialise(found, batch or found.batch, folder).feeds)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lengths=B:int64=64", (64, 64)),
        ("ids=B,128:int64=0..29999", (0, 29999)),
        ("x=B,4=0.0..1.0", (0.0, 1.0)),
        ("x=B,4:float32=-1.5e-3..2", (-0.0015, 2)),
        ("x=B,4:int8=-128..127", (-128, 127)),
        ("mask=B,4:bool=0", (0, 0)),
        ("k=:int64=5", (5, 5)),
        ("x=B,4", None),
    ],
)
def test_an_input_says_one_value_or_a_closed_range(text: str, values: tuple[float, float] | None) -> None:
    spec = parse_input(text)
    assert spec.values == values
    assert parse_input(spec.text) == spec


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("ids=B:int64=9..3", "ends with 3, below its start", "=3..9"),
        ("x=B:uint8=300", "uint8 cannot hold 300", "0 to 255"),
        ("x=B:int8=-129..0", "int8 cannot hold -129", "-128 to 127"),
        ("x=B:int64=0.5", "int64 cannot hold 0.5", "whole numbers"),
        ("x=B:bool=2", "bool cannot hold 2", "0 to 1"),
        ("x=B:float16=70000", "float16 cannot hold 70000", "65504"),
        ("x=B:float32=nan", "no number", "NAME=SHAPE"),
        ("x=B:int64=", "no number", "NAME=SHAPE"),
        ("x=B:int64=1..", "no number", "NAME=SHAPE"),
        ("x=B:complex64=1", "values cannot be given for complex64", "float32"),
        (f"x=B:int64={'9' * 5000}", "no number", "NAME=SHAPE"),
    ],
)
def test_values_that_cannot_be_are_refused_with_a_hint(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_input(text)
    assert hint in (caught.value.hint or "")


def test_a_python_model_is_run_with_the_values(loaded: Callable[..., Loaded], tmp_path: Path) -> None:
    found = loaded(LENGTHS, batch=3, specs=tuple(map(parse_input, SPECS)))
    feeds = fed(found, tmp_path / "run")
    assert feeds["lengths"].tolist() == [7, 7, 7]
    assert feeds["ids"].shape == (3, 16)
    assert 200 <= feeds["ids"].min() < feeds["ids"].max() <= 999


def test_pytorch_is_compared_on_the_same_values(loaded: Callable[..., Loaded], tmp_path: Path) -> None:
    found = loaded(LENGTHS, batch=3, specs=tuple(map(parse_input, SPECS)))
    (tmp_path / "run").mkdir()
    runnable = materialise(found, 3, tmp_path / "run")
    import onnxruntime

    (there,) = onnxruntime.InferenceSession(runnable.model_path).run(None, dict(runnable.feeds))
    assert runnable.eager is not None
    np.testing.assert_allclose(there, runnable.eager()[0], rtol=1e-5)


def test_small_weights_are_those_of_the_model_that_is_run(
    loaded: Callable[..., Loaded], tmp_path: Path
) -> None:
    # The table has no values where the model is exported: random numbers behind it are others than in the run.
    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = nn.Embedding(30000, 8), nn.Linear(8, 2)
            def forward(self, ids, counts):
                mask = torch.arange(ids.shape[1])[None, :] < counts[:, None]
                return self.head((self.table(ids) * mask[..., None]).sum(1))
    """
    specs = tuple(map(parse_input, ("ids=B,16:int64=0..29999", "counts=B:int64=9")))
    found = loaded(code, batch=2, specs=specs)
    (tmp_path / "run").mkdir()
    runnable = materialise(found, 2, tmp_path / "run")
    import onnxruntime

    (there,) = onnxruntime.InferenceSession(runnable.model_path).run(None, dict(runnable.feeds))
    assert runnable.eager is not None
    np.testing.assert_allclose(there, runnable.eager()[0], rtol=1e-5)


def test_a_training_step_is_run_with_the_values(loaded: Callable[..., Loaded], tmp_path: Path) -> None:
    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(1000, 8), nn.Linear(8, 4)
            def forward(self, ids): return self.head(self.words(ids).mean(1))
        def build_model(): return Net()
    """
    found = loaded(code, batch=2, specs=(parse_input("ids=B,16:int64=500..510"),), training=True)
    ids = [value for value in fed(found, tmp_path / "run").values() if value.shape == (2, 16)]
    assert len(ids) == 1
    assert set(ids[0].reshape(-1)) <= set(range(500, 511))


def test_an_onnx_file_is_run_with_the_values(written_onnx: Path, tmp_path: Path) -> None:
    specs = tuple(map(parse_input, ("ids=B,16:int64=200..999", "x=B,16=0.25..0.5")))
    feeds = fed(load(parse_reference(str(written_onnx)), batch=4, specs=specs), tmp_path / "run")
    assert (feeds["ids"].dtype, feeds["x"].dtype) == (np.int64, np.float32)
    assert 200 <= feeds["ids"].min() < feeds["ids"].max() <= 999
    assert 0.25 <= feeds["x"].min() < feeds["x"].max() <= 0.5


def test_what_an_onnx_files_own_type_cannot_hold_is_refused(written_onnx: Path) -> None:
    # The option says no type, so that of the file counts.
    with pytest.raises(InputError, match=r"declares ids as int64, and int64 cannot hold 0\.5"):
        load(parse_reference(str(written_onnx)), specs=(parse_input("ids=B,16=0.5"),))


def test_a_saved_program_is_run_with_the_values(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return ids * 2

    program = torch.export.export(
        Net(), (torch.zeros(2, 16, dtype=torch.int64),), dynamic_shapes={"ids": {0: torch.export.Dim("batch")}}
    )
    torch.export.save(program, tmp_path / "net.pt2")
    reference = parse_reference(str(tmp_path / "net.pt2"))
    found = load(reference, batch=3, specs=(parse_input("ids=B,16:int64=40..50"),))
    feeds = fed(found, tmp_path / "run")
    assert (found.inputs_origin, feeds["ids"].shape) == ("given", (3, 16))
    assert set(feeds["ids"].reshape(-1)) <= set(range(40, 51))
    with pytest.raises(InputError, match="takes no input x"):
        load(reference, specs=(parse_input("x=B,16:int64=3"),))
    with pytest.raises(InputError, match="declares ids"):
        load(reference, specs=(parse_input("ids=B,17:int64=3"),))


def test_every_kind_of_model_is_fed_the_same_values(
    loaded: Callable[..., Loaded], written_onnx: Path, tmp_path: Path
) -> None:
    specs = tuple(map(parse_input, ("ids=B,16:int64=0..999", "x=B,16=0..1")))
    of_python = loaded("def added(ids, x): return ids + x", batch=4, specs=specs)
    of_file = load(parse_reference(str(written_onnx)), batch=4, specs=specs)
    one, other = fed(of_python, tmp_path / "one"), fed(of_file, tmp_path / "other")
    for name in ("ids", "x"):
        np.testing.assert_array_equal(one[name], other[name])


def test_lengths_of_a_packed_sequence_can_be_said(loaded: Callable[..., Loaded]) -> None:
    # A packed sequence has no export, whatever its lengths: the error says that, and no length of 0.
    with pytest.raises(ExportError) as caught:
        loaded(
            """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lstm = nn.LSTM(8, 4, batch_first=True)
                def forward(self, x, lengths):
                    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
                    return self.lstm(packed)[1][0]
            """,
            batch=2,
            specs=tuple(map(parse_input, ("x=B,16,8", "lengths=B:int64=16"))),
        )
    assert "Packed sequences" in (caught.value.hint or "")


def test_values_are_part_of_the_caches_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "net.py"
    path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(LENGTHS))
    reference = parse_reference(str(path))

    def is_cached(*texts: str) -> bool:
        return load(reference, batch=2, specs=tuple(map(parse_input, texts))).cached

    assert not is_cached(*SPECS)
    assert is_cached(*SPECS)
    assert not is_cached(SPECS[0], "lengths=B:int64=8")


GRAPH = """
    class Net(nn.Module):
        def forward(self, x, edges): return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
"""


def test_a_batch_on_which_no_input_depends_is_refused(loaded: Callable[..., Any]) -> None:
    specs = [parse_input("x=50,4"), parse_input("edges=2,120:int64=0..49")]
    assert loaded(GRAPH, specs=specs, batch=1).batch == 1
    with pytest.raises(
        InputError, match=r"--batch 8: no input depends on the batch \(x=50,4:float32"
    ) as caught:
        loaded(GRAPH, specs=specs, batch=8)
    # With B for the nodes, edges 0..49 would join nodes that are not there.
    assert caught.value.hint == (
        "The nodes of a graph are no batch: leave --batch out, or give more nodes and edges instead."
    )


def test_a_batch_that_is_written_out_in_every_input_is_that_batch(loaded: Callable[..., Any]) -> None:
    code = "class Net(nn.Module):\n    def forward(self, x, y): return x + y"
    specs = [parse_input("x=8,4"), parse_input("y=8,1")]
    assert loaded(code, specs=specs, batch=8).batch == 8
    with pytest.raises(InputError, match="no input depends on the batch") as caught:
        loaded(code, specs=specs, batch=4)
    assert "--input x=B,4:float32, or leave --batch out" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("function", "fits"),
    [
        ("example_inputs(): return torch.randn(8, 4)", False),
        ("example_inputs(batch): return torch.randn(8, 4)", False),
        ("example_inputs(batch): return torch.randn(5 * batch, 4)", True),
        ("example_inputs(): return torch.randn(16, 4)", True),
    ],
)
def test_a_batch_that_the_files_inputs_do_not_follow_is_refused(
    loaded: Callable[..., Any], function: str, fits: bool
) -> None:
    code = f"model = nn.Linear(4, 4)\ndef {function}"
    if fits:
        assert loaded(code, batch=16).batch == 16
    else:
        with pytest.raises(
            InputError, match="--batch 16: example_inputs gives the same inputs at every batch, 8"
        ):
            loaded(code, batch=16)


def test_a_batch_that_an_input_of_a_file_contradicts_is_refused(written_onnx: Path) -> None:
    specs = [parse_input("x=5,16")]
    assert load(parse_reference(str(written_onnx)), specs=specs, batch=5).batch == 5
    with pytest.raises(InputError, match="--batch 8: --input gives batch, which is the batch, the size 5"):
        load(parse_reference(str(written_onnx)), specs=specs, batch=8)
