"""An installation without PyTorch: what it does, and what it says of the rest."""

import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

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
    """Runs `analyze` in that environment, in a folder with models."""
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
        python = site.parents[2] / "bin/python"
        command = [str(python), "-P", "-m", "analyzer", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    return run


@pytest.fixture(scope="module")
def record(run: Run) -> None:
    """Writes the record of a measured model, `reports/model.json`."""
    done = run("model.onnx", "--batch", "4", "--runs", "3", "--gpu", "l4", "--quiet")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
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
    ],
)
@pytest.mark.usefixtures("record")
def test_a_command_on_an_onnx_file_or_a_record_imports_no_pytorch(run: Run, site: Path, command: str) -> None:
    done = run(*command.split())
    assert done.returncode == 0, done.stderr
    assert not (site / "torch/imported").exists()


@pytest.mark.parametrize(
    "command",
    [
        "net.py --no-run", "net.py --training", "net.pt2 --no-run", "check net.py", "generate net.py",
        "capacity net.py --rate 1 --p99 1s", "apply net.py --output other/", "timm:resnet18 --no-run",
    ],
)  # fmt: skip
def test_a_model_that_needs_pytorch_is_one_sentence_with_the_command(
    run: Run, site: Path, command: str
) -> None:
    done = run(*command.split())
    (site / "torch/imported").unlink(missing_ok=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "error: PyTorch, which this model needs, is not installed.",
        'hint: pip install "onnx-analyzer[torch]"',
    ]
