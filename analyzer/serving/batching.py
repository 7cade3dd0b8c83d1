"""The rule by which requests become batches, run for many independent lanes at once.

A lane is one stream of requests before one queue. A step forms the next batch of every lane, so that all of
them share the price of a step in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzer.arrays import Floats, Ints

# Lanes that are done are dropped once they are this share: dropping copies all others.
_DONE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lanes:
    """Streams of requests, and who serves them; times in any one unit a lane.

    Attributes:
        arrivals: Of all lanes, one lane behind the other, from 0 and rising within each, ``[requests]``.
        counts: Requests of each lane, at least one, ``[lanes]``.
        times: Time of a batch by curve and size, ``[curves, largest batch + 1]``.
        curve: Row of ``times`` of each lane, ``[lanes]``.
        max_batch, max_delay: ``[lanes]``.
        free: When each server is free for the first time, ``[lanes, servers]``; infinite where a lane has
            fewer servers.
    """

    arrivals: Floats
    counts: Ints
    times: Floats
    curve: Ints
    max_batch: Ints
    max_delay: Floats
    free: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FormedBatches:
    """Batches of all lanes, one lane behind the other, each lane's in the order of their start.

    All are ``[batches]``.
    """

    lane: Ints
    sizes: Ints
    starts: Floats
    ends: Floats


def form_batches(lanes: Lanes) -> FormedBatches:
    """Serves every request."""
    formed: list[tuple[Ints, Ints, Floats, Floats]] = []
    last = np.cumsum(lanes.counts)
    at = last - lanes.counts  # each lane's oldest waiting request
    timeline = _Timeline(lanes.arrivals, at, last)
    lane, free = np.arange(len(at)), lanes.free.copy()
    while len(lane):
        at, free = _steps_of(lane, at, free, lanes, last[lane], timeline, formed)
        left = at < last[lane]
        lane, at, free = lane[left], at[left], free[left]
    lane, sizes, starts, ends = (np.concatenate(column) for column in zip(*formed, strict=True))
    # Stable: a lane's batches stay in their order. What a lane that was done did is left out.
    order = np.argsort(np.where(sizes > 0, lane, np.iinfo(np.int64).max), kind="stable")
    order = order[: int(np.count_nonzero(sizes))]
    return FormedBatches(lane=lane[order], sizes=sizes[order], starts=starts[order], ends=ends[order])


def _steps_of(
    lane: Ints,
    at: Ints,
    free: Floats,
    lanes: Lanes,
    last: Ints,
    timeline: _Timeline,
    formed: list[tuple[Ints, Ints, Floats, Floats]],
) -> tuple[Ints, Floats]:
    """Forms batches until a share of the lanes is done."""
    curve, most, delay = lanes.curve[lane], lanes.max_batch[lane], lanes.max_delay[lane]
    delayed, several = bool(delay.any()), free.shape[1] > 1
    arrivals, end_of_all = lanes.arrivals, len(lanes.arrivals) - 1
    rows = np.arange(len(lane))
    while np.count_nonzero(at >= last) <= _DONE * (len(lane) - 1):
        server = free.argmin(axis=1) if several else 0
        earliest = free[rows, server]
        oldest = arrivals[np.minimum(at, end_of_all)]
        if delayed:
            full = at + most - 1
            full_at = np.where(full < last, arrivals[np.minimum(full, end_of_all)], np.inf)
            start = np.maximum(earliest, np.minimum(full_at, oldest + delay))
        else:
            start = np.maximum(earliest, oldest)
        # Its own oldest request is in it, however the two additions of an offset were rounded.
        size = np.maximum(timeline.arrived(lane, start) - at, 1)
        size = np.minimum(np.minimum(size, most), last - at)  # 0 where a lane is done
        end = start + lanes.times[curve, size]
        free[rows, server] = end
        formed.append((lane, size, start, end))
        at = at + size
    return at, free


class _Timeline:
    """All lanes' arrivals on one line, a lane's behind those of the lane before: one search finds in all."""

    def __init__(self, arrivals: Floats, first: Ints, last: Ints) -> None:
        self.end = arrivals[last - 1]
        spans = self.end + 1.0
        self.offset = np.cumsum(spans) - spans
        self.line = arrivals + np.repeat(self.offset, last - first)

    def arrived(self, lane: Ints, at: Floats) -> Ints:
        """How many requests had arrived at a time, those of the lanes before with them."""
        return self.line.searchsorted(np.minimum(at, self.end[lane]) + self.offset[lane], side="right")
