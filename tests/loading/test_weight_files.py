"""Files of weights and of pickled models: told what they are, and never executed."""

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from analyzer.cli import run_command_line
from analyzer.errors import ModelError
from analyzer.loading.model_reference import parse_reference


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Trap:
    """What unpickling it would leave behind is a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def told(path: Path) -> tuple[str, str]:
    with pytest.raises(ModelError) as caught:
        parse_reference(str(path))
    return caught.value.message, caught.value.hint or ""


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt"])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_weights_and_pickled_models_need_the_code_that_builds_the_model(
    tmp_path: Path, suffix: str, zipped: bool, whole: bool
) -> None:
    path = tmp_path / f"weights{suffix}"
    torch.save(Net() if whole else Net().state_dict(), path, _use_new_zipfile_serialization=zipped)
    message, hint = told(path)
    assert "holds weights or a pickled model; it is not unpickled" in message
    assert "Name the code" in hint


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_of_a_pickle_is_executed(tmp_path: Path, zipped: bool) -> None:
    made, path = tmp_path / "made", tmp_path / "trap.pt"
    torch.save({"w": torch.ones(2), "trap": Trap(made)}, path, _use_new_zipfile_serialization=zipped)
    told(path)
    assert not made.exists()
    torch.load(path, weights_only=False)  # the trap is one
    assert made.exists()


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torchscript_says_how_to_make_a_file_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scripted.pt"
    torch.jit.save(torch.jit.script(Net()), path)
    message, hint = told(path)
    assert "TorchScript" in message
    assert "torch.export.save" in hint
    assert "torch.onnx.export" in hint


def test_an_exported_program_under_another_name_is_to_be_renamed(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Net(), (torch.ones(1, 2),)), tmp_path / "model.pt2")
    (tmp_path / "model.pt2").rename(tmp_path / "model.pt")
    message, hint = told(tmp_path / "model.pt")
    assert "torch.export" in message
    assert "model.pt2" in hint


def test_safetensors_are_weights_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    # The format's own description: eight bytes of length, JSON with offsets, data.
    one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "a.weight": one}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert "holds weights alone (safetensors)" in told(path)[0]


def test_a_pointer_of_git_lfs_is_to_be_fetched(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n")
    assert "git lfs pull" in told(path)[1]


def test_damaged_and_other_files_are_of_no_kind_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(Net().state_dict(), path)
    whole = path.read_bytes()
    contents = [
        b"",
        b"PK",
        b"\x80",
        whole[:100],
        whole[: len(whole) // 2],
        b"\xff" * 7 + b"\x7f{1}",
        b"8" * 600,
    ]
    for content in contents:
        path.write_bytes(content)
        assert "no kind that can be read" in told(path)[0]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "x")
    assert "no kind that can be read" in told(path)[0]


def test_the_command_ends_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(Net(), tmp_path / "model.pt")
    assert run_command_line([str(tmp_path / "model.pt")]) == 2
    assert "pickled model" in capsys.readouterr().err
