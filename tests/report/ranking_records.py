"""Hand-made rankings: another GPU than the record's own comes first, and is faster than it by 4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import report_factory as factory

from analyzer.figures import seen_as
from analyzer.record.analysis import Analysis, CostRow
from analyzer.record.outcome import Answer, RankedWay, WhyNot

SENTENCE = "Run it on the Imaginary GPU 9000: 5.00 ms (predicted, 4.00 to 6.00 ms)."


NO_ROOM = WhyNot(reason="memory", sentence="it does not fit: it needs 9.00 GB and has 8.00 GB")


def candidate(name: str, latency_s: float | None, **changes: Any) -> RankedWay:
    values: dict[str, Any] = {
        "device": name.lower().replace(" ", "-"),
        "device_name": name,
        "kind": "gpu",
        "plan": "gpu",
        "precision": "tf32",
        "batch": 8,
        "latency_s": latency_s,
        "low_s": latency_s,
        "high_s": latency_s,
    }
    return RankedWay(**(values | changes))


def instance(name: str, usd: float, gpu: str | None = None, **changes: Any) -> CostRow:
    cost = CostRow(
        provider="cloud",
        instance=name,
        gpu=gpu,
        usd_per_hour=1.0,
        price_date="2026-01-01",
        throughput_per_s=1.0,
        latency_s=1.0,
        usd_per_million=usd,
        meets_slo=None,
        device="x",
        device_name=f"device of {name}",
        plan="gpu" if gpu else "cpu",
        batch=8,
    )
    return replace(cost, **changes)


def ways() -> tuple[RankedWay, ...]:
    """The ranking: another GPU than the record's own comes first, and is faster than it by 4."""
    rented = [
        candidate(
            "Rented CPU",
            0.09,
            kind="cpu",
            plan="cpu",
            precision="fp32",
            named=False,
            provider="cloud",
            instance=f"c{n}",
            usd_per_million=0.1 + n / 100,
            why_not=WhyNot(reason="slower", sentence="18.0x (12.0x to 27.0x) the time"),
        )
        for n in range(5)
    ]
    slower = WhyNot(reason="slower", sentence="4.0x (3.0x to 5.0x) the time")
    return (
        candidate(
            "Imaginary GPU 9000",
            0.005,
            usd_per_million=0.2,
            usd_origin="predicted",
            provider="cloud",
            instance="g9",
            why_not=slower,
        ),
        candidate("Imaginary GPU 3000", 0.020, why_not=slower),
        candidate("Imaginary CPU 12", 0.080, kind="cpu", plan="cpu", precision="fp32", why_not=slower),
        *rented,
        candidate("Imaginary GPU 100", 0.001, runs=False, fits=False, why_not=NO_ROOM),
        candidate(
            "Imaginary GPU 3000",
            0.010,
            precision="fp16",
            requested=False,
            why_not=WhyNot(reason="precision", sentence="another model"),
        ),
    )


def analysis(
    *first: RankedWay, sentence: str = SENTENCE, meets: bool | None = None, **changes: Any
) -> Analysis:
    """A record whose answer is the first of the ranking, for another GPU than the record's own."""
    ranking = (*first, *ways())
    ranking = (replace(ranking[0], meets=meets, why_not=None), *ranking[1:])
    given: dict[str, Any] = {
        "answer": seen_as(Answer, ranking[0], sentence=sentence),
        "ranking": ranking,
        "instances": (instance("g9", 0.2, "gpu-9000"), instance("c1", 0.4), instance("c2", 0.5)),
    }
    return factory.analysis(**(given | changes))


def alone(**changes: Any) -> Analysis:
    """One GPU and the CPU, at one batch: the answer is the verdict's."""
    base = factory.analysis()
    gpu = candidate(factory.GPU.name, 0.02, device=factory.GPU.slug, usd_per_million=0.2)
    others = tuple(one for one in ways() if one.kind == "cpu")
    answer = seen_as(Answer, gpu, sentence=base.verdict.sentence)
    return factory.analysis(**({"answer": answer, "ranking": (gpu, *others)} | changes))


def won_by_the_first() -> Analysis:
    """The answer is the GPU that the record's details are of."""
    return analysis(candidate(factory.GPU.name, 0.001, device=factory.GPU.slug))
