"""Many models on as few dollars of rented machines as can be, each within its limit of latency.

What a packing is, and so what the bound is about:

* Each device of a machine (each of its GPUs, or a CPU) does one run at a time, in the order of the requests.
  Requests are Poisson; what waits for what stands in ``shared_server``.
* A model runs in batches of one size: every request by itself at its smallest batch, or requests wait for a
  larger batch to fill, at most for half of what its limit leaves beside the run (without a limit until it is
  full).
* What the models of a device hold lies in its memory at once, all of them satisfy their limits with all the
  others' requests, and the device is busy at most ``MOST_BUSY`` of the time.
* A model that one device carries stays whole; another is divided into equal parts, the fewest or one more.

An integer program (SciPy's ``milp``) covers the models with patterns: what one device carries. All patterns
are in it where there are few, else those that a linear program over all of them would buy. Work is limited by
counts, never by the clock: the same question has the same answer on every machine.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from analyzer.arrays import Floats
from analyzer.figures import seen_as
from analyzer.serving.shared_server import RunStream, load_of, runs_per_s, wait_s, waits_at_most

# Of a device's time: above it waits grow faster than a forecast of traffic is good.
MOST_BUSY = 0.7
# Up to so many patterns all are listed, and the integer program's answer is the best there is.
_MOST_LISTED = 3000
_MOST_ROUNDS = 30
# Of the shortest wait among a pattern's units, so many are tried.
_STRICTNESSES = 8
# A pattern that so many candidates do not fit is full.
_MOST_REFUSALS = 6
# Machines that carry parts of one model, beyond which it is left out.
_MOST_PARTS = 2**20
_MOST_NODES = 20
# Of the choice of machines for a number of devices alone, which is small.
_MOST_RENTING_NODES = 10_000
_SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMode:
    """One way to run a model: a kind of device, a batch, its time, and what the model holds there."""

    device: str
    batch: int
    time_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDemand:
    """The traffic of a model, and how it can run.

    ``rate_per_s`` is above 0. ``limit_s`` has the waiting in it and holds for the ``percentile``, 0 for the
    mean.
    """

    rate_per_s: float
    modes: tuple[ServiceMode, ...]
    limit_s: float | None = None
    percentile: float = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKind:
    """A machine that can be rented: so many ``devices`` of a kind, each with a memory of its own.

    ``memory_bytes`` is what models may hold of each; None where it is not known, and then all fit.
    """

    device: str
    usd_per_hour: float
    devices: int = 1
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """A model on a device.

    Attributes:
        demand, mode: Whose, and in which of its modes, by index.
        rate_per_s: Requests a second that it gets here.
        share: Share of time in which it keeps the device busy.
        latency_s: The limit's percentile or mean with all that share the device; None where it has no limit.
    """

    demand: int
    mode: int
    rate_per_s: float
    share: float
    latency_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedMachine:
    """``count`` machines of a kind (an index), each with these models on each of its devices."""

    kind: int
    count: int
    devices: tuple[tuple[SharedRun, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A packing of demands on machines.

    Attributes:
        usd_per_hour: Of all machines.
        least_usd_per_hour: No packing costs less (the module says what one is).
        apart_usd_per_hour: With machines of its own for each model.
        left_out: Demands that no machine serves within their limits: their index and why.
    """

    machines: tuple[PackedMachine, ...] = ()
    usd_per_hour: float = 0.0
    least_usd_per_hour: float = 0.0
    apart_usd_per_hour: float = 0.0
    left_out: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit(RunStream):
    """A part of a demand in one of its modes, as the stream of its runs.

    Attributes:
        size: Of the demand: 1, or 1 / n where it is divided into n equal parts.
        rate_per_s: Requests a second of this part.
        delay_s: How long its oldest request waits for the batch to fill, at most.
        wait_s: Longest wait for the device that the limit allows; infinite where it has no limit.
        tail: With which probability it may be longer; None where the mean is limited.
    """

    demand: int
    mode: int
    size: Fraction
    rate_per_s: float
    memory: int
    delay_s: float
    wait_s: float
    tail: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Devices that are alike, the machines that have them (by index), and what one device carries."""

    device: str
    memory: float
    kinds: tuple[int, ...]
    units: tuple[_Unit, ...]


# A group's position, and what shares one of its devices; on how many devices.
_DevicePattern = tuple[int, tuple[_Unit, ...]]
_Placed = tuple[int, tuple[_Unit, ...], int]


def pack(demands: Sequence[ServiceDemand], kinds: Sequence[MachineKind]) -> Packing:
    """Return machines of few dollars that carry all demands, and what no packing falls below."""
    groups = _groups(demands, kinds)
    apart = _apart(groups, kinds)
    left_out = {index: _why_not(one, groups) for index, one in enumerate(demands) if index not in apart}
    if not apart:
        return Packing(left_out=left_out)
    apart_usd = math.fsum(usd for usd, _ in apart.values())
    own = [placed for _, placed in apart.values()]
    listed = _listed(groups)
    patterns = listed or _worthwhile(groups, kinds, [(at, units) for at, units, _ in own], sorted(apart))
    program = _program(patterns, groups, kinds, sorted(apart))
    counts, bound = _least(*program, whole=len(program[0]))
    used = zip(patterns, np.rint(counts).astype(int), strict=False)
    placed = [(*pattern, int(count)) for pattern, count in used if count > 0]
    # With all patterns in the program its own bound is one of all packings.
    least = bound if listed else _pooled_bound(groups, kinds, sorted(apart))
    options = [_without_surplus(one, demands) for one in (placed, own) if one]
    best = min(options, key=lambda one: _rented(groups, kinds, one)[0])
    return _packing(groups, kinds, best, least=least, apart=apart_usd, left_out=left_out)


def alone(demand: ServiceDemand, kinds: Sequence[MachineKind]) -> Packing:
    """Return the fewest dollars of machines of its own for one demand, all with one kind of device."""
    groups = _groups([demand], kinds)
    apart = _apart(groups, kinds)
    if not apart:
        return Packing(left_out={0: _why_not(demand, groups)})
    return _packing(groups, kinds, [apart[0][1]], least=apart[0][0], apart=apart[0][0], left_out={})


# What a device carries


def _groups(demands: Sequence[ServiceDemand], kinds: Sequence[MachineKind]) -> list[_Group]:
    alike: dict[tuple[str, float], list[int]] = {}
    for index, kind in enumerate(kinds):
        memory = math.inf if kind.memory_bytes is None else float(kind.memory_bytes)
        alike.setdefault((kind.device, memory), []).append(index)
    return [
        _Group(
            device=device,
            memory=memory,
            kinds=tuple(indices),
            units=tuple(
                unit for index, one in enumerate(demands) for unit in _units(one, index, device, memory)
            ),
        )
        for (device, memory), indices in alike.items()
    ]


def _units(demand: ServiceDemand, index: int, device: str, memory: float) -> Iterator[_Unit]:
    """Yield parts of a demand that one device carries alone."""
    fewest, least_share = math.inf, math.inf
    modes = [(number, mode) for number, mode in enumerate(demand.modes) if mode.device == device]
    for number, _ in sorted(modes, key=lambda item: item[1].batch):

        def carries(parts: int, number: int = number) -> bool:
            return _keeps((_unit(demand, index, number, Fraction(1, parts)),), memory)

        # More parts are fewer requests for each, and fewer runs: what is carried stays so.
        parts = 1 if carries(1) else 2 + bisect_left(range(2, _MOST_PARTS + 1), True, key=carries)
        if parts > _MOST_PARTS:
            continue
        unit = _unit(demand, index, number, Fraction(1, parts))
        # A larger batch is worth its waiting where it needs fewer devices, or less of them.
        if (parts, unit.share) < (fewest, least_share):
            fewest, least_share = parts, unit.share
            yield unit
            if parts > 1:
                yield _unit(demand, index, number, Fraction(1, parts + 1))


def _unit(demand: ServiceDemand, index: int, number: int, size: Fraction) -> _Unit:
    mode = demand.modes[number]
    # At the smallest batch of a device, whose time a run never exceeds, requests run one by one.
    smallest = min(one.batch for one in demand.modes if one.device == mode.device)
    batch = 1 if mode.batch == smallest else mode.batch
    delay_s: float | None = None
    longest_s, tail = math.inf, None
    if demand.limit_s is not None:
        room_s = demand.limit_s - mode.time_s
        delay_s = max(0.0, room_s) / 2 if batch > 1 else 0.0
        longest_s = room_s - delay_s
        tail = 1 - demand.percentile / 100 if demand.percentile > 0 else None
    rate = demand.rate_per_s * size.numerator / size.denominator
    return _Unit(
        demand=index,
        mode=number,
        size=size,
        rate_per_s=rate,
        runs_per_s=runs_per_s(rate, batch, delay_s),
        time_s=mode.time_s,
        memory=mode.memory_bytes,
        delay_s=delay_s or 0.0,
        wait_s=longest_s,
        tail=tail,
    )


def _keeps(units: Sequence[_Unit], memory: float) -> bool:
    """Return whether one device carries all of these; fewer of them, or fewer requests, are carried as well."""
    if sum(unit.memory for unit in units) > memory or load_of(units) > MOST_BUSY + _SLACK:
        return False
    strictest: dict[float | None, float] = {}
    for unit in units:
        strictest[unit.tail] = min(unit.wait_s, strictest.get(unit.tail, math.inf))
    return all(
        longest_s == math.inf or waits_at_most(units, tail, longest_s) for tail, longest_s in strictest.items()
    )


def _why_not(demand: ServiceDemand, groups: Sequence[_Group]) -> str:
    able = [(mode, group) for mode in demand.modes for group in groups if group.device == mode.device]
    if not able:
        return "no machine that it runs on can be rented"
    with_room = [mode for mode, group in able if mode.memory_bytes <= group.memory]
    if not with_room:
        return "no machine has room for it"
    if demand.limit_s is not None and min(mode.time_s for mode in with_room) > demand.limit_s:
        return "on every machine a single run takes longer than its limit"
    return "its rate needs more machines than are counted"


# Patterns, and a choice among them


def _listed(groups: Sequence[_Group]) -> list[_DevicePattern] | None:
    """Return every pattern that no further unit fits into; None where there are too many."""
    patterns: list[_DevicePattern] = []
    for position, group in enumerate(groups):
        open_sets: list[tuple[_Unit, ...]] = [()]
        for unit in group.units:
            for chosen in tuple(open_sets):
                if all(one.demand != unit.demand for one in chosen) and _keeps((*chosen, unit), group.memory):
                    open_sets.append((*chosen, unit))
            if len(patterns) + len(open_sets) > _MOST_LISTED:
                return None
        # A part of a pattern needs no column of its own: what is carried twice is dropped from one afterwards.
        inner = {chosen[:skip] + chosen[skip + 1 :] for chosen in open_sets for skip in range(len(chosen))}
        patterns += [(position, chosen) for chosen in open_sets if chosen and chosen not in inner]
    return patterns


def _worthwhile(
    groups: Sequence[_Group],
    kinds: Sequence[MachineKind],
    own: Sequence[_DevicePattern],
    carried: Sequence[int],
) -> list[_DevicePattern]:
    """Return patterns that a linear program over all of them would buy at its prices, round by round.

    (Gilmore and Gomory's way to a program of very many columns.)
    """
    from scipy.optimize import linprog

    patterns = list(own)
    for _ in range(_MOST_ROUNDS):
        costs, matrix, low = _program(patterns, groups, kinds, carried)
        prices = -linprog(costs, A_ub=-matrix, b_ub=-low, method="highs").ineqlin.marginals
        # Dollars by the whole demand, whatever its finest part.
        worth = dict(zip(carried, prices * low, strict=False))
        # A group of which nothing is used has no price of its own yet: its cheapest device's.
        usd = [
            max(0.0, float(price))
            or min(kinds[kind].usd_per_hour / kinds[kind].devices for kind in group.kinds)
            for price, group in zip(prices[len(carried) :], groups, strict=True)
        ]
        bought = [
            (position, units)
            for position, group in enumerate(groups)
            for units in _filled(group, worth)
            if math.fsum(worth[unit.demand] * unit.size for unit in units) > usd[position] * (1 + _SLACK)
        ]
        new = set(bought).difference(patterns)
        if not new:
            break
        patterns += [pattern for pattern in dict.fromkeys(bought) if pattern in new]
    return patterns


def _filled(group: _Group, worth: Mapping[int, float]) -> Iterator[tuple[_Unit, ...]]:
    """Yield what a device carries, filled greedily by worth for what a unit takes of the device.

    A strict unit makes every other one take more: so each of some strictest waits has a pattern.
    """
    able = [unit for unit in group.units if worth[unit.demand] > _SLACK]
    waits = sorted(unit.wait_s for unit in able)
    levels = {waits[index * (len(waits) - 1) // _STRICTNESSES] for index in range(_STRICTNESSES + 1) if waits}
    for longest_s in sorted(levels):
        strict = [unit for unit in able if unit.wait_s >= longest_s]
        tail = min((unit.tail for unit in strict if unit.tail is not None), default=1.0)
        mean_s = min((unit.wait_s for unit in strict if unit.tail is None), default=math.inf)
        exponent = -math.log(tail) / longest_s if longest_s > 0 else 0.0

        def value(unit: _Unit, exponent: float = exponent, mean_s: float = mean_s) -> float:
            # Of 1, which is all that there is: the largest of three conditions that are linear in the load.
            power = min(exponent * unit.time_s, 50.0)
            growth = math.expm1(power) / power if power > 0 else 1.0
            slow = 1 + unit.time_s / (2 * mean_s) if mean_s > 0 else math.inf
            takes = unit.share * max(1 / MOST_BUSY, growth, slow) + unit.memory / max(group.memory, 1.0)
            return worth[unit.demand] * float(unit.size) / (takes + _SLACK)

        chosen: dict[int, _Unit] = {}
        refusals = 0
        for unit in sorted(strict, key=value, reverse=True):
            if unit.demand in chosen or refusals == _MOST_REFUSALS:
                continue
            if _keeps((*chosen.values(), unit), group.memory):
                chosen[unit.demand] = unit
            else:
                refusals += 1
        yield tuple(unit for _, unit in sorted(chosen.items()))


def _program(
    patterns: Sequence[_DevicePattern],
    groups: Sequence[_Group],
    kinds: Sequence[MachineKind],
    carried: Sequence[int],
) -> tuple[Floats, Floats, Floats]:
    """Return costs, rows and right sides of: carry every demand, on devices of machines that are rented.

    Variables are the uses of each pattern and the machines of each kind; rows hold from below.
    """
    row_of = {demand: row for row, demand in enumerate(carried)}
    matrix = np.zeros((len(carried) + len(groups), len(patterns) + len(kinds)))
    low = np.zeros(len(matrix))
    for column, (position, units) in enumerate(patterns):
        matrix[len(carried) + position, column] = -1.0
        for unit in units:
            matrix[row_of[unit.demand], column] = float(unit.size)
            # In parts of the finest kind: of a model on a thousand machines each one counts.
            low[row_of[unit.demand]] = max(low[row_of[unit.demand]], unit.size.denominator)
    matrix[: len(carried)] *= low[: len(carried), None]
    matrix[len(carried) :, len(patterns) :] = _devices(groups, kinds)
    return np.array([0.0] * len(patterns) + [kind.usd_per_hour for kind in kinds]), matrix, low


def _devices(groups: Sequence[_Group], kinds: Sequence[MachineKind]) -> Floats:
    """Return the devices of each group (rows) that a machine of each kind (columns) has."""
    return np.array(
        [[float(kind.devices * (index in group.kinds)) for index, kind in enumerate(kinds)] for group in groups]
    )


def _least(
    costs: Floats, matrix: Any, low: Floats, *, whole: int, nodes: int = _MOST_NODES
) -> tuple[Floats, float]:
    """Return the cheapest variables, the last ``whole`` of them whole numbers, and what none costs less than.

    Without variables where so many nodes of the solver's tree end before any is found.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    solved = milp(
        costs,
        constraints=LinearConstraint(matrix, lb=low - _SLACK),
        integrality=np.array([0] * (len(costs) - whole) + [1] * whole),
        bounds=Bounds(0, np.inf),
        options={"node_limit": nodes, "mip_rel_gap": 1e-6},
    )
    # The solver satisfies rows to some 1e-6, by which a bound may be too high.
    least = max(0.0, float(solved.mip_dual_bound or 0.0)) * (1 - 1e-6)
    return np.zeros(0) if solved.x is None else solved.x, least


def _without_surplus(chosen: Iterable[_Placed], demands: Sequence[ServiceDemand]) -> list[_Placed]:
    """Return the same patterns with every demand carried once.

    What is carried again is dropped, the last part made smaller. Each pattern carries fewer units or requests
    than before, and so still satisfies all limits.
    """
    left = [Fraction(1)] * len(demands)
    result: list[_Placed] = []
    # Those with few units last: what is dropped of them may leave a device with nothing to do.
    for position, units, count in sorted(chosen, key=lambda item: (-len(item[1]), item[0], -item[2])):
        while count > 0:
            sizes = {unit.demand: min(unit.size, left[unit.demand]) for unit in units if left[unit.demand] > 0}
            if not sizes:
                break
            alike = min(count, *(max(1, int(left[demand] // size)) for demand, size in sizes.items()))
            fitting = tuple(
                _unit(demands[unit.demand], unit.demand, unit.mode, sizes[unit.demand])
                for unit in units
                if unit.demand in sizes
            )
            for demand, size in sizes.items():
                left[demand] -= alike * size
            result.append((position, fitting, alike))
            count -= alike
    return result


# Machines


def _apart(groups: Sequence[_Group], kinds: Sequence[MachineKind]) -> dict[int, tuple[float, _Placed]]:
    """Return machines of its own for each demand: the cheapest way on devices of one kind, with its dollars."""
    best: dict[int, tuple[float, _Placed]] = {}
    for position, group in enumerate(groups):
        usd = {
            parts: _rented(groups, kinds, [(position, (), parts)])[0]
            for parts in {unit.size.denominator for unit in group.units}
        }
        for unit in group.units:
            parts = unit.size.denominator
            if unit.demand not in best or usd[parts] < best[unit.demand][0]:
                best[unit.demand] = (usd[parts], (position, (unit,), parts))
    return dict(sorted(best.items()))


def _rented(
    groups: Sequence[_Group], kinds: Sequence[MachineKind], placed: Iterable[_Placed]
) -> tuple[float, dict[int, int]]:
    """Return the fewest dollars an hour for so many devices, and the machines of each kind."""
    devices: Counter[int] = Counter()
    for position, _, count in placed:
        devices[position] += count
    counts: dict[int, int] = {}
    for position, needed in sorted(devices.items()):
        able = groups[position].kinds
        costs = np.array([kinds[kind].usd_per_hour for kind in able])
        devices_of = np.array([[kinds[kind].devices for kind in able]])
        result, _ = _least(
            costs, devices_of, np.array([float(needed)]), whole=len(able), nodes=_MOST_RENTING_NODES
        )
        counts |= {kind: round(count) for kind, count in zip(able, result, strict=True) if round(count)}
    return math.fsum(kinds[kind].usd_per_hour * count for kind, count in counts.items()), counts


def _packing(
    groups: Sequence[_Group],
    kinds: Sequence[MachineKind],
    placed: Sequence[_Placed],
    *,
    least: float,
    apart: float,
    left_out: Mapping[int, str],
) -> Packing:
    """Return the rented machines filled one after the other, like ones as one, and their dollars."""
    usd, counts = _rented(groups, kinds, placed)
    machines = []

    def run(unit: _Unit, units: Sequence[_Unit]) -> SharedRun:
        latency_s = None
        if unit.wait_s < math.inf:
            waits_s = min(unit.wait_s, wait_s(units, unit.tail, longest_s=unit.wait_s))
            latency_s = unit.delay_s + waits_s + unit.time_s
        return seen_as(SharedRun, unit, latency_s=latency_s)

    runs = [tuple(run(unit, units) for unit in units) for _, units, _ in placed]
    for position, group in enumerate(groups):
        waiting = chain.from_iterable(
            repeat(number, count) for number, (at, _, count) in enumerate(placed) if at == position
        )
        for kind in group.kinds:
            # The last machine may have a device with nothing to do.
            filled = Counter(tuple(islice(waiting, kinds[kind].devices)) for _ in range(counts.get(kind, 0)))
            for numbers, count in filled.items():
                devices = tuple(runs[number] for number in numbers)
                machines.append(PackedMachine(kind=kind, count=count, devices=devices))
    return Packing(
        machines=tuple(machines),
        usd_per_hour=usd,
        # Rounding of a sum must not lift the bound above a packing.
        least_usd_per_hour=min(least, usd),
        apart_usd_per_hour=max(apart, usd),
        left_out=left_out,
    )


# From below


def _pooled_bound(groups: Sequence[_Group], kinds: Sequence[MachineKind], carried: Sequence[int]) -> float:
    """Return dollars an hour that no packing falls below, where not all patterns are listed.

    A program that every packing satisfies: devices of a group are taken together as one with all their time and
    all their memory, and machines are whole. Let f be the share of a demand that a group carries. Then

    * the shares of a demand add up to 1;
    * its parts on the group are at most 1 / n of it each, n being the fewest that one device carries. Of a
      larger part more requests share a run, so that f of it keeps devices busy for at least f times what n
      parts do; the sum is at most ``MOST_BUSY`` of the devices;
    * these parts are at least f * n, each holds its memory, and each is on a device of its own.

    (Of several modes each of these takes the least.) The cheapest way to satisfy that costs no more than the
    cheapest packing; the solver's own bound on it, wherever its counted steps end, no more than that way.
    """
    from scipy.sparse import block_array, csr_array, diags_array

    row_of = {demand: row for row, demand in enumerate(carried)}
    least: dict[tuple[int, int], Floats] = {}
    for position, group in enumerate(groups):
        for unit in group.units:
            parts = unit.size.denominator
            needs = parts * np.array([unit.share, unit.memory / max(group.memory, 1.0), 1.0])
            least[unit.demand, position] = np.minimum(needs, least.get((unit.demand, position), math.inf))
    busy, held, parts_of = np.array(list(least.values())).T
    at = [position for _, position in least]
    ones, columns = np.ones(len(least)), range(len(least))
    within = csr_array((ones, (at, columns)), shape=(len(groups), len(least)))
    whole = csr_array((ones, ([row_of[demand] for demand, _ in least], columns)))
    devices = _devices(groups, kinds)
    matrix: Any = block_array(
        [
            [whole, None],
            [-within @ diags_array(busy), csr_array(MOST_BUSY * devices)],
            [-within @ diags_array(held), csr_array(devices)],
            [-diags_array(parts_of), csr_array(devices[at])],
        ]  # type: ignore[arg-type]  # the stubs know no mixture of kinds of arrays
    )
    costs = np.concatenate((np.zeros(len(least)), [kind.usd_per_hour for kind in kinds]))
    low = np.array([1.0] * len(carried) + [0.0] * (matrix.shape[0] - len(carried)))
    return _least(costs, matrix, low, whole=len(kinds))[1] * (1 - 1e-5)
