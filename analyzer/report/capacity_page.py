"""Reporting: what the page shows first of a capacity plan, and what its what-if computes from."""

from __future__ import annotations

from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityOption, CapacityResult, InstanceLoads
from analyzer.report import capacity_words
from analyzer.units import HOURS_PER_MONTH, SECONDS_PER_HOUR, seconds

_OWN = {
    "count": "count",
    "rate": "highest_rate_per_s",
    "batch": "max_batch",
    "delay": "max_delay_s",
    "utilisation": "utilisation",
    "month": "usd_per_month",
    "million": "usd_per_million",
}


def view(analysis: Analysis) -> dict[str, Any] | None:
    """Return the answer as the template prints it; None for a record that was not asked for instances."""
    plan = analysis.capacity
    if plan is None:
        return None
    best = plan.best_option
    missed = f"No instance keeps the {capacity_words.limits(plan)}"
    return {
        "device": best.kind if best else "either",
        "chip": f"{best.kind.upper()} instances" if best else missed,
        # The form needs the page's scripts, which a page without operators does not carry.
        "form": _form(plan) if plan.instances and analysis.operators else None,
    }


def _form(plan: CapacityResult) -> dict[str, Any]:
    """Return the first values of the what-if's fields: the question, in the units of the fields."""
    return {
        "rate": _typed(plan.rate_per_s),
        "limit": _typed(plan.limit_s * 1e3),
        "limited": capacity_words.limited_latency(plan),
        "generates": capacity_words.generates(plan),
        "further": seconds(plan.tpot_limit_s) if plan.tpot_limit_s is not None else "",
        "growth": _typed(plan.growth),
        "headroom": _typed(plan.headroom * 100),
        "spare": plan.spare,
        "pricing": plan.pricing,
        "ways": _ways(plan),
    }


def _ways(plan: CapacityResult) -> dict[str, str]:
    """Return the ways of paying that any instance has a price for, in words."""
    known = (way for one in plan.instances for way in one.usd_per_hour)
    return {way: capacity_words.way(way) for way in (plan.pricing, *known)}


def _typed(value: float) -> str:
    # Without the noise of a change of units: 0.07 s are 70 ms, not 70.00000000000001.
    return f"{value:.10g}"


def data(analysis: Analysis) -> dict[str, Any]:
    """Return the what-if's data, unrounded: it must come to the record's own numbers."""
    plan = analysis.capacity
    if plan is None or not plan.instances:
        return {}
    rows = [(plan.options[one.option], one) for one in plan.instances if one.option < len(plan.options)]
    return {
        "capacity": {
            "question": {
                "rate": plan.rate_per_s,
                "limit": plan.limit_s,
                "growth": plan.growth,
                "headroom": plan.headroom,
                "spare": plan.spare,
                "pricing": plan.pricing,
            },
            "limited": capacity_words.limited_latency(plan),
            # What other words the form has for a model that generates.
            **({"generates": True, "tokens": plan.output_tokens} if capacity_words.generates(plan) else {}),
            "ways": _ways(plan),
            "hours": HOURS_PER_MONTH,
            "seconds_per_hour": SECONDS_PER_HOUR,
            "instances": [_instance(option, one) for option, one in rows],
        }
    }


def _instance(option: CapacityOption, one: InstanceLoads) -> dict[str, Any]:
    return {
        "at": one.option,
        "instance": capacity_words.name(option),
        "where": capacity_words.where(option),
        "place": capacity_words.place(option),
        "device": capacity_words.runs_on(option),
        "kind": option.kind,
        "reason": option.reason,
        # The record's own answer, for the question's own values.
        "own": {key: getattr(option, name) for key, name in _OWN.items()} if option.feasible else None,
        "limits": [
            [point.limit_s, point.rate_per_s, point.max_batch, point.max_delay_s] for point in one.limits
        ],
        "loads": [[point.rate_per_s, point.utilisation] for point in one.loads],
        "usd": dict(one.usd_per_hour),
    }
