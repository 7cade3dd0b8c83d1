"""Copies between host and GPU: a fixed time and bytes over the link's bandwidth."""

from __future__ import annotations

from analyzer.devices.device import Link
from analyzer.prediction.estimate import Estimate

# Small copies took 6.6 us (pageable) to 30 us (synchronous, V100); large ones vary by a quarter.
_FIXED_WIDTH = 2.5
_BANDWIDTH_WIDTH = 1.3


def transfer(link: Link, nbytes: float, *, pinned: bool = True) -> Estimate:
    """One copy over a link.

    Args:
        link: The way between the memories.
        nbytes: Size of the tensor; 0 is no copy.
        pinned: Whether the host's memory is page-locked, as what ONNX Runtime copies inside a graph is; an
            input given as an ordinary array is not.
    """
    if nbytes <= 0:
        return Estimate(time_s=0.0, low_s=0.0, high_s=0.0, origin="predicted", bound="memory", method="no copy")
    moving = nbytes / (link.bandwidth_bytes_per_s if pinned else link.pageable_bytes_per_s)
    fixed = link.latency_s
    return Estimate(
        time_s=fixed + moving,
        low_s=fixed / _FIXED_WIDTH + moving / _BANDWIDTH_WIDTH,
        high_s=fixed * _FIXED_WIDTH + moving * _BANDWIDTH_WIDTH,
        origin="predicted",
        bound="memory" if moving > fixed else "overhead",
        method=f"{link.name}, {'pinned' if pinned else 'pageable'}",
    )
