"""CPUs by their data sheets: predicted beside what others measured; prints a table.

    python benchmarks/catalogue_cpus.py FOLDER

Reads ``openvino_ov2024.1_subset.csv`` (openvinotoolkit/openvino, docs: OpenVINO 2024.1, throughput of many
requests, batch 1 each, on eight Intel machines) and ``onnxruntime_ort_tables.csv`` (ONNX Runtime's notebook of
BERT on a Core i7-8700, 1 to 6 threads). The machines are described by their sheets (Intel ARK) as a user's file
would. OpenVINO is no ONNX Runtime: how much quicker it is with a model is taken from the other machines, each
left out in turn, so that one machine is judged against another. BERT's times are compared as they are.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from analyzer import analyze

# Cores, clock and turbo in GHz, memory in GB/s.
MACHINES = {
    "Core i3-8100": (4, 3.6, 3.6, 38.4),
    "Core i5-8500": (6, 3.0, 4.1, 42.7),
    "Core i7-8700T": (6, 2.4, 4.0, 42.7),
    "Core i5-10500TE": (6, 2.3, 3.7, 42.7),
    "Core i9-10900TE": (10, 1.8, 4.5, 46.9),
    "Xeon W1290P": (10, 3.7, 5.3, 46.9),
    "Xeon E-2124G": (4, 3.4, 4.5, 42.7),
    "Core i7-8700": (6, 3.2, 4.6, 42.7),
}
# With AVX-512, as thirteen parts of four cores, at the clock that all sustain, with their part of the memory:
# requests share no core.
PARTS, SOCKETS = 13, ("2x Xeon Platinum 8270", 4, 2.7, 3.2, 281.6 / 13)
_AVX2_FLOPS, _AVX512_FLOPS = 32, 64
SAMPLES = {"bert-base-cased": "bert_base.py", "resnet-50": "resnet50.py", "mobilenet-v2": "mobilenet_v2.py"}


def main() -> None:
    """Predicts and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        described = Path(folder) / "machines.toml"
        described.write_text(_described(), encoding="utf-8")
        _print_openvino(_rows(given.folder / "openvino_ov2024.1_subset.csv"), described)
        _print_bert(_rows(given.folder / "onnxruntime_ort_tables.csv"), described)


def _described() -> str:
    lines = [_entry(name, "xeon-e-2136", *figures, _AVX2_FLOPS) for name, figures in MACHINES.items()]
    name, cores, clock, turbo, memory = SOCKETS
    return "\n".join((*lines, _entry(name, "xeon-platinum-8260", cores, clock, turbo, memory, _AVX512_FLOPS)))


def _entry(
    name: str, like: str, cores: float, clock: float, turbo: float, memory: float, each_clock: float
) -> str:
    return (
        f'[{_slug(name)}]\nlike = "{like}"\nname = "{name}"\nunits = {cores:.0f}\nthreads = {cores:.0f}\n'
        f"clock_hz = {clock * 1e9}\nturbo_hz = {turbo * 1e9}\nbandwidth_bytes_per_s = {memory * 1e9}\n"
        f"peak_flops_per_s = {{ fp32 = {cores * clock * each_clock * 1e9} }}\n"
    )


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _predicted_s(sample: str, described: Path, name: str, batch: int, threads: int) -> float:
    path = Path(__file__).resolve().parents[1] / "samples" / sample
    found = analyze(path, run=False, gpu="none", batch=batch, threads=threads, cpu=f"{described}:{_slug(name)}")
    return next(plan.latency_s for plan in found.plans if plan.name == "cpu")


def _print_openvino(rows: list[dict[str, str]], described: Path) -> None:
    # Every core has a request of its own: as a batch of so many examples.
    cores = {name: figures[0] for name, figures in MACHINES.items()} | {str(SOCKETS[0]): SOCKETS[1]}
    parts = {str(SOCKETS[0]): PARTS}
    logs: dict[str, dict[str, float]] = {model: {} for model in SAMPLES}
    for row in rows:
        name, model = row["device"], row["model"]
        if model in SAMPLES and row["precision"] == "fp32":
            seconds = _predicted_s(SAMPLES[model], described, name, cores[name], cores[name])
            logs[model][name] = float(
                np.log(float(row["throughput_fps"]) / parts.get(name, 1) * seconds / cores[name])
            )
    print("| machine | " + " | ".join(SAMPLES) + " |\n|---|" + "---:|" * len(SAMPLES))
    every = []
    for device in logs["resnet-50"]:
        ratios = [
            float(np.exp(own[device] - np.mean([own[other] for other in own if other != device])))
            for own in logs.values()
        ]
        every += ratios
        print(f"| {device} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    print(f"\n{len(every)} figures: {median(abs(ratio - 1) for ratio in every):.0%} off at the median\n")


def _print_bert(rows: list[dict[str, str]], described: Path) -> None:
    print("| threads | measured | predicted over measured |\n|---|---:|---:|")
    off = []
    for row in rows:
        # Older releases had threads of OpenMP, whose number this column is not.
        if (
            row["engine_version"] != "1.15.1"
            or row["device_kind"] != "cpu"
            or not row["model"].startswith("bert")
        ):
            continue
        threads = int(float(row["threads"] or 0))
        if not 1 <= threads <= MACHINES["Core i7-8700"][0]:
            continue
        seconds = float(row["latency_ms"]) / 1e3
        ratio = _predicted_s("bert_base.py", described, "Core i7-8700", 1, threads) / seconds
        off.append(abs(ratio - 1))
        print(f"| {threads} | {seconds * 1e3:.0f} ms | {ratio:.2f} |")
    print(f"\n{len(off)} runs of BERT-base: {median(off):.0%} off at the median")


if __name__ == "__main__":
    main()
