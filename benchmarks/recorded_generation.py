"""What is predicted for the steps of models that generate, beside what a recorded card did.

    python benchmarks/recorded_generation.py [--record tests/data/gpu/h100-generation.json.gz ...]

Reads records of ``gpu_families.py --only generation``: whole steps under ONNX Runtime's CUDA provider with the
cache in place, node by node (``session``) and as one CUDA graph. Prints milliseconds of each, measured and
predicted by the catalogue alone. No constant of a kernel is fitted to these records; what the host needs for
attention and experts is.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_step_cases import model_of
from recorded_cards import HOST, RECORDS, card_of, compared, read

from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.figures import Figure
from analyzer.generation.request import StepSizes, StepTypes
from analyzer.generation.steps.step_times import step_times
from analyzer.options import LAUNCHES

_MEASURED = {"session": "session_s", "graph": "graph_s"}


def predicted(card: Device, row: dict[str, Any], launch: Any) -> Figure:
    """A step on a card, without its ids: they were on the card."""
    sizes = StepSizes(batch=row["batch"], tokens=row["tokens"], context=row["context"])
    model = model_of(row["model"])
    step = model.step(sizes, StepTypes(weights=row["weights"]), "gpu")
    times = step_times([step], None, card, precision="fp16", launch=launch, host=catalogue.device(HOST))
    return times.times.of(0)


def rows_of(card: Device, rows: Sequence[dict[str, Any]]) -> list[tuple[str, float, bool]]:
    """Prints a row each; what is known of its error: phase and launch, ratio, and whether it lies inside."""
    found = []
    for row in sorted(rows, key=lambda row: (row["model"], row["weights"], row["tokens"], row["batch"])):
        cells = []
        for launch in LAUNCHES:
            if _MEASURED[launch] not in row:
                cells += ["-", "-", "-"]
                continue
            measured, estimate = row[_MEASURED[launch]], predicted(card, row, launch)
            inside = estimate.low <= measured <= estimate.high
            cells += compared(measured, estimate)
            cells[-1] += "" if inside else " out"
            phase = "prompt" if row["tokens"] > 1 else "token"
            found.append((f"{phase}, {launch}", estimate.value / measured, inside))
        sizes = f"{row['batch']} x {row['tokens']} at {row['context']}"
        print(f"| {row['model']} | {row['weights']} | {sizes} | " + " | ".join(cells) + " |")
    return found


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, action="append")
    parser.add_argument("--capability", default="9.0", help="compute capability of the cards")
    asked = parser.parse_args()
    found: list[tuple[str, float, bool]] = []
    for path in asked.record or sorted(RECORDS.glob("*generation*.gz")):
        record = read(path)
        card = card_of(record, asked.capability)
        print(f"\n{card.name}\n")
        print(
            "| model | weights | step | session, ms | predicted [90 %] | ratio | graph, ms | predicted | ratio"
            " |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        found += rows_of(card, [row for row in record["rows"].get("generation", ()) if "error" not in row])
    print("\n| | n | median error | within 2x | inside |\n|---|---|---|---|---|")
    for kind in dict.fromkeys(kind for kind, _, _ in found):
        errors = [abs(math.log(ratio)) for name, ratio, _ in found if name == kind]
        held = sum(inside for name, _, inside in found if name == kind)
        within = sum(error <= math.log(2) for error in errors)
        print(f"| {kind} | {len(errors)} | {math.expm1(statistics.median(errors)):.0%} | {within} | {held} |")


if __name__ == "__main__":
    main()
