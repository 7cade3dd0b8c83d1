"""What `analyze capacity` is asked: traffic, a limit, and what must be left over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from analyzer.errors import UsageError
from analyzer.option_table import CapacityOptions
from analyzer.serving.arrivals import POISSON, Arrivals, Trace, mean_rate_per_s
from analyzer.serving.load import Percentile
from analyzer.serving.search import Demand
from analyzer.serving.trace_file import read_trace
from analyzer.text import latency_limit, share

POISSON_NAME = "poisson"
# Far beyond what is ever served, so that no count leaves the whole numbers.
_HIGHEST_RATE, _MOST_SPARE, _MOST_GROWTH, _LARGEST_BATCH = 1e9, 10**6, 1e6, 10**9
# One request in eleven days; what a million of them cost stays a number.
_LOWEST_RATE, _LEAST_GROWTH = 1e-6, 1e-6
# Written without a percent sign.
_MOST_PLAIN_HEADROOM = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapacityQuestion:
    """Traffic and what it may take; see ``record.capacity.CapacityResult``.

    Attributes:
        arrivals: ``poisson``, or the trace's file as reports show it.
        limit_option: The option that gave the limit, as it was written.
        demand: The same for the search, growth in its rate.
    """

    rate_per_s: float
    percentile: Percentile | None
    limit_s: float
    limit_option: str
    arrivals: str
    growth: float
    demand: Demand


def make_question(given: CapacityOptions, *, shown: str = POISSON_NAME) -> CapacityQuestion:
    """Checks what a user gave.

    Args:
        given: Keywords of ``plan_capacity()``.
        shown: How the trace's file is written in reports.

    Raises:
        UsageError: A value that cannot be right, no rate or no limit.
    """
    percentile, name = _limited(given)
    limit_s = latency_limit(_limit(given, name), where=f"--{name}")
    arrivals_s = None
    arrivals = given.get("arrivals") or POISSON_NAME
    if not is_poisson(arrivals):
        arrivals_s = read_trace(Path(arrivals))
    rate = given.get("rate")
    if rate is None and arrivals_s is None:
        raise UsageError("--rate is missing.", hint="Requests a second, like --rate 500.")
    rate_per_s = rate_of(mean_rate_per_s(arrivals_s) if rate is None else rate)  # type: ignore[arg-type]
    growth = growth_of(given.get("growth"))
    planned: Arrivals = POISSON
    if arrivals_s is not None:
        planned = Trace(arrivals_s=arrivals_s, whole_rate_per_s=rate_per_s * growth)
    max_delay = given.get("max_delay")
    return CapacityQuestion(
        rate_per_s=rate_per_s,
        percentile=percentile,
        limit_s=limit_s,
        limit_option=f"--{name} {_limit(given, name)}",
        arrivals=POISSON_NAME if arrivals_s is None else shown,
        growth=growth,
        demand=Demand(
            rate_per_s=rate_per_s * growth,
            limit_s=limit_s,
            percentile=percentile,
            arrivals=planned,
            headroom=headroom_of(given.get("headroom")),
            spare=spare_of(given.get("spare")),
            max_batch=max_batch_of(given.get("max_batch")),
            max_delay_s=None if max_delay is None else _max_delay(max_delay),
        ),
    )


def is_poisson(arrivals: object) -> bool:
    """Whether no file is meant; a settings file's value comes as a path of its folder."""
    return arrivals is None or Path(str(arrivals)).name.lower() == POISSON_NAME


# Options that limit a latency, and of which percentile; None for the mean.
LIMITS: dict[str, Percentile | None] = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "mean": None}


def _limited(given: CapacityOptions) -> tuple[Percentile | None, str]:
    named = [name for name in LIMITS if _limit(given, name) is not None]
    if not named:
        raise UsageError(
            "A limit of latency is missing.", hint="For example --p99 50ms; also --p50, --p90, --p95, --mean."
        )
    if len(named) > 1:
        raise UsageError(
            f"Only one limit can be planned for, not {' and '.join(f'--{name}' for name in named)}.",
            hint="Give the one that is hardest to keep.",
        )
    return LIMITS[named[0]], named[0]


def _limit(given: CapacityOptions, name: str) -> object:
    return dict(given).get(name)


def rate_of(value: float | str) -> float:
    """Requests a second, above 0."""
    rate = _number(value, "--rate", hint="Requests a second, like --rate 500.")
    if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise UsageError(
            f"--rate {rate:g}: must be from {_LOWEST_RATE:f} to {_HIGHEST_RATE:,.0f} requests a second.",
            hint="For example --rate 500.",
        )
    return rate


def growth_of(value: float | str | None) -> float:
    """Times the rate that is planned for."""
    hint = "2 is twice the rate."
    growth = 1.0 if value is None else _number(value, "--growth", hint=hint)
    if not _LEAST_GROWTH <= growth <= _MOST_GROWTH:
        raise UsageError(
            f"--growth {growth:g}: must be from {_LEAST_GROWTH:f} to {_MOST_GROWTH:,.0f}.", hint=hint
        )
    return growth


def headroom_of(value: float | str | None) -> float:
    """Share of the rate that must be free."""
    headroom = 0.0 if value is None else share(value, where="--headroom")
    # Whoever writes 20 means 20 %, and would pay for 21 times the rate.
    if headroom > _MOST_PLAIN_HEADROOM and "%" not in str(value):
        raise UsageError(
            f"--headroom {value}: {headroom:g} times the rate beside it?",
            hint=f"Write --headroom {headroom:g}%, or {headroom:.0%} where that is meant.",
        )
    if headroom > _MOST_GROWTH:
        raise UsageError(f"--headroom {value}: too much.", hint="20% is a fifth more than the rate.")
    return headroom


def spare_of(value: int | None) -> int:
    """Instances that may fail."""
    hint = "How many instances may fail at once, like --spare 1."
    return 0 if value is None else _whole(value, "--spare", 0, _MOST_SPARE, hint=hint)


def max_batch_of(value: int | None) -> int | None:
    """Most requests in a batch, None to choose."""
    hint = "For example --max-batch 32; left out, it is chosen."
    return None if value is None else _whole(value, "--max-batch", 1, _LARGEST_BATCH, hint=hint)


def _max_delay(value: float | str) -> float:
    # 0 is a delay, and the usual one, but no duration.
    if isinstance(value, str) and value.strip() in ("0", "0s", "0ms"):
        return 0.0
    if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
        return 0.0
    return latency_limit(value, where="--max-delay")


def _whole(value: float | str, option: str, least: int, most: int, *, hint: str) -> int:
    number = math.nan if isinstance(value, bool) else _number(value, option, hint=hint)
    if not least <= number <= most or number != int(number):
        raise UsageError(f"{option} {value}: must be a whole number from {least} to {most:,}.", hint=hint)
    return int(number)


def _number(value: float | str, option: str, *, hint: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{option} {value}: no number.", hint=hint) from None
