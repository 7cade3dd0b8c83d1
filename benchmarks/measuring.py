"""How good the measurements on this machine's CPU are.

    python benchmarks/measuring.py [--budget 4] [--rounds 2] [--tries 1] [--samples mlp,lstm,...]

For each sample: the latency, how far the rounds' medians are apart, whether their 90 % intervals overlap, the
sum of operator times over the latency, and the scale factor that made it so. Then a chain of 200 operators that
do nothing against its true dispatch cost, and a measurement beside processes that hog a core each. Weights and
inputs are random; all samples of a round are measured before the next round begins. A measurement begins
when the machine is quiet (``quiet.Sentinel``) or patience ends; with more than one try it is repeated until the
cores were close in most of its turns, and the best of the tries counts. How well the threads share work at best
is handed to each, as it is on a machine that was calibrated.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from quiet import Sentinel

from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.weights import materialise
from analyzer.measurement.child_process import measure
from analyzer.measurement.machine_load import available_cores, default_threads
from analyzer.measurement.noise import calibrate_bias, chain
from analyzer.measurement.request import Measurement, MeasureRequest
from analyzer.measurement.session import SessionSettings
from analyzer.measurement.tensor_files import save_tensors
from analyzer.units import factor, seconds, share

SAMPLES = Path(__file__).parents[1] / "samples"
DEFAULT = "mlp,lstm,resnet50,mobilenet_v2,bert_base,gpt2,unet,recommender"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default=DEFAULT)
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of runs for each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--tries", type=int, default=1, help="for each measurement, until cores were close")
    parser.add_argument("--patience", type=float, default=5.0, help="seconds to wait for that before each")
    asked = parser.parse_args()
    sentinel = Sentinel(asked.threads)
    with tempfile.TemporaryDirectory(prefix="analyzer-bench-") as name:
        folder = Path(name)
        requests = {
            sample: request_for(sample, folder, asked.budget, asked.threads)
            for sample in asked.samples.split(",")
        }

        def measured(sample: str, request: MeasureRequest) -> tuple[Measurement, float]:
            found = []
            for _ in range(asked.tries):
                sentinel.wait(asked.patience)
                best = sentinel.distance.best
                made = measure(replace(request, sharing_s=(best.shared_s, best.alone_s)))
                found.append((made, apart(made)))
                print(f"{sample} {seconds(made.latency.value)} apart {found[-1][1]:.0%}", file=sys.stderr)
                if found[-1][1] < 0.5:
                    break
            return min(found, key=lambda item: item[1])

        rounds = [
            {sample: measured(sample, request) for sample, request in requests.items()}
            for _ in range(asked.rounds)
        ]
        report({sample: [found[sample] for found in rounds] for sample in requests})
        report_chain(folder, asked.threads)
        report_busy(requests[next(iter(requests))])


def request_for(sample: str, folder: Path, budget: float, threads: int) -> MeasureRequest:
    """A runnable file of a sample with its inputs."""
    home = folder / sample
    home.mkdir()
    loaded = load(parse_reference(str(SAMPLES / f"{sample}.py")))
    runnable = materialise(loaded, loaded.batch, home)
    save_tensors(home / "feeds.npz", runnable.feeds, types=runnable.feed_types)
    return MeasureRequest(
        model_path=runnable.model_path,
        feeds=home / "feeds.npz",
        time_budget_s=budget,
        threads=threads,
        timeout_s=600,
    )


def apart(measured: Measurement) -> float:
    """The share of its turns of runs in which the cores were apart."""
    return float(measured.environment["turns_with_cores_apart"]) / float(measured.environment["turns"])


def report(rounds: dict[str, list[tuple[Measurement, float]]]) -> None:
    """One line a sample, then what was wanted."""
    print(
        f"{'sample':<14}{'latency':>10}{'nodes':>7}{'mean node':>11}{'factor':>8}{'sum/lat':>9}"
        f"{'rounds apart':>14}{'overlap':>9}{'busy cores':>12}{'cores apart':>13}"
    )
    found = {sample: [item for item, _ in mine] for sample, mine in rounds.items()}
    pairs, distances = [], []
    for sample, measured in found.items():
        first = measured[0]
        medians = [item.latency.value for item in measured]
        mine = [overlap(a, b) for a, b in itertools.combinations(measured, 2)]
        pairs += mine
        distances.append(max(medians) / min(medians) - 1)
        total = sum(node.time.value for node in first.nodes)
        mean = total / max(1, len(first.nodes))
        others = max(float(item.environment["others_cores"]) for item in measured)
        print(
            f"{sample:<14}{seconds(first.latency.value):>10}{len(first.nodes):>7}{seconds(mean):>11}"
            f"{first.factor or 0:>8.2f}{total / first.latency.value:>9.3f}{distances[-1]:>13.1%}"
            f"{sum(mine)}/{len(mine)}".rjust(9)
            + f"{others:>12.2f}{max(share for _, share in rounds[sample]):>12.0%}"
        )
        for text in dict.fromkeys(text for item in measured for text in item.messages):
            print(f"    {text}")
    if pairs:
        print(f"\n90 % intervals that overlap: {sum(pairs)} of {len(pairs)} pairs (wanted: 9 of 10)")
        close = sum(item <= 0.05 for item in distances)
        print(f"medians within 5 %: {close} of {len(distances)} (wanted on a quiet machine: all)")
    long = [
        item[0].factor
        for item in found.values()
        if item[0].factor and item[0].nodes and item[0].latency.value / len(item[0].nodes) > 20e-6
    ]
    right = sum(0.9 <= value <= 1.1 for value in long)
    print(f"factor in 0.9 to 1.1 where nodes average over 20 us: {right} of {len(long)} (wanted: all)")


def overlap(a: Measurement, b: Measurement) -> bool:
    """Whether the 90 % intervals have a point in common."""
    return a.latency.low <= b.latency.high and b.latency.low <= a.latency.high


def report_chain(folder: Path, threads: int) -> None:
    """200 operators that do nothing: what is told against what they cost."""
    home = folder / "chain"
    home.mkdir()
    (home / "model.onnx").write_bytes(chain(200))
    truth = calibrate_bias(SessionSettings(threads=threads), home, seconds=1.0).dispatch_s
    measured = measure(MeasureRequest(model_path=home / "model.onnx", time_budget_s=2.0, threads=threads))
    told = sum(node.time.value for node in measured.nodes) / 200
    shown = sum(node.raw_s for node in measured.nodes) / 200
    print(
        f"\na node that does nothing costs {seconds(truth)} (two chains, unprofiled); told: {seconds(told)}, "
        f"{share(abs(told / truth - 1))} off (wanted: 30 %); the profile alone: {seconds(shown)}, "
        f"{factor(shown / truth)}"
    )


def report_busy(request: MeasureRequest) -> None:
    """The same measurement while every core is hogged."""
    with hogs(available_cores()):
        measured = measure(request)
    print(f"\nbeside {available_cores()} processes that hog a core each: {seconds(measured.latency.value)}")
    print("\n".join(f"    {text}" for text in measured.messages) or "    NOTHING WAS SAID (wanted: a message)")


@contextmanager
def hogs(count: int) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """So many processes that do nothing but compute."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
