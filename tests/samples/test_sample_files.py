"""What every sample file must have, whatever its model is."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "samples").glob("*.py"))
MODELS = [path.stem for path in FILES if not path.stem.startswith("make_")]
PROMISED = {
    *("linear", "mlp", "batch_matmul", "conv", "attention", "resnet50", "mobilenet_v2", "vit_b16", "unet"),
    *("bert_base", "gpt2", "llama_7b", "gpt3_175b", "generate", "lstm", "recommender", "preprocessing"),
}


def test_every_promised_sample_is_there() -> None:
    assert set(MODELS) == PROMISED
    assert (ROOT / "samples" / "boosted_trees.onnx").is_file()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_sample_begins_with_a_docstring_and_needs_no_library_but_its_framework(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    allowed = {"torch"} if path.stem in MODELS else {"onnx", "numpy"}
    assert imported - set(sys.stdlib_module_names) - {item.stem for item in FILES} <= allowed


@pytest.mark.parametrize("name", MODELS)
def test_a_sample_offers_a_model_and_inputs_with_a_default_batch(sample: Any, name: str) -> None:
    module = sample(name)
    model = module.attention if name == "attention" else module.build_model
    assert inspect.isfunction(model)
    parameters = inspect.signature(module.example_inputs).parameters
    # Of a step of generation: new tokens, and those that the cache holds.
    assert list(parameters) == (["batch", "tokens", "past"] if name == "generate" else ["batch"])
    assert parameters["batch"].default >= 1


@pytest.mark.parametrize("name", MODELS)
def test_every_input_carries_the_batch_in_front(sample: Any, name: str) -> None:
    import torch

    with torch.device("meta"):
        leaves = torch.utils._pytree.tree_leaves(sample(name).example_inputs(7))
    assert {tensor.shape[0] for tensor in leaves} == {7}


def test_samples_obey_the_repository_s_linter_and_formatter() -> None:
    for arguments in (("check",), ("format", "--check")):
        command = [sys.executable, "-m", "ruff", *arguments, "samples"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_of_samples_names_each_file_once() -> None:
    text = (ROOT / "samples" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    named = sorted(re.match(r"\| \[`([^`]+)`\]", row).group(1) for row in rows)
    models = [
        path.name for path in (ROOT / "samples").iterdir() if path.stem in MODELS or path.suffix == ".onnx"
    ]
    assert named == sorted(models)
