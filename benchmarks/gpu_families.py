"""What operators take on this machine's GPU under ONNX Runtime, by family and size.

    python benchmarks/gpu_families.py [--output families.json] [--minutes 8] [--only product,attention]
                                            [--device cuda] [--most 400] [--passes times,kernels]

It needs no installation and no network. Of each case (``gpu_family_cases.py``) one row: the seconds of a run
launched node by node (``session_s``) and replayed as one CUDA graph (``graph_s``), both with inputs and outputs
on the GPU and each the lower quartile of its runs; the GPU's own time in kernels (``kernel_s``), how many there
are and which, by CUPTI; the clock right after. Divide by ``copies`` for one operator. Seconds and bytes.

Each family runs in a process of its own, and its kernels are recorded in another one: CUPTI, once it is awake,
adds two to three microseconds to every launch. A crash or an error of the GPU costs its case alone. Cases come
in an order shuffled once and for all, so that a run that its time limit cuts short has all sizes. With
``--device cpu`` the same on the CPU, without kernels: a check that the models are right.

A record of a real card, kept under tests/data/gpu/, is what predictions are compared with; no constant of a
kernel is fitted to it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cuda_record import Record
from gpu_family_cases import FAMILIES
from gpu_family_networks import Case, Fed

ROOT = Path(__file__).resolve().parents[1]
# Of each way; a launch of a large case takes longer than that.
_SECONDS = 0.06
_TRACED_RUNS = 2
_POOL_ITEMS = 1 << 26
# A case that ends its process is left out and the others go on; so often.
_MOST_RESTARTS = 6


def main() -> int:
    """All families, each in its process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("gpu-families.json"))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--only", default=",".join(FAMILIES), help="families, by name")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--most", type=int, default=10_000, help="cases of a family")
    parser.add_argument("--largest", type=int, default=8 << 30, help="bytes of inputs of a case")
    parser.add_argument("--passes", default="times,kernels")
    parser.add_argument("--family", help=argparse.SUPPRESS)
    parser.add_argument("--after", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if asked.family:
        return one_family(asked)
    record = Record(asked.output, asked.minutes)
    record.put("rows", {})
    if asked.device == "cuda":
        from cuda_parts import apart

        for part in ("machine", "CUDA"):
            record.step(part, 0, lambda part=part: apart(record, part, 1.0))
    passes = asked.passes.split(",") if asked.device == "cuda" else ["times"]
    steps = [(family, what) for what in passes for family in asked.only.split(",")]
    for number, (family, what) in enumerate(steps):
        share = record.left_s() / (len(steps) - number)
        record.step(
            f"{family}: {what}",
            5,
            lambda: in_processes(record, asked, family, what, share),  # noqa: B023
        )
    record.put("complete", not record.values["left_out"])
    for family, rows in record.values["rows"].items():
        failed = sum("error" in row for row in rows)
        print(f"{family}: {len(rows)} cases, {failed} failed")
    print(record.values["seconds"])
    return 0


def in_processes(record: Record, asked: argparse.Namespace, family: str, what: str, share: float) -> None:
    """A pass of a family within its share of the time; restarted after the case that ended its process."""
    rows: list[dict[str, Any]] = record.values["rows"].setdefault(family, [])
    known = {row["case"]: row for row in rows}
    done_cases = 0
    end = time.monotonic() + share
    for _ in range(_MOST_RESTARTS):
        with tempfile.TemporaryDirectory(prefix="gpu-families-") as folder:
            lines = Path(folder) / "rows.jsonl"
            command = [sys.executable, __file__, "--family", family, "--after", str(done_cases)]
            command += ["--output", str(lines), "--device", asked.device, "--most", str(asked.most)]
            command += ["--largest", str(asked.largest), "--passes", what]
            left = end - time.monotonic()
            command += ["--minutes", str(left / 60)]
            try:
                done = subprocess.run(command, check=False, timeout=left + 30, stderr=subprocess.PIPE)
                status, said = done.returncode, done.stderr.decode(errors="replace").strip().splitlines()
            except subprocess.TimeoutExpired:
                status, said = 0, []
                print(f"     {family}: does not end", flush=True)
            text = lines.read_text(encoding="utf-8") if lines.exists() else ""
        new = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        for row in new:
            if "measuring" in row:
                continue
            if "left" in row:
                record.leave_out(f"{family}: {what}", f"no time for {row['left']} cases")
                continue
            done_cases += 1
            if row["case"] in known:
                known[row["case"]].update(row)
            else:
                known[row["case"]] = row
                rows.append(row)
        record.write()
        if status == 0 or time.monotonic() > end - 5:
            return
        message = f"ended with status {status}: {said[-1] if said else 'no word'}"
        doing = new[-1].get("measuring") if new else None
        print(f"     {doing or family}: {message}", flush=True)
        if doing is not None:  # it wrote no row
            if doing not in known:
                known[doing] = {"case": doing}
                rows.append(known[doing])
            known[doing]["error"] = message
            done_cases += 1


def one_family(asked: argparse.Namespace) -> int:
    """The cases of a family from ``--after``, a line each."""
    from analyzer.errors import AnalyzerError

    begin = time.monotonic()
    cases = list(FAMILIES[asked.family]())
    random.Random(0).shuffle(cases)
    # A sum of the GPU's memory would not do: what one case leaves behind goes with its session.
    bench = Bench(asked.device, traced=asked.passes == "kernels")
    with asked.output.open("w", encoding="utf-8") as lines:

        def write(row: dict[str, Any]) -> None:
            lines.write(json.dumps(row) + "\n")
            lines.flush()

        for case in cases[asked.after : asked.most]:
            if time.monotonic() - begin > asked.minutes * 60:
                write({"left": len(cases[: asked.most]) - cases.index(case)})
                break
            row: dict[str, Any] = {"case": case.name, **case.sizes, "copies": case.copies}
            write({"measuring": case.name})
            if sum(_bytes(each) for each in case.fed.values()) > asked.largest:
                write({**row, "error": "too large"})
                continue
            try:
                row |= bench.measured(case)
            except AnalyzerError as error:
                row["error"] = f"{error.message} ({error.hint})"[:400]
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"[:400]
            write(row)
            if "CUDA failure" in row.get("error", "") and "out of memory" not in row["error"]:
                return 1  # the context is lost
    return 0


def _bytes(fed: Fed) -> int:
    import ml_dtypes  # noqa: F401 - makes NumPy know bfloat16 by name
    import numpy as np

    return int(np.prod(fed.shape, dtype=np.int64)) * np.dtype(fed.dtype).itemsize


class Bench:
    """What the cases of a process share: random values, and a CUPTI that is awake."""

    def __init__(self, device: str, traced: bool) -> None:
        import numpy as np

        self.device = device
        self.traced = traced
        generator = np.random.default_rng(0)
        normal = generator.standard_normal(_POOL_ITEMS // 16, dtype=np.float32) * 0.05
        self._pool = np.tile(normal, 16)
        self._cast: dict[str, Any] = {"float32": self._pool}
        self._offset = 0
        self._awake = False

    def measured(self, case: Case) -> dict[str, Any]:
        """A row's figures."""
        import onnxruntime as ort

        from analyzer.errors import AnalyzerError
        from analyzer.measurement.session import create, undisturbed_seconds

        model = case.model()
        row: dict[str, Any] = {}
        options = {"enable_cuda_graph": "1"} if self.device == "cuda" else {}
        try:
            session = create(model, self._settings(case, options))
        except AnalyzerError as error:
            if self.device == "cpu":
                raise
            # Nodes on the CPU rule a graph out.
            row["no_graph"] = f"{error.message}"[:160]
            options.pop("enable_cuda_graph")
            session = create(model, self._settings(case, options))
        graph = "enable_cuda_graph" in options
        binding = self._bound(session, case)
        plain = ort.RunOptions()
        if graph:
            plain.add_run_config_entry("gpu_graph_id", "-1")  # neither recorded nor replayed

        def launched() -> None:
            session.run_with_iobinding(binding, plain)

        launched()
        for name, value in zip(
            [output.name for output in session.get_outputs()], binding.get_outputs(), strict=True
        ):
            binding.bind_ortvalue_output(name, value)
        launched()
        if self.traced:
            return row | self._kernels(launched)
        row["session_s"] = undisturbed_seconds(launched, _SECONDS)
        if graph:
            for _ in range(3):
                session.run_with_iobinding(binding)
            row["graph_s"] = undisturbed_seconds(lambda: session.run_with_iobinding(binding), _SECONDS)
            row["sm_mhz"] = _clock_mhz()
        if case.optimized:
            row["nodes"] = self._placed(model, case)
        return row

    def _settings(self, case: Case, cuda: Mapping[str, str] | None = None) -> Any:
        from analyzer.measurement.session import SessionSettings

        return SessionSettings(
            provider=self.device,
            optimize=case.optimized,
            cuda={**case.cuda, **(cuda or {})} if self.device == "cuda" else {},
            entries=dict(case.entries),
        )

    def _bound(self, session: Any, case: Case) -> Any:
        from analyzer.measurement.tensor_files import to_ortvalue

        binding = session.io_binding()
        values: dict[str, Any] = {}
        wanted = {each.name for each in session.get_inputs()}
        for name, fed in case.fed.items():
            if name not in wanted:
                continue
            array = fed.values if fed.values is not None else self._random(fed)
            values[name] = to_ortvalue(array, "cpu" if fed.on_host else self.device)
            binding.bind_ortvalue_input(name, values[name])
        for output in session.get_outputs():
            if output.name in case.shared:
                binding.bind_ortvalue_output(output.name, values[case.shared[output.name]])
            else:
                binding.bind_output(output.name, self.device, 0)
        return binding

    def _random(self, fed: Fed) -> Any:
        """Random values, of another place of the pool for each tensor."""
        import ml_dtypes
        import numpy as np

        count = int(np.prod(fed.shape, dtype=np.int64))
        if fed.dtype in ("uint8", "int8"):
            pool = self._cast.setdefault("bytes", self._pool.view(np.uint8))
            pool = pool.view(np.dtype(fed.dtype))
        else:
            kind = np.dtype(getattr(ml_dtypes, fed.dtype)) if fed.dtype == "bfloat16" else np.dtype(fed.dtype)
            if fed.dtype not in self._cast:
                self._cast[fed.dtype] = self._pool.astype(kind)
            pool = self._cast[fed.dtype]
        self._offset = (self._offset + 4099) % 65536
        if count + self._offset > pool.size:
            return np.resize(pool[self._offset :], count).reshape(fed.shape)
        return pool[self._offset : self._offset + count].reshape(fed.shape)

    def _kernels(self, call: Callable[[], object]) -> dict[str, Any]:
        """The GPU's own time in a run, by CUPTI."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        if not self._awake:  # the first one starts CUPTI and loses records
            with profile(activities=[ProfilerActivity.CUDA]):
                call()
                torch.cuda.synchronize()
            self._awake = True
        with profile(activities=[ProfilerActivity.CUDA]) as recording:
            for _ in range(_TRACED_RUNS):
                call()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            recording.export_chrome_trace(str(path))
            events = json.loads(path.read_text(encoding="utf-8", errors="replace"), strict=False)["traceEvents"]
        kernels = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        if not kernels:
            return {}
        times: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for each in kernels:
            times[each["name"]] += each["dur"] * 1e-6 / _TRACED_RUNS
            counts[each["name"]] += 1
        begin = min(each["ts"] for each in kernels)
        span = max(each["ts"] + each["dur"] for each in kernels) - begin
        return {
            "kernel_s": sum(times.values()),
            "kernels": len(kernels) / _TRACED_RUNS,
            "span_s": span * 1e-6 / _TRACED_RUNS,
            "names": [
                [name[:120], counts[name] / _TRACED_RUNS, seconds] for name, seconds in times.most_common(6)
            ],
        }

    def _placed(self, model: bytes | Path, case: Case) -> list[str]:
        """Executed nodes of a run with their providers."""
        from analyzer.measurement import profile
        from analyzer.measurement.session import create

        with tempfile.TemporaryDirectory() as folder:
            session = create(model, replace(self._settings(case), profile_prefix=Path(folder) / "p"))
            session.run_with_iobinding(self._bound(session, case))
            events = profile.read(Path(session.end_profiling()))
        (run, *_) = profile.runs(events)
        return [f"{each.op_type}:{each.provider}" for each in run.nodes]


def _clock_mhz() -> int | None:
    import pynvml

    from analyzer.devices.nvml import driver, handle

    try:
        with driver() as nvml:
            return int(nvml.nvmlDeviceGetClockInfo(handle(nvml), nvml.NVML_CLOCK_SM))
    except (pynvml.NVMLError, LookupError):
        return None


if __name__ == "__main__":
    sys.exit(main())
