"""The machines that tests run as: what the processor says of itself and what was calibrated are data here.

``machine`` runs a test as each of four; without it a test runs as the machine that it is on, never calibrated.
``pytest --machine NAME`` runs everything as one of the four.
"""

from __future__ import annotations

import compileall
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from analyzer.devices import calibration, catalogue, detection
from analyzer.options import DEFAULT_TIME_BUDGET_S, Options
from analyzer.prediction.reference_core import reference_ceilings

# Where the surroundings forbid compiled files, each of a thousand processes would compile the package anew. Its
# files and the tests' are written before the first test; none is, beside a model that a test loads.
_COMPILED_FILES_FORBIDDEN = sys.dont_write_bytecode
sys.dont_write_bytecode = False
if "PYTEST_XDIST_WORKER" not in os.environ:
    compileall.compile_dir(Path(__file__).parents[1] / "analyzer", quiet=1)
# PyTorch's threads, one for each core in each worker, wait for one another in loops that keep a core busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hypothesis takes an example that lasts 200 ms for a failure, and slow generation for a fault of the test.
settings.register_profile(
    "any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine to run tests as.

    Attributes:
        brand, flags, hertz: What the processor says of itself.
        cores, threads: Physical cores and hardware threads.
        calibrated: Whether its ceilings were measured.
        time_budget_s: For a measurement; a slow machine gets nothing done in it.
    """

    brand: str
    flags: tuple[str, ...] = ("avx2", "fma")
    hertz: float = 2.5e9
    cores: int = 2
    threads: int = 2
    calibrated: bool = False
    time_budget_s: float = DEFAULT_TIME_BUDGET_S

    def description(self) -> Mapping[str, Any]:
        """In py-cpuinfo's words."""
        return {
            "brand_raw": self.brand,
            "vendor_id_raw": "GenuineIntel",
            "flags": list(self.flags),
            "hz_actual": (int(self.hertz),),
        }

    def ceilings(self) -> dict[str, float]:
        """What a calibration could have found: a reference core at this one's clock, a little faster."""
        core = reference_ceilings(catalogue.device("xeon-platinum-8375c"), 1)
        return {**core, "threads": 1.0, "cores": float(self.cores), "run.t1": 7e-6, "dispatch.t1": 2e-7}


MACHINES = {
    "unknown": Machine(brand="Intel(R) Xeon(R) Processor @ 2.50GHz", flags=("avx512f", "avx2", "fma")),
    "calibrated": Machine(
        brand="Intel(R) Xeon(R) Processor @ 2.50GHz", flags=("avx512f", "avx2", "fma"), calibrated=True
    ),
    "catalogue": Machine(brand="Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", threads=4),
    "slow": Machine(brand="Some Old Processor", flags=(), hertz=8e8, cores=1, threads=1, time_budget_s=1e-3),
}


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _COMPILED_FILES_FORBIDDEN
    # Thousands of tests and PyTorch's modules live on to the end: with Python's own thresholds, looking for
    # garbage among them takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@cache
def _slow_tests() -> frozenset[str]:
    return frozenset((Path(__file__).parent / "slow_tests.txt").read_text().split())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.partition("[")[0] in _slow_tests():
            item.add_marker(pytest.mark.slow)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--machine", choices=sorted(MACHINES), help="run every test as this machine")
    parser.addoption("--update", action="store_true", help="write the snapshots of reports anew")


@pytest.fixture(scope="session")
def update(request: pytest.FixtureRequest) -> bool:
    """Whether snapshots are written rather than compared."""
    return bool(request.config.getoption("--update"))


def run_as(machine: Machine, patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Makes detection and the store of calibrations those of a machine."""
    patch.setattr(detection, "_cpu_description", machine.description)
    patch.setattr(detection, "_cores", lambda: machine.cores)
    patch.setattr(detection, "_threads", lambda: machine.threads)
    patch.setattr(detection, "_cache_bytes", lambda _description: 32 << 20)
    patch.setattr(detection, "_memory_bytes", lambda: 16 * 10**9)
    patch.setitem(Options.defaults, "time_budget_s", machine.time_budget_s)
    keep_in(folder, patch)
    if machine.calibrated:
        calibration.calibrate(lambda _progress: machine.ceilings())


def keep_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Calibrations are looked for there, by programs that a test starts too."""
    patch.setenv("XDG_DATA_HOME", str(folder))
    patch.setattr(calibration, "folder_of_calibrations", lambda: folder / "analyzer" / "calibration")


@pytest.fixture(scope="session", autouse=True)
def machine_of_the_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Nothing rests on what was once calibrated or exported here."""
    folder, name = tmp_path_factory.mktemp("data"), request.config.getoption("--machine")
    with pytest.MonkeyPatch.context() as patch:
        # Workers that run tests side by side share what they export.
        shared = tmp_path_factory.getbasetemp()
        shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
        patch.setenv("ANALYZER_CACHE_DIR", str(shared / "exports"))
        if name:
            run_as(MACHINES[name], patch, folder)
        else:
            keep_in(folder, patch)
        yield


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Each of the four machines in turn."""
    chosen = MACHINES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        run_as(chosen, patch, tmp_path_factory.mktemp("data"))
        yield chosen


# A shell has its jobs in the background ignore Ctrl-C, and so does all that they start: a program that a test
# is to interrupt must have the signal's own handling back before it begins.
_WITH_CTRL_C = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture(scope="session")
def interruptible() -> Callable[[Sequence[str]], list[str]]:
    """A command that Ctrl-C ends wherever the tests run; the process stays the same."""
    return lambda command: [sys.executable, "-c", _WITH_CTRL_C, *command]
