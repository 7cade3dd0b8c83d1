"""What A702 says of an output that differs, by what one thread gave."""

from typing import Any

import pytest
from checks_factory import analysis, operator

from analyzer.checks import run
from analyzer.record.analysis import Environment

ROW = {"between": "PyTorch and ONNX Runtime", "output": "y", "max_abs_error": 0.05, "agrees": False}
ALONE = {**ROW, "session": "cpu", "threads": 2}


@pytest.mark.parametrize(
    ("row", "message", "fix"),
    [
        (
            {**ALONE, "one_thread_agrees": True, "reducing_scatters": 16},
            "with one thread in place of 2 it agrees: threads of 16 ScatterND lose updates",
            "write scatter_add or scatter_reduce in place of index_add and index_put (ScatterND), or "
            "run it with one thread (--threads 1)",
        ),
        (
            {**ALONE, "one_thread_agrees": True, "reducing_scatters": 0},
            "with one thread in place of 2 it agrees: threads of a kernel get into each other's way",
            "run it with one thread (--threads 1)",
        ),
        (
            {**ALONE, "one_thread_agrees": False, "reducing_scatters": 16},
            "with one thread in place of several it differs too",
            "look for fixed control flow or random values",
        ),
        (
            {**ROW, "session": "cpu"},
            "0.05 absolute error at most",
            "look for fixed control flow or random values",
        ),
        (
            {**ROW, "session": "cuda"},
            "0.05 absolute error at most",
            "look for fixed control flow, random values or reduced precision; try --precision fp32",
        ),
    ],
)
def test_the_cause_is_what_one_thread_showed(row: dict[str, Any], message: str, fix: str) -> None:
    record = analysis(
        operator("Relu", ["x"], ["y"]),
        environment=Environment(date="2026-01-01", measurement={"agreement": [row]}),
    )
    finding = next(finding for finding in run(record) if finding.code == "A702")
    assert message in finding.message
    assert finding.fix == fix
