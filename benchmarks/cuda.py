"""The whole check of what needs a GPU, in one go and under 8 minutes.

    python benchmarks/cuda.py [--output record.json] [--minutes 7.5] [--samples mlp,...] [--cpu-only]

It needs no installation and no network: the package is taken from the checkout that holds this file. Every part
stands alone, and everything is written to the record as soon as it is known, so that a part that fails, a time
limit or a crash costs itself alone. In this order:

what the machine is, and whether CUDA can be used; the GPU's ceilings; a short trace of the GPU and the profile
of the same runs, kept for tests; each sample on CUDA (three ways end to end, operators by CUPTI), on the CPU,
without TF32, whether the outputs agree, and by blocking launches; that memory that ends, and a GPU that is
hidden, are errors in plain words; the CPU's ceilings.

With ``--cpu-only``, and without a GPU, the CPU's part alone, and the record says so. Exit status 0 where
every check holds, 1 where one does not.

A record of a real card, kept under tests/data/, is what the prediction is compared with.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda_parts import apart
from cuda_record import Record, adds_up, shares, summary

if TYPE_CHECKING:
    from analyzer.measurement.request import Measurement, MeasureRequest

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
ALWAYS = float("-inf")
DEFAULT = "mlp,resnet50,bert_base,lstm,mobilenet_v2,gpt2,recommender,unet"


def main() -> int:
    """Runs the check and says what holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("cuda-record.json"))
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--samples", default=DEFAULT)
    parser.add_argument("--budget", type=float, default=3.0, help="seconds of runs for each measurement")
    parser.add_argument("--cpu-only", action="store_true")
    parser.add_argument("--skip", action="append", default=[], metavar="PART", help="a part that is not run")
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if hasattr(signal, "alarm"):  # a call that never returns ends the script, and the record is there
        signal.alarm(max(120, int(asked.minutes * 60 + 25)))
    record = Record(asked.output, asked.minutes)
    record.put("gpu", False)

    def part(name: str, needed_s: float) -> None:
        if name in asked.skip:
            record.leave_out(name, "as asked")
        else:
            record.step(name, needed_s, lambda: apart(record, name, asked.budget))

    part("machine", ALWAYS)
    if not asked.cpu_only:
        part("CUDA", ALWAYS)
    gpu = bool(record.values["gpu"])
    if gpu:
        part("GPU ceilings", 25)
        part("trace", 15)
    else:
        print("     no GPU is used: the CPU's part alone", flush=True)
    with tempfile.TemporaryDirectory(prefix="analyzer-cuda-", ignore_cleanup_errors=True) as name:
        for sample in asked.samples.split(","):
            one_sample(record, sample, Path(name) / sample, asked.budget, gpu)
    if gpu:
        part("memory that ends", 10)
    part("no silent fall-back", 5)
    part("CPU ceilings", 30)
    failed = [name for name, check in record.values["checks"].items() if not check["holds"]]
    record.put("complete", not record.values["left_out"])
    holding = len(record.values["checks"]) - len(failed)
    print(f"{holding} checks hold, {len(failed)} do not; record in {asked.output}")
    for name in failed:
        print(f"  does not hold: {name}")
    return 1 if failed else 0


def one_sample(record: Record, sample: str, home: Path, budget: float, gpu: bool) -> None:
    """A sample in every way, each a step of its own."""
    entry: dict[str, Any] = record.values.setdefault("samples", {}).setdefault(sample, {})
    ready: list[MeasureRequest] = []
    if not record.step(f"{sample}: export", 40, lambda: ready.append(request_for(sample, home, budget))):
        return
    request = ready[0]
    on_cuda: list[Measurement] = []
    if gpu:
        record.step(
            f"{sample}: CUDA", 25, lambda: on_cuda.append(measured_on_cuda(record, entry, sample, request))
        )
    record.step(f"{sample}: CPU", 20, lambda: measured_on_the_cpu(record, entry, sample, request))
    if gpu:
        record.step(f"{sample}: CUDA without TF32", 15, lambda: exactly(record, entry, sample, request))
        record.step(f"{sample}: agreement", 2, lambda: compare(record, entry, sample, home))
    if on_cuda and any("CUPTI" in node.method for node in on_cuda[0].nodes):
        record.step(f"{sample}: blocking", 20, lambda: blocking(record, entry, sample, request, on_cuda[0]))


def request_for(sample: str, home: Path, budget: float) -> MeasureRequest:
    """A runnable file of a sample with its inputs."""
    from analyzer.loading.load import load
    from analyzer.loading.model_reference import parse_reference
    from analyzer.loading.weights import materialise
    from analyzer.measurement.request import MeasureRequest
    from analyzer.measurement.tensor_files import save_tensors

    home.mkdir(parents=True)
    loaded = load(parse_reference(str(SAMPLES / f"{sample}.py")), use_cache=False)
    runnable = materialise(loaded, loaded.batch, home)
    save_tensors(home / "feeds.npz", runnable.feeds, types=runnable.feed_types)
    return MeasureRequest(model_path=runnable.model_path, feeds=home / "feeds.npz", time_budget_s=budget)


def run(record: Record, request: MeasureRequest, **changes: Any) -> Measurement:
    """One measurement; it is ended where the time limit ends."""
    from analyzer.measurement.child_process import measure

    return measure(replace(request, timeout_s=record.most_s(), **changes))


def measured_on_the_cpu(record: Record, entry: dict[str, Any], sample: str, request: MeasureRequest) -> None:
    """The CPU provider alone."""
    on_cpu = run(record, request, outputs=request.model_path.with_name("cpu.npz"))
    entry["cpu"] = summary(on_cpu)
    record.check(f"{sample}: CPU operators add up", adds_up(on_cpu, "copies"), shares(on_cpu, "copies"))


def measured_on_cuda(
    record: Record, entry: dict[str, Any], sample: str, request: MeasureRequest
) -> Measurement:
    """CUDA with TF32, three ways, operators by CUPTI."""
    found = run(record, request, provider="cuda", outputs=request.model_path.with_name("cuda.npz"))
    entry["cuda"] = summary(found)
    for message in found.messages:
        print(f"     {sample}: {message}", flush=True)
    record.check(f"{sample}: CUDA operators add up", adds_up(found, "resident"), shares(found, "resident"))
    recorded = any("CUPTI" in node.method for node in found.nodes)
    record.check(
        f"{sample}: operators are from the GPU's records", recorded, "; ".join(found.messages) or "all"
    )
    ways = {way: latency.value for way, latency in found.ways.items()}
    resident = ways.get("resident")
    record.check(
        f"{sample}: copies cost time", resident is not None and resident <= 1.05 * ways["copies"], f"{ways}"
    )
    record.check(
        f"{sample}: memory of the GPU", bool(found.device_peak_bytes), f"{found.device_peak_bytes} bytes"
    )
    first = found.first_run_s or 0.0
    record.check(f"{sample}: the first run is apart", first >= found.latency.value, f"{first} s")
    return found


def exactly(record: Record, entry: dict[str, Any], sample: str, request: MeasureRequest) -> None:
    """CUDA without TF32, for the comparison of outputs."""
    found = run(
        record,
        replace(request, time_budget_s=min(1.0, request.time_budget_s)),
        provider="cuda",
        outputs=request.model_path.with_name("exact.npz"),
        tf32=False,
        profile=False,
        cuda_graph=False,
    )
    entry["cuda_fp32"] = summary(found)
    chosen = found.environment.get("cuda_options", {}).get("use_tf32")
    record.check(f"{sample}: TF32 can be turned off", chosen == "0", f"use_tf32={chosen}")


def compare(record: Record, entry: dict[str, Any], sample: str, home: Path) -> None:
    """Outputs of CPU and CUDA, TF32 off and on."""
    from analyzer.measurement.output_agreement import agreement
    from analyzer.measurement.tensor_files import load_tensors

    right = load_tensors(home / "cpu.npz")
    for name, precision in (("exact", None), ("cuda", "tf32")):
        found = agreement(right, load_tensors(home / f"{name}.npz"), precision=precision)
        entry[f"agreement_{name}"] = [asdict(output) for output in found]
        wrong = "; ".join(f"{output.name}: {output.why}" for output in found if not output.agrees)
        record.check(f"{sample}: outputs agree ({precision or 'float32'})", not wrong, wrong)


def blocking(
    record: Record, entry: dict[str, Any], sample: str, request: MeasureRequest, recorded: Measurement
) -> None:
    """Blocking launches against CUPTI: how wrong the fall-back is, for long and for short nodes."""
    from analyzer.measurement.child_process import measure_with_blocking_launches

    asked = replace(request, provider="cuda", timeout_s=record.most_s())
    coarse = measure_with_blocking_launches(asked, recorded)
    true = {node.name: node.time.value for node in recorded.nodes if node.provider == "cuda"}
    pairs = [(true[node.name], node.time.value) for node in coarse.nodes if true.get(node.name)]
    entry["blocking"] = [
        {"name": node.name, "time_s": node.time.value, "raw_s": node.raw_s} for node in coarse.nodes
    ]
    record.check(f"{sample}: blocking launches give times", bool(pairs), "; ".join(coarse.messages))
    long = [abs(b / a - 1) for a, b in pairs if a > 50e-6]
    entry["blocking_worst_above_50us"] = worst = max(long, default=0.0)
    print(f"     {sample}: blocking launches are up to {worst:.0%} off for {len(long)} nodes above 50 us")


if __name__ == "__main__":
    sys.exit(main())
