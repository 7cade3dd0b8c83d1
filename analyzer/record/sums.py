"""Figures of a record that follow from others of it: totals are sums, a time lies in its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from analyzer.record.analysis import Analysis
from analyzer.record.outcome import PlanResult
from analyzer.record.values import Fault

# Times are split and added up again in another order.
_ROUNDING = 1e-6
_SIDES = (("cpu", "cpu"), ("cuda", "gpu"))


def faults_of_sums(analysis: Analysis) -> Iterator[Fault]:
    """Places that contradict others: whoever reads such a record must not be told either of both."""
    totals, operators = analysis.totals, analysis.operators
    if totals.operators != len(operators):
        yield Fault(place="totals.operators", reason=f"there are {len(operators)} operators")
    for name in ("flops", "macs", "bytes_read", "bytes_written"):
        whole = sum([getattr(operator, name) or 0 for operator in operators])
        if getattr(totals, name) != whole:
            yield Fault(place=f"totals.{name}", reason=f"the operators' sum is {whole}")
    yield from _of_groups(analysis)
    yield from _of_plans("plans", analysis.plans)
    for position, other in enumerate(analysis.alternatives):
        yield from _of_plans(f"alternatives[{position}].plans", other.plans)
    for position, row in enumerate(analysis.costs):
        yield from _outside_interval(f"costs[{position}].latency_s", row.low_s, row.latency_s, row.high_s)
    for position, one in enumerate(analysis.ranking.candidates if analysis.ranking is not None else ()):
        place = f"ranking.candidates[{position}].latency_s"
        yield from _outside_interval(place, one.low_s, one.latency_s, one.high_s)


def _of_groups(analysis: Analysis) -> Iterator[Fault]:
    for position, group in enumerate(analysis.groups):
        yield from _outside_interval(f"groups[{position}].time_s", group.low_s, group.time_s, group.high_s)
    for session, side in _SIDES:
        # What stands for no operator (a constant that a session shares among several) is nobody's time.
        times = [group.time_s for group in analysis.groups if group.session == session and group.members]
        if not times or None in times:
            continue
        whole = math.fsum([time for time in times if time is not None])
        shares = [getattr(operator, side) for operator in analysis.operators]
        parts = math.fsum([share.time_s or 0.0 for share in shares if share is not None])
        if not math.isclose(whole, parts, rel_tol=_ROUNDING, abs_tol=1e-12):
            yield Fault(place="groups", reason=f"their times on {side} are not those of their operators")


def _of_plans(place: str, plans: Iterable[PlanResult]) -> Iterator[Fault]:
    for position, plan in enumerate(plans):
        yield from _outside_interval(f"{place}[{position}].latency_s", plan.low_s, plan.latency_s, plan.high_s)
        copies = plan.transfers
        if copies.items and copies.bytes != sum([item.bytes for item in copies.items]):
            yield Fault(place=f"{place}[{position}].transfers.bytes", reason="it is not the sum of its items")


def _outside_interval(
    place: str, low: float | None, value: float | None, high: float | None
) -> Iterator[Fault]:
    if value is None or low is None or high is None:
        return
    if not low * (1 - _ROUNDING) <= value <= high * (1 + _ROUNDING):
        yield Fault(place=place, reason="it lies outside its own interval")
