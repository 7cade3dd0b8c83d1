"""How well verdicts without a run meet those with one: this machine's CPU against GPUs of the catalogue.

    python benchmarks/verdicts.py [--samples mlp,lstm,...] [--gpus t4,l4,...] [--budget 2]

That a GPU is faster is nearly always right and says little. So what is scored is the predicted ratio of the
CPU's time to the GPU's, the cases near parity, the batch from which the GPU wins, and the cases in which the
CPU does. The GPUs' times are predictions on both sides: this tells how far the CPU's prediction and its
interval carry the decision, not how good the GPUs' are (``fit_prediction.py`` tells that). Calibrates this
machine first.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from predicting import SAMPLES, calibrated

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.decision.plans import Name
from analyzer.record.analysis import Analysis
from analyzer.record.outcome import SweepPlan
from analyzer.units import seconds

DEFAULT = "mlp,lstm,boosted_trees,preprocessing,recommender,linear,attention,mobilenet_v2,resnet50"
GPUS = "t4,l4,a10g,a100-80gb-sxm,h100-sxm"
BATCHES = (1, 8, 64)
# Of the CPU's time to the GPU's, either way.
PARITY = 2.0


@dataclass(frozen=True)
class Case:
    """One model on one GPU at one batch: the CPU's time over the GPU's, with the CPU measured and predicted.

    Attributes:
        open: Whether the predicted intervals of both devices overlap, so that the verdict is ``either``.
    """

    model: str
    gpu: str
    batch: int
    cpu_s: float
    gpu_s: float
    seen: float
    thought: float
    open: bool


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default=DEFAULT)
    parser.add_argument("--gpus", default=GPUS)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of runs for each measurement")
    asked = parser.parse_args()
    cases: list[Case] = []
    crossings: list[tuple[str, str, int | None, int | None]] = []
    with tempfile.TemporaryDirectory(prefix="analyzer-bench-") as home:
        os.environ["XDG_DATA_HOME"] = home
        for name in asked.samples.split(","):
            calibrated()
            path = next(SAMPLES.glob(f"{name}.*"))
            seen = analyze(str(path), batch=BATCHES, gpu=asked.gpus.split(",")[0], time_budget=asked.budget)
            thought = analyze(str(path), batch=BATCHES, gpu=asked.gpus.split(",")[0], run=False)
            for gpu in asked.gpus.split(","):
                both = [analyze_record(one, gpu=gpu) for one in (seen, thought)]
                cases += list(compared(name, gpu, *both))
                crossings.append((name, gpu, *(one.verdict.crossover_batch for one in both)))
            print(f"{name} done", file=sys.stderr)
    idle = [case for case in cases if math.isclose(case.thought, 1.0, rel_tol=1e-6)]
    print(f"nothing for a GPU to do in {len(idle)} cases: {', '.join(sorted({case.model for case in idle}))}")
    cases = [case for case in cases if case not in idle]
    ratios(cases)
    parity(cases)
    crossovers(crossings)
    cpu_wins(cases)


def compared(model: str, gpu: str, seen: Analysis, thought: Analysis) -> list[Case]:
    """The batches that were measured."""
    measured, predicted = ({row.batch: row.plans for row in one.sweep} for one in (seen, thought))
    return [
        Case(
            model=model,
            gpu=gpu,
            batch=batch,
            cpu_s=measured[batch]["cpu"].latency_s,
            gpu_s=predicted[batch]["gpu"].latency_s,
            seen=measured[batch]["cpu"].latency_s / predicted[batch]["gpu"].latency_s,
            thought=predicted[batch]["cpu"].latency_s / predicted[batch]["gpu"].latency_s,
            open=overlap(predicted[batch]),
        )
        for batch in BATCHES
        if batch in measured and measured[batch]["cpu"].origin == "measured" and "gpu" in predicted[batch]
    ]


def overlap(plans: Mapping[Name, SweepPlan]) -> bool:
    """Whether the intervals of both devices have a time in common."""
    cpu, gpu = plans["cpu"], plans["gpu"]
    return cpu.low_s <= gpu.high_s and gpu.low_s <= cpu.high_s


def ratios(cases: Sequence[Case]) -> None:
    """The predicted ratio over the one with the CPU measured; the GPU's part is the same in both."""
    errors = [abs(case.thought / case.seen - 1) for case in cases]
    always = sum(case.seen > 1 for case in cases)
    right = sum((case.seen > 1) == (case.thought > 1) for case in cases)
    print(
        f"{len(cases)} cases: {len({case.model for case in cases})} models, {len({c.gpu for c in cases})} GPUs"
    )
    print(f"predicted ratio off by {statistics.median(errors):.1%} at the median, {max(errors):.1%} at most")
    print(f"faster device right in {right} of {len(cases)}; saying GPU always, {always}")


def parity(cases: Sequence[Case]) -> None:
    """Where the two are within a factor of each other: called right, left open, called wrong."""
    near = [case for case in cases if 1 / PARITY < case.seen < PARITY]
    left = [case for case in near if case.open]
    called = [case for case in near if not case.open]
    right = sum((case.seen > 1) == (case.thought > 1) for case in called)
    print(
        f"\nwithin {PARITY:g} x of parity: {len(near)}; intervals overlap (either): {len(left)}, of which the "
        f"faster one was right in {sum((c.seen > 1) == (c.thought > 1) for c in left)}; called: {len(called)}, "
        f"right {right}"
    )
    for case in called:
        if (case.seen > 1) != (case.thought > 1):
            where = f"{case.model} at {case.batch} on {case.gpu}"
            print(f"    wrong: {where}: {case.seen:.2f} x, said {case.thought:.2f} x")


def crossovers(found: Sequence[tuple[str, str, int | None, int | None]]) -> None:
    """The batch from which the GPU wins, with the CPU measured and predicted."""
    print(f"\n{'GPU wins from batch':<24}{'GPU':<16}{'measured':>10}{'predicted':>11}{'factor':>8}")
    factors, same, differ = [], 0, 0
    for model, gpu, seen, thought in found:
        if seen is not None and thought is not None:
            factors.append(max(seen, thought) / min(seen, thought))
            apart = f"{factors[-1]:.2f}"
        else:
            same, differ = same + (seen is thought), differ + (seen is not thought)
            apart = "" if seen is thought else "-"
        if not (seen == 1 and thought == 1):
            print(f"{model:<24}{gpu:<16}{seen or 'never':>10}{thought or 'never':>11}{apart:>8}")
    typical = math.exp(statistics.mean(map(math.log, factors))) if factors else math.nan
    exact = sum(one == 1 for one in factors)
    print(
        f"both have one in {len(factors)} (the same in {exact}, {typical:.2f} x apart in the mean, "
        f"{max(factors, default=math.nan):.2f} x at most), both none in {same}, one of them in {differ}"
    )


def cpu_wins(cases: Sequence[Case]) -> None:
    """The cases in which the CPU, measured, is faster."""
    won = [case for case in cases if case.seen < 1]
    print(f"\nthe CPU wins {len(won)} cases; said so in {sum(case.thought < 1 for case in won)}")
    for case in won:
        said = "CPU" if case.thought < 1 else "GPU"
        print(
            f"    {case.model:<16}{case.batch:>4} {case.gpu:<16}{seconds(case.cpu_s):>10} against "
            f"{seconds(case.gpu_s):>10}: {1 / case.seen:5.2f} x, said {said}{', either' if case.open else ''}"
        )


if __name__ == "__main__":
    main()
