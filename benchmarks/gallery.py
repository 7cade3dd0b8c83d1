"""Renders every sample: its page and its record, under reports/ or a folder of your choice.

    python benchmarks/gallery.py [--into FOLDER] [--static] [SAMPLE ...]

Prints one line a sample with the time and peak memory of the whole process. Models too large to run here are
counted and predicted only.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The batch at which each is usually discussed.
BATCHES = {
    "linear.py": 64,
    "mlp.py": 64,
    "batch_matmul.py": 256,
    "conv.py": 32,
    "attention.py": 32,
    "resnet50.py": 64,
    "mobilenet_v2.py": 64,
    "vit_b16.py": 16,
    "bert_base.py": 8,
    "gpt2.py": 8,
    "generate.py": 1,
    "lstm.py": 16,
    "recommender.py": 64,
    "preprocessing.py": 32,
    "unet.py": 8,
    "llama_7b.py": 1,
    "gpt3_175b.py": 1,
    "boosted_trees.onnx": 256,
}
TOO_LARGE_TO_RUN = ("llama_7b.py", "gpt3_175b.py")


def main() -> int:
    """Analyses each sample in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_stem = {Path(name).stem: name for name in BATCHES}
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help=", ".join(by_stem))
    parser.add_argument("--into", type=Path, default=ROOT / "reports")
    parser.add_argument("--static", action="store_true", help="execute nothing")
    options = parser.parse_args()
    unknown = [stem for stem in options.samples if stem not in by_stem]
    if unknown:
        parser.error(f"no sample {', '.join(unknown)}")
    failed = 0
    print(f"{'sample':<20} {'batch':>6} {'seconds':>8} {'peak MB':>8}  status")
    for stem in options.samples or by_stem:
        failed += not analysed(by_stem[stem], options.into, static=options.static)
    return int(failed > 0)


def analysed(name: str, into: Path, *, static: bool) -> bool:
    """Runs the command line on one sample and prints how it went."""
    command = [sys.executable, "-m", "analyzer", str(ROOT / "samples" / name), "--batch", str(BATCHES[name])]
    command += ["--quiet", "--output", f"{into}/"]
    if static or name in TOO_LARGE_TO_RUN:
        command.append("--no-run")
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    said = child.communicate()[1]
    spent = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    status = "ok" if child.returncode == 0 else f"exit {child.returncode}: {said.strip().splitlines()[-1:]}"
    print(f"{name:<20} {BATCHES[name]:>6} {spent:>8.1f} {peak:>8.0f}  {status}", flush=True)
    return child.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
