"""Parts of the GPU check that run in a process of their own: what crashes or hangs costs itself alone.

python benchmarks/cuda_parts.py PART OUTPUT BUDGET
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cuda_record import Record

ROOT = Path(__file__).resolve().parents[1]
# What the record of such a part is called beside the whole one.
APART = "-part"
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


def apart(record: Record, part: str, budget: float) -> None:
    """Run a part in its own process and take over what it wrote, however it ended."""
    path = record.path.with_name(f"{record.path.stem}{APART}.json")
    path.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).resolve()), part, str(path), str(budget)]
    try:
        done = subprocess.run(
            command, stdout=None, stderr=subprocess.PIPE, check=False, timeout=record.most_s()
        )
    finally:
        if path.exists():
            record.take_over(json.loads(path.read_text(encoding="utf-8")))
            path.unlink()
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"ended with status {done.returncode}: {lines[-1] if lines else 'no word'}")


def machine(record: Record, _budget: float) -> None:
    """What it runs on; what cannot be told is missing alone."""
    from importlib import metadata

    found: dict[str, Any] = {"python": platform.python_version(), "system": platform.platform()}
    record.values["machine"] = found
    for name in ("onnxruntime-gpu", "onnxruntime", "torch", "onnx", "onnxscript", "onnx-ir", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    from analyzer.devices.calibration import fingerprint

    found.update(fingerprint())
    import onnxruntime
    import torch
    from torch.profiler import supported_activities

    found["onnxruntime_imported"] = f"{onnxruntime.__version__} from {onnxruntime.__file__}"
    found["providers"] = onnxruntime.get_available_providers()
    found["torch_cuda"] = torch.version.cuda
    found["torch_sees_gpu"] = torch.cuda.is_available()
    activities = supported_activities()  # type: ignore[no-untyped-call]
    found["torch_records"] = sorted(str(activity) for activity in activities)
    record.write()


def usable(record: Record, _budget: float) -> None:
    """Whether ONNX Runtime runs on the GPU; a GPU that it cannot use is a check that does not hold."""
    from analyzer.errors import AnalyzerError
    from analyzer.measurement.noise import chain
    from analyzer.measurement.session import SessionSettings, create

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
        return
    record.check("CUDA is usable", True, ", ".join(session.get_providers()))
    record.put("gpu", True)


def driver_says() -> dict[str, Any] | None:
    """The GPU by its driver, None without one."""
    import pynvml

    from analyzer.devices.nvml import driver, handle

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


def gpu_ceilings(record: Record, _budget: float) -> None:
    """The GPU's ceilings, and that they are in order."""
    from analyzer.measurement.cuda_ceilings import measure_cuda_ceilings

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


def cpu_ceilings(record: Record, budget: float) -> None:
    """The CPU's ceilings."""
    from analyzer.measurement.cpu_ceilings import measure_ceilings

    record.put("cpu_ceilings", measure_ceilings(seconds=6 * budget))


def trace(record: Record, _budget: float) -> None:
    """Three runs of a small chain: the GPU's records and the profile, kept beside the record, and joined."""
    import numpy as np

    from analyzer.measurement import profile
    from analyzer.measurement.gpu_trace import join
    from analyzer.measurement.noise import chain
    from analyzer.measurement.on_cuda import record as recorded
    from analyzer.measurement.session import SessionSettings, bind_session, create

    folder = record.path.resolve().parent
    settings = SessionSettings(provider="cuda", optimize=False, profile_prefix=folder / "cuda-profile")
    session = create(chain(4), settings)
    bound = bind_session(session, {"t0": np.ones(1, np.float32)}, "cuda")
    kineto, why = recorded(bound.call, 3, folder)
    path = Path(session.end_profiling())
    events = profile.read(path)
    path.unlink(missing_ok=True)
    stem = str(record.path.with_suffix("")).removesuffix(APART)
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


def memory_ends(record: Record, _budget: float) -> None:
    """A tensor larger than any GPU: an error of its own kind."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    from analyzer.errors import MeasurementError, MemoryEndedError
    from analyzer.measurement.child_process import measure
    from analyzer.measurement.request import MeasureRequest

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
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    name = "memory that ends is said in plain words"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "huge.onnx"
        onnx.save(model, path)
        asked = MeasureRequest(model_path=path, provider="cuda", time_budget_s=0.5, timeout_s=60, profile=False)
        try:
            measure(asked)
            record.check(name, False, "4 TiB were had")
        except MeasurementError as error:
            record.check(name, isinstance(error, MemoryEndedError), f"{error.message} ({error.hint})")


def no_fallback(record: Record, _budget: float) -> None:
    """CUDA asked for where it cannot be: an error, never the CPU."""
    from analyzer.errors import MeasurementError
    from analyzer.measurement.child_process import measure
    from analyzer.measurement.noise import chain
    from analyzer.measurement.request import MeasureRequest

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "chain.onnx"
        path.write_bytes(chain(3))
        hidden, os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES"), ""
        try:
            measured = measure(
                MeasureRequest(model_path=path, provider="cuda", time_budget_s=0.5, timeout_s=60)
            )
            record.check("no silent fall-back", False, f"{measured.latency.method} without a visible GPU")
        except MeasurementError as error:
            record.check("no silent fall-back", True, error.message)
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if hidden is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = hidden


PARTS = {
    "machine": machine,
    "CUDA": usable,
    "GPU ceilings": gpu_ceilings,
    "trace": trace,
    "memory that ends": memory_ends,
    "no silent fall-back": no_fallback,
    "CPU ceilings": cpu_ceilings,
}


def main(part: str, output: str, budget: str) -> None:
    """One part; what goes wrong in it goes into its record."""
    sys.path.insert(0, str(ROOT))
    record = Record(Path(output), minutes=60)
    record.step(part, 0, lambda: PARTS[part](record, float(budget)))


if __name__ == "__main__":
    main(*sys.argv[1:])
