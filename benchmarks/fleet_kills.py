"""What is left of a fleet whose driver and workers are killed at random; prints a table, asserts nothing.

    python benchmarks/fleet_kills.py [--kills 20] [--models 40]

First the driver is killed (SIGKILL) again and again, each time at another moment, and started anew; then a
fleet runs through while its processes (servers of processes, and those of models) are killed one by one.
Finished models are told by their notes and the times of their files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fleet"))

from fleet_models import write_onnx  # noqa: E402


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "analyzer", "fleet", "zoo", "--output", "out", "--quiet", *more]


def started(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command(*more), cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def finished(folder: Path) -> dict[str, int]:
    notes = (folder / "out" / ".analyze-fleet").glob("*.json")
    return {path.stem: (folder / "out" / f"{path.stem}.json").stat().st_mtime_ns for path in notes}


def kill_drivers(folder: Path, kills: int, generator: np.random.Generator) -> None:
    lost = redone = left_alive = 0
    known: dict[str, int] = {}
    for _ in range(kills):
        driver = started(folder)
        time.sleep(generator.uniform(1.0, 6.0))
        children = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
        driver.wait()
        left_alive += len(psutil.wait_procs(children, timeout=10)[1])
        now = finished(folder)
        lost += len(set(known) - set(now))
        redone += sum(now[name] != written for name, written in known.items() if name in now)
        known = now
    print(
        f"driver killed {kills} times: {len(known)} models finished, {lost} lost, {redone} done twice, "
        f"{left_alive} processes left alive"
    )


def kill_workers(folder: Path, kills: int, generator: np.random.Generator) -> None:
    done = 0
    driver = started(folder, "--no-cache", "--opset", "21")
    while done < kills and driver.poll() is None:
        time.sleep(generator.uniform(0.05, 0.4))
        try:
            servers = psutil.Process(driver.pid).children()
            children = [*servers, *(child for server in servers for child in server.children())]
            if children:
                children[generator.integers(len(children))].kill()
                done += 1
        except psutil.Error:
            continue
    driver.wait()
    from analyzer.record.encoding import load_fleet

    fleet = load_fleet(folder / "out")
    failed = [model.name for model in fleet.models if model.failure is not None]
    started(folder, "--no-cache", "--opset", "21", "--retry-failed").wait()
    mended = sum(model.failure is None for model in load_fleet(folder / "out").models)
    print(
        f"processes killed {done} times: {len(fleet.models)} rows, {len(failed)} hit twice and failed, "
        f"{mended} answered after --retry-failed"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--models", type=int, default=40)
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    generator = np.random.default_rng(20)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "zoo").mkdir()
        for number in range(arguments.models):
            write_onnx(folder / "zoo" / f"net{number}.onnx", width=8 + number)
        kill_drivers(folder, arguments.kills, generator)
        kill_workers(folder, arguments.kills, generator)


if __name__ == "__main__":
    main()
