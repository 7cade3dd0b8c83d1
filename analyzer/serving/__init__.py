"""Traffic and a limit of latency -> what one server, or several behind one queue, can take.

Requests wait in one queue. They form the next batch, at most ``max_batch`` of them, when a server is free and
either the batch is full or the oldest has waited ``max_delay_s``.
"""

from __future__ import annotations

from analyzer.figures import QueueLoad as QueueLoad

# "as" is how a type checker learns that a name is meant to be imported from here (mypy's no_implicit_reexport).
from analyzer.serving.highest_rate import highest_rate as highest_rate
from analyzer.serving.queue import ServiceCurve as ServiceCurve
from analyzer.serving.simulation import simulate as simulate
