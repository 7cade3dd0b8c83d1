"""``--input-data FILE``: shapes, types and values of inputs from NumPy's files, perhaps a stranger's."""

import io
import pickle
import textwrap
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.errors import AnalyzerError, InputError, UsageError
from analyzer.loading.input_values import read_input_data
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.weights import materialise
from analyzer.pipeline.options import make_options

_MEMORY = 2**26
ADDED = "class Net(nn.Module):\n    def forward(self, ids, x): return ids[:, None] * 2 + x"


def _ids_and_x(rows: int = 3) -> dict[str, Any]:
    return {
        "ids": np.arange(7, 7 + rows, dtype=np.int64),
        "x": np.arange(4 * rows, dtype=np.float32).reshape(rows, 4) / 8,
    }


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    """Writes arrays with ``numpy.savez``."""

    def write(*arrays: Any, **named: Any) -> Path:
        path = tmp_path / "inputs.npz"
        np.savez(path, *arrays, **named)
        return path

    return write


def _specs(path: Path) -> Any:
    return read_input_data(path, _MEMORY)


def _fed(loaded: Loaded, folder: Path, batch: int | None = None) -> Mapping[str, Any]:
    folder.mkdir()
    return materialise(loaded, batch or loaded.batch, folder).feeds


@pytest.fixture
def added_onnx(tmp_path: Path) -> Path:
    """A file of two inputs, a number and four floats of each row."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["whole"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["whole", "axes"], ["column"]),
        helper.make_node("Add", ["column", "x"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "added", inputs, [output], [axes])
    path = tmp_path / "added.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


@pytest.mark.parametrize("by_name", [True, False])
def test_a_python_model_is_run_with_the_rows_of_the_file(
    loaded: Callable[..., Loaded], stored: Callable[..., Path], tmp_path: Path, by_name: bool
) -> None:
    arrays = _ids_and_x()
    path = stored(**arrays) if by_name else stored(*arrays.values())
    found = loaded(ADDED, specs=_specs(path))
    assert (found.batch, found.inputs_origin) == (3, "given")
    folder = tmp_path / "run"
    folder.mkdir()
    runnable = materialise(found, 3, folder)
    for name, array in arrays.items():
        np.testing.assert_array_equal(runnable.feeds[name], array)
        assert runnable.feeds[name].dtype == array.dtype
    (there,) = onnxruntime.InferenceSession(runnable.model_path).run(None, dict(runnable.feeds))
    np.testing.assert_array_equal(there, arrays["ids"][:, None] * 2 + arrays["x"])
    assert runnable.eager is not None
    np.testing.assert_array_equal(runnable.eager()[0], there)


@pytest.mark.parametrize("by_name", [True, False])
def test_an_onnx_file_is_run_with_the_rows_of_the_file(
    added_onnx: Path, stored: Callable[..., Path], tmp_path: Path, by_name: bool
) -> None:
    arrays = _ids_and_x()
    path = stored(**arrays) if by_name else stored(*arrays.values())
    found = load(parse_reference(str(added_onnx)), specs=_specs(path))
    assert (found.batch, found.graph().inputs[1].shape) == (3, (3, 4))
    feeds = _fed(found, tmp_path / "run")
    for name, array in arrays.items():
        np.testing.assert_array_equal(feeds[name], array)


def test_another_batch_repeats_the_rows_in_order(
    loaded: Callable[..., Loaded], added_onnx: Path, stored: Callable[..., Path], tmp_path: Path
) -> None:
    specs = _specs(stored(**_ids_and_x()))
    of_python = _fed(loaded(ADDED, batch=5, specs=specs), tmp_path / "python")
    of_file = _fed(load(parse_reference(str(added_onnx)), batch=5, specs=specs), tmp_path / "onnx")
    for feeds in (of_python, of_file):
        assert feeds["ids"].tolist() == [7, 8, 9, 7, 8]
        assert feeds["x"].shape == (5, 4)
        np.testing.assert_array_equal(feeds["x"][3:], feeds["x"][:2])


def test_an_array_with_other_rows_than_the_first_stays_as_it_is(
    loaded: Callable[..., Loaded], stored: Callable[..., Path], tmp_path: Path
) -> None:
    code = "class Net(nn.Module):\n    def forward(self, x, table): return x @ table"
    specs = _specs(stored(x=np.ones((2, 4), np.float32), table=np.ones((4, 3), np.float32)))
    feeds = _fed(loaded(code, batch=6, specs=specs), tmp_path / "run")
    assert (feeds["x"].shape, feeds["table"].shape) == ((6, 4), (4, 3))


def test_a_saved_program_is_run_with_the_rows_of_the_file(stored: Callable[..., Path], tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return ids * 2

    program = torch.export.export(
        Net(), (torch.zeros(2, 16, dtype=torch.int64),), dynamic_shapes={"ids": {0: torch.export.Dim("batch")}}
    )
    torch.export.save(program, tmp_path / "net.pt2")
    ids = np.arange(48, dtype=np.int64).reshape(3, 16)
    found = load(parse_reference(str(tmp_path / "net.pt2")), specs=_specs(stored(ids)))
    assert found.batch == 3
    np.testing.assert_array_equal(_fed(found, tmp_path / "run")["ids"], ids)


def test_a_npy_file_is_the_one_input(loaded: Callable[..., Loaded], tmp_path: Path) -> None:
    path, array = tmp_path / "x.npy", np.asfortranarray(np.arange(12.0, dtype=">f4").reshape(3, 4))
    np.save(path, array)
    found = loaded("model = nn.Linear(4, 2)", specs=_specs(path))
    (fed,) = _fed(found, tmp_path / "run").values()
    np.testing.assert_array_equal(fed, array)
    assert fed.dtype == np.float32


def test_texts_from_the_file_are_fed(make_onnx: Callable[..., Any], tmp_path: Path, stored: Any) -> None:
    info = helper.make_tensor_value_info("word", TensorProto.STRING, ["rows", 1])
    answer = helper.make_tensor_value_info("same", TensorProto.STRING, ["rows", 1])
    onnx.save(
        make_onnx([helper.make_node("Identity", ["word"], ["same"])], {"word": info}, [answer]),
        tmp_path / "w.onnx",
    )
    found = load(
        parse_reference(str(tmp_path / "w.onnx")), specs=_specs(stored(word=np.array([["up"], ["down"]])))
    )
    assert _fed(found, tmp_path / "run")["word"].tolist() == [["up"], ["down"]]


def test_lengths_from_the_file_decide_the_steps_of_a_recurrence(
    loaded: Callable[..., Loaded], make_onnx: Callable[..., Any], tmp_path: Path, stored: Any
) -> None:
    weights = {"w": np.ones((1, 16, 8), np.float32), "r": np.ones((1, 16, 4), np.float32)}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "lengths"], ["y"], hidden_size=4)
    lengths = helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"])
    onnx.save(
        make_onnx([node], {"x": [30, "batch", 8], "lengths": lengths}, ["y"], weights), tmp_path / "lstm.onnx"
    )
    path = stored(x=np.zeros((30, 3, 8), np.float32), lengths=np.array([4, 9, 6], np.int32))
    found = load(parse_reference(str(tmp_path / "lstm.onnx")), specs=_specs(path))
    assert found.batch == 3  # of the axis that the file names, not the first one
    assert [node.steps for node in found.graph().nodes] == [(4, 9)]


def test_other_values_are_another_export(stored: Callable[..., Path], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    model = tmp_path / "net.py"
    model.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(ADDED))

    def is_cached(*arrays: Any) -> bool:
        found = load(parse_reference(str(model)), specs=_specs(stored(*arrays)))
        assert [spec.name for spec in found.specs] == ["ids", "x"]
        return found.cached

    ids, x = _ids_and_x().values()
    assert not is_cached(ids, x)
    assert is_cached(ids, x)
    assert not is_cached(ids + 1, x)


def test_the_keyword_and_the_record_name_the_file(added_onnx: Path, stored: Callable[..., Path]) -> None:
    analysis = analyze(added_onnx, input_data=stored(**_ids_and_x()), run=False, gpu="none", cpu="epyc-9654")
    assert analysis.model.batch == 3
    assert [tuple(item.shape or ()) for item in analysis.model.inputs] == [(3,), (3, 4)]
    assert analysis.invocation is not None
    assert analysis.invocation.options["input-data"][0].endswith("inputs.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"ids": np.arange(3)}, r"the model also takes x\."),
        ({**_ids_and_x(), "z": np.zeros(3)}, r"z=3:float64: the model takes no input z\."),
        ({**_ids_and_x(), "x": np.zeros((3, 4))}, r"x=3,4:float64: the model declares x as float32\."),
        ({**_ids_and_x(), "x": np.zeros((3, 5), np.float32)}, r"declares x as \['batch', 4\]\."),
        ({**_ids_and_x(), "x": np.zeros((2, 4), np.float32)}, r"dimension batch is 3 elsewhere\."),
    ],
)
def test_arrays_that_an_onnx_file_does_not_take_are_one_error(
    added_onnx: Path, stored: Callable[..., Path], arrays: Any, message: str
) -> None:
    with pytest.raises(InputError, match=rf"--input-data .*inputs\.npz: .*{message}"):
        load(parse_reference(str(added_onnx)), specs=_specs(stored(**arrays)))


def test_a_batch_that_the_file_fixes_is_no_other_for_its_inputs(
    make_onnx: Callable[..., Any], stored: Callable[..., Path], tmp_path: Path
) -> None:
    onnx.save(
        make_onnx([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 4]}, ["y"]), tmp_path / "fixed.onnx"
    )
    specs = _specs(stored(x=np.zeros((3, 4), np.float32)))
    with pytest.raises(InputError, match=r"x=3,4:float32: the model declares x as \[2, 4\]"):
        load(parse_reference(str(tmp_path / "fixed.onnx")), specs=specs)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.arange(3)], "Net also needs x"),
        ([np.arange(3), np.zeros((3, 4)), np.zeros(3)], "arr_2=B:float64: Net takes no input arr_2"),
    ],
)
def test_arrays_that_a_python_model_does_not_take_are_one_error(
    loaded: Callable[..., Loaded], stored: Callable[..., Path], arrays: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        loaded(ADDED, specs=_specs(stored(*arrays)))
    assert caught.value.hint


def test_a_batch_without_rows_to_repeat_is_refused(
    loaded: Callable[..., Loaded], stored: Callable[..., Path]
) -> None:
    code = "class Net(nn.Module):\n    def forward(self, x): return x * 2"
    with pytest.raises(InputError, match="--batch 4: no input depends on the batch"):
        loaded(code, batch=4, specs=_specs(stored(x=np.float32(3))))


def test_one_input_from_two_places_is_refused(stored: Callable[..., Path]) -> None:
    path = stored(**_ids_and_x())
    assert {spec.name for spec in make_options(input=("z=B",), input_data=path).inputs} == {"ids", "x", "z"}
    with pytest.raises(UsageError, match="--input gives x, and so does"):
        make_options(input=("x=B,4",), input_data=path)


def _npy(header: str, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + content


def _zipped(entries: Mapping[str, bytes], **options: Any) -> bytes:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", **options) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return result.getvalue()


_FLOATS = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"
_GOOD = _npy(_FLOATS % "(2,)", b"\0" * 8)


class _Harmful:
    def __reduce__(self) -> Any:
        return pytest.fail, ("it was unpickled",)


_OBJECTS = _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", pickle.dumps([_Harmful()]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"it is no \.npz and no \.npy file"),
        (b"\x08\0\0\0\0\0\0\0{}      ", r"it is no \.npz and no \.npy file"),  # an empty safetensors file
        (_zipped({}), "it holds no arrays|is no .npz"),
        (_zipped({"x.npy": _GOOD})[:-30], "the file is damaged"),
        (_zipped({"x.npy": _GOOD[:-1]}), "x is not as large as its header says"),
        (_zipped({"x.npy": _npy(_FLOATS % "(-2,)", b"\0" * 8)}), "x is not as large as its header says"),
        (_zipped({"x.npy": _npy(_FLOATS % "(10**4)")}), "the file is damaged"),
        (_zipped({"x.npy": _npy(_FLOATS % "(999999999999, 9999)", b"\0" * 8)}), "x is not as large"),
        (_zipped({"x.npy": b"\x93NUMPY\x09\x00"}), "the file is damaged"),
        (_zipped({"x.txt": _GOOD}), r"its entry 'x\.txt' is none of numpy\.savez"),
        (_zipped({"x.npy": _GOOD}, compression=zipfile.ZIP_LZMA), r"its entry 'x\.npy' is none of"),
        (_zipped({"x.npy": _OBJECTS}), "x holds Python objects, which are never unpickled"),
        (_OBJECTS, "the array holds Python objects, which are never unpickled"),
        (
            _zipped({"x.npy": _npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8)}),
            "complex64",
        ),
        (
            _zipped({"x.npy": _npy("{'descr': '<U0', 'fortran_order': False, 'shape': (9999999999,), }")}),
            "which no input",
        ),
        (
            _zipped(
                {"x.npy": _npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", b"\0" * 4)}
            ),
            "void32",
        ),
    ],
)
def test_a_damaged_or_foreign_file_is_one_error_with_a_hint(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "inputs.npz"
    path.write_bytes(content)
    with pytest.raises(AnalyzerError, match=message) as caught:
        read_input_data(path, _MEMORY)
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_a_file_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.npz", tmp_path):
        with pytest.raises(UsageError, match="--input-data") as caught:
            read_input_data(path, _MEMORY)
        assert caught.value.hint


def test_a_bomb_is_refused_before_it_takes_the_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "bomb.npz", 2**27
    path.write_bytes(
        _zipped({"x.npy": _npy(_FLOATS % f"({size // 4},)", bytes(size))}, compression=zipfile.ZIP_DEFLATED)
    )
    assert path.stat().st_size < size / 500
    tracemalloc.start()
    try:
        with pytest.raises(
            InputError, match=r"its arrays take 134 MB of memory, and 67\.1 MB are allowed"
        ) as caught:
            read_input_data(path, _MEMORY)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**22
    assert "--limit memory=8GB" in (caught.value.hint or "")
    assert read_input_data(path, 2 * size)[0].array is not None


def test_many_small_entries_count_together(tmp_path: Path) -> None:
    path, entry = tmp_path / "many.npz", _npy(_FLOATS % "(1024,)", bytes(4096))
    path.write_bytes(_zipped({f"x{index}.npy": entry for index in range(20)}, compression=zipfile.ZIP_DEFLATED))
    assert len(read_input_data(path, 20 * 4096)) == 20
    with pytest.raises(InputError, match="its arrays take"):
        read_input_data(path, 20 * 4096 - 1)


def test_texts_count_with_the_objects_that_they_become(tmp_path: Path) -> None:
    path = tmp_path / "texts.npy"
    np.save(path, np.full(1024, "a", dtype="S1"))
    with pytest.raises(InputError, match="its arrays take"):
        read_input_data(path, 32 * 1024)
