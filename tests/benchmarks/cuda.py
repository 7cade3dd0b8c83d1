"""The whole check of what needs a GPU, in one go and under 8 minutes.

    python tests/benchmarks/cuda.py [--output record.json] [--minutes 7.5] [--samples mlp,...] [--cpu-only]

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
import json
import os
import platform
import signal
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda_record import Record, adds_up, shares, summary

if TYPE_CHECKING:
    from analyzer.runtime.measure import Measurement, MeasureRequest

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
ALWAYS = float("-inf")
DEFAULT = "mlp,resnet50,bert_base,lstm,mobilenet_v2,gpt2,recommender,unet"
CEILINGS = (
    "cuda.node",
    "cuda.kernel",
    "cuda.gemm.float32.m4096.n4096.k4096",
    "cuda.gemm.float16.m4096.n4096.k4096",
    "cuda.gemm.bfloat16.m4096.n4096.k4096",
    "cuda.copy.1073741824",
    "cuda.h2d.latency",
    "cuda.h2d.pinned.67108864",
)


def main() -> int:
    """Runs the check and says what holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("cuda-record.json"))
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--samples", default=DEFAULT)
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of runs for each measurement")
    parser.add_argument("--cpu-only", action="store_true")
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if hasattr(signal, "alarm"):  # a call that never returns ends the script, and the record is there
        signal.alarm(max(120, int(asked.minutes * 60 + 25)))
    record = Record(asked.output, asked.minutes)
    record.put("machine", {"python": platform.python_version(), "system": platform.platform()})
    record.step("machine", ALWAYS, lambda: machine(record))
    found: list[bool] = []
    record.step("CUDA", ALWAYS, lambda: found.append(not asked.cpu_only and usable(record)))
    gpu = bool(found and found[0])
    record.put("gpu", gpu)
    if not gpu:
        print("     no GPU is used: the CPU's part alone", flush=True)
    with tempfile.TemporaryDirectory(prefix="analyzer-cuda-", ignore_cleanup_errors=True) as name:
        if gpu:
            record.step("GPU ceilings", 25, lambda: gpu_ceilings(record))
            record.step("trace", 15, lambda: trace(record))
        for sample in asked.samples.split(","):
            one_sample(record, sample, Path(name) / sample, asked.budget, gpu)
        if gpu:
            record.step("memory that ends", 10, lambda: memory_ends(record, Path(name)))
    record.step("no silent fall-back", 5, lambda: no_fallback(record))
    record.step("CPU ceilings", 15, lambda: cpu_ceilings(record, 2 * asked.budget))
    failed = [name for name, check in record.values["checks"].items() if not check["holds"]]
    record.put("complete", not record.values["left_out"])
    holding = len(record.values["checks"]) - len(failed)
    print(f"{holding} checks hold, {len(failed)} do not; record in {asked.output}")
    for name in failed:
        print(f"  does not hold: {name}")
    return 1 if failed else 0


def machine(record: Record) -> None:
    """What it runs on; what cannot be told is missing alone."""
    from importlib import metadata

    found = record.values["machine"]
    for name in ("onnxruntime-gpu", "onnxruntime", "torch", "onnx", "onnxscript", "onnx-ir", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    from analyzer.devices.calibrate import fingerprint

    found.update(fingerprint())
    import onnxruntime
    import torch
    from torch.profiler import supported_activities

    found["onnxruntime_imported"] = f"{onnxruntime.__version__} from {onnxruntime.__file__}"
    found["providers"] = onnxruntime.get_available_providers()
    found["torch_cuda"] = torch.version.cuda
    found["torch_sees_gpu"] = torch.cuda.is_available()
    found["torch_records"] = sorted(str(activity) for activity in supported_activities())
    record.write()


def usable(record: Record) -> bool:
    """Whether ONNX Runtime runs on the GPU; a GPU that it cannot use is a check that does not hold."""
    from analyzer.errors import AnalyzerError
    from analyzer.runtime.bias import chain
    from analyzer.runtime.session import SessionSettings, create

    card = driver_says()
    record.put("card", card)
    try:
        session = create(chain(1), SessionSettings(provider="cuda", optimize=False))
    except AnalyzerError as error:
        said = f"{error.message} ({error.hint})"
        record.put("no_cuda", said)
        print(f"     {said}", flush=True)
        if card is not None:
            record.check("CUDA is usable", False, said)
        return False
    record.check("CUDA is usable", True, ", ".join(session.get_providers()))
    return True


def driver_says() -> dict[str, Any] | None:
    """The GPU by its driver, None without one."""
    import pynvml

    from analyzer.nvml import driver, handle

    try:
        with driver() as nvml:
            first = handle(nvml)
            return {
                "name": str(nvml.nvmlDeviceGetName(first)),
                "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(first).total),
                "driver": str(nvml.nvmlSystemGetDriverVersion()),
                "cuda": int(nvml.nvmlSystemGetCudaDriverVersion()),
            }
    except (pynvml.NVMLError, LookupError) as error:
        print(f"     the driver says: {error}", flush=True)
        return None


def gpu_ceilings(record: Record) -> None:
    """The GPU's ceilings, and that they are in order."""
    from analyzer.runtime.ceilings_cuda import measure_cuda_ceilings

    found = measure_cuda_ceilings()
    record.put("gpu_ceilings", found)
    for key in CEILINGS:
        record.check(f"ceiling {key}", key in found, f"{found.get(key, 'is missing')}")
    tf32, fp32 = (found.get(f"cuda.gemm.{kind}.m4096.n4096.k4096", 0.0) for kind in ("tf32", "float32"))
    record.check("TF32 is not slower than float32", tf32 >= 0.9 * fp32, f"{tf32:.3g} and {fp32:.3g} FLOP/s")
    pinned, pageable = (found.get(f"cuda.h2d.{kind}.67108864", 0.0) for kind in ("pinned", "pageable"))
    record.check(
        "pinned copies are not slower", pinned >= 0.9 * pageable, f"{pinned:.3g} and {pageable:.3g} B/s"
    )


def cpu_ceilings(record: Record, seconds: float) -> None:
    """The CPU's ceilings."""
    from analyzer.runtime.ceilings import measure_ceilings

    record.put("cpu_ceilings", measure_ceilings(seconds=seconds))


def trace(record: Record) -> None:
    """Three runs of a small chain: the GPU's records and the profile, kept beside the record, and joined."""
    import numpy as np

    from analyzer.runtime import profile
    from analyzer.runtime.bias import chain
    from analyzer.runtime.bound import bind_session
    from analyzer.runtime.cupti import record as recorded
    from analyzer.runtime.session import SessionSettings, create
    from analyzer.runtime.trace import join

    folder = record.path.resolve().parent
    settings = SessionSettings(provider="cuda", optimize=False, profile_prefix=folder / "cuda-profile")
    session = create(chain(4), settings)
    bound = bind_session(session, {"t0": np.ones(1, np.float32)}, "cuda")
    kineto, why = recorded(bound.call, 3, folder)
    path = Path(session.end_profiling())
    events = profile.read(path)
    path.unlink(missing_ok=True)
    stem = record.path.with_suffix("")
    Path(f"{stem}-profile.json").write_text(json.dumps(events), encoding="utf-8")
    record.put("trace_start_ns", session.get_profiling_start_time_ns())
    record.check("the GPU's activity is recorded", kineto is not None, why or "by torch.profiler")
    if kineto is None:
        return
    Path(f"{stem}-kineto.json").write_text(json.dumps(kineto), encoding="utf-8")
    joined = join(kineto, events, start_ns=session.get_profiling_start_time_ns())
    detail = "no record of the GPU" if joined is None else f"{joined.matched:.0%}, {joined.shift_us} us apart"
    record.check("records belong to operators", joined is not None and joined.matched > 0.98, detail)
    if joined is not None:
        counts = [node.kernels for node in joined.nodes]
        record.check("a chain of four launches four kernels", counts == [1.0] * 4, f"{counts}")


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
        record.step(f"{sample}: CUDA without TF32", 15, lambda: exactly(record, entry, request))
        record.step(f"{sample}: agreement", 2, lambda: compare(record, entry, sample, home))
    if on_cuda and any("CUPTI" in node.origin for node in on_cuda[0].nodes):
        record.step(f"{sample}: blocking", 20, lambda: blocking(record, entry, sample, request, on_cuda[0]))


def request_for(sample: str, home: Path, budget: float) -> MeasureRequest:
    """A runnable file of a sample with its inputs."""
    from analyzer.loading.load import load
    from analyzer.loading.reference import parse_reference
    from analyzer.loading.weights import materialise
    from analyzer.runtime.measure import MeasureRequest
    from analyzer.runtime.tensors import save_tensors

    home.mkdir(parents=True)
    loaded = load(parse_reference(str(SAMPLES / f"{sample}.py")), use_cache=False)
    runnable = materialise(loaded, loaded.batch, home)
    save_tensors(home / "feeds.npz", runnable.feeds, types=runnable.feed_types)
    return MeasureRequest(model_path=runnable.model_path, feeds=home / "feeds.npz", time_budget_s=budget)


def run(record: Record, request: MeasureRequest, **changes: Any) -> Measurement:
    """One measurement; it is ended where the time limit ends."""
    from analyzer.runtime.measure import measure

    return measure(replace(request, timeout_s=max(5.0, min(90.0, record.left_s())), **changes))


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
    recorded = any("CUPTI" in node.origin for node in found.nodes)
    record.check(
        f"{sample}: operators are from the GPU's records", recorded, "; ".join(found.messages) or "all"
    )
    ways = {way: latency.median_s for way, latency in found.ways.items()}
    resident = ways.get("resident")
    record.check(
        f"{sample}: copies cost time", resident is not None and resident <= 1.05 * ways["copies"], f"{ways}"
    )
    record.check(
        f"{sample}: memory of the GPU", bool(found.device_peak_bytes), f"{found.device_peak_bytes} bytes"
    )
    first = found.first_run_s or 0.0
    record.check(f"{sample}: the first run is apart", first >= found.latency.median_s, f"{first} s")
    return found


def exactly(record: Record, entry: dict[str, Any], request: MeasureRequest) -> None:
    """CUDA without TF32, for the comparison of outputs."""
    outputs = request.model_path.with_name("exact.npz")
    entry["cuda_fp32"] = summary(
        run(record, request, provider="cuda", outputs=outputs, tf32=False, profile=False, cuda_graph=False)
    )


def compare(record: Record, entry: dict[str, Any], sample: str, home: Path) -> None:
    """Outputs of CPU and CUDA, TF32 off and on."""
    from analyzer.runtime.agreement import agreement
    from analyzer.runtime.tensors import load_tensors

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
    from analyzer.runtime.measure import measure_with_blocking_launches

    asked = replace(request, provider="cuda", timeout_s=max(5.0, min(90.0, record.left_s())))
    coarse = measure_with_blocking_launches(asked, recorded)
    true = {node.name: node.time_s for node in recorded.nodes if node.provider == "cuda"}
    pairs = [(true[node.name], node.time_s) for node in coarse.nodes if true.get(node.name)]
    entry["blocking"] = [
        {"name": node.name, "time_s": node.time_s, "raw_s": node.raw_s} for node in coarse.nodes
    ]
    record.check(f"{sample}: blocking launches give times", bool(pairs), "; ".join(coarse.messages))
    long = [abs(b / a - 1) for a, b in pairs if a > 50e-6]
    entry["blocking_worst_above_50us"] = worst = max(long, default=0.0)
    print(f"     {sample}: blocking launches are up to {worst:.0%} off for {len(long)} nodes above 50 us")


def memory_ends(record: Record, folder: Path) -> None:
    """A tensor larger than any GPU: an error of its own kind."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    from analyzer.errors import MeasurementError, MemoryEndedError
    from analyzer.runtime.measure import MeasureRequest

    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "shape")  # 4 TiB of float32
    graph = helper.make_graph(
        [
            helper.make_node("Expand", ["x", "shape"], ["wide"], name="wide"),
            helper.make_node("ReduceMax", ["wide"], ["y"], name="most", keepdims=0),
        ],
        "huge",
        [helper.make_tensor_value_info("x", 1, [1, 1])],
        [helper.make_tensor_value_info("y", 1, [])],
        [shape],
    )
    path = folder / "huge.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    name = "memory that ends is said in plain words"
    try:
        run(record, MeasureRequest(model_path=path, provider="cuda", time_budget_s=0.5, profile=False))
        record.check(name, False, "4 TiB were had")
    except MeasurementError as error:
        record.check(name, isinstance(error, MemoryEndedError), f"{error.message} ({error.hint})")


def no_fallback(record: Record) -> None:
    """CUDA asked for where it cannot be: an error, never the CPU."""
    from analyzer.errors import MeasurementError
    from analyzer.runtime.bias import chain
    from analyzer.runtime.measure import MeasureRequest, measure

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "chain.onnx"
        path.write_bytes(chain(3))
        hidden, os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES"), ""
        try:
            measured = measure(
                MeasureRequest(model_path=path, provider="cuda", time_budget_s=0.5, timeout_s=60)
            )
            record.check("no silent fall-back", False, f"{measured.origin} without a visible GPU")
        except MeasurementError as error:
            record.check("no silent fall-back", True, error.message)
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if hidden is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = hidden


if __name__ == "__main__":
    sys.exit(main())
