"""How near `analyze` comes to what PyTorch alone needs for the same model; prints a table, asserts nothing.

    python benchmarks/floor.py [--runs N]

Each case is a process of its own, timed from its start to its end, with its largest resident memory as the
kernel reports it (so Linux and macOS only). The cases take turns, so that a busy moment hits them all
alike, and the ratio is the median of the ratios within a turn.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ANALYZE = (sys.executable, "-m", "analyzer")
BARE_EXPORT = """
import sys
sys.path.insert(0, "samples")
import torch
import resnet50
torch.onnx.export(resnet50.build_model(), resnet50.example_inputs(64), dynamo=True, verbose=False)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A process to time; `once` cases run in the first turn alone."""

    name: str
    command: tuple[str, ...]
    goal: str = ""
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def cases(output: Path) -> tuple[Case, ...]:
    resnet = (*ANALYZE, "samples/resnet50.py", "--batch", "64", "--no-run", "--output", f"{output}/")
    gpt3 = (*ANALYZE, "samples/gpt3_175b.py", "--no-run", "--no-cache", "--output", f"{output}/")
    return (
        Case(name="bare import, build, torch.onnx.export", command=(sys.executable, "-c", BARE_EXPORT)),
        Case(
            name="analyze resnet50 --batch 64 --no-run --no-cache",
            command=(*resnet, "--no-cache"),
            goal="1.3 x bare",
        ),
        Case(name="analyze resnet50 --batch 64 --no-run, cached", command=resnet, goal="1.5 s"),
        Case(name="analyze --help", command=(*ANALYZE, "--help"), goal="0.3 s"),
        Case(name="analyze gpt3_175b --no-run --no-cache", command=gpt3, goal="30 s, 1.5 GB", once=True),
    )


def timed(case: Case, environment: dict[str, str]) -> Run:
    """Runs a case to its end.

    Raises:
        SystemExit: It failed; what it said is shown.
    """
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            case.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            said.seek(0)
            raise SystemExit(
                f"{case.name}: exit status {process.returncode}\n{said.read().decode(errors='replace')}"
            )
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, kilobytes on Linux
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Run(seconds=seconds, cpu_seconds=cpu_seconds, peak_bytes=usage.ru_maxrss * unit)


def measure(runs: int) -> dict[Case, list[Run]]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache", "HOME": folder}
        todo = cases(Path(folder) / "reports")
        results: dict[Case, list[Run]] = {case: [] for case in todo}
        for case in todo:  # byte code, the disk's cache and our own are warm from here on
            if not case.once:
                timed(case, environment)
        for turn in range(runs):
            for case in todo:
                if turn == 0 or not case.once:
                    print(f"turn {turn + 1} of {runs}: {case.name}", file=sys.stderr)
                    results[case].append(timed(case, environment))
    return results


def machine() -> Iterator[str]:
    """What ran this; imported late, so that this process stays small beside those that it times."""
    import cpuinfo
    import psutil

    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    yield f"{cpuinfo.get_cpu_info().get('brand_raw', 'unknown processor')}, {os.cpu_count()} logical cores"
    yield f"{psutil.virtual_memory().total / 2**30:.0f} GiB of memory, {platform.platform()}, load {load}"
    versions = (f"{name} {metadata.version(name)}" for name in ("torch", "onnx", "onnx-ir", "onnxscript"))
    yield f"Python {platform.python_version()}, {', '.join(versions)}"


def table(results: dict[Case, list[Run]]) -> Iterator[str]:
    bare = next(iter(results.values()))
    yield "| process | runs | median s | min s | max s | x bare | CPU s | peak MB | goal |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---|"
    for case, runs in results.items():
        seconds = [run.seconds for run in runs]
        ratio = statistics.median(run.seconds / other.seconds for run, other in zip(runs, bare, strict=False))
        cpu = statistics.median(run.cpu_seconds for run in runs)
        peak = max(run.peak_bytes for run in runs) / 1e6
        yield (
            f"| {case.name} | {len(runs)} | {statistics.median(seconds):.2f} | {min(seconds):.2f} "
            f"| {max(seconds):.2f} | {ratio:.2f} | {cpu:.2f} | {peak:.0f} | {case.goal} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="turns (default 5)")
    results = measure(parser.parse_args().runs)
    print("\n".join((*machine(), "", *table(results))))


if __name__ == "__main__":
    main()
