"""Copies between host and GPU: a fixed time and bytes over the link's bandwidth."""

from __future__ import annotations

from analyzer.devices.device import Link
from analyzer.figures import Figure

# Small copies took 6.6 us (pageable) to 30 us (synchronous, V100); large ones vary by a quarter.
_FIXED_WIDTH = 2.5
_BANDWIDTH_WIDTH = 1.3
# From ordinary memory the host's cores copy first: 6.8 to 18 GB/s from 1 MB on, on four hosts of one kind of
# link (tests/data/gpu).
_PAGEABLE_WIDTH = 1.6


def transfer(link: Link, nbytes: float, *, pinned: bool = True) -> Figure:
    """Return the seconds of one copy over a link.

    Args:
        link: The way between the memories.
        nbytes: Size of the tensor; 0 is no copy.
        pinned: Whether the host's memory is page-locked, as that is to which ONNX Runtime copies inside a
            graph; an input given as an ordinary array is not, nor is what an operator of the CPU wrote.
    """
    if nbytes <= 0:
        return Figure(value=0.0, low=0.0, high=0.0)
    moving = nbytes / (link.bandwidth_bytes_per_s if pinned else link.pageable_bytes_per_s)
    fixed, width = link.latency_s, _BANDWIDTH_WIDTH if pinned else _PAGEABLE_WIDTH
    return Figure(
        value=fixed + moving,
        low=fixed / _FIXED_WIDTH + moving / width,
        high=fixed * _FIXED_WIDTH + moving * width,
    )
