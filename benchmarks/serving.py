"""How well the queue does: against a simulation of its own making, and against what was measured under traffic.

    python benchmarks/serving.py [server_offline.csv] [--requests 2000000]

The first table holds ``simulate`` against a plain loop over one long stream, the second closed forms against
``simulate``. With a file of MLPerf Inference results that have both Server and Offline (columns as in
``_Row``) the third says how many of the submitted Server rates are possible for a service curve through a
single request and a full half of the bound. The last times it all, each in a process of its own load.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "serving"))

from queue_models import batches_by_loop, exact_mean_of_all_waiting

from analyzer.serving import ServiceCurve, highest_rate, simulate
from analyzer.serving.queue import single_requests

CURVES = {
    "a GPU that fills up late": ServiceCurve(points=((1, 0.005), (256, 0.060))),
    "one that fills up early": ServiceCurve(points=((1, 0.004), (8, 0.011), (64, 0.070), (256, 0.275))),
}
LOADS = (0.2, 0.5, 0.8, 0.9, 0.95)
BATCHES, SERVERS, PARTS = (1, 2, 8, 32, 256), (1, 4, 16), (0.0, 0.5)
FIGURES = ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mlperf", nargs="?", type=Path, help="server_offline.csv")
    parser.add_argument("--requests", type=int, default=2_000_000, help="of the plain loop")
    given = parser.parse_args()
    _against_a_loop(given.requests)
    _closed_forms()
    if given.mlperf:
        _against_servers(given.mlperf)
    _speed()


def _against_a_loop(requests: int) -> None:
    print("## `simulate` over a plain loop\n")
    print("| load | figure | cases | median | 90 % within | worst |")
    print("|---|---|---:|---:|---:|---:|")
    for load in LOADS:
        errors: dict[str, list[float]] = {figure: [] for figure in FIGURES}
        for curve, batch, servers, part in itertools.product(CURVES.values(), BATCHES, SERVERS, PARTS):
            delay_s = part * curve.time_s(1)
            rate = load * servers * batch / curve.time_s(batch)
            expected = _looped(curve, rate, servers, batch, delay_s, requests)
            seen = simulate(curve, rate, servers=servers, max_batch=batch, max_delay_s=delay_s)
            for figure, value in zip(FIGURES, expected, strict=True):
                errors[figure].append(abs(getattr(seen, figure) / value - 1))
        for figure, values in errors.items():
            values.sort()
            print(
                f"| {load} | {figure[:-2]} | {len(values)} | {_percent(statistics.median(values))} "
                f"| {_percent(values[int(0.9 * len(values))])} | {_percent(values[-1])} |",
                flush=True,
            )
    print()


def _looped(
    curve: ServiceCurve, rate: float, servers: int, max_batch: int, delay_s: float, requests: int
) -> tuple[float, ...]:
    arrivals = np.cumsum(np.random.default_rng(20260101).exponential(1 / rate, requests))
    formed = batches_by_loop(
        arrivals.tolist(),
        curve.times(max_batch).tolist(),
        free=[0.0] * servers,
        max_batch=max_batch,
        max_delay=delay_s,
    )
    ends = np.repeat([end for _, _, end in formed], [size for size, _, _ in formed])
    latencies = (ends - arrivals)[requests // 10 :]
    return float(latencies.mean()), *(float(one) for one in np.percentile(latencies, (50, 90, 95, 99)))


def _closed_forms() -> None:
    print("## Closed forms over `simulate`\n\n| form | load | mean | p99 |\n|---|---|---:|---:|")
    for servers, load in itertools.product((1, 4, 16), LOADS):
        rate = load * servers / 0.004
        solved = single_requests(rate, 0.004, servers)
        seen = simulate(ServiceCurve(points=((1, 0.004),)), rate, servers=servers)
        assert seen.mean_s is not None
        assert seen.p99_s is not None
        mean, p99 = solved.mean_s / seen.mean_s - 1, solved.percentile_s(99) / seen.p99_s - 1
        print(f"| M/D/{servers} | {load} | {_percent(mean)} | {_percent(p99)} |")
    curve = ServiceCurve(points=((1, 0.006), (4096, 4.101)))
    for load in LOADS:
        seen = simulate(curve, load / 0.001)
        assert seen.mean_s is not None
        error = exact_mean_of_all_waiting(load / 0.001, 0.001, 0.005) / seen.mean_s - 1
        print(f"| all that wait | {load} | {_percent(error)} | |")
    print()


@dataclass(frozen=True)
class _Row:
    """One system and model: rates a second, seconds."""

    accelerators: int
    offline: float
    server: float
    bound_s: float
    alone_s: float

    @property
    def curve(self) -> ServiceCurve:
        """Through one request, and the batch that takes half of the bound at the Offline rate."""
        each = self.offline / self.accelerators
        batch = int(self.bound_s / 2 * each)
        if batch <= 1:
            return ServiceCurve(points=((1, max(self.alone_s, 1 / each)),))
        return ServiceCurve(points=((1, self.alone_s), (batch, batch / each)))


def _rows(path: Path) -> Iterator[_Row]:
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["llm_bounds"] or row["suspect"] or not row["n_acc"].isdecimal() or row["n_acc"] == "0":
                continue
            yield _Row(
                accelerators=int(row["n_acc"]),
                offline=float(row["offline_samples_per_s"]),
                server=float(row["server_scheduled_per_s"]),
                bound_s=float(row["target_latency_s"]),
                alone_s=float(row["min_latency_s"]),
            )


def _against_servers(path: Path) -> None:
    rows = list(_rows(path))
    rates = [highest_rate(row.curve, row.bound_s, servers=row.accelerators) for row in rows]
    possible = sum(rate >= row.server for rate, row in zip(rates, rows, strict=True))
    above = sum(rate > row.offline for rate, row in zip(rates, rows, strict=True))
    print("## MLPerf Inference: Server rates that were submitted\n")
    print("| rows | called possible | above Offline | highest rate over the submitted, median |")
    print("|---:|---:|---:|---:|")
    ratio = statistics.median(rate / row.server for rate, row in zip(rates, rows, strict=True))
    print(f"| {len(rows)} | {_percent(possible / len(rows))} | {above} | {ratio:.2f} |\n")


def _speed() -> None:
    curve = CURVES["one that fills up early"]
    print("## Time\n\n| what | median of five |\n|---|---:|")
    calls: dict[str, Callable[[], object]] = {
        "`simulate`, a million requests, single, load 0.8": lambda: simulate(
            curve, 0.8 / 0.004, max_batch=1, requests=1_000_000
        ),
        "`simulate`, a million requests, batches to 64, load 0.8": lambda: simulate(
            curve, 0.8 * 64 / 0.070, max_batch=64, requests=1_000_000
        ),
        "`highest_rate`, batches to 64": lambda: highest_rate(curve, 0.05, max_batch=64),
        "`highest_rate`, 16 servers, batches to 256": lambda: highest_rate(curve, 0.05, servers=16),
    }
    for name, call in calls.items():
        times = []
        for _ in range(5):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        print(f"| {name} | {statistics.median(times):.2f} s |")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
