"""Inputs that nobody gave are told first, wherever the answer is read, and what they were filled with."""

from __future__ import annotations

import html
import textwrap
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.cli import run_command_line
from analyzer.record.analysis import Analysis

TWO_INPUTS = """
    import torch
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.fc = nn.Embedding(100, 8), nn.Linear(12, 8)
        def forward(self, features, tokens):
            return self.words(tokens).mean(1) + self.fc(features)
"""
# Widths of the layers above, a type each, and the batch left open.
GUESSED = "features=B,12:float32, tokens=B,128:int64"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guessed") / "net.py"
    path.write_text(textwrap.dedent(TWO_INPUTS))
    return path


@pytest.fixture(scope="module")
def guessed(model: Path) -> Analysis:
    return analyze(model, batch=4, run=False, gpu="l4")


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_the_headline_names_the_inputs_that_were_guessed(guessed: Analysis, form: str) -> None:
    headline = " ".join(html.unescape(guessed.render(form)).replace("\\", "").split())
    headline = headline[: headline.index("Throughput" if form == "html" else "emory")]
    assert f"Inputs guessed: {GUESSED} (--input says others)." in headline


def test_the_terminal_names_them_too(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = ["--no-run", "--gpu", "none", "--format", "json", "--output", str(tmp_path / "out.json")]
    assert run_command_line([str(model), *options]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"Inputs guessed: {GUESSED}" in said


def test_the_record_holds_them_and_one_decided_anew_still_says_so(guessed: Analysis) -> None:
    assert guessed.model.guessed_inputs == tuple(GUESSED.split(", "))
    assert analyze_record(guessed, gpu="t4").model.guessed_inputs == guessed.model.guessed_inputs


def test_an_export_from_the_cache_still_says_so(
    model: Path, guessed: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path))
    found = [analyze(model, batch=4, run=False, gpu="none") for _ in range(2)]
    assert [one.environment.export_cached for one in found] == [False, True]
    assert all(one.model.guessed_inputs == guessed.model.guessed_inputs for one in found)


def test_inputs_that_were_given_are_no_guess(model: Path) -> None:
    given = analyze(model, input=GUESSED.split(", "), run=False, gpu="none")
    assert (given.model.inputs_origin, given.model.guessed_inputs) == ("given", ())
    assert "Inputs guessed" not in given.render("text")


def counting(*, read: str) -> onnx.ModelProto:
    """Rows of ones, as many as ``count`` says, or a sum with it that decides nothing."""
    whole = helper.make_tensor_value_info("count", TensorProto.INT64, [1])
    if read == "size":
        nodes = [helper.make_node("ConstantOfShape", ["count"], ["y"])]
    else:
        nodes = [helper.make_node("Cast", ["count"], ["y"], to=TensorProto.FLOAT)]
    nodes.append(helper.make_node("Relu", ["y"], ["z"]))
    graph = helper.make_graph(
        nodes, "c", [whole], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_run_says_what_a_whole_number_that_decides_sizes_was_filled_with() -> None:
    run = analyze(counting(read="size"), gpu="none", runs=1, time_budget=0.1)
    (told,) = (note for note in run.model.notes if note.startswith("The values of count decide the size of"))
    assert "as measured, which holds for the data of that run alone" in told
    assert "(--input count=1:int64=LOW..HIGH gives others)" in told
    messages = run.environment.messages
    assert any("count decides sizes or steps, and was filled with" in message for message in messages)
    said = analyze(counting(read="size"), gpu="none", runs=1, time_budget=0.1, input="count=1:int64=3")
    other = analyze(counting(read="sum"), gpu="none", runs=1, time_budget=0.1)
    for analysis in (said, other):
        assert not any("filled" in text for text in (*analysis.environment.messages, *analysis.model.notes))


def test_lengths_that_were_guessed_are_not_said_to_have_been_0_or_1(tmp_path: Path) -> None:
    path = tmp_path / "packed.py"
    path.write_text(
        textwrap.dedent("""
            import torch
            from torch import nn
            from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.words, self.lstm = nn.Embedding(100, 8), nn.LSTM(8, 4, batch_first=True)
                def forward(self, x, lengths):
                    words = self.words(x)
                    packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
                    return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]
        """)
    )
    run = analyze(path, batch=2, gpu="none", runs=1, time_budget=0.1)
    assert run.model.guessed_inputs == ("x=B,128:int64", "lengths=B:int64=128")
    told = [text for text in run.environment.messages if "was filled with" in text]
    # TorchScript fixes the batch in its graph; --input takes the line at any other too.
    assert [text.partition(" (")[0] for text in told] == [
        "Input lengths decides sizes or steps, and was filled with 128"
    ]
    assert "(--input lengths=B:int64=LOW..HIGH says others)" in told[0]
