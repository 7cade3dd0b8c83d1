"""Hand-made comparisons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import capacity_records
import report_factory as factory

from analyzer.record.analysis import Analysis
from analyzer.report.compare.build import compare
from analyzer.report.compare.comparison import Comparison


def pair() -> Comparison:
    """The invented network, and one whose GPU plan takes 30 instead of 20 ms and lost its findings."""
    base = factory.analysis(24)
    slower = replace(base.plans[1], latency_s=0.030, low_s=0.028, high_s=0.032)
    moved = tuple(replace(item, placement="cpu") if item.index == 4 else item for item in base.operators)
    new = replace(base, plans=(base.plans[0], slower), operators=moved, findings=())
    return compare([("before", base), ("after", new)])


def batches() -> Comparison:
    """The same network at batch 8 and at batch 16, its operators' times unchanged."""
    base = factory.analysis(24)
    model = replace(base.model, batch=16)
    plans = tuple(replace(plan, throughput_per_s=16 / plan.latency_s) for plan in base.plans)
    return compare([("eight", base), ("sixteen", replace(base, model=model, plans=plans))])


def plan(highest: float = 1220.0, usd: float = 0.8, **changes: Any) -> Analysis:
    """2,000 requests/s with a fifth of headroom, one spare, on instances of this rate and price an hour."""
    return factory.capacity(
        **{"options": (capacity_records.option(highest, usd),), "instances": (), "traffic": (), **changes}
    )


def slower() -> Comparison:
    """2400 / 1220 = 1.97 need 2 and one: 3 x $584 = $1,752; 2400 / 700 = 3.43 need 4 and one: $2,920."""
    return compare([("old", plan()), ("new", plan(700.0))])
