"""Tensors saved, loaded, and handed to ONNX Runtime: every type survives."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from analyzer.errors import InputError
from analyzer.measurement.tensor_files import (
    from_ortvalue,
    load_tensors,
    make_feeds,
    onnx_type,
    random_tensor,
    save_tensors,
    to_ortvalue,
)

KINDS = [
    *(
        np.float32,
        np.float64,
        np.float16,
        np.int8,
        np.int16,
        np.int32,
        np.int64,
        np.uint8,
        np.uint16,
        np.uint32,
    ),
    *(np.uint64, np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    *(ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
def test_every_type_comes_back_from_disk(tmp_path: Path, kind: Any) -> None:
    array = np.array([[0, 1, 2], [3, 1, 0]]).astype(kind)
    save_tensors(tmp_path / "t.npz", {"x": array})
    back = load_tensors(tmp_path / "t.npz")["x"]
    assert back.dtype == np.dtype(kind)
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", ["file", "a/b:0", "x.npy", "__x__", "naïve", "a b", "[0]"])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    save_tensors(tmp_path / "t.npz", {name: np.arange(3)})
    assert list(load_tensors(tmp_path / "t.npz")) == [name]


def test_text_scalars_empty_arrays_and_sequences_come_back(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {
        "text": np.array(["a", "bc"], dtype=object),
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 4), np.float32),
        "sequence": [np.arange(2), np.arange(3)],
    }
    save_tensors(tmp_path / "t.npz", tensors)
    back = load_tensors(tmp_path / "t.npz")
    assert back["text"].tolist() == ["a", "bc"]
    assert back["scalar"].shape == ()
    assert back["empty"].shape == (0, 4)
    assert [array.size for array in back["sequence"]] == [2, 3]


def test_a_plain_numpy_file_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.arange(4), y=np.float16(1))
    assert set(load_tensors(tmp_path / "t.npz")) == {"x", "y"}


def test_raw_bits_can_be_declared(tmp_path: Path) -> None:
    save_tensors(tmp_path / "t.npz", {"x": np.array([0x3F80], np.uint16)}, types={"x": "bfloat16"})
    back = load_tensors(tmp_path / "t.npz")["x"]
    assert isinstance(back, np.ndarray)
    assert onnx_type(back) == "bfloat16"
    assert float(back[0]) == 1.0  # 0x3F80 is bfloat16's one


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no archive"])
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.npz").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        load_tensors(tmp_path / "t.npz")
    with pytest.raises(InputError):
        load_tensors(tmp_path / "missing.npz")


@pytest.mark.parametrize(
    "kind", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, ml_dtypes.float8_e4m3fn]
)
def test_onnxruntime_gives_back_what_it_was_given(kind: Any) -> None:
    array = np.array([[1, 2, 0.5]]).astype(kind)
    np.testing.assert_array_equal(from_ortvalue(to_ortvalue(array)).astype(float), array.astype(float))


@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "bfloat16", "float8_e4m3fn"])
def test_a_scalar_stays_a_scalar(tmp_path: Path, kind: str) -> None:
    scalar = np.array(1).astype(np.dtype(getattr(ml_dtypes, kind, kind)))
    assert to_ortvalue(scalar).shape() == []
    save_tensors(tmp_path / "t.npz", {"x": scalar})
    assert load_tensors(tmp_path / "t.npz")["x"].shape == ()


def test_an_array_in_another_order_keeps_its_values() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(from_ortvalue(to_ortvalue(array)), array)


def test_types_below_a_byte_cannot_be_bound() -> None:
    with pytest.raises(InputError, match="int4"):
        to_ortvalue(np.array([1], ml_dtypes.int4))


@pytest.mark.parametrize(
    ("kind", "values"),
    # An odd number of them: of the last byte half is nobody's.
    [(TensorProto.INT4, [-8, -1, 0, 3, 7]), (TensorProto.UINT4, [0, 15, 1, 14, 8])],
)
def test_what_a_session_gives_in_4_bits_is_unpacked(kind: int, values: list[int]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.INT32, [5])
    y = helper.make_tensor_value_info("y", kind, [5])
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=kind)], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = ort.OrtValue.ortvalue_from_numpy(np.array(values, dtype=np.int32))
    (narrow,) = session.run_with_ort_values(None, {"x": given})
    np.testing.assert_array_equal(np.asarray(from_ortvalue(narrow)).astype(np.int32), values)


@given(st.sampled_from(["float", "float16", "bfloat16", "int64", "bool", "uint8", "double"]), st.integers(0, 5))
def test_made_up_arrays_have_the_type_and_shape_asked_for(kind: Any, size: int) -> None:
    array = random_tensor(kind, (size, 2), np.random.default_rng(0))
    assert array.shape == (size, 2)
    assert onnx_type(array) == {"float": "float32", "double": "float64"}.get(kind, kind)


class Input:
    def __init__(self, name: str, kind: str, shape: list[int | str] | None) -> None:
        self.name, self.type, self.shape = name, kind, shape


def test_made_up_feeds_are_the_same_each_time() -> None:
    wanted = [Input("x", "tensor(float)", [2, "n"]), Input("ids", "tensor(int64)", [3])]
    first, assumed = make_feeds(wanted)
    second, _ = make_feeds(wanted)
    assert first["x"].shape == (2, 1)
    assert set(first["ids"]) <= {0, 1}
    assert assumed == ("dimension 'n' of input x taken as 1",)
    np.testing.assert_array_equal(first["x"], second["x"])


def test_a_sequence_cannot_be_made_up() -> None:
    with pytest.raises(InputError, match="seq"):
        make_feeds([Input("x", "seq(tensor(float))", None)])
