"""Times of groups on a device with their intervals, of whole sessions, operators and many models at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from analyzer.arrays import Bools, Floats, Ints
from analyzer.costs.cost import Costs
from analyzer.devices.device import Device
from analyzer.graph import Graph
from analyzer.ort.execution import Group
from analyzer.prediction.cpu.ceilings import CPU_CALL_S, cpu_ceilings
from analyzer.prediction.cpu.kernels import cpu_widths, piece_times
from analyzer.prediction.estimate import Bound, Estimate, Times, share_of_group
from analyzer.prediction.features import BRANCH, CALLS, CONVS, LOOP, LOOP_WIDTH, MATMULS, SCAN
from analyzer.prediction.gpu.ceilings import sheet as sheet_of
from analyzer.prediction.gpu.constants import LAUNCH_WIDTH
from analyzer.prediction.gpu.kernels import chosen_by_library, kernel_times, least_times, widths
from analyzer.prediction.gpu.launch import CALL_S, HOST_WIDTH, PARTS, REPLAY_S, Overheads, launch_of
from analyzer.prediction.layout_changes import LayoutCopies
from analyzer.prediction.parameter_updates import UPDATE
from analyzer.prediction.work_item import Kind, among
from analyzer.prediction.workload import OperatorPieces, Workload, joined, whether, workload
from analyzer.record.analysis import GpuOverhead

BOUNDS: tuple[Bound, ...] = ("compute", "memory", "overhead")
# An operator of which nothing is known: its launch and what it reads and writes, with a wide interval; what has
# not been counted may take as long as the longest of the model's others, a judgement.
_UNKNOWN_WIDTH = 10.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupTimes(Times):
    """Times of groups as arrays, for many devices and batches at once.

    Attributes:
        bound: By group, index into ``BOUNDS``.
        overheads: What of them is neither arithmetic nor traffic; None on a CPU.
    """

    bound: Ints
    overheads: Overheads | None = None

    def scaled(self, factor: float) -> GroupTimes:
        """Return the times of a multiple of the work."""
        overheads = self.overheads.changed(lambda column: column * factor) if self.overheads else None
        return self.changed(lambda column: column * factor, overheads=overheads)

    def only(self, groups: Bools | slice) -> GroupTimes:
        """Return the times of some of the groups."""
        overheads = self.overheads.changed(lambda column: column[groups]) if self.overheads else None
        return self.changed(lambda column: column[groups], bound=self.bound[groups], overheads=overheads)

    def estimates(self) -> tuple[Estimate, ...]:
        """Return one estimate per group."""
        columns = (self.value, self.low, self.high, self.bound, *(self.overheads or ()))
        rows = list(zip(*[column.tolist() for column in columns], strict=True))

        # Most groups are one launch.
        overhead = cache(lambda *parts: GpuOverhead(**dict(zip(PARTS, parts, strict=True))) if parts else None)
        # Groups of layers that are alike take the same time, and share an estimate.
        made = {}
        for row in set(rows):
            value, low, high, bound, *parts = row
            over = overhead(*parts)
            made[row] = Estimate(value=value, low=low, high=high, bound=BOUNDS[bound], overhead=over)
        return tuple([made[row] for row in rows])


def predict_arrays(
    work: Workload,
    device: Device,
    *,
    precision: str = "fp32",
    threads: int | None = None,
    host: Device | None = None,
    replayed: bool = False,
) -> GroupTimes:
    """Time of all groups as arrays, each by itself: no host that falls behind.

    ``precision`` is ``fp32``, ``tf32``, ``fp16``, ``bf16`` or ``int8``. A CPU has so many intra-op ``threads``,
    one per core with None; a GPU has a ``host`` that launches, of the usual speed with None, and may have one
    CUDA graph ``replayed`` instead.
    """
    if device.kind == "cpu":
        at = cpu_ceilings(device, precision, threads)
        times, compute = piece_times(work, at)
        launch = np.full(work.groups, at.dispatch_s, dtype=np.float64)
        return _by_group(work, times, compute, cpu_widths(work, at), launch, HOST_WIDTH)
    sheet = sheet_of(device, precision)
    kernels = kernel_times(work, sheet)
    each = launch_of(device, host)
    in_graph = kernels.seconds / np.maximum(work["repeats"], 1.0) + each.floor_s + each.gap_s
    spread = widths(work, in_graph, sheet, in_session=work.groups > 1)
    spread = np.maximum(spread, np.where(looping(work)[work.group], LOOP_WIDTH, 1.0))
    turning = np.bincount(work.group, weights=kernels.turning, minlength=work.groups)
    overheads = Overheads(
        floor_s=work.kernels * each.floor_s,
        gap_s=work.kernels * each.gap_s,
        host_s=work.kernels * (0.0 if replayed else each.stream_s),
        surplus_s=np.zeros(work.groups),
        layout_s=np.asarray(turning, dtype=np.float64),
    )
    seconds, at_most = kernels.seconds, kernels.at_most
    whole = _by_group(work, seconds, kernels.computing, spread, overheads.launch_s, each.width, overheads)
    slower = np.maximum(0.0, at_most - seconds * spread)
    more = np.bincount(work.group, weights=slower, minlength=work.groups)
    surely = least_times(work, sheet) * work["least"]
    least = np.bincount(work.group, weights=surely, minlength=work.groups)
    low = np.maximum(whole.low, np.minimum(least, whole.value))
    return replace(whole, low=low, high=whole.high + more)


def _longest(work: Workload, high: Floats) -> Floats:
    """By group, the longest that a group of its model may take."""
    if work.model is None:
        return np.full(work.groups, high.max(initial=0.0))
    longest = np.zeros(int(work.model.max(initial=-1)) + 1)
    np.maximum.at(longest, work.model, high)
    return np.asarray(longest[work.model], dtype=np.float64)


def _by_group(
    work: Workload,
    times: Floats,
    compute: Bools,
    spread: Floats,
    launch: Floats,
    width: float,
    overheads: Overheads | None = None,
) -> GroupTimes:
    # Where a size is not known, nor is the time.
    spread = np.where(work.unknown[work.group], np.maximum(spread, _UNKNOWN_WIDTH), spread)

    def over(weights: Floats) -> Floats:
        return np.asarray(np.bincount(work.group, weights=weights, minlength=work.groups), dtype=np.float64)

    kernel = over(times)
    computing = over(np.where(compute, times, 0.0))
    bound = np.where(launch > kernel, 2, np.where(2 * computing > kernel, 0, 1))
    spread = np.maximum(spread, work["spread"])
    widest: Floats = np.maximum(np.where(work.unknown, _UNKNOWN_WIDTH, width), work.spread)
    # A kernel's floor and its gap in a graph vary as little as small kernels do, what the host does more.
    inside = overheads.floor_s + overheads.gap_s if overheads else np.zeros(work.groups)
    narrow: Floats = np.maximum(np.where(work.unknown, _UNKNOWN_WIDTH, LAUNCH_WIDTH), work.spread)
    high = over(times * spread) + inside * narrow + (launch - inside) * widest
    return GroupTimes(
        value=kernel + launch,
        low=over(times * work["least"] / spread) + inside / narrow + (launch - inside) / widest,
        high=np.where(work.uncounted, np.maximum(high, _longest(work, high)), high),
        bound=bound,
        overheads=overheads,
    )


def predict(
    work: Workload, device: Device, *, precision: str = "fp32", threads: int | None = None
) -> tuple[Estimate, ...]:
    """One estimate per group: what it adds to its session; see ``predict_session``."""
    return predict_session(work, device, precision=precision, threads=threads).estimates()


def predict_session(
    work: Workload,
    device: Device,
    *,
    precision: str = "fp32",
    threads: int | None = None,
    host: Device | None = None,
) -> GroupTimes:
    """Return the time that each group adds to its session, as arrays; the sum is the session's time.

    On a CPU its operators, their dispatch and a share of the call. On a GPU its kernels, the gaps between them,
    a share of the call and, where the host cannot launch as fast as the GPU computes, of the host's surplus:
    the session then takes the longer of both, and an additive plan keeps its meaning. Arguments are those of
    ``predict_arrays``.
    """
    times = predict_arrays(work, device, precision=precision, threads=threads, host=host)
    needed = np.zeros(0) if device.kind == "cpu" else host_times(work, device, host)
    return _in_session(times, needed, work, device, host)


def _in_session(
    times: GroupTimes, needed: Floats, work: Workload, device: Device, host: Device | None
) -> GroupTimes:
    """Add what a session takes besides its groups; ``needed`` are the seconds of a GPU's host for each."""
    if device.kind == "cpu":
        known, count = device.calibration, int(device.calibration.get("threads", 1))
        call = known.get(f"run.t{count}", known.get(f"call.t{count}", CPU_CALL_S))
        return _with_surplus(times, np.full(work.groups, call / max(1, work.groups)), work, HOST_WIDTH)
    width = launch_of(device, host).width
    # What a run costs once, over the groups that launch something; nothing where none does.
    launching = (work.kernels > 0).astype(np.float64)
    run: Floats = launching * (CALL_S / max(1.0, float(launching.sum())))
    surplus = float(needed.sum()) - float(times.value.sum())
    if surplus <= 0:
        return _with_surplus(times, run, work, width)
    each = surplus * needed / needed.sum() + run
    return replace(_with_surplus(times, each, work, width), bound=np.where(each > times.value, 2, times.bound))


def looping(work: Workload) -> Bools:
    """Return which groups are loops: their bodies' operators are nodes that the host runs, each time again."""
    return _holding(work, frozenset({LOOP, SCAN}))


def _holding(work: Workload, wanted: frozenset[str]) -> Bools:
    """Return which groups hold a piece of one of these operators."""
    result = whether(work, wanted)
    if not result.any():
        return np.zeros(work.groups, dtype=np.bool_)
    return np.asarray(np.bincount(work.group, weights=result[work.op], minlength=work.groups) > 0)


_UPDATES, _ASKING = frozenset({UPDATE}), frozenset({LOOP, BRANCH})
_CONVOLUTIONS = among((Kind.CONV, Kind.DEPTHWISE))


def host_times(work: Workload, gpu_device: Device, host: Device | None) -> Floats:
    """Return seconds that the host needs for each group's nodes."""
    each = launch_of(gpu_device, host)
    piece = np.where(chosen_by_library(work), each.product_s, each.node_s)
    piece = np.where(_CONVOLUTIONS[work.kind], each.convolution_s, piece)
    piece = np.where(work.kind == Kind.ATTENTION, each.attention_s, piece)
    piece = np.where(work.kind == Kind.EXPERTS, each.experts_s, piece)
    # Before each trip of a loop, and before a branch, the host reads a condition that the GPU may compute.
    waits = whether(work, _ASKING)[work.op]
    piece = np.where(waits, each.node_s + each.wait_s, piece)
    # A group is one node, launched as its dearest piece is; of a loop each piece of the body is one, each trip.
    node = np.full(work.groups, each.node_s)
    np.maximum.at(node, work.group, piece)
    in_loop = np.bincount(work.group, weights=piece * work["repeats"], minlength=work.groups)
    launched = np.where(_holding(work, CALLS), in_loop, node) * (work.kernels > 0)
    # A launch of an optimizer updates many parameters: each has its share.
    launched = np.where(_holding(work, _UPDATES), each.node_s * work.kernels, launched)
    views = (work.kernels == 0) & (np.bincount(work.group, minlength=work.groups) == 0)
    recurrent = np.where(work.kind == Kind.RECURRENT, work["steps"] * work["repeats"], 0.0)
    steps = np.bincount(work.group, weights=recurrent, minlength=work.groups) * (work.kernels > 0)
    times: Floats = launched + steps * each.step_s + np.where(views, each.view_s, 0.0)
    return times


def _with_surplus(times: GroupTimes, surplus_s: Floats, work: Workload, wide: float) -> GroupTimes:
    overheads = times.overheads
    if overheads is not None:
        overheads = replace(
            overheads, host_s=overheads.host_s + surplus_s, surplus_s=overheads.surplus_s + surplus_s
        )
    width: Floats = np.maximum(np.where(work.unknown, _UNKNOWN_WIDTH, wide), work.spread)
    least = np.ones(work.groups)  # a host launches fewer steps too
    np.minimum.at(least, work.group, work["least"])
    return replace(
        times,
        value=times.value + surplus_s,
        low=times.low + surplus_s * least / width,
        high=times.high + surplus_s * width,
        overheads=overheads,
    )


_TAKES_NORMS = CONVS | MATMULS | {"ConvTranspose", "Gemm"}


def _folded(graph: Graph, groups: Sequence[Group]) -> list[bool]:
    """Return whether each member of each group is a norm that became part of its product's weights."""
    folded: list[bool] = []
    for group in groups:
        types = [graph.nodes[member].op_type for member in group.members]
        with_product = not _TAKES_NORMS.isdisjoint(types)
        folded += [with_product and op_type == "BatchNormalization" for op_type in types]
    return folded


def operator_shares(
    graph: Graph,
    table: Costs,
    groups: Sequence[Group],
    work: Workload,
    estimates: Sequence[Estimate | None],
    device: Device,
    precision: str = "fp32",
    *,
    threads: int | None = None,
    operators: OperatorPieces | None = None,
) -> tuple[Estimate | None, ...]:
    """Each operator's time: its share of its group's, split by what the members would take alone.

    A BatchNormalization that a session folds into a product's weights takes nothing. ``estimates`` of groups
    are measured or predicted, None where not known; ``operators`` are by themselves, where known already.

    Returns:
        One per node; None for operators in no group (folded before the model runs) or in one without estimate.
        Shares of a group add up to its time; those of a measured one are ``mixed``.
    """
    # A group of one operator, as most are, has nothing to split.
    fused = np.array([len(group.members) > 1 for group in groups], dtype=np.bool_)
    split = [group for group in groups if len(group.members) > 1]
    alone = tuple(
        Group(session=group.session, name="", op_type=graph.nodes[member].op_type, members=(member,),
              provider=group.provider, kernels=1)
        for group in split
        for member in group.members
    )  # fmt: skip
    members = workload(graph, table, alone, copies=LayoutCopies(), operators=operators)
    # All others as well: what a CPU's caches keep of one operator's weights depends on everybody's.
    times = predict_arrays(joined([members, work.only(~fused)]), device, precision=precision, threads=threads)
    weights = iter(np.where(_folded(graph, split), 0.0, times.value[: members.groups]).tolist())
    estimate_of: list[Estimate | None] = [None] * len(graph.nodes)
    for group, estimate in zip(groups, estimates, strict=True):
        if len(group.members) == 1:
            estimate_of[group.members[0]] = estimate
            continue
        own = list(islice(weights, len(group.members)))
        whole = sum(own)
        for member, weight in zip(group.members, own, strict=True):
            part = weight / whole if whole > 0 else 1.0 / len(group.members)
            estimate_of[member] = None if estimate is None else share_of_group(estimate, part)
    return tuple(estimate_of)


def stacked(models: Sequence[tuple[Workload, Sequence[int]]]) -> Workload:
    """One workload of several models, each with how many groups of the model each of its groups stands for."""
    copies = np.concatenate([np.asarray(copies, dtype=np.float64) for _, copies in models])
    return replace(_side_by_side([work for work, _ in models]), copies=copies)


def _side_by_side(works: Sequence[Workload]) -> Workload:
    models = np.repeat(np.arange(len(works)), [work.groups for work in works])
    return replace(joined(works), model=models)


class Sessions:
    """Predicts one session after the other, those of a stack at once: NumPy's calls take longer than groups."""

    def __init__(self) -> None:
        self._stacks: dict[Workload, tuple[tuple[Workload, ...], Workload]] = {}
        # By stack, of the last device.
        self._last: dict[Workload, tuple[object, dict[Workload, GroupTimes]]] = {}

    def stack(self, works: Iterable[Workload]) -> None:
        """Take these for a stack: of a device that one of them is predicted for, the others will be too."""
        works = tuple(works)
        # A group alone is no session, and has an interval of its own.
        if len(works) > 1 and all(work.groups > 1 for work in works) and works[0] not in self._stacks:
            self._stacks |= dict.fromkeys(works, (works, _side_by_side(works)))

    def predict(self, work: Workload, device: Device, **options: Any) -> GroupTimes:
        """Return what ``predict_session`` does."""
        if work not in self._stacks:
            return predict_session(work, device, **options)
        works, whole = self._stacks[work]
        where, cached = self._last.get(whole, (None, {}))
        if where != (device, options):
            times, host = predict_arrays(whole, device, **options), options.get("host")
            needed = np.zeros(0) if device.kind == "cpu" else host_times(whole, device, host)
            cached, begin = {}, 0
            for one in works:
                groups = slice(begin, begin := begin + one.groups)
                cached[one] = _in_session(times.only(groups), needed[groups], one, device, host)
            self._last[whole] = (device, options), cached
        return cached[work]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTimes(Times):
    """One run of each model, by model, in seconds; copies to and from the device apart.

    Attributes:
        groups: Each group's time by itself, its copies included.
        waits: Whether the GPU waits for the host's launches.
    """

    groups: Times
    waits: Bools


def model_times(
    work: Workload,
    device: Device,
    *,
    precision: str,
    threads: int | None = None,
    host: Device | None = None,
    replayed: bool = False,
) -> ModelTimes:
    """One run of each model of a stacked workload.

    On a GPU the longer of the host's launches and the kernels with their gaps, and one call; where one CUDA
    graph is replayed, kernels and gaps and one replay; on a CPU the sum of its operators and one call.

    Arguments are those of ``predict_arrays``.
    """
    assert work.copies is not None
    assert work.model is not None
    times = predict_arrays(work, device, precision=precision, threads=threads, host=host, replayed=replayed)
    copies, model = work.copies, work.model

    def summed(each: Floats) -> Floats:
        return np.asarray(np.bincount(model, weights=each * copies), dtype=np.float64)

    time, low, high = summed(times.value), summed(times.low), summed(times.high)
    if device.kind == "cpu" or replayed:
        once, width = CPU_CALL_S if device.kind == "cpu" else REPLAY_S, HOST_WIDTH
        launched = np.zeros(len(time))
    else:
        once, width = CALL_S, launch_of(device, host).width
        launched = summed(host_times(work, device, host))
    return ModelTimes(
        value=np.maximum(time, launched) + once,
        low=np.maximum(low, launched / width) + once / width,
        high=np.maximum(high, launched * width) + once * width,
        groups=Times(value=times.value * copies, low=times.low * copies, high=times.high * copies),
        waits=launched > time,
    )
