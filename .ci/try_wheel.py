"""Tries a package as it was installed, from an empty folder: what a user does first, command by command.

    python .ci/try_wheel.py PYTHON VERSION [--onnx]

PYTHON is the interpreter that the package was installed for; with --onnx it needs no PyTorch. Nothing of the
repository is used. Exit status 0 where every command did what it has to do, 1 where one did not, with what it
printed.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def forward(self, x):
        return self.layers(x)
"""
# Executed by PYTHON: writes an .onnx file.
ONNX_MODEL = """
import onnx

text = '<ir_version: 10, opset_import: ["" : 20]> g (float[b, 64] x) => (float[b, 64] y) { y = Exp (x) }'
onnx.save(onnx.parser.parse_model(text), "model.onnx")
"""
SCRIPT = re.compile(r'<script type="text/plain" data-gzip="text/javascript">(.*?)</script>', re.DOTALL)
MINUTES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A command with its expected end."""

    arguments: tuple[str, ...]
    status: int = 0
    # Parts of its output, and files that have to be there afterwards.
    says: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def trials(version: str, model: str) -> tuple[Trial, ...]:
    """The commands in their order; each may use what those before it wrote."""
    record = "reports/model.json"
    return (
        Trial(arguments=("--version",), says=(version,)),
        Trial(arguments=("doctor",), says=("analyze", version)),
        Trial(
            arguments=(model, "--batch", "4", "--runs", "3", "--gpu", "l4", "--quiet"),
            writes=("reports/model.html", record),
        ),
        # A limit that is kept, and one that no machine keeps.
        Trial(arguments=("check", record, "--max-latency", "3600s")),
        Trial(arguments=("check", record, "--max-latency", "0.001ms"), status=1, says=("A601",)),
        Trial(arguments=("check", "missing.py"), status=2, says=("missing.py",)),
        Trial(
            arguments=("render", record, "--gpu", "h100", "--output", "again/"), writes=("again/model.html",)
        ),
    )


def main() -> int:
    """Runs all of them and prints what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path)
    parser.add_argument("version")
    parser.add_argument("--onnx", action="store_true")
    asked = parser.parse_args()
    model = "model.onnx" if asked.onnx else "model.py"
    with tempfile.TemporaryDirectory(prefix="analyzer-wheel-") as folder:
        # As it was given: resolved, the interpreter of a virtual environment is the one that it was made from.
        wrong = tried(asked.python.absolute(), asked.version, Path(folder), {}, model)
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong else 0


def tried(
    python: Path, version: str, folder: Path, environment: Mapping[str, str], model: str = "model.py"
) -> list[str]:
    """What went wrong, a text each. Ends with the first that did: later commands use what it wrote."""
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    if model == "model.onnx":
        subprocess.run([str(python), "-P", "-c", ONNX_MODEL], cwd=folder, check=True)
    own = {"ANALYZER_CACHE_DIR": str(folder / "cache"), "PYTHONUTF8": "1", "COLUMNS": "200"}
    for trial in trials(version, model):
        done = subprocess.run(
            [str(python), "-P", "-m", "analyzer", *trial.arguments],
            cwd=folder,
            env=inherited | own | dict(environment),
            capture_output=True,
            text=True,
            timeout=60 * MINUTES,
            check=False,
        )
        wrong = wrong_with(trial, done, folder)
        print(f"{'no' if wrong else 'ok'}  analyze {' '.join(trial.arguments)}")
        if wrong:
            return [*wrong, done.stdout, done.stderr]
    return wrong_in_pages(folder, version)


def wrong_with(trial: Trial, done: subprocess.CompletedProcess[str], folder: Path) -> list[str]:
    """What of a command's end is not as expected."""
    name = f"analyze {' '.join(trial.arguments)}"
    wrong = []
    if done.returncode != trial.status:
        wrong.append(f"{name} ended with status {done.returncode}, not {trial.status}")
    wrong += [f"{name} does not say {part}" for part in trial.says if part not in done.stdout + done.stderr]
    return wrong + [f"{name} wrote no {path}" for path in trial.writes if not (folder / path).is_file()]


def wrong_in_pages(folder: Path, version: str) -> list[str]:
    """What is wrong with the record and the pages: another version, addresses, no libraries."""
    wrong = []
    record = json.loads((folder / "reports/model.json").read_text(encoding="utf-8"))
    if record["tool"]["version"] != version:
        wrong.append(f"the record is of version {record['tool']['version']}")
    for path in ("reports/model.html", "again/model.html"):
        page = (folder / path).read_text(encoding="utf-8")
        if "<script src=" in page or 'rel="stylesheet"' in page:
            wrong.append(f"{path} asks for files that are not in it")
        scripts = "".join(unpacked(block) for block in SCRIPT.findall(page))
        # The libraries of charts and tables.
        wrong += [f"{path} has no {name}" for name in ("vega", "Tabulator") if name not in scripts]
    return wrong


def unpacked(block: str) -> str:
    """A script of a page, which is kept compressed there."""
    return gzip.decompress(base64.b64decode(block)).decode("utf-8")


if __name__ == "__main__":
    sys.exit(main())
