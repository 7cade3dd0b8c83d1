"""The least-cost placement of units on two devices: an exact minimum cut.

Cost is additive: each unit's cost on its device, plus one copy for each tensor and direction that must cross.
That is a minimum s-t cut: the source side runs on the CPU, the sink side on the GPU (H. S. Stone,
"Multiprocessor scheduling with the aid of network flow algorithms", IEEE Transactions on Software Engineering
SE-3(1), 1977). A unit hangs on each side by what it costs on the other; a tensor's copy is one arc through a
vertex of its own, so that any number of readers pays once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.arrays import Floats
from analyzer.decision.placement_problem import EdgeArrays, PlacementProblem

# SciPy's flows are 32-bit, and wider integers are cast without a word (scipy/sparse/csgraph/_flow.pyx). Costs
# become whole multiples of 2**-29 of the cheaper uniform placement (2 ns in a second), an upper bound of the
# flow; an edge and its reverse together stay below 2**31.
_RANGE = 2**29
_NEVER = 2**30 - 1
_PRICE_STEPS = 20  # halvings of the price of a byte: one part in a million


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementCosts:
    """The cost of each part of a placement, all in one unit (seconds, joules).

    Attributes:
        problem: Units and edges.
        cpu, gpu: Cost of each unit on either device.
        to_gpu, to_cpu: Cost of copying each edge's tensor.
        bound: For each unit the side it is bound to (True is the GPU), None where it is free.
    """

    problem: PlacementProblem
    cpu: Floats
    gpu: Floats
    to_gpu: Floats
    to_cpu: Floats
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


def cost_of(costs: PlacementCosts, on_gpu: Sequence[bool]) -> float:
    """Return the cost of a placement."""
    side = np.array(on_gpu, dtype=np.bool_)
    to_gpu, to_cpu = costs.problem.edge_arrays.crossed(side)
    spent = np.where(side, costs.gpu, costs.cpu).sum()
    return float(spent + costs.to_gpu[to_gpu].sum() + costs.to_cpu[to_cpu].sum())


def weight_bytes_on_gpu(problem: PlacementProblem, on_gpu: Sequence[bool]) -> int:
    """Return bytes of weights that a placement needs on the GPU."""
    return sum(size for size, is_on_gpu in zip(problem.weights, on_gpu, strict=True) if is_on_gpu)


def partition(costs: PlacementCosts, *, memory_bytes: float | None = None) -> Cut:
    """Return the placement of least cost.

    Where ``memory_bytes``, the room on the GPU for the weights of what runs there, limits it, the problem is a
    knapsack, and this is the cheapest placement found that fits, with a bound on how much cheaper another could
    be; if bound units alone do not fit, the placement that needs least room.
    """
    unlimited = _least_cost(costs)
    if memory_bytes is None or weight_bytes_on_gpu(costs.problem, unlimited.on_gpu) <= memory_bytes:
        return unlimited
    return _cut_within_memory(costs, memory_bytes, unlimited)


def _cut_within_memory(costs: PlacementCosts, memory_bytes: float, unlimited: Cut) -> Cut:
    """Lagrangian relaxation: the least price of a byte at which the cut fits, then what is left is filled.

    Layers that are alike leave all at once when the price rises, so the units that left between the last price
    that did not fit and the first that did are taken back while they fit.
    """
    problem = costs.problem
    low, high, least = 0.0, unlimited.cost / max(1.0, memory_bytes), unlimited.cost
    # At the first price all the room costs as much as the whole cut: the right order of size to begin with.
    over, under = unlimited, _least_cost(_with_byte_price(costs, high))
    for _ in range(_PRICE_STEPS):
        if weight_bytes_on_gpu(problem, under.on_gpu) <= memory_bytes:
            break
        low, high, over = high, high * 4, under
        under = _least_cost(_with_byte_price(costs, high))
    for _ in range(_PRICE_STEPS):
        price = (low + high) / 2
        cut = _least_cost(_with_byte_price(costs, price))
        # Weak duality: no placement that fits costs less than the cut at a price of bytes, less that price of
        # all the room (M. L. Fisher, "The Lagrangian relaxation method for solving integer programming
        # problems", Management Science 27(1), 1981).
        least = max(least, cut.cost - price * memory_bytes)
        if weight_bytes_on_gpu(problem, cut.on_gpu) <= memory_bytes:
            high, under = price, cut
        else:
            low, over = price, cut
    candidates = [under.on_gpu, *_refilled(costs, under.on_gpu, over.on_gpu, memory_bytes)]
    best = min(candidates, key=lambda on_gpu: cost_of(costs, on_gpu))
    cost = cost_of(costs, best)
    return Cut(on_gpu=best, cost=cost, least=min(least, cost))


def _with_byte_price(costs: PlacementCosts, price: float) -> PlacementCosts:
    return replace(costs, gpu=costs.gpu + price * np.array(costs.problem.weights, dtype=np.float64))


def _refilled(
    costs: PlacementCosts, under: Sequence[bool], over: Sequence[bool], memory_bytes: float
) -> Iterator[tuple[bool, ...]]:
    """Yield fillings: neighbours from the front, neighbours from the back, the most gain per byte."""
    weights = costs.problem.weights
    extra = [unit for unit, is_on_gpu in enumerate(over) if is_on_gpu and not under[unit]]

    def gain_per_byte(unit: int) -> float:
        return float(costs.cpu[unit] - costs.gpu[unit]) / max(1, weights[unit])

    yield _filled_greedily(weights, under, extra, memory_bytes, stop=True)
    yield _filled_greedily(weights, under, extra[::-1], memory_bytes, stop=True)
    movable = [unit for unit, bound in enumerate(costs.bound) if bound is None and gain_per_byte(unit) > 0]
    by_gain = sorted(movable, key=gain_per_byte, reverse=True)
    yield _filled_greedily(weights, under, by_gain, memory_bytes, stop=False)
    yield _filled_greedily(weights, _uniform(costs, False), by_gain, memory_bytes, stop=False)


def _filled_greedily(
    weights: Sequence[int], start: Sequence[bool], order: Sequence[int], memory_bytes: float, *, stop: bool
) -> tuple[bool, ...]:
    # A stretch without holes is copied in and out once; whatever else fits may cut it and pay again.
    chosen = list(start)
    left = memory_bytes - sum(size for size, is_on_gpu in zip(weights, chosen, strict=True) if is_on_gpu)
    for unit in order:
        if not chosen[unit] and weights[unit] <= left:
            left -= weights[unit]
            chosen[unit] = True
        elif stop and weights[unit] > left:
            break
    return tuple(chosen)


def _uniform(costs: PlacementCosts, side: bool) -> tuple[bool, ...]:
    return tuple(side if bound is None else bound for bound in costs.bound)


def _least_cost(costs: PlacementCosts) -> Cut:
    """Return the exact minimum cut; a uniform placement where it is as good."""
    uniform = [(cost_of(costs, on_gpu), on_gpu) for on_gpu in map(_uniform, (costs,) * 2, (False, True))]
    cost, on_gpu = min(uniform, key=lambda pair: pair[0])
    # A tie goes to the uniform placement: it needs one session, and rounding made the cut no better.
    if cost > 0 and None in costs.bound and not _surely_least(costs, on_gpu):
        cut = _minimum_cut(costs, _RANGE / cost)
        if (cut_cost := cost_of(costs, cut)) < cost:
            cost, on_gpu = cut_cost, cut
    return Cut(on_gpu=on_gpu, cost=cost, least=cost)


def _surely_least(costs: PlacementCosts, on_gpu: Sequence[bool]) -> bool:
    """Return whether every free unit costs at least as much more elsewhere as all copies that it takes part in.

    Units that move together then save no more in copies than they cost, whichever they are: no cut is needed.
    """
    side, free = np.array(on_gpu, dtype=np.bool_), np.array([bound is None for bound in costs.bound])
    to_gpu, to_cpu = costs.problem.edge_arrays.crossed(side)
    copies = costs.problem.edge_arrays.by_unit(costs.to_gpu * to_gpu + costs.to_cpu * to_cpu, len(side))
    return bool((np.where(side, costs.cpu - costs.gpu, costs.gpu - costs.cpu) >= copies)[free].all())


def _minimum_cut(costs: PlacementCosts, scale: float) -> tuple[bool, ...]:
    """For each unit whether it lies on the sink's side of a maximum flow (Dinic's, by SciPy)."""
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    arcs = costs.problem.edge_arrays.arcs
    capacities = np.minimum(np.rint(_arc_costs(costs)[arcs.cost] * scale), _NEVER).astype(np.int64)
    shape = (arcs.vertices, arcs.vertices)
    # Conversion to CSR adds parallel arcs up: of them the flow knows one for each pair of vertices.
    summed = coo_array((capacities, (arcs.start, arcs.end)), shape=shape).tocsr()
    summed.data = np.minimum(summed.data, _NEVER)
    network = csr_array(
        (summed.data.astype(np.int32), summed.indices.astype(np.int32), summed.indptr.astype(np.int32)),
        shape=shape,
    )
    # What the source still reaches when the flow is greatest is the smallest CPU side of all minimum cuts: a
    # unit that may as well run on either runs on the GPU.
    residual = csr_array(network - maximum_flow(network, EdgeArrays.SOURCE, EdgeArrays.SINK).flow)
    residual.data = np.maximum(residual.data, 0)
    residual.eliminate_zeros()
    reached = np.zeros(arcs.vertices, dtype=np.bool_)
    reached[breadth_first_order(residual, EdgeArrays.SOURCE, return_predecessors=False)] = True
    units = reached[EdgeArrays.UNITS : EdgeArrays.UNITS + costs.problem.units]
    return tuple((~units).tolist())


def _arc_costs(costs: PlacementCosts) -> Floats:
    """Return the costs in the order in which ``EdgeArrays.arcs`` numbers them."""
    never = float("inf")
    bound = np.array([0 if side is None else 1 if side else -1 for side in costs.bound], dtype=np.int64)
    on_gpu, on_cpu = np.where(bound < 0, never, costs.gpu), np.where(bound > 0, never, costs.cpu)
    return np.concatenate([on_gpu, on_cpu, costs.to_gpu, costs.to_cpu, [never]])


def import_solver() -> None:
    """Import the solver of a cut, for a process that others are forked from."""
    import scipy.sparse.csgraph  # noqa: F401
