"""MODEL on the command line."""

from pathlib import Path

import pytest

from analyzer.errors import ModelError
from analyzer.loading.model_reference import parse_reference


def test_a_python_file_is_read_with_and_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("")
    assert parse_reference(str(path)).name is None
    named = parse_reference(f"{path}:Net.Inner")
    assert (named.path, named.name, named.stem) == (path, "Net.Inner", "net-Net.Inner")


def test_a_dotted_module_needs_a_name_after_the_colon() -> None:
    reference = parse_reference("package.module:Name")
    assert (reference.module, reference.name, reference.kind) == ("package.module", "Name", "python")


@pytest.mark.parametrize(("suffix", "kind"), [(".onnx", "onnx"), (".pt2", "pt2"), (".json", "record")])
def test_the_kind_follows_from_the_suffix(tmp_path: Path, suffix: str, kind: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"")
    assert parse_reference(str(path)).kind == kind


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "resnet50.py").write_text("")
    with pytest.raises(ModelError, match="No such file") as caught:
        parse_reference(str(tmp_path / "resnet5.py"))
    assert "resnet50.py" in caught.value.hint


@pytest.mark.parametrize("name", ["weights.bin", "notes.txt"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(ModelError, match="no kind that can be read"):
        parse_reference(str(tmp_path / name))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        parse_reference(str(tmp_path))
