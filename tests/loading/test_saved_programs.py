"""Saved programs (.pt2): PyTorch loads them, with their weights and the range of their batch."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyzer.cli import run_command_line
from analyzer.errors import ModelError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.weights import materialise


def analysed(path: Path, batch: int | None = None) -> Loaded:
    return load(parse_reference(str(path)), batch=batch, use_cache=False)


class Net(torch.nn.Module):
    """Tied weights, a buffer that is not saved, a constant, inputs and outputs in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4, bias=False)
        self.head = torch.nn.Linear(4, 4)
        self.head.weight = self.layer.weight
        self.register_buffer("scratch", torch.arange(4.0), persistent=False)

    def forward(self, x: Any, d: Any) -> Any:
        y = self.head(self.layer(x) + d["k"]) + self.scratch + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return {"y": y, "twice": [torch.cat([y, y])]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program for batches from 4 to 64, exported with 5."""
    path = tmp_path_factory.mktemp("saved") / "net.pt2"
    rows = torch.export.Dim("rows", min=4, max=64)
    inputs = (torch.ones(5, 4), {"k": torch.ones(5, 4)})
    program = torch.export.export(Net(), inputs, dynamic_shapes=({0: rows}, {"k": {0: rows}}))
    torch.export.save(program, path, extra_files={"notes.txt": "mine"})
    return path


def test_a_program_has_its_batches_parameters_and_lines(saved: Path) -> None:
    found = analysed(saved)
    assert (found.batch, found.batch_range, found.parameters) == (5, (4, 64), 20)
    graph = found.graph(9)
    assert [value.shape for value in graph.outputs] == [(9, 4), (18, 4)]
    assert any(node.source and "test_saved_programs.py" in node.source.file for node in graph.nodes)


def test_a_program_is_run_with_its_weights(saved: Path, tmp_path: Path) -> None:
    import onnxruntime as ort

    runnable = materialise(analysed(saved), 7, tmp_path)
    session = ort.InferenceSession(runnable.model_path, providers=["CPUExecutionProvider"])
    found = session.run(None, dict(runnable.feeds))
    x, k = (torch.from_numpy(value) for value in runnable.feeds.values())
    wanted = torch.export.load(saved).module()(x, {"k": k})
    np.testing.assert_allclose(found[0], wanted["y"].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_program_with_a_container_of_the_users_is_one_clear_error(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "theirs.pt2"
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(path, "w") as other:
        for name in archive.namelist():
            content = archive.read(name)
            other.writestr(name, content.replace(b"builtins.dict", b"their.Pairing"))
    with pytest.raises(ModelError, match="no exported program that torch"):
        analysed(path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_broken_program_is_one_error_and_status_2(
    share: float, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.pt2"
    content = saved.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert run_command_line(["check", str(path)]) == 2
    error = capsys.readouterr().err
    assert "is no exported program that torch" in error
    assert "hint: Save it with torch.export.save" in error
    assert "Traceback" not in error
