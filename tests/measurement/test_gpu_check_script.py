"""The script that checks everything on a GPU: its CPU part, which runs anywhere."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer.measurement import cpu_ceilings

# Enough for the slowest machine; what the script does takes no longer for it.
AMPLE = "60"
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cuda.py"


def run(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    record = tmp_path / "record.json"
    command = [sys.executable, str(SCRIPT), "--output", str(record), "--cpu-only", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done, json.loads(record.read_text())


def test_without_a_gpu_the_cpus_part_runs_and_a_part_that_fails_costs_itself_alone(tmp_path: Path) -> None:
    # The ceilings take a minute: below.
    options = ("--samples", "linear,nothing-of-this-name", "--budget", "0.1", "--skip", "CPU ceilings")
    done, record = run(tmp_path, "--minutes", AMPLE, *options)
    assert record["gpu"] is False
    assert record["left_out"] == ["CPU ceilings"]
    assert record["complete"] is False
    assert record["checks"]["linear: CPU operators add up"]["holds"]
    assert record["samples"]["linear"]["cpu"]["nodes"]
    assert "cuda" not in record["samples"]["linear"]
    assert list(record["errors"]) == ["nothing-of-this-name: export"]
    assert record["checks"]["no silent fall-back"]["holds"]
    assert record["machine"]["cpu"]
    assert done.returncode == 1
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("does not hold: ")]
    assert lines == ["does not hold: nothing-of-this-name: export"]


def test_the_ceilings_of_the_cpu_are_a_part_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import cuda_parts

    monkeypatch.setattr(cpu_ceilings, "measure_ceilings", lambda *, seconds: {"dispatch.t1": seconds})
    path = tmp_path / "part.json"
    cuda_parts.main("CPU ceilings", str(path), "0.5")
    record = json.loads(path.read_text())
    assert record["errors"] == {}
    # Six measurements' time, so that a longer check has better ceilings too.
    assert record["cpu_ceilings"] == {"dispatch.t1": 3.0}


def test_what_the_time_does_not_suffice_for_is_named(tmp_path: Path) -> None:
    # What the machine is, is told whatever the time; it imports PyTorch.
    done, record = run(tmp_path, "--minutes", "0", "--samples", "linear,mlp", "--skip", "machine")
    assert record["complete"] is False
    parts = ["machine", "linear: export", "mlp: export", "no silent fall-back", "CPU ceilings"]
    assert record["left_out"] == parts
    assert "left out" in done.stdout
    assert done.returncode == 0, done.stdout  # nothing that was checked does not hold
