"""Training steps: counts against PyTorch's counter, gradients in float64, time and memory of a static analysis.

python benchmarks/training.py [--only counts,gradients,static]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAMPLES = Path(__file__).parents[1] / "samples"
# FlopCounterMode of PyTorch 2.13 over forward and backward, attention by its mathematical definition.
COUNTED = (("resnet50", 2, 48_598_155_264), ("vit_b16", 1, 105_151_758_336), ("gpt2", 1, 96_684_539_904))
COMPARED = (("mlp", 64), ("attention", 2), ("lstm", 16), ("conv", 2), ("gpt2", 1))
XL = """
import torch
from gpt2 import GPT, Size

SIZE = Size(layers=48, width=1600, heads=25)

def build_model():
    return GPT(SIZE)

def example_inputs(batch=1):
    return (torch.randint(0, SIZE.vocabulary, (batch, 1024)),)
"""


def counts() -> None:
    """Twice the multiply-accumulates against PyTorch's count."""
    from analyzer.costs import count
    from analyzer.loading.load import load
    from analyzer.loading.model_reference import parse_reference

    for name, batch, expected in COUNTED:
        loaded = load(parse_reference(str(SAMPLES / f"{name}.py")), batch=batch, training=True, use_cache=False)
        found = 2 * (count(loaded.graph()).total.macs or 0)
        print(f"{name} batch {batch}: {found:,} FLOP, PyTorch {expected:,}, difference {found - expected}")


def gradients() -> None:
    """The worst gradient's relative error under ONNX Runtime's CPU provider."""
    import onnxruntime

    from analyzer.errors import AnalyzerError
    from analyzer.loading.load import load
    from analyzer.loading.model_reference import parse_reference
    from analyzer.loading.training.load_step import relative_errors
    from analyzer.loading.weights import materialise

    for name, batch in COMPARED:
        try:
            loaded = load(
                parse_reference(str(SAMPLES / f"{name}.py")), batch=batch, training=True, use_cache=False
            )
        except AnalyzerError as error:
            print(f"{name}: {error.message}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            runnable = materialise(loaded, batch, Path(folder))
            session = onnxruntime.InferenceSession(str(runnable.model_path), providers=["CPUExecutionProvider"])
            names = [item.name for item in session.get_outputs()]
            given = dict(zip(names, session.run(names, dict(runnable.feeds)), strict=True))
        if runnable.gradients is None:
            print(f"{name}: draws random numbers, not compared")
            continue
        rows = relative_errors(runnable.gradients(), given)
        worst = max((row for row in rows if row[0] != "loss"), key=lambda row: row[2])
        loss = next(row[2] for row in rows if row[0] == "loss")
        print(f"{name} batch {batch}: loss {loss:.1e}, worst relative error {worst[2]:.1e} ({worst[0]})")


def static() -> None:
    """Time and peak memory of ``analyze --training --no-run`` with its sweep, in a process each."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "gpt2_xl.py"
        large.write_text(f"import sys\nsys.path.insert(0, {str(SAMPLES)!r})\n{XL}")
        for path, batch in ((SAMPLES / "resnet50.py", 64), (SAMPLES / "bert_base.py", 8), (large, 1)):
            command = [sys.executable, "-m", "analyzer", str(path), "--training", "--no-run", "--no-cache"]
            command += ["--batch", str(batch), "--output", folder + "/", "--quiet"]
            begin = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", _WATCH, *command], capture_output=True, text=True)
            spent = time.perf_counter() - begin
            swept = len(json.loads((Path(folder) / f"{path.stem}.json").read_text())["sweep"])
            memory = done.stdout.strip().splitlines()[-1]
            print(f"{path.stem} batch {batch}: {spent:.1f} s, {swept} batches swept, peak {memory} MB")


_WATCH = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1000)"
)


def main() -> None:
    """Prints the figures asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="counts,gradients,static")
    for name in parser.parse_args().only.split(","):
        {"counts": counts, "gradients": gradients, "static": static}[name.strip()]()


if __name__ == "__main__":
    main()
