"""Hold what reports say of hand-made records against snapshots (``pytest tests/report --update``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import capacity_records
import comparison_records as comparisons
import fleet_factory
import generation_records
import pytest
import ranking_records as rankings
import report_factory as factory
from report_snapshots import EXPECTED, hold_case, shown

from analyzer.record.analysis import Analysis, BatchRange
from analyzer.report.compare.build import compare

GB = generation_records.GB
NOTHING_LOOKED_AT: dict[str, Any] = {"options": (), "best": None, "instances": (), "traffic": ()}
BARE: dict[str, Any] = {"instances": (), "traffic": (), "notes": ()}
ONE_TOKEN = {"tpot_p50_s": None, "tpot_p99_s": None}


def busy() -> Analysis:
    base = factory.analysis(4)
    machine = replace(base.environment, measurement={"cpu": {"busy": True}}, messages=("the machine was busy",))
    return replace(base, environment=machine, verdict=replace(base.verdict, low=0.7, high=166.0))


def doubtful() -> Analysis:
    base = factory.analysis()
    ranges = ((1, 1, "cpu"), (2, 7, "either"), (8, 64, "gpu"))
    told = tuple(BatchRange(first=a, last=b, device=device) for a, b, device in ranges)  # type: ignore[arg-type]
    return replace(base, verdict=replace(base.verdict, ranges=told))


def cramped() -> Analysis:
    """A model that fits nowhere."""
    base = factory.analysis()
    rows = (
        replace(row, plans={name: replace(plan, fits=False) for name, plan in row.plans.items()})
        for row in base.sweep
    )
    plans = tuple(replace(plan, fits=False) for plan in base.plans)
    verdict = replace(base.verdict, crossover_batch=None, crossovers=(), ranges=())
    return replace(base, plans=plans, sweep=tuple(rows), verdict=verdict)


def spot() -> Analysis:
    base = factory.analysis()
    paid: dict[str, Any] = {"pricing": "spot", "region": "us-central1", "price_date": "2026-08-03"}
    return replace(
        base,
        costs=tuple(replace(row, **paid) for row in base.costs),
        plans=tuple(replace(plan, **paid) for plan in base.plans),
    )


def many_options() -> Analysis:
    kept = (capacity_records.option(1220.0, 0.8 + at, instance=f"g.{at}") for at in range(12))
    rest = (capacity_records.refused(instance=f"c.{at}") for at in range(12))
    return factory.capacity(options=(*kept, *rest), best=0, instances=())


def one_token() -> Analysis:
    loads = tuple(replace(point, **ONE_TOKEN) for point in capacity_records.generating_loads(4.0))
    return factory.generation_capacity(
        options=(capacity_records.generating(**ONE_TOKEN),),
        instances=(capacity_records.generating_instance(0, 4.0, 1.0, loads=loads),),
        tpot_limit_s=None,
        output_tokens=1.0,
    )


def on_the_cpu() -> Analysis:
    """As with ``--gpu none``."""
    told = generation_records.generation(
        gpus=0, device="imaginary-cpu", weights="fp32", kv="fp32", widths=(), phases=(), cheapest=None,
        devices=generation_records.devices()[3:],
    )  # fmt: skip
    return replace(factory.without_gpu(), generation=told)


def no_room() -> Analysis:
    return factory.generation(
        memory=generation_records.memory(fits=False, device_bytes=30 * GB, total_bytes=60 * GB),
        gpus=2, largest_batch=0, longest_context=0, usd_per_million_tokens=None, instance="",
    )  # fmt: skip


def another_batch() -> Analysis:
    faster = rankings.candidate(factory.GPU.name, 0.001, device=factory.GPU.slug, batch=64)
    return rankings.analysis(faster)


capacity, generating, generation = factory.capacity, factory.generation_capacity, factory.generation
FAMILIES: Mapping[str, Mapping[str, Callable[[], Any]]] = {
    "network": {
        "usual": factory.analysis,
        "no gpu": factory.without_gpu,
        "no times": factory.without_times,
        "empty": factory.empty,
        "hostile": factory.hostile,
        "two gpus": factory.with_alternative,
        "busy": busy,
        "doubtful": doubtful,
        "cramped": cramped,
        "spot": spot,
    },
    "capacity": {
        "plain": capacity,
        "growth": partial(capacity, growth=2.0, spare=0),
        "two spare": partial(capacity, spare=2, rate_per_s=0.5, percentile=99.9),
        "mean": partial(capacity, percentile=None),
        "bare": partial(capacity, **BARE),
        "nothing looked at": partial(capacity, **NOTHING_LOOKED_AT),
        "many": many_options,
        "impossible": factory.without_capacity,
    },
    "generating": {
        "plain": generating,
        "growth": partial(generating, growth=2.0, spare=0),
        "mean": partial(generating, percentile=None),
        "p90": partial(generating, percentile=90),
        "no limit of further tokens": partial(generating, tpot_limit_s=None),
        "lengths not known": partial(generating, prompt_tokens=None, output_tokens=None),
        "bare": partial(generating, **BARE),
        "one token": one_token,
        "impossible": lambda: replace(generation(), capacity=capacity_records.impossible_generation()),
    },
    "generation": {
        "plain": generation,
        "limits": partial(generation, ttft_limit_s=0.3, tpot_limit_s=0.004, meets_limits=False),
        "kept": partial(generation, ttft_limit_s=1.0, meets_limits=True),
        "no room": no_room,
        "bare": partial(
            generation,
            **dict.fromkeys(("sweep", "devices", "types", "widths", "phases", "notes"), ()),
            **dict.fromkeys(("cpu", "cheapest", "joules_per_token", "model_context")),
            frontier={},
            parts={},
        ),
        "cpu": on_the_cpu,
    },
    "ranking": {
        "another gpu": rankings.analysis,
        "alone": rankings.alone,
        "first": rankings.won_by_the_first,
        "another batch": another_batch,
        "missed": partial(rankings.analysis, meets=False, sentence="None of 3 GPUs keeps 1.00 ms."),
    },
    "comparison": {
        "pair": comparisons.pair,
        "batches": comparisons.batches,
        "services": comparisons.slower,
        "a service beside none": lambda: compare(
            [("plain", factory.analysis()), ("planned", comparisons.plan())]
        ),
        "generation": lambda: compare(
            [("plain", factory.analysis()), ("short", generation()), ("long", generation(prompt_tokens=4000))]
        ),
        "sequences": lambda: compare([("a", generating()), ("b", one_token())]),
        "hostile": lambda: compare([(factory.HOSTILE, factory.hostile()), ("b", factory.hostile())]),
    },
    "fleet": {
        "usual": fleet_factory.fleet,
        "bare": lambda: fleet_factory.fleet(
            models=(fleet_factory.classifier(),), moves=(), consolidation=None, biases=(), sentences=()
        ),
    },
}  # fmt: skip


CASES = {
    f"{family}-{case.replace(' ', '-')}": (family, build)
    for family, cases in FAMILIES.items()
    for case, build in cases.items()
}


@cache
def first(family: str) -> dict[str, str]:
    return shown(next(iter(FAMILIES[family].values()))())


@pytest.mark.parametrize("case", CASES)
def test_reports_say_what_they_said(case: str, *, update: bool) -> None:
    family, build = CASES[case]
    is_first = build is next(iter(FAMILIES[family].values()))
    hold_case(case, build(), {} if is_first else first(family), update=update)


def test_there_is_no_snapshot_without_a_case() -> None:
    assert {path.stem for path in EXPECTED.glob("*.txt")} == {*CASES}
