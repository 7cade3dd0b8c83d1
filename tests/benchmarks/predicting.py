"""How fast groups are predicted on all GPUs, and how well the CPU's prediction meets what was measured here.

    python tests/benchmarks/predicting.py [--measure | --cards] [--samples resnet50,mlp] [--batches 1,8,64]

Without ``--measure`` only the speed: ResNet-50's groups on every GPU of the catalogue at 13 batch sizes. With
it, every sample is run on this machine's CPU; calibrate first (``analyze calibrate``) and let it rest.
With ``--cards``, the samples' milliseconds on all GPUs, to be looked through for what cannot be.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from analyzer import analyze
from analyzer.devices.catalogue import gpus
from analyzer.loading.load import load
from analyzer.loading.reference import parse_reference
from analyzer.pipeline.forecast import set_scene
from analyzer.prediction import predict_total

SAMPLES = Path(__file__).parents[2] / "samples"
BATCHES = tuple(1 << power for power in range(13))
# Too large for most machines.
UNRUN = ("llama_7b", "gpt3_175b")


def speed() -> None:
    loaded = load(parse_reference(str(SAMPLES / "resnet50.py")))
    begin = time.perf_counter()
    work = [set_scene(loaded.graph(batch)).cuda_work for batch in BATCHES]
    counted = time.perf_counter()
    every = gpus()
    totals = [predict_total(one, card, precision="fp16") for card in every for one in work]
    done = time.perf_counter()
    print(f"{len(every)} GPUs x {len(BATCHES)} batches of {work[0].groups} groups: {done - counted:.2f} s")
    print(f"  graphs bound, counted, placed and grouped before: {counted - begin:.2f} s; {len(totals)} totals")


def cards(names: list[str], batches: list[int]) -> None:
    loaded = {name: load(parse_reference(str(SAMPLES / f"{name}.py"))) for name in names}
    work = {
        (name, batch): set_scene(loaded[name].graph(batch)).cuda_work for name in names for batch in batches
    }
    for precision in ("fp32", "fp16"):
        print(f"{precision:24}" + "".join(f"{name[:9]:>10}@{batch:<3}" for name, batch in work))
        for card in gpus():
            times = [1e3 * predict_total(one, card, precision=precision).time_s for one in work.values()]
            print(f"{card.slug:24}" + "".join(f"{time:10.2f}    " for time in times))


def accuracy(names: list[str], batches: list[int]) -> None:
    print(f"{'model':16} {'batch':>5} {'measured':>10} {'predicted':>10} {'ratio':>6}")
    ratios = []
    for name in names:
        for batch in batches:
            path = str(SAMPLES / f"{name}.py")
            seen = analyze(path, batch=batch, gpu="none").plan("cpu")
            thought = analyze(path, batch=batch, gpu="none", run=False).plan("cpu")
            if seen is None or thought is None or seen.origin != "measured":
                continue
            ratios.append(thought.latency_s / seen.latency_s)
            print(f"{name:16} {batch:5} {seen.latency_s:10.6f} {thought.latency_s:10.6f} {ratios[-1]:6.2f}")
    apart = [abs(ratio - 1) for ratio in ratios]
    print(f"median error {statistics.median(apart):.1%}, worst {max(apart):.1%}, {len(apart)} runs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--cards", action="store_true")
    parser.add_argument("--samples", default="")
    parser.add_argument("--batches", default="1,8,64")
    options = parser.parse_args()
    speed()
    if options.cards:
        names = (
            options.samples.split(",") if options.samples else ["resnet50", "bert_base", "gpt2", "mlp", "lstm"]
        )
        cards(names, [int(batch) for batch in options.batches.split(",")])
    if options.measure:
        written = {path.stem: path.read_text(encoding="utf-8") for path in SAMPLES.glob("*.py")}
        every = sorted(name for name, text in written.items() if "def build_model" in text)
        names = options.samples.split(",") if options.samples else [name for name in every if name not in UNRUN]
        accuracy(names, [int(batch) for batch in options.batches.split(",")])


if __name__ == "__main__":
    main()
