"""Times of groups on a device with their intervals, of whole sessions, and of single operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analyzer.costs.cost import Costs
from analyzer.devices.device import Device
from analyzer.graph import Graph
from analyzer.ort.execution import Group
from analyzer.prediction import cpu, gpu
from analyzer.prediction.estimate import Bound, Estimate, total
from analyzer.prediction.features import CONVS, MATMULS
from analyzer.prediction.gpu_constants import FITTED, HOST_WIDTH, SESSION_WIDTH
from analyzer.prediction.workload import Floats, Workload, workload

BOUNDS: tuple[Bound, ...] = ("compute", "memory", "overhead")
# An operator of which nothing is known: its launch alone, with a wide interval.
_UNKNOWN_WIDTH = 10.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupTimes:
    """Times of groups as arrays, for many devices and batches at once.

    Attributes:
        time_s, low_s, high_s: By group, with the 90 % interval.
        bound: By group, index into ``BOUNDS``.
        method: How they were obtained.
    """

    time_s: Floats
    low_s: Floats
    high_s: Floats
    bound: npt.NDArray[np.int64]
    method: str


def predict_arrays(
    work: Workload, device: Device, *, precision: str = "fp32", threads: int | None = None
) -> GroupTimes:
    """Times of all groups as arrays.

    Args:
        work: The groups' numbers.
        device: A CPU or a GPU.
        precision: ``fp32``, ``tf32``, ``fp16``, ``bf16`` or ``int8``.
        threads: Intra-op threads of a CPU; None is one per core.
    """
    launch: Floats
    if device.kind == "cpu":
        at = cpu.ceilings(device, precision, threads)
        times, compute = cpu.operator_times(work, at)
        spread = cpu.widths(work, at)
        launch = np.full(work.groups, at.dispatch_s, dtype=np.float64)
        method = at.method
    else:
        sheet = gpu.sheet(device, precision)
        times, compute = gpu.kernel_times(work, sheet)
        spread = gpu.widths(work, sheet)
        launch = work.kernels.astype(np.float64) * device.calibration.get("cuda.kernel", FITTED.kernel_gap_s)
        method = f"{sheet.precision.peak} model"
        if sheet.precision.substitute:
            method += f", for want of {sheet.precision.asked}"
    return _by_group(work, times, compute, spread, launch, method)


def _by_group(
    work: Workload, times: Floats, compute: npt.NDArray[np.bool_], spread: Floats, launch: Floats, method: str
) -> GroupTimes:
    def over(weights: Floats) -> Floats:
        return np.asarray(np.bincount(work.group, weights=weights, minlength=work.groups), dtype=np.float64)

    kernel = over(times)
    computing = over(np.where(compute, times, 0.0))
    bound = np.where(launch > kernel, 2, np.where(2 * computing > kernel, 0, 1))
    widest: Floats = np.where(work.unknown, _UNKNOWN_WIDTH, HOST_WIDTH)
    return GroupTimes(
        time_s=kernel + launch,
        low_s=over(times / spread) + launch / widest,
        high_s=over(times * spread) + launch * widest,
        bound=bound,
        method=method,
    )


def predict(
    work: Workload, device: Device, *, precision: str = "fp32", threads: int | None = None
) -> tuple[Estimate, ...]:
    """One estimate per group: what it adds to its session.

    On a GPU its kernels, the gaps between them and, where the host cannot launch as fast as the GPU computes,
    its share of the host's surplus (see ``dispatched``); on a CPU its operators and their dispatch. A GPU's
    interval is that of single operators for a group alone; among others it also holds what changes them all,
    another runtime's kernels and scheduling.

    Args:
        work: The groups' numbers.
        device: A CPU or a GPU.
        precision: ``fp32``, ``tf32``, ``fp16``, ``bf16`` or ``int8``.
        threads: Intra-op threads of a CPU; None is one per core.
    """
    predicted = predict_arrays(work, device, precision=precision, threads=threads)
    rows = zip(
        predicted.time_s.tolist(),
        predicted.low_s.tolist(),
        predicted.high_s.tolist(),
        predicted.bound.tolist(),
        strict=True,
    )
    alone = tuple(
        Estimate(
            time_s=time,
            low_s=low,
            high_s=high,
            origin="predicted",
            bound=BOUNDS[bound],
            method=predicted.method,
        )
        for time, low, high, bound in rows
    )
    if device.kind == "gpu" and work.groups > 1:
        alone = tuple(_in_session(item) for item in alone)
    return dispatched(alone, work, device)


def _in_session(item: Estimate) -> Estimate:
    """The estimate with the interval of an operator in a session: both errors, as independent ones."""
    if item.time_s <= 0:
        return item

    def factor(own: float) -> float:
        return math.exp(math.hypot(math.log(own), math.log(SESSION_WIDTH)))

    return replace(
        item,
        low_s=item.time_s / factor(item.time_s / item.low_s),
        high_s=item.time_s * factor(item.high_s / item.time_s),
    )


def session_overhead(work: Workload, device: Device) -> Estimate:
    """What a session costs besides its operators: on a GPU the host's time for all nodes, on a CPU one call.

    On a GPU the host's work and the kernels run side by side: the session takes the longer of both.
    """
    if device.kind == "cpu":
        known, threads = device.calibration, int(device.calibration.get("threads", 1))
        time = known.get(f"run.t{threads}", known.get(f"call.t{threads}", cpu.CALL_S))
    else:
        time = float((work.kernels > 0).sum()) * device.calibration.get("cuda.node", FITTED.node_host_s)
    return Estimate(
        time_s=time, low_s=time / HOST_WIDTH, high_s=time * HOST_WIDTH, origin="predicted", bound="overhead",
        method="dispatch",
    )  # fmt: skip


def predict_total(
    work: Workload, device: Device, *, precision: str = "fp32", threads: int | None = None
) -> Estimate:
    """One run of all groups on one device, copies of inputs and outputs apart.

    On a GPU ``max(nodes x host time, sum of kernels and gaps)``; on a CPU the sum and one call.
    """
    times = predict_arrays(work, device, precision=precision, threads=threads)
    parts = Estimate(
        time_s=float(times.time_s.sum()),
        low_s=float(times.low_s.sum()),
        high_s=float(times.high_s.sum()),
        origin="predicted",
        bound=BOUNDS[int(np.bincount(times.bound, weights=times.time_s, minlength=3).argmax())],
        method=times.method,
    )
    if device.kind == "gpu" and work.groups > 1:
        parts = _in_session(parts)
    return session_time(parts, session_overhead(work, device), device)


def session_time(parts: Estimate, overhead: Estimate, device: Device) -> Estimate:
    """A session's time from the sum of its groups' and its overhead; the longer of both on a GPU."""
    if device.kind == "cpu":
        return replace(total((parts, overhead)), bound=parts.bound, method=parts.method)
    host = overhead.time_s > parts.time_s
    return Estimate(
        time_s=max(parts.time_s, overhead.time_s),
        low_s=max(parts.low_s, overhead.low_s),
        high_s=max(parts.high_s, overhead.high_s),
        origin=parts.origin,
        bound="overhead" if host else parts.bound,
        method=f"{parts.method}, host-bound" if host else parts.method,
    )


def dispatched(estimates: Sequence[Estimate], work: Workload, device: Device) -> tuple[Estimate, ...]:
    """What each group adds to a session's latency: a share of the call, on a GPU of the host's surplus.

    The sum is then ``session_time``, so that an additive plan keeps its meaning where the host limits.
    """
    host = session_overhead(work, device)
    if device.kind == "cpu":
        each = host.time_s / max(1, len(estimates))
        return tuple(replace(_with_surplus(estimate, each), bound=estimate.bound) for estimate in estimates)
    surplus = host.time_s - sum(estimate.time_s for estimate in estimates)
    launching = max(1, int((work.kernels > 0).sum()))
    if surplus <= 0:
        return tuple(estimates)
    each = surplus / launching
    return tuple(
        _with_surplus(estimate, each) if kernels > 0 else estimate
        for estimate, kernels in zip(estimates, work.kernels, strict=True)
    )


def _with_surplus(estimate: Estimate, surplus_s: float) -> Estimate:
    return replace(
        estimate,
        time_s=estimate.time_s + surplus_s,
        low_s=estimate.low_s + surplus_s / HOST_WIDTH,
        high_s=estimate.high_s + surplus_s * HOST_WIDTH,
        bound="overhead" if surplus_s > estimate.time_s else estimate.bound,
    )


_TAKES_NORMS = CONVS | MATMULS | {"ConvTranspose", "Gemm"}


def _folded(graph: Graph, groups: Sequence[Group]) -> list[bool]:
    """Whether each member of each group is a norm that became part of its product's weights."""
    return [
        graph.nodes[member].op_type == "BatchNormalization"
        and any(graph.nodes[other].op_type in _TAKES_NORMS for other in group.members)
        for group in groups
        for member in group.members
    ]


def operator_shares(
    graph: Graph,
    table: Costs,
    groups: Sequence[Group],
    estimates: Sequence[Estimate | None],
    device: Device,
    precision: str = "fp32",
    *,
    threads: int | None = None,
) -> tuple[Estimate | None, ...]:
    """Each operator's time: its share of its group's, split by what the members would take alone.

    A BatchNormalization that a session folds into a product's weights takes nothing.

    Args:
        graph: The model.
        table: One cost per operator.
        groups: What a session executes.
        estimates: One per group, measured or predicted; None where not known.
        device: Where the groups run.
        precision: Their precision.
        threads: Of a CPU.

    Returns:
        One per node; None for operators in no group (folded before the model runs) or in one without estimate.
        Shares of a group add up to its time.
    """
    alone = tuple(
        Group(session=group.session, name="", op_type=graph.nodes[member].op_type, members=(member,),
              provider=group.provider, kernels=1 if len(group.members) > 1 else group.kernels)
        for group in groups
        for member in group.members
    )  # fmt: skip
    work = workload(graph, table, alone, copies=False)
    weights = predict_arrays(work, device, precision=precision, threads=threads).time_s
    weights = np.where(_folded(graph, groups), 0.0, weights)
    estimate_of: list[Estimate | None] = [None] * len(graph.nodes)
    position = 0
    for group, estimate in zip(groups, estimates, strict=True):
        shares = weights[position : position + len(group.members)]
        position += len(group.members)
        whole = float(shares.sum())
        for member, share in zip(group.members, shares, strict=True):
            part = float(share) / whole if whole > 0 else 1.0 / len(group.members)
            estimate_of[member] = None if estimate is None else estimate.scaled(part)
    return tuple(estimate_of)
