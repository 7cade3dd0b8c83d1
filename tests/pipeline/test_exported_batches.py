"""A model whose export is for one batch is exported again at each other batch that was asked for."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.record import from_json

# torch.export cannot follow packed sequences: TorchScript does, with the sizes of one batch.
PACKED = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(16, 8, batch_first=True)

    def forward(self, x, lengths):
        {check}
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]

def build_model():
    return Tagger()

def example_inputs(batch):
    return torch.randn(batch, 12, 16), torch.full((batch,), 12)
"""


def tagger(folder: Path, check: str = "") -> Path:
    path = folder / "tagger.py"
    path.write_text(PACKED.format(check=check or "pass"), encoding="utf-8")
    return path


def test_every_batch_asked_for_is_run_where_torchscript_fixes_one(tmp_path: Path) -> None:
    analysis = analyze(tagger(tmp_path), batch="2,4", gpu="none", runs=5, threads=1)
    assert {row.batch: row.plans["cpu"].origin for row in analysis.sweep} == {2: "measured", 4: "measured"}


def test_every_batch_asked_for_is_analysed_where_torchscript_fixes_one_and_decided_anew(tmp_path: Path) -> None:
    analysis = analyze(tagger(tmp_path), batch="2,4,8", run=False, gpu="l4")
    assert analysis.model.exporter == "torchscript"
    gpu = [row.plans["gpu"].throughput_per_s for row in analysis.sweep]
    # Few rows leave the card idle: a step takes about as long for each of these batches.
    assert gpu[0] < gpu[1] < gpu[2]
    assert not [note for note in analysis.model.notes if note.startswith("Not analysed")]
    again = analyze_record(from_json(analysis.render("json")), gpu="a100")
    fresh = analyze(tagger(tmp_path), batch="2,4,8", run=False, gpu="a100")
    assert [row.batch for row in again.sweep] == [2, 4, 8]
    for one, other in zip(again.sweep, fresh.sweep, strict=True):
        assert one.plans["gpu"].latency_s == pytest.approx(other.plans["gpu"].latency_s)


def test_a_batch_that_the_models_code_forbids_is_named_with_the_reason(tmp_path: Path) -> None:
    check = 'assert x.shape[0] != 3, "three rows are one too many"'
    analysis = analyze(tagger(tmp_path, check), batch="2,3,4", run=False, gpu="l4")
    assert [row.batch for row in analysis.sweep] == [2, 4]
    (note,) = [note for note in analysis.model.notes if note.startswith("Not analysed")]
    assert note.startswith("Not analysed at batch 3: ")
    assert "three rows are one too many" in note


def test_batches_that_a_file_does_not_hold_are_named() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    analysis = analyze(model, batch="4,8,16", run=False, gpu="l4")
    assert (
        "Not analysed at batch 8 and 16: the file holds the model at one batch alone." in analysis.model.notes
    )


def test_a_module_given_as_an_object_is_exported_again_and_stays_in_its_mode() -> None:
    import torch

    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(16, 8, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.shape[0] in (2, 4)
            return self.lstm(x)[0] * float(x.shape[0])

    module = Tagger().train()
    analysis = analyze(
        module, inputs=lambda batch: torch.randn(batch, 12, 16), batch="2,4", run=False, gpu="l4"
    )
    assert [row.batch for row in analysis.sweep if row.batch in (2, 4)] == [2, 4]
    assert module.training
