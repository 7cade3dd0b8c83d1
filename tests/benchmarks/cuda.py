"""The whole check of what needs a GPU, in one go and under 8 minutes.

    python tests/benchmarks/cuda.py [--output record.json] [--minutes 7.5] [--samples mlp,...] [--cpu-only]

Everything is written to the record as soon as it is known, so that a time limit or a crash costs the rest
alone. It measures, in this order: what the machine is; the GPU's ceilings; each sample on the CPU and on
CUDA (three ways end to end, operators by CUPTI); agreement of the outputs, TF32 on and off; operators by
blocking launches against those by CUPTI; that a missing CUDA is never replaced by the CPU. With ``--cpu-
only``, and where there is no GPU, the CPU's part alone, and the record says so. Exit status 0 where every
check holds, 1 where one does not.

A record of a real card, kept under tests/data/, is what the prediction is compared with.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.runtime.agreement import agreement
from analyzer.runtime.ceilings import measure_ceilings
from analyzer.runtime.ceilings_cuda import has_cuda, measure_cuda_ceilings
from analyzer.runtime.measure import Measurement, MeasureRequest, measure, measure_with_blocking_launches
from analyzer.runtime.tensors import load_tensors, save_tensors
from analyzer.units import factor, seconds

SAMPLES = Path(__file__).parents[2] / "samples"
DEFAULT = "mlp,resnet50,bert_base,lstm,mobilenet_v2,gpt2,recommender,unet"


class Record:
    """The record on disk: rewritten after every entry."""

    def __init__(self, path: Path, minutes: float) -> None:
        self._path = path
        self._begin = time.monotonic()
        self._seconds = minutes * 60
        self.values: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "complete": False,
            "checks": {},
            "errors": {},
            "left_out": [],
        }

    def left_s(self) -> float:
        """Seconds of the time limit that are left."""
        return self._seconds - (time.monotonic() - self._begin)

    def put(self, key: str, value: object) -> None:
        """One entry."""
        self.values[key] = value
        self.write()

    def check(self, name: str, holds: bool, detail: str) -> None:
        """Something that must hold."""
        self.values["checks"][name] = {"holds": bool(holds), "detail": detail}
        print(f"{'ok  ' if holds else 'FAIL'} {name}: {detail}", flush=True)
        self.write()

    def step(self, name: str, needed_s: float, work: Callable[[], object]) -> None:
        """A step whose failure costs itself alone; left out where the time does not suffice."""
        if self.left_s() < needed_s:
            self.values["left_out"].append(name)
            print(f"     {name}: left out, {self.left_s():.0f} s are left", flush=True)
            return
        start = time.monotonic()
        try:
            work()
        except Exception as error:
            said = error.message if isinstance(error, AnalyzerError) else traceback.format_exc()
            self.values["errors"][name] = said
            self.check(name, False, said.strip().splitlines()[-1])
        self.values.setdefault("seconds", {})[name] = round(time.monotonic() - start, 2)
        self.write()

    def write(self) -> None:
        """To disk, all or nothing."""
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.values, indent=1, default=str) + "\n", encoding="utf-8")
        os.replace(temporary, self._path)


def main() -> int:
    """Runs the check and says what holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("cuda-record.json"))
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--samples", default=DEFAULT)
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of runs for each measurement")
    parser.add_argument("--cpu-only", action="store_true")
    asked = parser.parse_args()
    record = Record(asked.output, asked.minutes)
    gpu = not asked.cpu_only and has_cuda()
    record.put("machine", machine())
    record.put("gpu", gpu)
    if not gpu:
        print(f"     no GPU is used ({'--cpu-only' if asked.cpu_only else why_no_gpu()}): the CPU's part alone")
    record.step(
        "CPU ceilings", 15, lambda: record.put("cpu_ceilings", measure_ceilings(seconds=2 * asked.budget))
    )
    if gpu:
        record.step("GPU ceilings", 20, lambda: gpu_ceilings(record))
    with tempfile.TemporaryDirectory(prefix="analyzer-cuda-", ignore_cleanup_errors=True) as name:
        for sample in asked.samples.split(","):
            record.step(
                sample, 40, lambda sample=sample: one_sample(record, sample, Path(name), asked.budget, gpu)
            )
    record.step("no silent fall-back", 5, lambda: no_fallback(record))
    failed = [name for name, check in record.values["checks"].items() if not check["holds"]]
    record.put("complete", not record.values["left_out"])
    holding = len(record.values["checks"]) - len(failed)
    print(f"{holding} checks hold, {len(failed)} do not; record in {asked.output}")
    return 1 if failed else 0


def machine() -> dict[str, Any]:
    """What it ran on."""
    from analyzer.devices.calibrate import fingerprint

    found: dict[str, Any] = {**fingerprint(), "python": platform.python_version()}
    try:
        import torch

        found["torch"] = torch.__version__
        found["torch_cuda"] = torch.version.cuda
    except ImportError:
        found["torch"] = None
    return found


def why_no_gpu() -> str:
    """Why the CUDA provider does not run here."""
    from analyzer.runtime.session import cuda_trouble

    return cuda_trouble()[0]


def gpu_ceilings(record: Record) -> None:
    """The GPU's ceilings, and that they are in order."""
    found = measure_cuda_ceilings()
    record.put("gpu_ceilings", found)
    for key in ("cuda.node", "cuda.gemm.float32.m4096.n4096.k4096", "cuda.copy.1073741824", "cuda.h2d.latency"):
        record.check(f"ceiling {key}", key in found, f"{found.get(key, 'is missing')}")
    tf32, fp32 = (found.get(f"cuda.gemm.{kind}.m4096.n4096.k4096", 0.0) for kind in ("tf32", "float32"))
    record.check("TF32 is not slower than float32", tf32 >= 0.9 * fp32, f"{tf32:.3g} and {fp32:.3g} FLOP/s")
    pinned, pageable = (found.get(f"cuda.h2d.{kind}.67108864", 0.0) for kind in ("pinned", "pageable"))
    record.check(
        "pinned copies are not slower", pinned >= 0.9 * pageable, f"{pinned:.3g} and {pageable:.3g} B/s"
    )


def one_sample(record: Record, sample: str, folder: Path, budget: float, gpu: bool) -> None:
    """A sample on the CPU and, with a GPU, on CUDA in every way."""
    home = folder / sample
    home.mkdir()
    request = request_for(sample, home, budget)
    entry: dict[str, Any] = {}
    record.values.setdefault("samples", {})[sample] = entry
    on_cpu = measure(request)
    entry["cpu"] = summary(on_cpu)
    record.check(f"{sample}: CPU operators add up", adds_up(on_cpu, "copies"), shares(on_cpu, "copies"))
    if not gpu:
        return
    on_cuda = measure(replace(request, provider="cuda", outputs=home / "cuda.npz"))
    entry["cuda"] = summary(on_cuda)

    record.check(f"{sample}: CUDA operators add up", adds_up(on_cuda, "resident"), shares(on_cuda, "resident"))
    recorded = any("CUPTI" in node.origin for node in on_cuda.nodes)
    record.check(
        f"{sample}: operators are from the GPU's records", recorded, "; ".join(on_cuda.messages) or "CUPTI"
    )
    ways = {way: latency.median_s for way, latency in on_cuda.ways.items()}
    record.check(
        f"{sample}: copies cost time", ways.get("resident", 0) <= 1.05 * ways["copies"], f"{ways} seconds"
    )
    exact = measure(replace(request, provider="cuda", outputs=home / "exact.npz", tf32=False, profile=False))
    entry["cuda_fp32"] = summary(exact)
    compare(record, entry, sample, home)
    if recorded:
        blocking(record, entry, sample, request, on_cuda)


def request_for(sample: str, home: Path, budget: float) -> MeasureRequest:
    """A runnable file of a sample with its inputs."""
    from analyzer.loading.load import load
    from analyzer.loading.reference import parse_reference
    from analyzer.loading.weights import materialise

    loaded = load(parse_reference(str(SAMPLES / f"{sample}.py")))
    runnable = materialise(loaded, loaded.batch, home)
    save_tensors(home / "feeds.npz", runnable.feeds, types=runnable.feed_types)
    return MeasureRequest(
        model_path=runnable.model_path,
        feeds=home / "feeds.npz",
        outputs=home / "cpu.npz",
        time_budget_s=budget,
        timeout_s=90,
    )


def compare(record: Record, entry: dict[str, Any], sample: str, home: Path) -> None:
    """Outputs of CPU and CUDA, TF32 off and on."""
    right = load_tensors(home / "cpu.npz")
    for name, precision in (("exact", None), ("cuda", "tf32")):
        found = agreement(right, load_tensors(home / f"{name}.npz"), precision=precision)
        entry[f"agreement_{name}"] = [asdict(output) for output in found.outputs]
        record.check(
            f"{sample}: outputs agree ({precision or 'float32'})", found.agrees, found.sentence("CPU", "CUDA")
        )


def blocking(
    record: Record, entry: dict[str, Any], sample: str, request: MeasureRequest, recorded: Measurement
) -> None:
    """Blocking launches against CUPTI: how wrong the fall-back is, for long and for short nodes."""
    coarse = measure_with_blocking_launches(replace(request, provider="cuda"), recorded)
    true = {node.name: node.time_s for node in recorded.nodes if node.provider == "cuda"}
    pairs = [(true[node.name], node.time_s) for node in coarse.nodes if true.get(node.name)]
    entry["blocking"] = [
        {"name": node.name, "time_s": node.time_s, "raw_s": node.raw_s} for node in coarse.nodes
    ]
    long = [abs(b / a - 1) for a, b in pairs if a > 50e-6]
    worst = max(long, default=0.0)
    print(
        f"     {sample}: blocking launches are up to {worst:.0%} off for {len(long)} nodes above 50 us",
        flush=True,
    )
    entry["blocking_worst_above_50us"] = worst


def no_fallback(record: Record) -> None:
    """CUDA asked for where it cannot be: an error, never the CPU."""
    from analyzer.errors import MeasurementError
    from analyzer.runtime.bias import chain

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "chain.onnx"
        path.write_bytes(chain(3))
        hidden, os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES"), ""
        try:
            measured = measure(MeasureRequest(model_path=path, provider="cuda", time_budget_s=0.5))
            record.check("no silent fall-back", False, f"{measured.origin} without a visible GPU")
        except MeasurementError as error:
            record.check("no silent fall-back", True, error.message)
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if hidden is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = hidden


def adds_up(measured: Measurement, way: str) -> bool:
    """Whether operator times add up to the latency within 3 %."""
    wanted = measured.ways[way].median_s if way in measured.ways else measured.latency.median_s
    return bool(measured.nodes) and abs(sum(node.time_s for node in measured.nodes) / wanted - 1) < 0.03


def shares(measured: Measurement, way: str) -> str:
    """The sum against the latency, in words."""
    latency = measured.ways.get(way, measured.latency)
    total = sum(node.time_s for node in measured.nodes)
    return f"{seconds(total)} of {seconds(latency.median_s)}, factor {factor(measured.factor)}"


def summary(measured: Measurement) -> dict[str, Any]:
    """A measurement without its graph, as plain values."""
    names = ("factor", "residual_s", "bias_s", "load_s", "first_run_s", "arena_peak_bytes", "device_peak_bytes")
    return {
        **{name: getattr(measured, name) for name in (*names, "rss_peak_bytes", "busy", "messages")},
        "ways": {way: asdict(latency) for way, latency in measured.ways.items()},
        "environment": dict(measured.environment),
        "nodes": [asdict(node) for node in measured.nodes],
    }


if __name__ == "__main__":
    sys.exit(main())
