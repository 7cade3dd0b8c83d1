"""The requests of one lane, as arrivals make them and the simulation serves them."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """Requests before one queue; times in the queue's unit.

    Attributes:
        arrivals: Rising from 0 or later, ``[requests]``.
        counted_from, counted_to: The first request that counts, and the first behind those that do: the ones
            that come later fill the batches of the others, and nobody comes to fill their own.
        free: When each server is free for the first time, ``[servers]``.
        fluid_wait: What each request that counts waits for the fluid server of ``poisson``; None where that
            is not solved, or not wanted.
    """

    arrivals: Floats
    counted_from: int
    counted_to: int
    free: Floats
    fluid_wait: Floats | None = None
