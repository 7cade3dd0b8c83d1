"""Real records, of an inference and a training step, on devices of the catalogue; a capacity plan by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer import analyze, analyze_generation
from analyzer.record.analysis import Analysis

MLP = Path(__file__).parents[2] / "samples" / "mlp.py"


@pytest.fixture(scope="session")
def inference() -> Analysis:
    return analyze(MLP, run=False, cpu="epyc-9654", gpu="l4,t4")


@pytest.fixture(scope="session")
def training() -> Analysis:
    return analyze(MLP, run=False, cpu="epyc-9654", gpu="l4", training=True)


@pytest.fixture(scope="session")
def generation(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("generation")
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 96, "n_positions": 64}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}), encoding="utf-8")
    return analyze_generation(folder, run=False, cpu="epyc-9654", gpu="l4")


@pytest.fixture(scope="session")
def inference_text(inference: Analysis) -> str:
    return inference.render("json")


@pytest.fixture(scope="session")
def training_text(training: Analysis) -> str:
    return training.render("json")


@pytest.fixture(scope="session")
def capacity_text(inference: Analysis) -> str:
    from capacity_records import capacity

    return replace(inference, capacity=capacity()).render("json")
