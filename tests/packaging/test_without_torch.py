"""An installation without PyTorch: what it does, and what it says of the rest."""

import json
import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

ROOT = Path(__file__).parents[2]
# What `pip install onnx-analyzer` does not bring, with what is made of it.
LEFT_OUT = ("torch", "functorch", "transformers", "tokenizers", "_onnx_analyzer", "onnx_analyzer")
MODEL = """
<ir_version: 10, opset_import: ["" : 20]> g (float[batch, 64] x) => (float[batch, 16] y)
{ h = MatMul (x, w) y = Relu (h) }
"""
CONFIGURATION = (
    '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,'
    '"num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 99, "tie_word_embeddings": true,'
    '"max_position_embeddings": 512}'
)
ON_FILES = (
    "model.onnx --no-run --gpu l4 --quiet",
    "model.onnx --no-run --gpu l4 --input-data x.npz --quiet",
    "check model.onnx --gpu l4 --fail-on never --quiet",
    "check reports/model.json --fail-on never --quiet",
    "render reports/model.json --gpu h100 --output rendered/",
    "render reports/model.json --format model-card,model-explorer,markdown,csv,text --output others/",
    "compare reports/model.json reports/model.json",
    "capacity model.onnx --gpu l4 --rate 100 --p99 50ms --no-run --quiet",
    "apply model.onnx --gpu l4 --precision fp16 --fix all --output applied/ --quiet",
    "fleet model.onnx --gpu l4 --no-run --output fleet/ --quiet",
    "generate llama/ --gpu l4 --no-run --quiet",
    "doctor --quiet",
    "devices l4",
    "ops Gemm",
    "rules A101",
)
NEEDS_PYTORCH = (
    "net.py --no-run", "net.py --training", "net.pt2 --no-run", "check net.py", "generate net.py",
    "capacity net.py --rate 1 --p99 1s", "apply net.py --output other/", "timm:resnet18 --no-run",
)  # fmt: skip
# One interpreter for all: what a command looks for is gone before the next.
PROGRAM = """
import contextlib, io, json, pathlib, shlex, sys
from analyzer.cli import run_command_line
imported, answers = pathlib.Path(sys.argv[1]), {}
for command in sys.argv[2:]:
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        status = run_command_line(shlex.split(command))
    answers[command] = status, said.getvalue(), imported.exists()
    imported.unlink(missing_ok=True)
print(json.dumps(answers))
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="makes links")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of an environment with all of this one's but PyTorch, whose import leaves a file."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.startswith(LEFT_OUT) and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text(
        "from pathlib import Path\n"
        "Path(__file__).with_name('imported').touch()\n"
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    )
    return site


@pytest.fixture(scope="module")
def run(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python in that environment, in a folder with models."""
    folder = tmp_path_factory.mktemp("models")
    model = onnx.parser.parse_model(MODEL)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((64, 16), np.float32), "w"))
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "x.npz", x=np.ones((3, 64), np.float32))
    (folder / "llama").mkdir()
    (folder / "llama/config.json").write_text(CONFIGURATION)
    (folder / "net.py").write_text("import torch\n\nmodel = torch.nn.Linear(8, 4)\n")
    (folder / "net.pt2").write_bytes(b"PK")
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONHOME"},
        "PYTHONPATH": str(ROOT),
        "ANALYZER_CACHE_DIR": str(folder / "cache"),
    }

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [str(site.parents[2] / "bin/python"), "-P", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    return run


@pytest.fixture(scope="module")
def answers(run: Run, site: Path) -> dict[str, list[Any]]:
    """Exit status, what is said on standard error, and whether PyTorch was looked for, of each command."""
    # The record of a measured model, `reports/model.json`.
    done = run("-m", "analyzer", *["model.onnx", "--batch", "4", "--runs", "3", "--gpu", "l4", "--quiet"])
    assert done.returncode == 0, done.stderr
    done = run("-c", PROGRAM, str(site / "torch/imported"), *ON_FILES, *NEEDS_PYTORCH)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("command", ON_FILES)
def test_a_command_on_an_onnx_file_or_a_record_imports_no_pytorch(
    answers: dict[str, list[Any]], command: str
) -> None:
    status, said, imported = answers[command]
    assert (status, imported) == (0, False), said


@pytest.mark.parametrize("command", NEEDS_PYTORCH)
def test_a_model_that_needs_pytorch_is_one_sentence_with_the_command(
    answers: dict[str, list[Any]], command: str
) -> None:
    status, said, _ = answers[command]
    assert status == 2
    assert said.splitlines()[-2:] == [
        "error: PyTorch, which this model needs, is not installed.",
        'hint: pip install "onnx-analyzer[torch]"',
    ]
