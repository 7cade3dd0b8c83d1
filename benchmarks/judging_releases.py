"""Placement by each release of ONNX Runtime against that release's own CUDA provider, over ONNX's node cases.

    python benchmarks/judging_releases.py FOLDER...

Each folder is of ``pip install --no-deps --target FOLDER onnxruntime-gpu==1.30.0``. No GPU is needed, but Linux
and gcc. Prints a row for each: cases that it loads, nodes and the share that both place alike, copies of either
side, and the differences by their kind.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "judge"))

import agreement
import court
import standins
import wheels


def main() -> int:
    """Judges the releases in the folders that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders = parser.parse_args().folders
    reason = standins.missing()
    if reason:
        print(f"Nothing judged: {reason}.")
        return 0
    logging.disable(logging.WARNING)
    print(f"{'release':8} {'cases':>6} {'nodes':>6} {'agree':>9} {'copies':>7} {'differ':>7}")
    for wheel in folders:
        release = wheels.release_in(wheel)
        with tempfile.TemporaryDirectory() as folder:
            libraries = standins.build(Path(folder), wheel=wheel)
            with court.Judge(libraries, wheel=wheel) as judge:
                loaded, total = agreement.of_backend_cases(judge, release)
        print(
            f"{release:8} {loaded:6} {total.nodes:6} {total.share:9.3%} {total.copies:7} "
            f"{len(total.differences):7}",
            flush=True,
        )
        for kind, count in Counter(map(_kind, total.differences)).most_common():
            print(f"    {count:4} x {kind}")
    return 0


def _kind(difference: str) -> str:
    """A difference without the name of its case and node."""
    return re.sub(r"\S+_function_", "", re.sub(r" \(node\S*\)| node_\d+", "", difference))


if __name__ == "__main__":
    sys.exit(main())
