"""Reading ONNX files: weights stay on disk, and what is wrong with a file is told."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.errors import ModelError
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.loading.onnx_graph.onnx_file import read_model


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, onnx.ModelProto]:
    weights = numpy_helper.from_array(np.zeros((512, 256), np.float32), "w")
    shape = numpy_helper.from_array(np.array([-1, 16], np.int64), "shape")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Reshape", ["y", "shape"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 512])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [weights, shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path, model


def test_weights_stay_on_disk_and_small_values_are_read(saved: tuple[Path, onnx.ModelProto]) -> None:
    path, model = saved
    read = read_model(path)
    assert read.ByteSize() < 2000 < model.ByteSize()
    graph = to_graph(read)
    weights, shape = graph.initializers
    assert (weights.shape, weights.nbytes, weights.value) == ((512, 256), 512 * 256 * 4, None)
    assert shape.value.tolist() == [-1, 16]
    assert graph.outputs[0].shape == (64, 16)


def test_a_file_read_without_weights_is_else_the_same(saved: tuple[Path, onnx.ModelProto]) -> None:
    path, model = saved
    read = read_model(path)
    for tensor in (*read.graph.initializer, *model.graph.initializer):
        for field in ("raw_data", "data_location"):
            tensor.ClearField(field)
    assert read == model


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere\.onnx"):
        read_model(tmp_path / "nowhere.onnx")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="folder"):
        read_model(tmp_path)


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match="empty"):
        read_model(tmp_path / "empty.onnx")


@pytest.mark.parametrize("keep", [5, 100, 20_000, 300_000])
def test_a_file_that_is_cut_off_is_told(saved: tuple[Path, onnx.ModelProto], keep: int) -> None:
    path, _ = saved
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert caught.value.hint


@pytest.mark.parametrize(
    "content",
    [b"PK\x03\x04 a zip archive" * 40, b"import torch\n" * 3000, b"\x80\x02}q\x00." * 9, b"\xff" * 50_000],
)
def test_a_file_of_another_kind_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"other\.onnx"):
        read_model(tmp_path / "other.onnx")


def test_a_newer_opset_is_told_with_both_versions(saved: tuple[Path, onnx.ModelProto]) -> None:
    path, model = saved
    model.opset_import[0].version = 999
    onnx.save(model, path)
    with pytest.raises(ModelError, match=r"opset 999.*knows") as caught:
        read_model(path)
    assert "older opset" in caught.value.hint


def test_a_newer_ir_is_told(saved: tuple[Path, onnx.ModelProto]) -> None:
    path, model = saved
    model.ir_version = 999
    onnx.save(model, path)
    with pytest.raises(ModelError, match="IR version 999"):
        read_model(path)


def test_external_data_need_not_be_there(saved: tuple[Path, onnx.ModelProto], tmp_path: Path) -> None:
    path, model = saved
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    assert to_graph(read_model(path)).initializers[0].shape == (512, 256)


def test_a_git_lfs_pointer_is_told_from_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelError, match="Git LFS pointer") as caught:
        read_model(path)
    assert "git lfs pull" in caught.value.hint
