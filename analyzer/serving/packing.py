"""Many models on as few dollars of rented machines as can be, each within its limit of latency.

What a packing is, and so what the bound is about:

* Each device of a machine (each of its GPUs, or a CPU) does one run at a time, in the order in which runs are
  asked for. Requests are Poisson; what waits for what stands in ``shared_server``.
* A model runs in batches of one size: every request by itself at its smallest batch, or requests wait for a
  larger batch to fill, at most for half of what its limit leaves beside the run (without a limit until it is
  full).
* What the models of a device hold lies in its memory at once, all of them keep their limits with all the
  others' requests, and the device is busy at most ``MOST_BUSY`` of the time.
* A model that one device carries stays whole; another is divided into equal parts, the fewest or one more.

Two ends are computed. From above, patterns (what one device carries) are collected, all of them where there are
few, else those that the prices of a linear program ask for (Gilmore and Gomory), and an integer program chooses
among them. From below, see ``_pooled_bound``. Work is limited by counts, never by the clock: the same
question has the same answer on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from analyzer.arrays import Floats
from analyzer.serving.shared_server import (
    RunStream,
    load_of,
    mean_wait_s,
    runs_per_s,
    wait_percentile_s,
    waits_at_most,
)

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
# Columns that the integer program chooses among, those with the least loss at the linear program's prices.
_MOST_COLUMNS = 800
_MOST_NODES = 20
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
    """What a model is asked for, and how it can run.

    Attributes:
        rate_per_s: Requests a second, above 0.
        modes: Ways to run it.
        limit_s: Longest latency, waiting included; None for none.
        percentile: Of which the limit holds, below 100; 0 for the mean.
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
    """Who shares what.

    Attributes:
        usd_per_hour: Of all machines.
        least_usd_per_hour: No packing costs less (``packing`` says what one is).
        apart_usd_per_hour: With machines of its own for each model.
        left_out: Demands that no machine keeps within their limits: their index and why.
    """

    machines: tuple[PackedMachine, ...]
    usd_per_hour: float
    least_usd_per_hour: float
    apart_usd_per_hour: float
    left_out: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """One of ``parts`` equal parts of a demand in one of its modes.

    Attributes:
        rate_per_s: Requests a second of this part, ``stream`` its runs.
        delay_s: How long its oldest request waits for the batch to fill, at most.
        wait_s: Longest wait for the device that the limit allows; None where it has no limit.
        tail: With which probability it may be longer; None where the mean is limited.
    """

    demand: int
    mode: int
    parts: int
    rate_per_s: float
    stream: RunStream
    memory: int
    delay_s: float
    wait_s: float | None
    tail: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Devices that are alike, whatever machine has them, with the machines' indices."""

    device: str
    memory: float
    kinds: tuple[int, ...]
    devices: Mapping[int, int]
    units: tuple[_Unit, ...] = ()


_DevicePattern = tuple[int, tuple[_Unit, ...]]  # a group's position, and what shares one of its devices


def pack(demands: Sequence[ServiceDemand], kinds: Sequence[MachineKind]) -> Packing:
    """Machines of few dollars that carry all demands, and what no packing falls below."""
    groups = [replace(group, units=tuple(_units(demands, group))) for group in _groups(kinds)]
    carried = {unit.demand for group in groups for unit in group.units}
    left_out = {index: _why_not(one, groups) for index, one in enumerate(demands) if index not in carried}
    if not carried:
        return Packing(
            machines=(), usd_per_hour=0.0, least_usd_per_hour=0.0, apart_usd_per_hour=0.0, left_out=left_out
        )
    apart = _apart(groups, kinds)
    apart_usd = math.fsum(_rented(groups, kinds, chosen)[0] for chosen in apart.values())
    least = _pooled_bound(groups, kinds, carried)
    listed = _listed(groups)
    columns = listed if listed is not None else _asked_for(groups, kinds, apart, carried)
    chosen, bound = _chosen(columns, groups, kinds, carried)
    if listed is not None:
        # Every pattern was in the program: its own bound holds for all packings.
        least = max(least, bound * (1 - 1e-6))
    merged = [item for chosen_apart in apart.values() for item in chosen_apart]
    tried = [_without_surplus(merged, demands)]
    if chosen is not None:
        tried.append(_without_surplus(chosen, demands))
    costs = [_rented(groups, kinds, one) for one in tried]
    best = min(range(len(tried)), key=lambda index: (costs[index][0], -index))
    usd, rented = costs[best]
    return Packing(
        machines=tuple(_machines(groups, tried[best], rented)),
        usd_per_hour=usd,
        # Rounding of a sum must not lift the bound above what was found.
        least_usd_per_hour=min(least, usd),
        apart_usd_per_hour=max(apart_usd, usd),
        left_out=left_out,
    )


def alone(demand: ServiceDemand, kinds: Sequence[MachineKind]) -> Packing:
    """The fewest dollars of machines of its own for one demand, all with one kind of device."""
    groups = [replace(group, units=tuple(_units([demand], group))) for group in _groups(kinds)]
    chosen = _apart(groups, kinds).get(0)
    if chosen is None:
        return Packing(
            machines=(),
            usd_per_hour=0.0,
            least_usd_per_hour=0.0,
            apart_usd_per_hour=0.0,
            left_out={0: _why_not(demand, groups)},
        )
    usd, rented = _rented(groups, kinds, chosen)
    machines = tuple(_machines(groups, chosen, rented))
    return Packing(machines=machines, usd_per_hour=usd, least_usd_per_hour=usd, apart_usd_per_hour=usd)


# What a device carries


def _groups(kinds: Sequence[MachineKind]) -> list[_Group]:
    by_key: dict[tuple[str, float], list[int]] = {}
    for index, kind in enumerate(kinds):
        memory = math.inf if kind.memory_bytes is None else float(kind.memory_bytes)
        by_key.setdefault((kind.device, memory), []).append(index)
    return [
        _Group(
            device=device,
            memory=memory,
            kinds=tuple(found),
            devices={kind: kinds[kind].devices for kind in found},
        )
        for (device, memory), found in by_key.items()
    ]


def _units(demands: Sequence[ServiceDemand], group: _Group) -> Iterator[_Unit]:
    """Parts of each demand that one device of the group carries alone."""
    for index, demand in enumerate(demands):
        fewest, least_share = math.inf, math.inf
        modes = [(number, mode) for number, mode in enumerate(demand.modes) if mode.device == group.device]
        for number, _ in sorted(modes, key=lambda item: item[1].batch):
            parts = _fewest_parts(demand, index, number, group)
            if parts is None:
                continue
            unit = _unit(demand, index, number, parts)
            # A larger batch is worth its waiting where it needs fewer devices, or less of them.
            if parts < fewest or (parts == fewest and unit.stream.share < least_share):
                fewest, least_share = parts, unit.stream.share
                yield unit
                if parts > 1:
                    yield _unit(demand, index, number, parts + 1)


def _unit(demand: ServiceDemand, index: int, number: int, parts: int, rate_per_s: float | None = None) -> _Unit:
    mode = demand.modes[number]
    delay_s: float | None = None
    wait_s, tail = None, None
    if demand.limit_s is not None:
        room_s = demand.limit_s - mode.time_s
        delay_s = max(0.0, room_s) / 2 if mode.batch > 1 and not _is_single(demand, mode) else 0.0
        wait_s = room_s - delay_s
        tail = 1 - demand.percentile / 100 if demand.percentile > 0 else None
    rate = demand.rate_per_s / parts if rate_per_s is None else rate_per_s
    batch = 1 if _is_single(demand, mode) else mode.batch
    return _Unit(
        demand=index,
        mode=number,
        parts=parts,
        rate_per_s=rate,
        stream=RunStream(runs_per_s=runs_per_s(rate, batch, delay_s), time_s=mode.time_s),
        memory=mode.memory_bytes,
        delay_s=delay_s or 0.0,
        wait_s=wait_s,
        tail=tail,
    )


def _is_single(demand: ServiceDemand, mode: ServiceMode) -> bool:
    """Whether requests run one by one: at the smallest batch of a device, whose time a run never exceeds."""
    return mode.batch == min(one.batch for one in demand.modes if one.device == mode.device)


def _fewest_parts(demand: ServiceDemand, index: int, number: int, group: _Group) -> int | None:
    """The fewest equal parts of which a device carries one; None where it carries no part however small."""

    def carries(parts: int) -> bool:
        return _keeps((_unit(demand, index, number, parts),), group.memory)

    # More parts are fewer requests for each, and fewer runs: what is carried stays so.
    high = 1
    while not carries(high):
        high *= 2
        if high > _MOST_PARTS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if carries(middle) else (middle, high)
    return high


def _keeps(units: Sequence[_Unit], memory: float) -> bool:
    """Whether one device carries all of these; fewer of them, or fewer requests, are carried as well."""
    streams = [unit.stream for unit in units]
    if sum(unit.memory for unit in units) > memory or load_of(streams) > MOST_BUSY + _SLACK:
        return False
    limited = [(unit.wait_s, unit.tail) for unit in units if unit.wait_s is not None]
    means = [wait_s for wait_s, tail in limited if tail is None]
    if means and mean_wait_s(streams) > min(means):
        return False
    strictest: list[tuple[float, float]] = []
    for wait_s, tail in sorted((wait_s, tail) for wait_s, tail in limited if tail is not None):
        # A longer wait that may be exceeded as often is kept where the shorter one is.
        if not strictest or tail < strictest[-1][1]:
            strictest.append((wait_s, tail))
    return all(waits_at_most(streams, wait_s, tail) for wait_s, tail in strictest)


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


# From above: patterns, and a choice among them


def _apart(
    groups: Sequence[_Group], kinds: Sequence[MachineKind]
) -> dict[int, list[tuple[_DevicePattern, int]]]:
    """Machines of its own for each demand: the cheapest way on devices of one kind."""
    best: dict[int, tuple[float, list[tuple[_DevicePattern, int]]]] = {}
    for position, group in enumerate(groups):
        for unit in group.units:
            chosen: list[tuple[_DevicePattern, int]] = [((position, (unit,)), unit.parts)]
            usd = _cheapest_machines(group, kinds, unit.parts)[0]
            if unit.demand not in best or usd < best[unit.demand][0]:
                best[unit.demand] = (usd, chosen)
    return {demand: chosen for demand, (_, chosen) in sorted(best.items())}


def _listed(groups: Sequence[_Group]) -> list[_DevicePattern] | None:
    """Every pattern that no further unit fits into; None where there are too many."""
    found: list[_DevicePattern] = []
    for position, group in enumerate(groups):
        by_demand: dict[int, list[_Unit]] = {}
        for unit in group.units:
            by_demand.setdefault(unit.demand, []).append(unit)
        open_sets: list[tuple[_Unit, ...]] = [()]
        for units in by_demand.values():
            for chosen in tuple(open_sets):
                open_sets += [(*chosen, unit) for unit in units if _keeps((*chosen, unit), group.memory)]
            if len(found) + len(open_sets) > _MOST_LISTED:
                return None
        # A part of a pattern needs no column of its own: what is carried twice is dropped from one afterwards.
        inner = {chosen[:skip] + chosen[skip + 1 :] for chosen in open_sets for skip in range(len(chosen))}
        found += [(position, chosen) for chosen in open_sets if chosen and chosen not in inner]
    return found


def _asked_for(
    groups: Sequence[_Group],
    kinds: Sequence[MachineKind],
    apart: Mapping[int, list[tuple[_DevicePattern, int]]],
    carried: Iterable[int],
) -> list[_DevicePattern]:
    """Patterns that a linear program over all others would buy at its prices, round by round."""
    columns = [pattern for chosen in apart.values() for pattern, _ in chosen]
    seen = set(columns)
    for _ in range(_MOST_ROUNDS):
        worth, device_usd = _prices(columns, groups, kinds, carried)
        new = [
            pattern
            for position, group in enumerate(groups)
            for pattern in _filled(position, group, worth, device_usd[position])
            if pattern not in seen
        ]
        new = list(dict.fromkeys(new))
        if not new:
            break
        columns += new
        seen.update(new)
    worth, device_usd = _prices(columns, groups, kinds, carried)

    def loss(pattern: _DevicePattern) -> float:
        gained = math.fsum(worth[unit.demand] / unit.parts for unit in pattern[1])
        return (device_usd[pattern[0]] - gained) / device_usd[pattern[0]] if device_usd[pattern[0]] else 0.0

    own = [pattern for chosen in apart.values() for pattern, _ in chosen]
    return list(dict.fromkeys([*own, *sorted(columns, key=loss)[:_MOST_COLUMNS]]))


def _filled(position: int, group: _Group, worth: Floats, device_usd: float) -> Iterator[_DevicePattern]:
    """Patterns of more worth than a device costs, filled greedily by worth for what a unit takes of the device.

    A strict unit makes every other one take more: so each of some strictest waits has a pattern.
    """
    able = [unit for unit in group.units if worth[unit.demand] > _SLACK]
    if not able:
        return
    waits = [math.inf if unit.wait_s is None else unit.wait_s for unit in able]
    levels = sorted({round(index * (len(able) - 1) / _STRICTNESSES) for index in range(_STRICTNESSES + 1)})
    ordered = sorted(waits)
    for wait_s in sorted({ordered[level] for level in levels}):
        chosen, rest = _filled_at(
            wait_s,
            [unit for unit, wait in zip(able, waits, strict=True) if wait >= wait_s],
            group.memory,
            worth,
        )
        refusals = 0
        for unit in rest:
            if _keeps((*chosen, unit), group.memory):
                chosen = (*chosen, unit)
            else:
                refusals += 1
                if refusals >= _MOST_REFUSALS:
                    break
        if math.fsum(worth[unit.demand] / unit.parts for unit in chosen) > device_usd * (1 + _SLACK):
            yield position, tuple(sorted(chosen, key=lambda unit: unit.demand))


def _filled_at(
    wait_s: float, able: Sequence[_Unit], memory: float, worth: Floats
) -> tuple[tuple[_Unit, ...], list[_Unit]]:
    """Units that keep Lundberg's inequality for this wait, and those of other demands that do not, by worth."""
    tail = min((unit.tail for unit in able if unit.tail is not None), default=1.0)
    exponent = -math.log(tail) / wait_s if 0 < wait_s < math.inf and tail < 1 else 0.0
    mean_s = min(
        (unit.wait_s for unit in able if unit.tail is None and unit.wait_s is not None), default=math.inf
    )

    def takes(unit: _Unit) -> float:
        """Of 1, which is all that there is: the largest of three conditions that are linear in the load."""
        power = min(exponent * unit.stream.time_s, 50.0)
        growth = math.expm1(power) / power if power > 0 else 1.0
        slow = 1 + unit.stream.time_s / (2 * mean_s) if mean_s > 0 else math.inf
        return unit.stream.share * max(1 / MOST_BUSY, growth, slow) + 1e-9

    sizes = [(takes(unit), unit.memory / memory if memory < math.inf else 0.0, unit) for unit in able]
    sizes.sort(key=lambda one: -float(worth[one[2].demand]) / one[2].parts / (one[0] + one[1]))
    busy, held, chosen, rest = 0.0, 0.0, [], []
    taken: set[int] = set()
    for takes_busy, takes_memory, unit in sizes:
        if unit.demand in taken:
            continue
        if busy + takes_busy <= 1 and held + takes_memory <= 1:
            busy, held = busy + takes_busy, held + takes_memory
            chosen.append(unit)
            taken.add(unit.demand)
        else:
            rest.append(unit)
    once: dict[int, _Unit] = {}
    for unit in rest:
        if unit.demand not in taken:
            once.setdefault(unit.demand, unit)
    return tuple(chosen), list(once.values())


def _program(
    columns: Sequence[_DevicePattern],
    groups: Sequence[_Group],
    kinds: Sequence[MachineKind],
    carried: Iterable[int],
) -> tuple[Floats, Any, Floats, list[int]]:
    """Costs, rows and right sides of: carry every demand, on devices of machines that are rented.

    Variables are how often each pattern is used and how many machines of each kind are rented; rows hold from
    below.
    """
    from scipy.sparse import csr_matrix

    order = sorted(carried)
    row_of = {demand: row for row, demand in enumerate(order)}
    # In parts of the finest kind: of a model on a thousand machines each one counts.
    finest = dict.fromkeys(order, 1)
    for _, units in columns:
        for unit in units:
            finest[unit.demand] = max(finest[unit.demand], unit.parts)
    rows, at, values = [], [], []
    for column, (position, units) in enumerate(columns):
        rows += [row_of[unit.demand] for unit in units] + [len(order) + position]
        at += [column] * (len(units) + 1)
        values += [finest[unit.demand] / unit.parts for unit in units] + [-1.0]
    for position, group in enumerate(groups):
        for kind in group.kinds:
            rows.append(len(order) + position)
            at.append(len(columns) + kind)
            values.append(float(kinds[kind].devices))
    matrix = csr_matrix(
        (values, (rows, at)), shape=(len(order) + len(groups), len(columns) + len(kinds)), dtype=np.float64
    )
    costs = np.concatenate((np.zeros(len(columns)), [kind.usd_per_hour for kind in kinds]))
    right = np.array([float(finest[demand]) for demand in order] + [0.0] * len(groups))
    return costs, matrix, right, order


def _prices(
    columns: Sequence[_DevicePattern],
    groups: Sequence[_Group],
    kinds: Sequence[MachineKind],
    carried: Iterable[int],
) -> tuple[Floats, list[float]]:
    """What carrying each demand is worth, and what a device of each group costs, in the linear program."""
    from scipy.optimize import linprog

    costs, matrix, right, order = _program(columns, groups, kinds, carried)
    solved = linprog(costs, A_ub=-matrix, b_ub=-right, method="highs")
    marginals = -np.asarray(solved.ineqlin.marginals)
    worth = np.zeros(max(order) + 1)
    # By the whole demand, whatever its finest part.
    worth[order] = marginals[: len(order)] * right[: len(order)]
    # A group of which nothing is used has no price of its own yet: its cheapest device's.
    cheapest = [min(kinds[kind].usd_per_hour / kinds[kind].devices for kind in one.kinds) for one in groups]
    return worth, [
        max(0.0, float(marginals[len(order) + position])) or cheapest[position]
        for position in range(len(groups))
    ]


def _chosen(
    columns: Sequence[_DevicePattern],
    groups: Sequence[_Group],
    kinds: Sequence[MachineKind],
    carried: Iterable[int],
) -> tuple[list[tuple[_DevicePattern, int]] | None, float]:
    """The best whole numbers of patterns, and what no choice among these costs less than."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    costs, matrix, right, _ = _program(columns, groups, kinds, carried)
    solved = milp(
        costs,
        constraints=LinearConstraint(matrix, lb=right - _SLACK),
        integrality=np.ones(len(costs), dtype=np.int64),
        bounds=Bounds(0, np.inf),
        options={"node_limit": _MOST_NODES, "mip_rel_gap": 1e-6},
    )
    bound = float(solved.mip_dual_bound or 0.0)
    if solved.x is None:
        return None, bound
    counts = np.rint(solved.x[: len(columns)]).astype(int)
    return [(column, int(count)) for column, count in zip(columns, counts, strict=True) if count > 0], bound


def _without_surplus(
    chosen: Iterable[tuple[_DevicePattern, int]], demands: Sequence[ServiceDemand]
) -> list[tuple[_DevicePattern, int]]:
    """The same patterns with every demand carried once.

    What is carried again is dropped, the last part made smaller. Each pattern carries fewer units or requests
    than before, and so still keeps all limits.
    """
    left = [Fraction(1)] * len(demands)
    # Those with few units last: what is dropped of them may leave a device with nothing to do.
    pending = sorted(chosen, key=lambda item: (-len(item[0][1]), item[0][0], -item[1]))
    result: list[tuple[_DevicePattern, int]] = []
    for (position, units), count in pending:
        while count > 0:
            kept: list[_Unit] = []
            alike = count
            for unit in units:
                part = Fraction(1, unit.parts)
                whole = left[unit.demand] // part
                if whole >= 1:
                    kept.append(unit)
                    alike = min(alike, int(whole))
                elif left[unit.demand] > 0:
                    rate = demands[unit.demand].rate_per_s * float(left[unit.demand])
                    smaller = _unit(demands[unit.demand], unit.demand, unit.mode, unit.parts, rate)
                    kept.append(smaller)
                    alike = 1
            for unit in kept:
                left[unit.demand] -= min(left[unit.demand], Fraction(alike, unit.parts))
            if not kept:
                break
            result.append(((position, tuple(kept)), alike))
            count -= alike
    return result


def _cheapest_machines(
    group: _Group, kinds: Sequence[MachineKind], devices: int
) -> tuple[float, dict[int, int]]:
    """Machines with so many devices of the group for the fewest dollars."""
    by_price = sorted(group.kinds, key=lambda kind: (kinds[kind].usd_per_hour / kinds[kind].devices, kind))
    most = max(kinds[kind].devices for kind in group.kinds)
    # Of very many devices all but the last few hundred are of the kind that is cheapest by the device: another
    # kind as often as that one has devices could be exchanged for it.
    first = by_price[0]
    steady = max(0, devices - 2 * most * kinds[first].devices - most) // kinds[first].devices
    rest = devices - steady * kinds[first].devices
    best: list[tuple[float, int]] = [(0.0, -1)]
    for needed in range(1, rest + 1):
        best.append(
            min(
                (best[max(0, needed - kinds[kind].devices)][0] + kinds[kind].usd_per_hour, kind)
                for kind in group.kinds
            )
        )
    counts: dict[int, int] = {first: steady} if steady else {}
    while rest > 0:
        kind = best[rest][1]
        counts[kind] = counts.get(kind, 0) + 1
        rest -= kinds[kind].devices
    return math.fsum(kinds[kind].usd_per_hour * count for kind, count in counts.items()), counts


def _rented(
    groups: Sequence[_Group], kinds: Sequence[MachineKind], chosen: Iterable[tuple[_DevicePattern, int]]
) -> tuple[float, dict[int, int]]:
    """Dollars an hour of the machines for so many devices, and how many of each kind."""
    devices: dict[int, int] = {}
    for (position, _), count in chosen:
        devices[position] = devices.get(position, 0) + count
    counts: dict[int, int] = {}
    for position, needed in sorted(devices.items()):
        counts |= _cheapest_machines(groups[position], kinds, needed)[1]
    return math.fsum(kinds[kind].usd_per_hour * count for kind, count in counts.items()), counts


def _machines(
    groups: Sequence[_Group],
    chosen: Sequence[tuple[_DevicePattern, int]],
    rented: Mapping[int, int],
) -> Iterator[PackedMachine]:
    """The rented machines filled one after the other, like ones told once."""
    for position, group in enumerate(groups):
        waiting = [(_shared(units), count) for (at, units), count in chosen if at == position]
        for kind in group.kinds:
            yield from _filled_machines(kind, group.devices[kind], rented.get(kind, 0), waiting)


def _filled_machines(
    kind: int, devices: int, count: int, waiting: list[tuple[tuple[SharedRun, ...], int]]
) -> Iterator[PackedMachine]:
    """``count`` machines of a kind, filled with what waits; what they take is removed from there."""
    while count > 0:
        alike = min(count, waiting[0][1] // devices) if waiting else 0
        taken: list[tuple[SharedRun, ...]] = []
        while waiting and len(taken) < devices:
            runs, left = waiting.pop(0)
            now = min(left, devices * max(1, alike) - len(taken))
            taken += [runs] * min(now, devices - len(taken))
            if left > now:
                waiting.insert(0, (runs, left - now))
        # The last machine may have a device with nothing to do.
        yield PackedMachine(kind=kind, count=max(1, alike), devices=tuple(taken))
        count -= max(1, alike)


def _shared(units: Sequence[_Unit]) -> tuple[SharedRun, ...]:
    streams = [unit.stream for unit in units]
    return tuple(
        SharedRun(
            demand=unit.demand,
            mode=unit.mode,
            rate_per_s=unit.rate_per_s,
            share=unit.stream.share,
            latency_s=_latency_s(unit, streams),
        )
        for unit in units
    )


def _latency_s(unit: _Unit, streams: Sequence[RunStream]) -> float | None:
    if unit.wait_s is None:
        return None
    if unit.tail is None:
        wait_s = mean_wait_s(streams)
    else:
        wait_s = wait_percentile_s(streams, unit.tail, longest_s=unit.wait_s)
    return unit.delay_s + wait_s + unit.stream.time_s


# From below


def _pooled_bound(groups: Sequence[_Group], kinds: Sequence[MachineKind], carried: Iterable[int]) -> float:
    """Dollars an hour that no packing falls below.

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
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    order = {demand: row for row, demand in enumerate(sorted(carried))}
    pairs: dict[tuple[int, int], tuple[float, float, int]] = {}
    for position, group in enumerate(groups):
        for unit in group.units:
            busy, held = unit.parts * unit.stream.share, float(unit.parts * unit.memory)
            least = pairs.get((unit.demand, position), (math.inf, math.inf, unit.parts))
            pairs[unit.demand, position] = (
                min(least[0], busy),
                min(least[1], held),
                min(least[2], unit.parts),
            )
    entries: list[tuple[int, int, float]] = []
    low = [1.0] * len(order)
    first_kind = len(pairs)
    row = len(order)
    devices = [[(first_kind + kind, float(kinds[kind].devices)) for kind in group.kinds] for group in groups]
    for position, group in enumerate(groups):
        here = [(column, pair) for column, (key, pair) in enumerate(pairs.items()) if key[1] == position]
        entries += [(row, column, -busy) for column, (busy, _, _) in here]
        entries += [(row, column, MOST_BUSY * number) for column, number in devices[position]]
        row += 1
        if group.memory < math.inf:
            entries += [(row, column, -held / max(group.memory, 1.0)) for column, (_, held, _) in here]
            entries += _entries(row, devices[position])
            row += 1
        for column, (_, _, parts) in here:
            entries.append((row, column, -float(parts)))
            entries += _entries(row, devices[position])
            row += 1
    entries += [(order[demand], column, 1.0) for column, (demand, _) in enumerate(pairs)]
    low += [0.0] * (row - len(order))
    at_row, at_column, values = zip(*entries, strict=True)
    matrix = csr_matrix((values, (at_row, at_column)), shape=(row, len(pairs) + len(kinds)))
    costs = np.concatenate((np.zeros(len(pairs)), [kind.usd_per_hour for kind in kinds]))
    solved = milp(
        costs,
        constraints=LinearConstraint(matrix, lb=np.array(low) - _SLACK),
        integrality=np.array([0] * len(pairs) + [1] * len(kinds)),
        bounds=Bounds(0, np.inf),
        options={"node_limit": _MOST_NODES, "mip_rel_gap": 1e-6},
    )
    # The solver holds rows to some 1e-6, by which a bound may be too high.
    return max(0.0, float(solved.mip_dual_bound or 0.0)) * (1 - 1e-5)


def _entries(row: int, columns: Iterable[tuple[int, float]]) -> list[tuple[int, int, float]]:
    """A row's entries for the devices that are rented."""
    return [(row, column, number) for column, number in columns]
