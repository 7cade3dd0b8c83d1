"""What the profiler adds to a node, on machines that leave no time to find out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analyzer.measurement.noise import calibrate_bias
from analyzer.measurement.session import SessionSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_a_machine_that_stalls_all_the_time_still_gives_a_bias(tmp_path: Path) -> None:
    # No budget at all is what a stall longer than the budget leaves: one run of each kind.
    bias = calibrate_bias(SessionSettings(threads=1), tmp_path, seconds=0.0)
    assert all(math.isfinite(value) and value >= 0 for value in (bias.profiler_s, bias.dispatch_s, bias.call_s))
    assert not [*tmp_path.iterdir()]
