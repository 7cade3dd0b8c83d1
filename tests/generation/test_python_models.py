"""Python files and modules that generate: by their configuration, or by the inputs of a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer import analyze, analyze_generation
from analyzer.costs import count
from analyzer.errors import AnalyzerError, ModelError, UsageError
from analyzer.generation.request import StepSizes, StepTypes
from analyzer.generation.sources import from_module, from_python
from analyzer.loading.model_reference import parse_reference

SAMPLES = Path(__file__).parents[2] / "samples"
WIDTH, VOCABULARY = 16, 50
MODEL = f"""
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding({VOCABULARY}, {WIDTH})
        self.keys = nn.Linear({WIDTH}, {WIDTH}, bias=False)
        self.head = nn.Linear({WIDTH}, {VOCABULARY}, bias=False)

    def forward(self, ids, past):
        x = self.words(ids)
        present = torch.cat([past, self.keys(x)], dim=1)
        scores = torch.softmax(x @ present.transpose(1, 2), dim=-1)
        return self.head(scores @ present), present
"""
INPUTS = f"""
def example_inputs(batch=1, tokens=1, past=8):
    return torch.randint(0, {VOCABULARY}, (batch, tokens)), torch.zeros(batch, past, {WIDTH})
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "tiny.py"
    path.write_text(text, encoding="utf-8")
    return path


def source(path: Path) -> Any:
    return from_python(parse_reference(str(path)))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The file's model, exported once."""
    return source(written(tmp_path_factory.mktemp("tiny"), MODEL + INPUTS)).model


@pytest.mark.parametrize(("batch", "tokens", "context"), [(1, 1, 30), (3, 1, 9), (2, 7, 7), (2, 4, 12)])
def test_a_module_with_a_cache_is_exported_once_and_bound_to_every_step(
    tiny: Any, batch: int, tokens: int, context: int
) -> None:
    graph = tiny.whole_step(StepSizes(batch=batch, tokens=tokens, context=context), StepTypes())
    # A new token goes through both products, and meets all keys twice: scores, and what they weigh.
    row = WIDTH * WIDTH + WIDTH * VOCABULARY + 2 * context * WIDTH
    assert sum(cost.macs or 0 for cost in count(graph).costs) == batch * tokens * row


def test_an_export_is_used_again_until_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "sizes.py").write_text("WIDTH = 16\n", encoding="utf-8")
    path = written(tmp_path, "import sizes\n" + (MODEL + INPUTS).replace(str(WIDTH), "sizes.WIDTH"))
    asked: dict[str, Any] = {"run": False, "gpu": "a100", "cpu": "epyc-9654", "prompt": 20}
    first, second = (analyze_generation(path, **asked) for _ in range(2))
    assert [first.environment.export_cached, second.environment.export_cached] == [False, True]
    assert replace(second, environment=first.environment) == first
    assert not analyze_generation(path, **asked, cache=False).environment.export_cached
    # A module that the model's file imports is a part of it.
    (tmp_path / "sizes.py").write_text("WIDTH = 24\n", encoding="utf-8")
    wider = analyze_generation(path, **asked)
    assert not wider.environment.export_cached
    assert wider.generation is not None
    assert wider.generation.kv_bytes_per_token == 24 * 4


def test_an_export_of_a_step_is_not_that_of_the_model_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    path = written(tmp_path, MODEL + INPUTS)
    analyze(path, run=False)
    assert not analyze_generation(path, run=False).environment.export_cached
    # The same file, key and folder: its own inputs, and no named sizes.
    assert analyze(path, run=False).model.inputs[1].shape == (1, 8, WIDTH)


def test_the_cache_of_a_module_is_what_it_takes_and_returns(tmp_path: Path) -> None:
    path = written(tmp_path, MODEL + INPUTS)
    answer = analyze_generation(path, run=False, gpu="a100", prompt=20, output_tokens=10).generation
    assert answer.kv_bytes_per_token == WIDTH * 4  # float32, keys that are values as well
    assert answer.memory.kv_bytes == 30 * WIDTH * 4
    assert answer.memory.weights_bytes == (2 * VOCABULARY * WIDTH + WIDTH * WIDTH) * 4


def test_a_file_without_the_inputs_of_a_step_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="neither a configuration") as raised:
        source(written(tmp_path, MODEL))
    assert "def example_inputs(batch=1, tokens=1, past=64)" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MODEL + INPUTS.replace("past, ", "2 * past, "), "neither batch, tokens, past nor tokens"),
        (MODEL.replace("present\n", "scores\n") + INPUTS, "is not fed back"),
        (MODEL.replace("x = self", "assert ids.shape[1] == 3\n        x = self") + INPUTS, "fixes tokens to 3"),
    ],
    ids=["another size", "no present", "a fixed size"],
)
def test_a_model_that_cannot_be_varied_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(AnalyzerError, match=said):
        source(written(tmp_path, text))


def test_a_file_with_a_configuration_needs_no_cache_of_its_own(tmp_path: Path) -> None:
    config = (
        "{'model_type': 'llama', 'vocab_size': 64, 'hidden_size': 32, 'intermediate_size': 48, "
        "'num_hidden_layers': 3, 'num_attention_heads': 4, 'num_key_value_heads': 2, "
        "'max_position_embeddings': 256}"
    )
    text = MODEL.replace("super().__init__()", f"super().__init__()\n        self.config = {config}")
    answer = analyze_generation(
        written(tmp_path, text), run=False, gpu="a100", prompt=20, output_tokens=10
    ).generation
    # Three layers, keys and values of two heads of eight, in 16 bits.
    assert answer.kv_bytes_per_token == 3 * 2 * 2 * 8 * 2
    assert answer.model_context == 256


def test_a_module_in_memory_is_what_its_file_is(tiny: Any) -> None:
    import torch

    names: dict[str, Any] = {}
    exec(compile(MODEL + INPUTS, "tiny.py", "exec"), names)
    module = names["Tiny"]().train()
    sizes = StepSizes(batch=2, tokens=1, context=12)
    graphs = [
        found.whole_step(sizes, StepTypes())
        for found in (from_module(module, names["example_inputs"]).model, tiny)
    ]
    first, second = (
        [(node.op_type, [t.shape for t in node.present_outputs]) for node in g.nodes] for g in graphs
    )
    assert first == second
    assert module.training
    assert isinstance(module, torch.nn.Module)


def test_the_sample_that_writes_has_keys_and_values_of_six_layers() -> None:
    request: dict[str, Any] = {"run": False, "gpu": "a100", "prompt": 64, "output_tokens": 8}
    analysis = analyze_generation(SAMPLES / "generate.py", **request)
    assert analysis.model.parameters == 30_339_456
    answer = analysis.generation
    assert answer.kv_bytes_per_token == 6 * 2 * 384 * 4
    assert answer.model_context == 1024  # rows of its table of positions


@pytest.mark.parametrize(
    ("name", "token"),
    [("llama_7b", 32 * 2 * 4096 * 2), ("gpt3_175b", 96 * 2 * 12288 * 2)],  # keys and values of 16 bits
)
def test_the_largest_samples_generate_by_their_configuration(name: str, token: int) -> None:
    found = source(SAMPLES / f"{name}.py").model
    assert found.parameters == {"llama_7b": 6_738_415_616, "gpt3_175b": 174_604_259_328}[name]
    layers = found.architecture.layers
    assert sum(2 * layer.mixer.key_heads * layer.mixer.size for layer in layers) * 2 == token


def test_a_model_is_built_with_its_arguments_and_asked_again_with_them(tmp_path: Path) -> None:
    code = MODEL.replace("def __init__(self):", "def __init__(self, layers):").replace(
        "self.head =", "self.more = nn.Linear(layers, 1, bias=False)\n        self.head ="
    )
    path = written(tmp_path, code + INPUTS)
    asked: dict[str, Any] = {"run": False, "gpu": "a100", "cpu": "epyc-9654", "prompt": 20, "cache": False}
    analysis = analyze_generation(path, arg="layers=3", **asked)
    assert analysis.invocation is not None
    assert analysis.invocation.options["arg"] == ("layers=3",)
    behind = analyze_generation(f"{path}:Tiny(layers=3)", **asked)
    assert behind.model.parameters == analysis.model.parameters
    assert behind.invocation is not None
    assert str(behind.invocation.model).endswith("tiny.py:Tiny(layers=3)")
    with pytest.raises(ModelError, match=r"Tiny needs arguments \(layers\)"):
        analyze_generation(path, **asked)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="no Python code that builds"):
        analyze_generation(tmp_path, arg="layers=3", **asked)
