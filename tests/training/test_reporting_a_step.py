"""A training step from the command line: record, page, cache, cost and several GPUs."""

from __future__ import annotations

import html as html_text
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from analyzer import analyze
from analyzer.cli import run_command_line
from analyzer.devices.catalogue import device
from analyzer.devices.device import peer_link
from analyzer.record import load_report
from analyzer.report import html, summary, training_tables
from analyzer.report.document import Table


@pytest.fixture
def record(model_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*options: Any, source: str = "mlp", more: str = "") -> Any:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
        path = model_file(source, more)
        given = [str(path), "--training", "--format", "json", "--output", "out.json", "--quiet", *options]
        assert run_command_line(given) == 0
        return json.loads((tmp_path / "out.json").read_text())

    return make


def test_the_record_says_training_and_every_operator_its_phase(record: Any) -> None:
    found = record("--no-run")
    assert found["model"]["training"] is True
    assert {item["phase"] for item in found["operators"]} == {"forward", "backward", "optimizer"}
    step = found["training"]
    assert [phase["name"] for phase in step["phases"]] == ["forward", "backward", "optimizer"]
    for key in ("flops", "macs", "bytes_read", "bytes_written", "operators"):
        assert sum(phase[key] for phase in step["phases"]) == found["totals"][key]
    assert any("cross-entropy" in text for text in step["assumed"])
    assert any("Adam" in text for text in step["assumed"])


def test_the_first_screen_says_which_loss_and_optimizer_were_assumed_and_what_is_fed(
    record: Any, tmp_path: Path
) -> None:
    record("--no-run", "--batch", "8")
    told = load_report(tmp_path / "out.json")
    shown = html.render(told)
    screen = html_text.unescape(shown[: shown.index('class="first-grid"')])
    for words in told.training.assumed:
        assert words in screen
    # The rows of the file's own layers and of the optimizer are no inputs.
    (fed,) = re.findall(r"<dt>Inputs</dt><dd>(.*?)</dd>", shown)
    assert [words.split()[0] for words in fed.split(", ")] == ["input", "targets"]


def test_dollars_and_joules_of_a_step_are_those_of_examples(record: Any, tmp_path: Path) -> None:
    """Their sums go over the rows of the batch: a step has as many examples as it has rows."""
    record("--no-run", "--gpu", "l4")
    shown = html.render(load_report(tmp_path / "out.json"))
    assert "million examples of training" in shown
    assert "million inferences" not in shown


RECURRENT = """
    import torch
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.{layer}(4, 4, batch_first=True)
            self.head = nn.Linear(4, 2)
        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])
    model = Net()
    def example_inputs(batch=2): return torch.randn(batch, 16, 4)
"""


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_a_step_whose_recurrences_are_unrolled_says_so_on_the_first_screen(tmp_path: Path, layer: str) -> None:
    """16 steps of a layer are 16 times its gates in the graph; PyTorch's cuDNN has one kernel for all."""
    path = tmp_path / "net.py"
    path.write_text(textwrap.dedent(RECURRENT.format(layer=layer)))
    told = analyze(path, training=True, batch=2, gpu="l4", run=False)
    gates = [each for each in told.operators if each.op_type == "Tanh" and each.phase == "forward"]
    assert len(gates) >= 16
    whose = "The step is ONNX Runtime's: its recurrences are unrolled into single operators; PyTorch's own"
    shown = html_text.unescape(html.render(told))
    assert whose in shown[: shown.index('class="first-grid"')]
    assert "The recurrences of rnn are unrolled into single operators" in " ".join(told.model.notes)


def test_a_step_without_recurrences_is_said_to_be_of_onnx_runtime(record: Any, tmp_path: Path) -> None:
    record("--no-run")
    told = load_report(tmp_path / "out.json")
    assert summary.whose_step(told) == "The step is ONNX Runtime's, not PyTorch's eager mode."
    assert summary.whose_step(told) in summary.assumed(told)


def test_weights_stay_on_the_device_and_only_inputs_are_copied(record: Any) -> None:
    found = record("--no-run", "--gpu", "a100")
    gpu = next(plan for plan in found["plans"] if plan["name"] == "gpu")
    copied = {item["tensor"] for item in gpu["transfers"]["items"]}
    assert "input" in copied
    assert not any(name.startswith(("0.", "2.")) for name in copied)
    # All operators have CUDA kernels once they are taken apart.
    assert all(item["gpu"]["placed_on"] == "cuda" for item in found["operators"] if item["phase"] != "forward")


def test_the_same_step_from_the_cache_gives_the_same_record(record: Any) -> None:
    first, second = record("--no-run"), record("--no-run")
    assert second["environment"]["export_cached"]
    first.pop("environment")
    second.pop("environment")
    assert first == second


def test_a_file_that_says_everything_has_nothing_assumed(record: Any) -> None:
    more = """
        criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}

        def example_targets(batch):
            return torch.randint(0, 5, (batch,))
        """
    step = record("--no-run", more=more)["training"]
    assert step["assumed"] == []
    assert step["optimizer"] == "Sgd"
    assert step["memory"]["optimizer_state_bytes"] == step["memory"]["gradients_bytes"]


def test_an_epoch_is_as_many_steps_as_the_examples_need(record: Any) -> None:
    # A rented CPU: the one of the machine that runs this test may have no dollars.
    found = record("--no-run", "--batch", "8", "--dataset-size", "100", "--cpu", "graviton4")
    row = found["training"]["costs"][0]
    assert row["thousand_steps_s"] == pytest.approx(1000 * row["step_s"])
    assert row["epoch_s"] == pytest.approx(13 * row["step_s"])
    plan = found["plans"][0]
    assert row["usd_per_thousand_steps"] == pytest.approx(plan["usd_per_million"] / 1e6 * 8 * 1000)


def test_what_steps_cost_names_the_rented_machine_whose_dollars_stand_there(
    record: Any, tmp_path: Path
) -> None:
    plan = record("--no-run", "--batch", "8", "--dataset-size", "100", "--cpu", "graviton4")["plans"][0]
    costs = next(
        table
        for table in training_tables.blocks(load_report(tmp_path / "out.json"))
        if isinstance(table, Table) and table.title == "What steps cost"
    )
    assert costs.lead.startswith("An epoch is 100 examples. Dollars are of rented machines at full use: ")
    assert plan["instance"] == "c8g.48xlarge"
    assert plan["instance"] in costs.lead


def test_the_page_shows_the_phases_side_by_side(
    model_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    analysis = analyze(model_file("convnet"), training=True, run=False)
    page = analysis.render("html")
    for words in (
        "The training step",
        "Phases of the step",
        "forward",
        "backward",
        "optimizer",
        "Several GPUs",
    ):
        assert words in page
    assert "Phases of the step" in analysis.render("text")
    assert "### Phases of the step" in analysis.render("markdown")


def test_a_module_in_memory_is_left_as_it_was() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    analysis = analyze(model, inputs=torch.randn(5, 4), training=True, run=False)
    assert analysis.training is not None
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("name", "link"), [("a100-80gb-sxm", "NVLink 3"), ("h100-80gb-sxm", "NVLink 4")])
def test_gpus_on_a_board_are_joined_by_nvlink(name: Any, link: Any) -> None:
    assert peer_link(device(name)).name == link


def test_other_gpus_are_joined_by_their_bus() -> None:
    assert peer_link(device("l4")).name.startswith("PCIe")
