"""The least-cost placement of units on two devices: an exact minimum cut.

Cost is additive: each unit's cost on its device, plus one copy for each tensor and direction that must cross.
That is a minimum s-t cut (Stone 1977): the source side runs on the CPU, the sink side on the GPU. A unit hangs
on each side by what it costs on the other; a tensor's copy is one edge through a node of its own, so that any
number of readers pays once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analyzer.decision.placement_problem import HOST, Wire, Wiring
from analyzer.ort.execution import Direction

# SciPy's flows are 32-bit. Costs become whole multiples of 2**-29 of the cheaper uniform placement (2 ns in a
# second), an upper bound of the flow; an edge and its reverse together stay below 2**31.
_RANGE = 2**29
_NEVER = 2**30 - 1
_SOURCE, _SINK, _UNITS = 0, 1, 2
_PRICE_STEPS = 20  # halvings of the price of a byte: one part in a million


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a placement costs, in any unit (seconds, joules).

    Attributes:
        wiring: Units and wires.
        cpu, gpu: Cost of each unit on either device.
        to_gpu, to_cpu: Cost of copying each wire.
        bound: For each unit the side it is bound to (True is the GPU), None where it is free.
    """

    wiring: Wiring
    cpu: tuple[float, ...]
    gpu: tuple[float, ...]
    to_gpu: tuple[float, ...]
    to_cpu: tuple[float, ...]
    bound: tuple[bool | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A placement.

    Attributes:
        on_gpu: For each unit, whether it runs on the GPU.
        cost: Its cost, copies included.
        least: No placement that keeps the constraints costs less than this. Equal to ``cost`` unless the
            GPU's memory is what limits.
    """

    on_gpu: tuple[bool, ...]
    cost: float
    least: float


def crossings(wire: Wire, on_gpu: Sequence[bool]) -> Direction | None:
    """The direction in which this placement copies this tensor, None if it does not."""
    if wire.producer != HOST and on_gpu[wire.producer]:
        return "to_cpu" if wire.host or any(not on_gpu[unit] for unit in wire.readers) else None
    return "to_gpu" if any(on_gpu[unit] for unit in wire.readers) else None


def cost_of(problem: Problem, on_gpu: Sequence[bool]) -> float:
    """What a placement costs."""
    spent = sum(problem.gpu[unit] if there else problem.cpu[unit] for unit, there in enumerate(on_gpu))
    for position, wire in enumerate(problem.wiring.wires):
        direction = crossings(wire, on_gpu)
        if direction is not None:
            spent += (problem.to_gpu if direction == "to_gpu" else problem.to_cpu)[position]
    return spent


def room(wiring: Wiring, on_gpu: Sequence[bool]) -> int:
    """Bytes of weights that a placement needs on the GPU."""
    return sum(size for size, there in zip(wiring.weights, on_gpu, strict=True) if there)


def partition(problem: Problem, *, memory_bytes: float | None = None) -> Cut:
    """The placement of least cost.

    Args:
        problem: Costs and bindings.
        memory_bytes: Room on the GPU for the weights of what runs there; None for no limit.

    Returns:
        The cheapest placement. Where memory limits, the problem is a knapsack, and this is the cheapest
        placement found that fits, with a bound on how much cheaper another could be; if bound units alone
        do not fit, the placement that needs least room.
    """
    free = _solved(problem)
    if memory_bytes is None or room(problem.wiring, free.on_gpu) <= memory_bytes:
        return free
    return _within(problem, memory_bytes, free)


def _within(problem: Problem, memory_bytes: float, free: Cut) -> Cut:
    """Lagrange relaxation: the least price of a byte at which the cut fits, then what is left is filled.

    Layers that are alike leave all at once when the price rises, so the units that left between the last price
    that did not fit and the first that did are taken back while they fit.
    """
    wiring = problem.wiring
    low, high, least = 0.0, free.cost / max(1.0, memory_bytes), free.cost
    over, under = free, _solved(_priced(problem, high))
    for _ in range(_PRICE_STEPS):
        if room(wiring, under.on_gpu) <= memory_bytes:
            break
        low, high, over = high, high * 4, under
        under = _solved(_priced(problem, high))
    for _ in range(_PRICE_STEPS):
        price = (low + high) / 2
        cut = _solved(_priced(problem, price))
        least = max(least, cut.cost - price * memory_bytes)
        if room(wiring, cut.on_gpu) <= memory_bytes:
            high, under = price, cut
        else:
            low, over = price, cut
    candidates = [under.on_gpu, *_refilled(problem, under.on_gpu, over.on_gpu, memory_bytes)]
    best = min(candidates, key=lambda on_gpu: cost_of(problem, on_gpu))
    cost = cost_of(problem, best)
    return Cut(on_gpu=best, cost=cost, least=min(least, cost))


def _priced(problem: Problem, price: float) -> Problem:
    weights = problem.wiring.weights
    return replace(
        problem, gpu=tuple(cost + price * size for cost, size in zip(problem.gpu, weights, strict=True))
    )


def _refilled(
    problem: Problem, under: Sequence[bool], over: Sequence[bool], memory_bytes: float
) -> Iterator[tuple[bool, ...]]:
    """Fillings: neighbours from the front, neighbours from the back, whatever gains most per byte."""
    weights = problem.wiring.weights
    extra = [unit for unit, there in enumerate(over) if there and not under[unit]]

    def gain_per_byte(unit: int) -> float:
        return (problem.cpu[unit] - problem.gpu[unit]) / max(1, weights[unit])

    yield _filled(weights, under, extra, memory_bytes, stop=True)
    yield _filled(weights, under, extra[::-1], memory_bytes, stop=True)
    movable = [unit for unit, bound in enumerate(problem.bound) if bound is None and gain_per_byte(unit) > 0]
    by_gain = sorted(movable, key=gain_per_byte, reverse=True)
    yield _filled(weights, under, by_gain, memory_bytes, stop=False)
    yield _filled(weights, _uniform(problem, False), by_gain, memory_bytes, stop=False)


def _filled(
    weights: Sequence[int], start: Sequence[bool], order: Sequence[int], memory_bytes: float, *, stop: bool
) -> tuple[bool, ...]:
    chosen = list(start)
    left = memory_bytes - sum(size for size, there in zip(weights, chosen, strict=True) if there)
    for unit in order:
        if not chosen[unit] and weights[unit] <= left:
            left -= weights[unit]
            chosen[unit] = True
        elif stop and weights[unit] > left:
            break
    return tuple(chosen)


def _uniform(problem: Problem, side: bool) -> tuple[bool, ...]:
    return tuple(side if bound is None else bound for bound in problem.bound)


def _solved(problem: Problem) -> Cut:
    """The exact minimum cut; a uniform placement where it is as good."""
    uniform = [(cost_of(problem, on_gpu), on_gpu) for on_gpu in map(_uniform, (problem,) * 2, (False, True))]
    cost, on_gpu = min(uniform, key=lambda pair: pair[0])
    if cost > 0 and None in problem.bound:
        cut = _minimum_cut(problem, _RANGE / cost)
        if (cut_cost := cost_of(problem, cut)) < cost:
            cost, on_gpu = cut_cost, cut
    return Cut(on_gpu=on_gpu, cost=cost, least=cost)


def _minimum_cut(problem: Problem, scale: float) -> tuple[bool, ...]:
    """For each unit whether it lies on the sink's side of a maximum flow (Dinic's, by SciPy)."""
    import numpy as np
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    rows, columns, costs = zip(*_edges(problem), strict=True)
    capacities = np.minimum(np.rint(np.asarray(costs) * scale), _NEVER).astype(np.int64)
    size = 1 + max(*rows, *columns)
    summed = coo_array((capacities, (rows, columns)), shape=(size, size)).tocsr()
    summed.data = np.minimum(summed.data, _NEVER)
    network = csr_array(
        (summed.data.astype(np.int32), summed.indices.astype(np.int32), summed.indptr.astype(np.int32)),
        shape=(size, size),
    )
    residual = network - maximum_flow(network, _SOURCE, _SINK).flow
    residual.data = np.maximum(residual.data, 0)
    residual.eliminate_zeros()
    reached = np.zeros(size, dtype=bool)
    reached[breadth_first_order(residual, _SOURCE, return_predecessors=False)] = True
    return tuple(bool(side) for side in ~reached[_UNITS : _UNITS + problem.wiring.units])


def _edges(problem: Problem) -> Iterator[tuple[int, int, float]]:
    """The network: from, to, cost when the first is on the CPU's side and the second on the GPU's."""
    never = float("inf")
    for unit, bound in enumerate(problem.bound):
        yield _SOURCE, _UNITS + unit, never if bound is False else problem.gpu[unit]
        yield _UNITS + unit, _SINK, never if bound is True else problem.cpu[unit]
    helper = _UNITS + problem.wiring.units
    for position, wire in enumerate(problem.wiring.wires):
        producer = _SOURCE if wire.producer == HOST else _UNITS + wire.producer
        readers = [_UNITS + unit for unit in wire.readers]
        inward, outward = problem.to_gpu[position], problem.to_cpu[position]
        if len(readers) == 1:
            yield producer, readers[0], inward
        elif readers:
            yield producer, helper, inward
            yield from ((helper, reader, never) for reader in readers)
            helper += 1
        if producer == _SOURCE:
            continue
        if wire.host:
            yield _SOURCE, producer, outward
        elif len(readers) == 1:
            yield readers[0], producer, outward
        else:
            yield helper, producer, outward
            yield from ((reader, helper, never) for reader in readers)
            helper += 1
