"""What is predicted for cards that were measured: the samples' latency against the records in tests/data/gpu.

    python benchmarks/recorded_cards.py [--record tests/data/gpu/h200.json.gz ...]

For each sample of each record (``cuda.py``): milliseconds of a session with its copies, measured and predicted
with the 90 % interval, by the catalogue alone; the part of the latency that the GPU works. Nothing is fitted to
these records.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from pathlib import Path
from typing import Any

from analyzer import analyze
from analyzer.devices.detection import gpu_by_name
from analyzer.devices.device import Device
from analyzer.prediction import Estimate

Rows = list[dict[str, Any]]
ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "tests" / "data" / "gpu"
# The cards' hosts had cores of the generation after, or of this one: the virtual machines do not tell.
HOST = "xeon-platinum-8481c"


def read(path: Path) -> dict[str, Any]:
    """A record, compressed or not."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return dict(json.loads(text))


def row(card: str, sample: str, measured: dict[str, Any]) -> tuple[float, bool]:
    """Print a sample's row; predicted over measured, and whether the interval holds what was measured."""
    model = str(ROOT / "samples" / f"{sample}.py")
    analysis = analyze(model, gpu=card, cpu=HOST, precision="tf32", run=False)
    plan = next(plan for plan in analysis.to_dict()["plans"] if plan["name"] == "gpu")
    taken = measured["ways"]["copies"]["median_s"]
    ratio = plan["latency_s"] / taken
    inside = plan["low_s"] <= taken <= plan["high_s"]
    low, high = plan["low_s"] * 1e3, plan["high_s"] * 1e3
    busy = sum(node["device_s"] or 0.0 for node in measured["nodes"]) / taken
    print(
        f"| {card} | {sample} | {taken * 1e3:.3f} | {plan['latency_s'] * 1e3:.3f} [{low:.3f}, {high:.3f}] "
        f"| {ratio:.2f} | {'yes' if inside else 'no'} | {busy:.0%} |"
    )
    return ratio, inside


def card_of(record: dict[str, Any], capability: str = "9.0") -> Device:
    """The card of a record; its name and memory tell the variants apart."""
    card = gpu_by_name(record["card"]["name"], record["card"]["memory_bytes"], capability, {})
    assert card is not None
    return card


def compared(measured: float, predicted: Estimate) -> list[str]:
    """Cells of a table: both in milliseconds, the second with its interval, and the ratio."""
    low, high = predicted.low * 1e3, predicted.high * 1e3
    span = f"{predicted.value * 1e3:.2f} [{low:.2f}, {high:.2f}]"
    return [f"{measured * 1e3:.2f}", span, f"{predicted.value / measured:.2f}"]


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, action="append")
    asked = parser.parse_args()
    # Of whole samples: others have operators by family, or steps of models that generate.
    others = ("families", "generation", "networks")
    paths = asked.record or sorted(
        path for path in RECORDS.glob("*.gz") if not any(word in path.name for word in others)
    )
    print("| card | sample | measured, ms | predicted, ms [90 %] | ratio | inside | the GPU works |")
    print("|---|---|---|---|---|---|---|")
    found: list[tuple[float, bool]] = []
    for path in paths:
        record = read(path)
        card = card_of(record).slug
        for sample, entry in record["samples"].items():
            if "cuda" in entry:
                found.append(row(card, sample, entry["cuda"]))
    errors = [abs(math.log(ratio)) for ratio, _ in found]
    within = sum(error <= math.log(2) for error in errors)
    print(
        f"\n{len(found)} sessions: {math.expm1(statistics.median(errors)):.0%} off at the median, "
        f"{within} within 2x, {sum(inside for _, inside in found)} inside the interval"
    )


if __name__ == "__main__":
    main()
