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
    """The answer as the template prints it; None for a record that was not asked for instances."""
    told = analysis.capacity
    if told is None:
        return None
    best = told.best_option
    missed = f"No instance keeps the {capacity_words.limits(told)}"
    return {
        "device": best.kind if best else "either",
        "chip": f"{best.kind.upper()} instances" if best else missed,
        # The form needs the page's scripts, which a page without operators does not carry.
        "form": _form(told) if told.instances and analysis.operators else None,
    }


def _form(told: CapacityResult) -> dict[str, Any]:
    """What the fields of the what-if show at first: the question, in the units of the fields."""
    return {
        "rate": _typed(told.rate_per_s),
        "limit": _typed(told.limit_s * 1e3),
        "limited": capacity_words.limited_latency(told),
        "generates": capacity_words.generates(told),
        "further": seconds(told.tpot_limit_s) if told.tpot_limit_s is not None else "",
        "growth": _typed(told.growth),
        "headroom": _typed(told.headroom * 100),
        "spare": told.spare,
        "pricing": told.pricing,
        "ways": _ways(told),
    }


def _ways(told: CapacityResult) -> dict[str, str]:
    """The ways of paying that any instance has a price for, in words."""
    known = (way for one in told.instances for way in one.usd_per_hour)
    return {way: capacity_words.way(way) for way in (told.pricing, *known)}


def _typed(value: float) -> str:
    # Without the noise of a change of units: 0.07 s are 70 ms, not 70.00000000000001.
    return f"{value:.10g}"


def data(analysis: Analysis) -> dict[str, Any]:
    """What the what-if computes from, unrounded: it must come to the record's own numbers."""
    told = analysis.capacity
    if told is None or not told.instances:
        return {}
    rows = [(told.options[one.option], one) for one in told.instances if one.option < len(told.options)]
    return {
        "capacity": {
            "question": {
                "rate": told.rate_per_s,
                "limit": told.limit_s,
                "growth": told.growth,
                "headroom": told.headroom,
                "spare": told.spare,
                "pricing": told.pricing,
            },
            "limited": capacity_words.limited_latency(told),
            # What other words the form has for a model that generates.
            **({"generates": True, "tokens": told.output_tokens} if capacity_words.generates(told) else {}),
            "ways": _ways(told),
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
