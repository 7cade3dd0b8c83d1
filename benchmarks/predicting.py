"""How fast groups are predicted on all GPUs, and how well the CPU's prediction meets what was measured here.

    python benchmarks/predicting.py [--measure | --cards] [--samples resnet50,mlp] [--batches 1,8,64]

Without ``--measure`` only the speed: ResNet-50's groups on every GPU of the catalogue at 13 batch sizes. With
it, every sample is run on this machine's CPU, calibrated before each; let it rest. A measurement that had the
cores apart all the time (``measurement.noise``) is made again, up to twice: the
calibration describes the machine with its cores close.
With ``--cards``, the samples' milliseconds on all GPUs, to be looked through for
what cannot be.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from analyzer import analyze
from analyzer.devices.calibration import calibrate
from analyzer.devices.catalogue import gpus
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.measurement.cpu_ceilings import measure_all
from analyzer.pipeline.prepared import prepare
from analyzer.prediction import predict_session
from analyzer.record import to_json
from analyzer.record.analysis import Analysis

SAMPLES = Path(__file__).parents[1] / "samples"
BATCHES = tuple(1 << power for power in range(13))
# Too large for most machines, or no model.
_TRIES = 3
UNRUN = ("llama_7b", "gpt3_175b", "make_boosted_trees")


def speed() -> None:
    loaded = load(parse_reference(str(SAMPLES / "resnet50.py")))
    begin = time.perf_counter()
    work = [prepare(loaded.graph(batch)).cuda_work for batch in BATCHES]
    counted = time.perf_counter()
    every = gpus()
    totals = [predict_session(one, card, precision="fp16").total() for card in every for one in work]
    done = time.perf_counter()
    print(f"{len(every)} GPUs x {len(BATCHES)} batches of {work[0].groups} groups: {done - counted:.2f} s")
    print(f"  graphs bound, counted, placed and grouped before: {counted - begin:.2f} s; {len(totals)} totals")


def cards(names: list[str], batches: list[int]) -> None:
    loaded = {name: load(parse_reference(str(SAMPLES / f"{name}.py"))) for name in names}
    work = {(name, batch): prepare(loaded[name].graph(batch)).cuda_work for name in names for batch in batches}
    for precision in ("fp32", "fp16"):
        print(f"{precision:24}" + "".join(f"{name[:9]:>10}@{batch:<3}" for name, batch in work))
        for card in gpus():
            times = [
                1e3 * predict_session(one, card, precision=precision).total().value for one in work.values()
            ]
            print(f"{card.slug:24}" + "".join(f"{time:10.2f}    " for time in times))


def accuracy(names: list[str], batches: list[int], budget: float, keep: Path | None) -> None:
    print(
        f"{'model':16} {'batch':>5} {'measured':>10} {'predicted':>10} {'ratio':>6} {'drift':>6}"
        f" {'busy':>5} {'apart':>5}"
    )
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="analyzer-bench-") as home:
        os.environ["XDG_DATA_HOME"] = home
        before = calibrated()
        for name in names:
            pairs = [measured_and_predicted(name, batch, budget) for batch in batches]
            after = calibrated()
            for batch, (seen, thought) in zip(batches, pairs, strict=True):
                ratio = line(name, batch, seen, thought, drift(before, after))
                ratios.setdefault(name, []).extend([] if ratio is None else [ratio])
                if keep is not None:
                    for kind, one in (("seen", seen), ("thought", thought)):
                        (keep / f"{Path(name).stem}-{batch}-{kind}.json").write_text(to_json(one))
            before = after
    every = [abs(ratio - 1) for mine in ratios.values() for ratio in mine]
    by_model = {name: max(abs(ratio - 1) for ratio in mine) for name, mine in ratios.items() if mine}
    print(f"median error {statistics.median(every):.1%} over {len(every)} runs (wanted: 12 %)")
    far = [name for name, worst in by_model.items() if worst > 0.35]
    print(f"further off than 35 %: {', '.join(far) or 'none'} (wanted: none)")


def measured_and_predicted(name: str, batch: int, budget: float) -> tuple[Analysis, Analysis]:
    """A sample on this machine's CPU, run and not run."""
    model = str(SAMPLES / name)
    for _ in range(_TRIES):
        seen = analyze(model, batch=batch, gpu="none", time_budget=budget)
        if not apart(seen):
            break
    return seen, analyze(model, batch=batch, gpu="none", run=False)


def apart(seen: Analysis) -> bool:
    """Whether the cores were apart all the time while this was measured."""
    return any(note.startswith("all the time threads shared") for note in seen.environment.messages)


def line(name: str, batch: int, seen: Analysis, thought: Analysis, moved: float) -> float | None:
    """Print one comparison; returns predicted over measured, None where nothing was measured."""
    measured, predicted = seen.plan("cpu"), thought.plan("cpu")
    if measured is None or predicted is None or measured.origin != "measured":
        print(
            f"{Path(name).stem:16} {batch:5}  not run: {'; '.join(seen.environment.messages)[:80]}", flush=True
        )
        return None
    ratio = predicted.latency_s / measured.latency_s
    busy = "yes" if any("busy" in note for note in seen.environment.messages) else ""
    far = "yes" if apart(seen) else ""
    print(
        f"{Path(name).stem:16} {batch:5} {measured.latency_s:10.6f} {predicted.latency_s:10.6f} {ratio:6.2f}"
        f" {moved:6.2f} {busy:>5} {far:>5}",
        flush=True,
    )
    return ratio


def calibrated() -> Mapping[str, float]:
    """This machine's ceilings now; the predictions that follow use them."""
    return calibrate(partial(measure_all, gpu=False)).values


def drift(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Median change of the products' rates."""
    return statistics.median(
        after[key] / before[key] for key in before if key.startswith("gemm.") and key in after
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--cards", action="store_true")
    parser.add_argument("--samples", default="")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of runs for each measurement")
    parser.add_argument("--keep", type=Path, help="a folder for the records")
    options = parser.parse_args()
    speed()
    if options.cards:
        names = (
            options.samples.split(",") if options.samples else ["resnet50", "bert_base", "gpt2", "mlp", "lstm"]
        )
        cards(names, [int(batch) for batch in options.batches.split(",")])
    if options.measure:
        files = [*SAMPLES.glob("*.py"), *SAMPLES.glob("*.onnx")]
        wanted = options.samples.split(",") if options.samples else [path.stem for path in files]
        names = sorted(path.name for path in files if path.stem in wanted and path.stem not in UNRUN)
        accuracy(names, [int(batch) for batch in options.batches.split(",")], options.budget, options.keep)


if __name__ == "__main__":
    main()
