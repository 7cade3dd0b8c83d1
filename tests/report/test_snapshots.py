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

from analyzer.record.analysis import Analysis, BatchRange, Environment, Opportunity, Where
from analyzer.record.generation import SplitRequest
from analyzer.record.invocation import Invocation
from analyzer.report.compare.build import compare
from analyzer.report.compare.comparison import Comparison

GB = generation_records.GB
BASE = factory.analysis()
FLEET = fleet_factory.fleet()
LISTED = replace(fleet_factory.DEVICES[3], slug="xeon", name="Xeon", named=False)
STRAY_CELL = fleet_factory.cell("h100", 1, 0.1, 1.0)
STRAY = replace(fleet_factory.classifier(), cells=(STRAY_CELL,), best=0, cheapest=0)
NOTHING_LOOKED_AT: dict[str, Any] = {"options": (), "best": None, "instances": (), "traffic": ()}
BARE: dict[str, Any] = {"instances": (), "traffic": (), "notes": ()}
ONE_TOKEN = {"tpot_p50_s": None, "tpot_p99_s": None}


def measured(messages: tuple[str, ...] = (), **figures: Any) -> Environment:
    agreement = [{"between": "PyTorch and ONNX Runtime", "agrees": True}]
    return replace(BASE.environment, measurement={"cpu": figures, "agreement": agreement}, messages=messages)


def verdict(*ranges: tuple[int, int, Any], **changes: Any) -> Analysis:
    """Return the network with another verdict, and batches at which each device wins."""
    rows = tuple(BatchRange(first=first, last=last, device=device) for first, last, device in ranges)
    return factory.analysis(verdict=replace(BASE.verdict, **({"ranges": rows} if rows else {}), **changes))


def totals(**changes: Any) -> Analysis:
    return factory.analysis(totals=replace(BASE.totals, **changes))


def plans(cpu: Mapping[str, Any], others: Mapping[str, Any] | None = None, **changes: Any) -> Analysis:
    """Return the network with other figures of its plans, and other keys."""
    rows = (replace(plan, **(cpu if plan.name == "cpu" or others is None else others)) for plan in BASE.plans)
    return factory.analysis(plans=tuple(rows), **changes)


def own_prices() -> Analysis:
    """A measured plan of the CPU whose dollars are another machine's, predicted."""
    plan = replace(
        factory.plan("cpu", 0.02, operators_on_gpu=0), origin="measured", usd_per_million=1.0,
        usd_low_per_million=0.25, usd_high_per_million=4.0, usd_origin="predicted", energy_j=0.5,
        energy_low_j=0.4, energy_high_j=0.7, energy_origin="mixed",
    )  # fmt: skip
    return factory.analysis(plans=(plan,))


def unknown_memory() -> Analysis:
    """A ZipMap gives a sequence of maps, whose size nobody knows; a run held 13.5 MB."""
    last = BASE.operators[-1]
    maps = replace(last.outputs[0], name="probabilities", shape=None, dtype="seq(map(int64,tensor(float)))")
    ends = (*BASE.operators[:-1], replace(last, outputs=(maps,)))
    return replace(
        plans({"memory_bytes": None}), operators=ends, environment=measured(arena_peak_bytes=13_502_580)
    )


def guessed() -> Analysis:
    return factory.analysis(model=replace(BASE.model, guessed_inputs=("t0: float32[8,3]",)))


def guessed_sizes() -> Analysis:
    first, *others = BASE.operators
    of_data = replace(first, outputs=(replace(first.outputs[0], shape=(None, 64)),))
    return replace(verdict((1, 64, "gpu")), operators=(of_data, *others))


def changes() -> Analysis:
    """Seven changes of the model, each of which resolves a finding."""
    return factory.analysis(
        opportunities=tuple(
            Opportunity(
                code=f"change-{at}", title=f"Change number {at}", operators=(1,), gain_s=(9 - at) * 1e-3,
                source=Where(file="net.py", line=at, code="y = x"), gain_low_s=1e-3, gain_high_s=9e-3,
                gain_usd_per_million=0.25, command=f"analyze apply net.py --batch {at}",
                findings=(BASE.findings[0].code,),
            )
            for at in range(1, 8)
        )
    )  # fmt: skip


def copies() -> Analysis:
    """Copies of 3.5 ms, which no operator's time holds."""
    best = BASE.plans[2]
    return factory.analysis(
        plans=(*BASE.plans[:2], replace(best, transfers=replace(best.transfers, time_s=3.5e-3)))
    )


def peak() -> Analysis:
    """A GPU that does less at larger batches: 8 in 13.4 ms, 64 in 238 ms."""
    rates = {1: 200.0, 8: 598.0, 64: 269.0}
    rows = (row for row in BASE.sweep if row.batch in rates)
    at = {row.batch: {"throughput_per_s": rates.get(row.batch), "fits": True} for row in BASE.sweep}
    return factory.analysis(
        sweep=tuple(
            replace(row, plans={**row.plans, "gpu": replace(row.plans["gpu"], **at[row.batch])}) for row in rows
        )
    )


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


def paid(pricing: str) -> Analysis:
    price: Any = {"pricing": pricing, "region": "us-central1", "price_date": "2026-08-03"}
    return plans(price, costs=tuple(replace(row, **price) for row in BASE.costs))


def without_price() -> Analysis:
    asked = {"pricing": ("reserved-1y",), "region": ("asia",)}
    return plans(
        {"usd_per_million": None, "instance": ""},
        costs=(),
        invocation=Invocation(command="run", model="m.py", options=asked),
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


def latencies(*seconds: float) -> Comparison:
    """Records whose only plan is the GPU's, each with an interval of 10 %."""
    gpus = (factory.analysis(plans=(factory.plan("gpu", each),)) for each in seconds)
    return compare(list(zip("abc", gpus, strict=False)))


def services(*given: Mapping[str, Any]) -> Comparison:
    return compare([(name, comparisons.plan(**each)) for name, each in zip("abc", given, strict=False)])


def one_option(**changes: Any) -> dict[str, Any]:
    return {"options": (capacity_records.option(**changes),)}


OTHER_RELEASE: dict[str, Any] = {"threads": 8, "versions": {"onnxruntime": "1.0.0"}}
UNPRICED = dict.fromkeys(
    ("usd_per_hour", "usd_per_month", "low_usd_per_month", "high_usd_per_month", "usd_per_million")
)
IMPOSSIBLE = factory.without_capacity(limit_s=capacity_records.LIMIT)
SPLIT = SplitRequest(
    **generation_records.times_of(1.0) | {"request_s": 0.5, "request_low_s": 0.4, "request_high_s": 0.7},
    handover_bytes=2 * GB,
    handover_s=0.08,
    pays=True,
)
NO_BATCH: dict[str, Any] = {"largest_batch": 0, "usd_per_million_tokens": None}


capacity, generating, generation = factory.capacity, factory.generation_capacity, factory.generation
FAMILIES: Mapping[str, Mapping[str, Callable[[], Any]]] = {
    "network": {
        "usual": factory.analysis,
        "no gpu": factory.without_gpu,
        "no times": factory.without_times,
        "empty": factory.empty,
        "hostile": factory.hostile,
        "two gpus": factory.with_alternative,
        "busy": lambda: replace(
            verdict(low=0.7, high=166.0), environment=measured(busy=True, messages=("the machine was busy",))
        ),
        "rough": lambda: replace(
            verdict((1, 64, "gpu"), low=1.5, high=30.0), environment=measured(busy=True)
        ),
        "measured": lambda: factory.analysis(
            environment=measured(median_s=0.0123, arena_peak_bytes=25_900_000, device_peak_bytes=None)
        ),
        "doubtful": partial(verdict, (1, 1, "cpu"), (2, 7, "either"), (8, 64, "gpu")),
        "certain": partial(verdict, (1, 1, "cpu"), (2, 64, "gpu"), crossover_batch=2),
        "uncertain": partial(verdict, (1, 1, "cpu"), (2, 7, "either")),
        "a batch between doubtful ones": partial(
            verdict, (1, 15, "either"), (16, 16, "cpu"), (17, 40, "either"), (41, 64, "gpu")
        ),
        "two digits": partial(
            verdict, (1, 99, "cpu"), (100, 3246, "either"), (3247, 4096, "gpu"), crossover_batch=748
        ),
        "cpu wins": partial(verdict, device="cpu", speedup=0.5, low=0.4, high=0.8, sentence=""),
        "watts": partial(
            plans, {"energy_of": "A (1 to 2 W)"}, {"energy_of": "A (1 to 2 W) and B (3 to 4 W)"}
        ),
        "rented": partial(
            plans, {"usd_per_million": 1.0, "instance": "c1"}, {"usd_per_million": 1.0, "instance": "g1"}
        ),
        "rented elsewhere": partial(
            plans, {"usd_per_million": 1.0, "instance": "c1", "instance_latency_s": 0.02}, {}
        ),
        "own prices": own_prices,
        "folded": partial(totals, folded_flops=BASE.totals.flops // 2),
        "hardly folded": partial(totals, folded_flops=BASE.totals.flops // 200),
        "fused alike": partial(
            totals,
            fused_bytes_read=BASE.totals.bytes_read,
            fused_bytes_written=BASE.totals.bytes_written,
            fused_intensity=BASE.totals.intensity,
        ),
        "unknown memory": unknown_memory,
        "graph network": factory.graph_network,
        "guessed": guessed,
        "guessed sizes": guessed_sizes,
        "some run": partial(plans, {"operators_on_cpu": BASE.totals.operators - 5}),
        "changes": changes,
        "copies": copies,
        "no copies": partial(plans, {"transfers": BASE.plans[0].transfers}),
        "three types": partial(factory.alike, 3, 10),
        "peak": peak,
        "reserved": partial(paid, "reserved-3y"),
        "without price": without_price,
        "eight gpus": partial(plans, {"gpu_count": 0.0}, {"gpu_count": 8.0}),
        "cramped": cramped,
        "spot": partial(paid, "spot"),
    },
    "capacity": {
        "plain": capacity,
        "growth": partial(capacity, growth=2.0, spare=0),
        "slow end": partial(
            capacity, **one_option(high_count=None, high_usd_per_month=None, low_rate_per_s=0.0)
        ),
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
        "median": partial(generating, percentile=50),
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
        "split": partial(generation, split=SPLIT),
        "split that does not pay": partial(generation, split=replace(SPLIT, pays=False)),
        "no batch": partial(
            generation, tpot_limit_s=0.001, meets_limits=False, cheapest=None, **NO_BATCH,
            devices=tuple(replace(row, **NO_BATCH) for row in generation_records.devices()),
        ),
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
        "other prices": lambda: compare([("usual", BASE), ("spare", paid("spot"))]),
        "a service beside none": lambda: compare(
            [("plain", factory.analysis()), ("planned", comparisons.plan())]
        ),
        "generation": lambda: compare(
            [("plain", factory.analysis()), ("short", generation()), ("long", generation(prompt_tokens=4000))]
        ),
        "faster generation": lambda: compare(
            [
                ("old", generation()),
                ("new", generation(**generation_records.times_of(0.25), usd_per_million_tokens=1.0)),
            ]
        ),
        "sequences": lambda: compare([("a", generating()), ("b", one_token())]),
        "hostile": lambda: compare([(factory.HOSTILE, factory.hostile()), ("b", factory.hostile())]),
    },
    "latencies": {
        "three": partial(latencies, 0.060, 0.020, 0.021),
        "certain": partial(latencies, 0.020, 0.060),
        "overlapping": partial(latencies, 0.021, 0.020),
        "same": partial(latencies, 0.020, 0.020),
        "dollars and joules": lambda: compare(
            [("dear", plans({"usd_per_million": 50.0, "energy_j": 9.0})), ("cheap", BASE)]
        ),
        "environments": lambda: compare(
            [("a", BASE), ("b", factory.analysis(environment=replace(BASE.environment, **OTHER_RELEASE)))]
        ),
    },
    "services": {
        "slower": comparisons.slower,
        "certain": partial(services, {}, {"usd": 0.3}, {"usd": 2.0}),
        "same": partial(services, {}, {}),
        "dearer": partial(services, {"usd": 0.3}, {}),
        # At half the rate 1200 / 1220 = 0.98 need one and one: 2 x $584 = $1,168. A month of 1,000 requests/s
        # has 1,000 x 730 x 3600 = 2628 million.
        "other traffic": partial(
            services,
            {},
            {"rate_per_s": 1000.0}
            | one_option(count=2, usd_per_month=1168.0, usd_per_million=1168 / 2628),
        ),
        "another device": partial(services, {}, {"options": (capacity_records.on_cpu(),)}),
        "unpriced": partial(services, {}, one_option(**UNPRICED)),
        "torn": partial(services, {}, one_option(usd=0.3, high_count=None, high_usd_per_month=None)),
        "one impossible": lambda: compare([("a", comparisons.plan()), ("b", IMPOSSIBLE)]),
        "both impossible": lambda: compare([("a", IMPOSSIBLE), ("b", IMPOSSIBLE)]),
    },
    "fleet": {
        "usual": fleet_factory.fleet,
        "left": partial(fleet_factory.fleet, left=12),
        "unsure": partial(fleet_factory.fleet, moves=(replace(FLEET.moves[0], certain=False),)),
        "paid today": partial(
            fleet_factory.fleet, consolidation=replace(FLEET.consolidation, today_usd_per_month=3000.0)
        ),
        "listed": partial(fleet_factory.fleet, devices=(*fleet_factory.DEVICES, LISTED)),
        "no column": partial(fleet_factory.fleet, models=(STRAY,), moves=(), consolidation=None),
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
