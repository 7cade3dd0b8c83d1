"""The time of a kernel besides its work: a floor, the gap to the next, and the host's part.

Four terms, told apart in the record (``overhead`` of an operator's time on the GPU):

* floor: a kernel with nothing to do;
* gap: from its end to the start of the next in a CUDA graph;
* stream: what launching node by node adds to each gap, however far the host is ahead;
* host: where the host launches slower than the GPU works, its surplus over kernels and gaps.

The last two are ``host_s``: a CUDA graph, replayed, has neither, but one fixed time for each replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from analyzer.arrays import Floats
from analyzer.devices.device import Device
from analyzer.prediction.reference_core import single_core_speed

# Floor and gap together are 1.83 us: the least that products in bf16 take inside CUDA graphs on L40S, RTX PRO
# 6000, GB200 and B300, fitted with them (``benchmarks/fit_kernels.py``). Operators that do next to
# nothing take 1.1 us alone and 0.65 us more inside a graph (H100 and H200, ``tests/data/gpu``), which is how it
# is divided.
FLOOR_S = 1.2e-6
GAP_S = 0.63e-6
# A V100's whole models have 3.5 to 4.2 us between kernels, floors included (onnxruntime_ort_tables.csv), an
# H100's and an H200's 1.5 to 2.1 without (``tests/data/gpu``).
STREAM_S = 1.3e-6
# Seconds of the host for a node on a core of speed 1 (``single_core_speed``), by what it launches: ordinary
# kernels, 3.7 to 5.4 us on two hosts with Xeons of Sapphire or Emerald Rapids; products, for which cuBLAS
# chooses a kernel each time, 9 to 21; convolutions through cuDNN, 17 to 32; views, which launch nothing, 0.4 to
# 0.5 (``tests/data/gpu``, sessions of samples and chains of one operator); fused attention, four or five
# launches and their scratch memory, 14 to 22 in chains of small ones; experts, eight launches, 57 (tokens of a
# small mixture on one host). On the Broadwell core of a V100's host they make the 8.8 to 11.8 us a node that
# ONNX Runtime's BERT took there (onnxruntime_ort_tables.csv).
NODE_S = 4.4e-6
PRODUCT_S = 12e-6
CONVOLUTION_S = 24e-6
ATTENTION_S = 18e-6
EXPERTS_S = 57e-6
VIEW_S = 0.45e-6
# A step of a recurrence: cuDNN launches its kernels, two for an LSTM, one after the other. Two LSTMs of 50
# steps took the slower of the two hosts 17.7 us a step.
STEP_S = 14e-6
_OF_THE_HOST = {
    "node_s": NODE_S, "product_s": PRODUCT_S, "convolution_s": CONVOLUTION_S, "attention_s": ATTENTION_S,
    "experts_s": EXPERTS_S, "view_s": VIEW_S, "step_s": STEP_S,
}  # fmt: skip
# ONNX Runtime lets the condition that a Loop's body gives end up in the host's memory, where it is read before
# the next trip (the first of ``fetch_locations``, onnxruntime/core/providers/cpu/controlflow/loop.cc), and the
# CUDA provider's If takes its condition from there: a copy of one byte, for which the host waits. Assumed, as
# for other small copies; nobody measured it inside of a loop, hence the width of loops.
WAIT_S = 10e-6

# Of two hosts with one processor, one needed 1.6 times as long as the other. Cores of hosts that are rented
# with GPUs lie between Broadwell (0.67 of the speed) and Zen 5 (1.4), desktops' at 1.7.
HOST_WIDTH = 1.6
UNKNOWN_HOST_WIDTH = 1.8
# One replay of a CUDA graph, however many kernels it holds: two nodes take 5 to 5.6 us each that way, 300 take
# 1.3 to 2 (``tests/data/gpu``).
REPLAY_S = 7e-6
# One run of a session besides its nodes: two nodes take 8.2 to 10.5 us each, 300 take 3.7 to 5.4 (the same).
CALL_S = 8e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Seconds of each term on one GPU with one host.

    Attributes:
        floor_s, gap_s, stream_s: For a kernel.
        node_s, product_s, convolution_s, attention_s, experts_s, view_s: Of the host for a node, by what it
            launches.
        step_s: Of the host for a step of a recurrence.
        wait_s: Of the host until a condition that the GPU computes is there.
        width: Half-width of the host's 90 % interval, as a factor.
    """

    floor_s: float
    gap_s: float
    stream_s: float
    node_s: float
    product_s: float
    convolution_s: float
    attention_s: float
    experts_s: float
    view_s: float
    step_s: float
    wait_s: float
    width: float


def launch_of(gpu: Device, host: Device | None) -> Launch:
    """Return the terms, measured ones first: the GPU's calibration was made with its own host.

    ``host`` is the CPU that launches; None where that is not known: a server's of the usual speed.
    """
    kernel = gpu.calibration.get("cuda.kernel")
    share = 1.0 if kernel is None else kernel / (FLOOR_S + GAP_S)
    node = gpu.calibration.get("cuda.node")
    slower = node / NODE_S if node is not None else 1.0 / (single_core_speed(host) if host else 1.0)
    # A rented machine may have the nearest CPU of the catalogue instead of the one that launches.
    known = node is not None or (host is not None and "model" not in host.assumed)
    return Launch(
        floor_s=FLOOR_S * share,
        gap_s=GAP_S * share,
        stream_s=STREAM_S,
        wait_s=WAIT_S,
        width=HOST_WIDTH if known else UNKNOWN_HOST_WIDTH,
        **{name: seconds * slower for name, seconds in _OF_THE_HOST.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overheads:
    """The part of groups' times besides their arithmetic and traffic, by group, in seconds."""

    floor_s: Floats
    gap_s: Floats
    host_s: Floats
    surplus_s: Floats
    layout_s: Floats

    @property
    def launch_s(self) -> Floats:
        """The time of launches: the surplus is the host's, and the cost of layouts is kernels' time."""
        return self.floor_s + self.gap_s + self.host_s

    def __iter__(self) -> Iterator[Floats]:
        """Yield the columns of ``PARTS``."""
        return (getattr(self, name) for name in PARTS)

    def changed(self, change: Callable[[Floats], Floats]) -> Overheads:
        """Return all columns changed alike."""
        return Overheads(**dict(zip(PARTS, map(change, self), strict=True)))


PARTS = tuple(part.name for part in fields(Overheads))
