"""A hand-made answer of a capacity plan, for tests that need a record with one.

No time here was measured and no latency simulated: rates and prices are round, and what follows from them
(counts, dollars, room) is worked out here as the contract words it, so that tests can check reports by it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from handmade import made

from analyzer.figures import LimitPoint, QueueLoad
from analyzer.record.capacity import (
    CapacityOption,
    CapacityResult,
    InstanceLoads,
    ServicePoint,
    TrafficPoint,
)

RATE, LIMIT, HEADROOM, SPARE = 2000.0, 0.05, 0.2, 1
HOURS = 730
# Seconds of the limits that other questions are answered from, and the share of the rate at ``LIMIT`` there.
LIMITS = ((0.02, 0.0), (0.03, 0.5), (LIMIT, 1.0), (0.1, 1.3), (0.2, 1.5))


def count_of(highest: float, *, rate: float = RATE, headroom: float = HEADROOM, spare: int = SPARE) -> int:
    """Instances for this rate where each takes so much; a rate that is met exactly stays so."""
    return math.ceil(rate * (1 + headroom) / highest - 1e-9) + spare


def option(highest: float = 1220.0, usd: float = 0.8, **changes: Any) -> CapacityOption:
    """One that takes so many requests a second at so many dollars an hour; its interval is -25 % to +40 %."""
    low, high = highest * 0.75, highest * 1.4
    counts = count_of(highest), count_of(high), count_of(low)
    month, low_month, high_month = (number * usd * HOURS for number in counts)
    values: dict[str, Any] = {
        "provider": "Imaginary",
        "instance": "g.large",
        "region": "nowhere-1",
        "price_date": "2026-07-20",
        "device": "imaginary-gpu",
        "device_name": "NVIDIA Imaginary 4",
        "kind": "gpu",
        "precision": "fp16",
        "feasible": True,
        "reason": f"one takes {highest:,.0f} requests/s within the limit",
        "replicas": 1,
        "count": counts[0],
        "low_count": counts[1],
        "high_count": counts[2],
        "max_batch": 16,
        "max_delay_s": 0.0,
        "highest_rate_per_s": highest,
        "low_rate_per_s": low,
        "high_rate_per_s": high,
        "utilisation": 0.62,
        "mean_batch": 5.5,
        "mean_s": 0.015,
        "p50_s": 0.013,
        "p90_s": 0.024,
        "p95_s": 0.029,
        "p99_s": 0.037,
        "room": highest * (counts[0] - SPARE) / RATE - 1,
        "usd_per_hour": usd,
        "usd_per_month": month,
        "low_usd_per_month": low_month,
        "high_usd_per_month": high_month,
        # 730 hours of 3,600 seconds.
        "usd_per_million": month / (RATE * HOURS * 3600) * 1e6,
    }
    return made(CapacityOption, values, changes)


def on_cpu(highest: float = 130.0, usd: float = 0.7, **changes: Any) -> CapacityOption:
    """The cheapest without a GPU."""
    values = {
        "instance": "c.4xlarge",
        "device": "imaginary-cpu",
        "device_name": "Imaginary CPU 12",
        "kind": "cpu",
        "precision": "fp32",
        "replicas": 2,
        "max_batch": 4,
        "max_delay_s": 0.002,
        "utilisation": 0.71,
        "mean_batch": 2.1,
        "p99_s": 0.044,
    }
    return option(highest, usd, **{**values, **changes})


def refused(reason: str = "one request alone takes 80.0 ms", **changes: Any) -> CapacityOption:
    """One that keeps the limit at no count."""
    values: dict[str, Any] = {
        "provider": "Imaginary",
        "instance": "c.small",
        "region": "nowhere-1",
        "price_date": "2026-07-20",
        "device": "imaginary-small-cpu",
        "device_name": "Imaginary CPU 2",
        "kind": "cpu",
        "precision": "fp32",
        "feasible": False,
        "reason": reason,
    }
    return made(CapacityOption, values, changes)


def loads(highest: float, most_batch: int = 16) -> tuple[QueueLoad, ...]:
    """From a twentieth of the highest rate to a tenth beyond it; at it the p99 is the limit."""
    return tuple(
        QueueLoad(
            rate_per_s=highest * part,
            utilisation=min(0.95 * part**0.5, 1.0),
            mean_batch=1 + (most_batch - 1) * 0.8 * part**2,
            **{  # type: ignore[arg-type]
                f"{name}_s": LIMIT * (0.12 + (scale - 0.12) * part**4)
                for name, scale in (("mean", 0.4), ("p50", 0.35), ("p90", 0.7), ("p95", 0.82), ("p99", 1.0))
            },
        )
        for part in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1)
    )


def instance(at: int, highest: float, usd: float, **changes: Any) -> InstanceLoads:
    """What other questions about an option are answered from; a spot price is 40 % of the other."""
    values: dict[str, Any] = {
        "option": at,
        "service": tuple(
            ServicePoint(batch=batch, time_s=time_s, low_s=time_s / 1.4, high_s=time_s / 0.75)
            for batch, time_s in ((1, 0.004), (4, 0.006), (16, 0.012))
        ),
        "loads": loads(highest),
        "limits": tuple(
            LimitPoint(
                limit_s=limit,
                rate_per_s=highest * part,
                max_batch=4 if limit < LIMIT else 16,
                max_delay_s=0.0 if limit <= LIMIT else 0.002,
            )
            for limit, part in LIMITS
        ),
        "usd_per_hour": {"on-demand": usd, "spot": usd * 0.4},
    }
    return made(InstanceLoads, values, changes)


def traffic(highest: float, usd: float, most: int = 8) -> tuple[TrafficPoint, ...]:
    """From no traffic on, a step wherever another instance is needed."""
    return tuple(
        TrafficPoint(
            rate_per_s=number * highest / (1 + HEADROOM),
            count=number + 1 + SPARE,
            usd_per_month=(number + 1 + SPARE) * usd * HOURS,
        )
        for number in range(most)
    )


def capacity(**changes: Any) -> CapacityResult:
    """2,000 requests/s within 50 ms: three with a GPU, or twenty without one; one that is too slow."""
    values: dict[str, Any] = {
        "rate_per_s": RATE,
        "percentile": 99,
        "limit_s": LIMIT,
        "arrivals": "poisson",
        "headroom": HEADROOM,
        "growth": 1,
        "spare": SPARE,
        "pricing": "on-demand",
        "options": (
            option(),
            option(1600.0, 1.3, instance="g.2xlarge", provider="Invented", utilisation=0.5, p99_s=0.031),
            on_cpu(),
            refused(),
        ),
        "best": 0,
        "instances": (
            instance(0, 1220.0, 0.8),
            instance(1, 1600.0, 1.3, usd_per_hour={"on-demand": 1.3}),
            instance(2, 130.0, 0.7),
            # Nothing below 100 ms, then a little.
            instance(
                3,
                20.0,
                0.1,
                limits=(
                    LimitPoint(limit_s=LIMIT, rate_per_s=0.0, max_batch=1, max_delay_s=0.0),
                    LimitPoint(limit_s=0.1, rate_per_s=10.0, max_batch=1, max_delay_s=0.0),
                    LimitPoint(limit_s=0.2, rate_per_s=14.0, max_batch=2, max_delay_s=0.0),
                ),
            ),
        ),
        "traffic": traffic(1220.0, 0.8),
        "notes": ("The GPUs' times are predicted.",),
    }
    return made(CapacityResult, values, changes)


def impossible(**changes: Any) -> CapacityResult:
    """Nothing keeps 5 ms; a GPU comes nearest."""
    too_slow = (
        LimitPoint(limit_s=0.005, rate_per_s=0.0, max_batch=1, max_delay_s=0.0),
        LimitPoint(limit_s=0.01, rate_per_s=0.0, max_batch=1, max_delay_s=0.0),
        LimitPoint(limit_s=0.02, rate_per_s=300.0, max_batch=4, max_delay_s=0.0),
    )
    later = (*too_slow[:2], LimitPoint(limit_s=0.05, rate_per_s=40.0, max_batch=4, max_delay_s=0.0))
    values: dict[str, Any] = {
        "limit_s": 0.005,
        "options": (
            refused("one request alone takes 40.0 ms"),
            refused(
                "one request alone takes 12.0 ms",
                instance="g.large",
                device="imaginary-gpu",
                device_name="NVIDIA Imaginary 4",
                kind="gpu",
                precision="fp16",
            ),
        ),
        "best": None,
        "instances": (
            instance(0, 50.0, 0.1, limits=later),
            instance(1, 900.0, 0.8, limits=too_slow),
        ),
        "traffic": (),
    }
    return capacity(**{**values, **changes})


# Of a model that generates: requests a second, seconds to the first and for each further token, tokens of each.
TOKEN_RATE, FIRST_LIMIT, FURTHER_LIMIT, TOKENS_IN, TOKENS_OUT = 5.0, 0.5, 0.05, 1024.0, 258.0


def generating(highest: float = 4.0, usd: float = 1.0, **changes: Any) -> CapacityOption:
    """One on which a model generates: 5 requests/s of 258 tokens are 1,290 tokens/s."""
    counts = tuple(count_of(rate, rate=TOKEN_RATE) for rate in (highest, highest * 1.4, highest * 0.75))
    month, low_month, high_month = (number * usd * HOURS for number in counts)
    values: dict[str, Any] = {
        "reason": "The p99 to the first token is 380 ms of 500 ms, of each further token 31.0 ms of 50.0 ms.",
        "count": counts[0],
        "low_count": counts[1],
        "high_count": counts[2],
        "max_batch": 64,
        "utilisation": 0.4,
        "mean_batch": 12.0,
        "mean_s": 0.15,
        "p50_s": 0.12,
        "p90_s": 0.24,
        "p95_s": 0.3,
        "p99_s": 0.38,
        "tpot_p50_s": 0.024,
        "tpot_p99_s": 0.031,
        "tokens_per_s": TOKEN_RATE * TOKENS_OUT,
        "room": highest * (counts[0] - SPARE) / TOKEN_RATE - 1,
        "usd_per_month": month,
        "low_usd_per_month": low_month,
        "high_usd_per_month": high_month,
        "usd_per_million": month / (TOKEN_RATE * HOURS * 3600) * 1e6,
        "usd_per_million_tokens": month / (TOKEN_RATE * TOKENS_OUT * HOURS * 3600) * 1e6,
    }
    return option(highest, usd, **{**values, **changes})


def generating_loads(highest: float, most_batch: int = 64) -> tuple[QueueLoad, ...]:
    """As ``loads``; at the highest rate both limits are reached."""
    return tuple(
        replace(
            point,
            mean_batch=0.5 + 0.4 * most_batch * (point.rate_per_s / highest) ** 2,
            **{f"{name}_s": getattr(point, f"{name}_s") * 10 for name in ("mean", "p50", "p90", "p95", "p99")},
            tpot_p50_s=FURTHER_LIMIT * (0.4 + 0.3 * point.rate_per_s / highest),
            tpot_p99_s=FURTHER_LIMIT * (0.45 + 0.55 * point.rate_per_s / highest),
        )
        for point in loads(highest)
    )


def generating_instance(at: int, highest: float, usd: float, **changes: Any) -> InstanceLoads:
    """What other limits of the first token leave of the rate; further tokens keep theirs."""
    values: dict[str, Any] = {
        "loads": generating_loads(highest),
        "limits": tuple(
            LimitPoint(limit_s=limit * 10, rate_per_s=highest * part, max_batch=64, max_delay_s=0.0)
            for limit, part in LIMITS
        ),
    }
    return instance(at, highest, usd, **{**values, **changes})


def generation(**changes: Any) -> CapacityResult:
    """5 requests/s: three with a GPU; or two on which two GPUs share a copy, one of which alone is too slow."""
    large = {"instance": "g.2xlarge", "width": 2, "replicas": 2, "gpu_count": 4.0}
    values: dict[str, Any] = {
        "requests": "generation",
        "rate_per_s": TOKEN_RATE,
        "limit_s": FIRST_LIMIT,
        "tpot_limit_s": FURTHER_LIMIT,
        "prompt_tokens": TOKENS_IN,
        "output_tokens": TOKENS_OUT,
        "options": (
            generating(),
            generating(10.0, 2.5, **large, tpot_p99_s=0.022),
            refused(
                "A single sequence takes 61.0 ms a token, over the limit of 50.0 ms.",
                instance="g.2xlarge",
                device="imaginary-gpu",
                device_name="NVIDIA Imaginary 4",
                kind="gpu",
                precision="fp16",
            ),
            refused("The longest prompt alone takes 14.6 s, over the limit of 500 ms."),
        ),
        "instances": (generating_instance(0, 4.0, 1.0), generating_instance(1, 10.0, 2.5)),
        "traffic": traffic(4.0, 1.0, 4),
        "notes": ("At most 64 sequences run at once in a copy of the model.",),
    }
    return capacity(**{**values, **changes})


def impossible_generation(**changes: Any) -> CapacityResult:
    """No first token within 500 ms at any number."""
    kept = generation().options[2:]
    never = tuple(
        LimitPoint(limit_s=limit, rate_per_s=rate, max_batch=8, max_delay_s=0.0)
        for limit, rate in ((0.5, 0.0), (1.0, 0.5), (2.0, 0.8))
    )
    values: dict[str, Any] = {
        "options": kept,
        "best": None,
        "instances": (generating_instance(0, 0.8, 2.5, limits=never),),
        "traffic": (),
    }
    return generation(**{**values, **changes})
