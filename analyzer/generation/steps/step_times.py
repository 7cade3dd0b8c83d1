"""Steps of generation -> their times on a device: operators, the sums between devices, ids in and out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from analyzer.costs import count
from analyzer.decision.error_components import ErrorComponent, ErrorComponents
from analyzer.devices.device import Device, peer_link
from analyzer.figures import Figure
from analyzer.generation.request import StepSizes
from analyzer.generation.steps.decoder_graph import StepGraph
from analyzer.options import LaunchMode
from analyzer.ort.execution import Group
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
from analyzer.ort.simplify import simplify
from analyzer.prediction import Workload, total, transfer, workload
from analyzer.prediction.collectives import collective_time
from analyzer.prediction.predict import ModelTimes, model_times, stacked
from analyzer.prediction.work_item import Kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationStep:
    """A step, ready to be timed on any device of a kind.

    ``work`` are its groups as numbers, ``copies`` how many groups of the model each stands for, ``parts`` the
    class of module that each belongs to, ``kinds`` its type of operator.
    """

    sizes: StepSizes
    graph: StepGraph
    work: Workload
    copies: tuple[int, ...]
    parts: tuple[str, ...]
    kinds: tuple[str, ...]


# Tokens of a page of a cache, at least (vLLM's ``block_size``; others have 32, 64 and more).
_PAGE = 16.0


def prepared_step(
    made: StepGraph, sizes: StepSizes, *, cuda: bool, groups: tuple[Group, ...] | None = None
) -> GenerationStep:
    """One step, placed, grouped and counted.

    ``groups`` are what a session executes of it, where that is known.
    """
    groups = step_groups(made, cuda=cuda) if groups is None else groups
    work = workload(made.graph, count(made.graph), groups)
    if cuda:
        # Contexts in whole pages: engines keep caches so, and rows begin where pages do.
        loose = (work.kind == Kind.MATMUL) & (work["weights"] == 0) & (work["fixed_weights"] == 0)
        paged = {
            name: np.where(loose & (work[name] > _PAGE), np.ceil(work[name] / _PAGE) * _PAGE, work[name])
            for name in ("n", "k")
        }
        work = replace(work, columns={**work.columns, **paged})
    first = [group.members[0] for group in groups]
    return GenerationStep(
        sizes=sizes,
        graph=made,
        work=work,
        copies=tuple(made.copies[member] for member in first),
        parts=tuple(made.graph.nodes[member].module_class for member in first),
        kinds=tuple(group.op_type for group in groups),
    )


def step_groups(made: StepGraph, *, cuda: bool) -> tuple[Group, ...]:
    """Return the executed groups of a step."""
    simplified = simplify(made.graph)
    if not cuda:
        return predicted_groups(made.graph, "cpu", simplified=simplified)
    placement = place(made.graph, simplified)
    groups = predicted_groups(made.graph, "cuda", placement, simplified=simplified)
    # What ONNX Runtime lacks a kernel for, engines have: a step is taken to stay on the card.
    return tuple(
        group if group.provider == "cuda" else replace(group, provider="cuda", kernels=max(1, group.kernels))
        for group in groups
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Data that devices which share a model exchange in a step.

    The state, ``hidden`` wide, is summed ``sums`` times; the logits of a sequence are gathered in the end.
    """

    hidden: int
    vocabulary: int
    sums: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """Steps on one device.

    ``slows_down`` says whether the device may not keep its rate for seconds.
    """

    steps: tuple[GenerationStep, ...]
    times: ModelTimes
    sums: tuple[Figure, ...]
    copies: tuple[Figure, ...]
    slows_down: bool = False

    def of(self, index: int) -> Figure:
        """One step, from ids on the host to ids on the host."""
        time = total((self.times.of(index), self.sums[index], self.copies[index]))
        if not self.slows_down or time.value <= _BRIEF_S:
            return time
        slower = _SLOWED ** min(1.0, math.log(time.value / _BRIEF_S) / math.log(_LONG_S / _BRIEF_S))
        return replace(time, high=max(time.high, time.value * slower))

    def parts(self, index: int) -> dict[str, float]:
        """Return seconds of a step by class of module, of the sums between devices, and of all neither."""
        first = sum(len(step.parts) for step in self.steps[:index])
        result: dict[str, float] = {}
        groups_s = self.times.groups.value[first:].tolist()
        for part, seconds in zip(self.steps[index].parts, groups_s, strict=False):
            result[part] = result.get(part, 0.0) + seconds
        rest = self.of(index).value - sum(result.values()) - self.sums[index].value
        return {**result, EXCHANGE: self.sums[index].value, LAUNCH: max(0.0, rest)}

    def components(self, index: int) -> ErrorComponents:
        """Return a step by what errs together: kernels of one type, launches, all that is neither."""
        step, first = self.steps[index], sum(len(step.parts) for step in self.steps[:index])
        columns = (self.times.groups.value, self.times.groups.low, self.times.groups.high)
        times = [Figure.about(*ends) for ends in zip(*(each[first:].tolist() for each in columns), strict=True)]
        parts = tuple(
            ErrorComponent(
                resource="gpu", source=kind, time=total(compress(times, (one == kind for one in step.kinds)))
            )
            for kind in dict.fromkeys(() if self.times.waits[index] else step.kinds)
        )
        whole = self.of(index)
        known = total(part.time for part in parts)
        low, value, high = (max(0.0, all_ - some) for all_, some in zip(whole.ends, known.ends, strict=True))
        rest = Figure.about(value, low, high)
        return (*parts, ErrorComponent(resource="launch", source="rest" if parts else "launch", time=rest))


def step_times(
    steps: Sequence[GenerationStep],
    exchange: Exchange | None,
    device: Device,
    *,
    precision: str,
    launch: LaunchMode = "session",
    host: Device | None = None,
    threads: int | None = None,
) -> StepTimes:
    """Return all steps on one device, or on several alike of one machine.

    ``exchange`` is None where one device alone runs the model, ``host``, the CPU that launches, for one of the
    usual speed.
    """
    together = stacked([(step.work, step.copies) for step in steps])
    times = model_times(
        together, device, precision=precision, threads=threads, host=host, replayed=launch == "graph"
    )
    return StepTimes(
        steps=tuple(steps),
        times=times,
        sums=tuple(_exchanged(exchange, step.sizes, device, in_graph=launch == "graph") for step in steps),
        # The new tokens' ids in, the chosen ones out: logits stay where they are made.
        copies=tuple(
            _NOTHING
            if device.kind == "cpu" or device.link is None
            else total(transfer(device.link, rows * _ID_BYTES) for rows in (step.sizes.rows, step.sizes.batch))
            for step in steps
        ),
        slows_down=device.architecture == "Ada Lovelace",
    )


# Rates of tensor cores were measured in products of milliseconds. In prompts of 4 to 13 seconds cards of 300 W
# (L40, RTX 6000 Ada; static batches of pipeweave) took 1.4 to 2.45 times as long as by those rates, an L20 0.9
# times: power or heat, of which no sheet tells. Cards of other architectures did not (0.92 to 1.08). Between a
# tenth of a second and three the interval's upper end grows to hold it.
_BRIEF_S, _LONG_S, _SLOWED = 0.1, 3.0, 2.5

EXCHANGE, LAUNCH = "Between devices", "Launch and copies"
_NOTHING = Figure(value=0.0, low=0.0, high=0.0, origin="predicted")
_HALF = 2


def _exchanged(exchange: Exchange | None, sizes: StepSizes, gpu: Device, *, in_graph: bool) -> Figure:
    """Return the sums after each attention and each feed-forward part, and the logits gathered in the end."""
    peer = peer_link(gpu) if sizes.width > 1 else None
    if peer is None or exchange is None:
        return _NOTHING
    nbytes = sizes.rows * exchange.hidden * _HALF
    each = collective_time("all_reduce", nbytes, sizes.width, peer)
    if in_graph:
        # Engines have a kernel of their own for small sums, and leave large ones to NCCL.
        own = collective_time("all_reduce", nbytes, sizes.width, peer, in_graph=True)
        each = min(each, own, key=lambda time: time.value)
    logits = sizes.batch * exchange.vocabulary * _HALF
    gathered = collective_time("all_gather", logits, sizes.width, peer)
    return total((each.scaled(exchange.sums), gathered))


_ID_BYTES = 8
