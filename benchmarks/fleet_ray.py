"""What Ray costs a fleet, and whether 5,000 models come through where machines die; prints tables.

    python benchmarks/fleet_ray.py [--tasks 1250,2500,5000] [--models 20]

Simulated: eight nodes on this machine (Ray's own cluster_utils), two cores each as far as Ray knows, tasks that
sleep 20 ms and answer with 100 kB, as much as a small model's record and page. After a third and after two
thirds of the tasks a node is ended without a word; both come back for the next size. The driver is a process of
its own for each size; its peak is the largest resident memory that the kernel saw, beside that at its start.

Real: the first MODELS of the small models below, from nothing, by the pool of this machine and by a cluster of
Ray that is started for them, two at once; and how long that start alone takes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import runpy
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NODES, CORES = 8, 2
TASK_S, ANSWER_BYTES = 0.02, 100_000
# Of benchmarks/fleet.py's, beside the light topologies that come with onnx.
SMALL = ("mlp", "lstm", "lstm_1", "lstm_2", "recommender", "recommender_1", "recommender_2", "mobilenet_v2")


def stand_in(errand: Any, order: Any) -> bytes:
    """A model that takes a moment."""
    import msgspec

    from analyzer.fleet.job import Job, Outcome
    from analyzer.record.fleet import FleetModel

    job = msgspec.msgpack.decode(errand.job, type=Job)
    time.sleep(TASK_S)
    model = FleetModel(name=job.name, reference=job.reference)
    return msgspec.msgpack.encode(Outcome(model=model, record="x" * ANSWER_BYTES))


def drive(address: str, tasks: int) -> None:
    """The driver of one size: a line for each finished hundredth, and a summary."""
    import psutil

    from analyzer.fleet.cluster import RayCluster
    from analyzer.fleet.job import Job

    jobs = [Job(name=f"m{number}", reference="none:m", folder=str(ROOT)) for number in range(tasks)]
    executor = RayCluster(address, timeout_s=60.0, work=stand_in)
    before = psutil.Process().memory_info().rss
    start = time.perf_counter()
    finished, failed = set(), 0
    for job, outcome in executor.run(jobs):
        finished.add(job.name)
        failed += outcome.model.failure is not None
        if len(finished) % max(1, tasks // 100) == 0:
            print(len(finished), flush=True)
    seconds = time.perf_counter() - start
    executor.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps([len(finished), failed, seconds, before, peak]), flush=True)


def simulated(sizes: list[int]) -> None:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": CORES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=CORES) for _ in range(NODES - 1)]
    print(f"{NODES} nodes of {CORES} cores; tasks of {TASK_S * 1e3:.0f} ms that answer {ANSWER_BYTES:,} bytes")
    print("tasks   finished  failed  nodes lost   seconds   ms a task   driver MB: before     peak")
    try:
        for tasks in sizes:
            lost = 0
            command = [sys.executable, __file__, "--drive", cluster.address, "--tasks", str(tasks)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as driver:
                assert driver.stdout is not None
                for line in driver.stdout:
                    if line.startswith("["):
                        finished, failed, seconds, before, peak = json.loads(line)
                        break
                    if line.strip().isdigit() and lost < 2 and int(line) >= tasks * (lost + 1) / 3:
                        cluster.remove_node(nodes.pop(), allow_graceful=False)
                        lost += 1
            print(
                f"{tasks:5}   {finished:8}  {failed:6}  {lost:10}   {seconds:7.1f}   "
                f"{seconds / tasks * 1e3:9.2f}   {before / 1e6:17.0f} {peak / 1e6:8.0f}",
                flush=True,
            )
            nodes += [cluster.add_node(num_cpus=CORES) for _ in range(lost)]
    finally:
        cluster.shutdown()


def real(count: int) -> None:
    write_models = runpy.run_path(str(Path(__file__).with_name("fleet.py")))["write_models"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "all").mkdir()
        (folder / "zoo").mkdir()
        write_models(folder / "all")
        graphs = sorted(path.name for path in (folder / "all").glob("*.onnx"))
        names = [*(f"{name}.py" for name in SMALL), *graphs][:count]
        for name in names:
            shutil.copy(folder / "all" / name, folder / "zoo" / name)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local"}
        print(f"{len(names)} small models, t4 and l4, batches 1 and 64, two at once")
        for where in ("local", "ray", "local", "ray"):
            command = [sys.executable, "-m", "analyzer", "fleet", "zoo", "--gpu", "t4,l4", "--batch", "1,64"]
            command += [
                "--no-cache",
                "--quiet",
                "--jobs",
                "2",
                "--on",
                where,
                "--output",
                f"out-{where}",
                "--force",
            ]
            shutil.rmtree(folder / f"out-{where}", ignore_errors=True)
            start = time.perf_counter()
            subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
            print(f"{where:6} {time.perf_counter() - start:6.1f} s", flush=True)
        start = time.perf_counter()
        begin = "from analyzer.fleet.cluster import RayCluster as C; C('ray', jobs=2, timeout_s=9.0).close()"
        subprocess.run([sys.executable, "-c", begin], env=environment, check=True)
        print(f"a cluster started and ended: {time.perf_counter() - start:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", default="1250,2500,5000")
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--drive")
    arguments = parser.parse_args()
    if arguments.drive:
        drive(arguments.drive, int(arguments.tasks))
        return
    # Nobody else on this machine gets in; read when Ray is imported, here and in each driver.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
    sys.path.insert(0, str(ROOT))
    simulated([int(tasks) for tasks in arguments.tasks.split(",")])
    real(arguments.models)


if __name__ == "__main__":
    main()
