"""Rates of one instance -> how many of them, and what they cost: the same for inferences and for generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from analyzer.devices.instances import Instance
from analyzer.errors import UsageError
from analyzer.record.capacity import CapacityOption
from analyzer.serving.search import count_for
from analyzer.text import first_few
from analyzer.units import HOURS_PER_MONTH, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What must be taken: requests a second, the share that must be free beside it, instances that may fail."""

    rate_per_s: float
    headroom: float
    spare: int

    def count(self, highest_rate_per_s: float) -> int | None:
        """Instances, the spare ones with them; None where one takes nothing."""
        return count_for(self.rate_per_s, highest_rate_per_s, self.headroom, self.spare)


def uncounted(
    instance: Instance | None,
    *,
    device: str,
    name: str,
    kind: Literal["cpu", "gpu"],
    precision: str,
    reason: str,
) -> CapacityOption:
    """An instance without a figure; None is a device that nobody rents out."""
    return CapacityOption(
        provider=instance.provider if instance else "",
        instance=instance.name if instance else "",
        region=instance.region if instance else "",
        device=device,
        device_name=name,
        kind=kind,
        precision=precision,
        price_date=instance.price_date if instance else "",
        feasible=False,
        reason=reason,
    )


def counted(
    option: CapacityOption,
    instance: Instance | None,
    need: Need,
    count: int,
    *,
    highest_rate_per_s: float,
    low_rate_per_s: float,
    high_rate_per_s: float,
) -> CapacityOption:
    """The option with its count, its ends and its dollars; rates are of one instance within the limit."""
    per_hour = instance.usd_per_hour if instance else None

    def a_month(number: int | None) -> float | None:
        return None if per_hour is None or number is None else number * per_hour * HOURS_PER_MONTH

    # Quick service times are a high rate and few instances.
    low_count, high_count = need.count(high_rate_per_s), need.count(low_rate_per_s)
    return replace(
        option,
        feasible=True,
        count=count,
        low_count=low_count,
        high_count=high_count,
        highest_rate_per_s=highest_rate_per_s,
        low_rate_per_s=low_rate_per_s,
        high_rate_per_s=high_rate_per_s,
        room=max(0.0, (count - need.spare) * highest_rate_per_s / need.rate_per_s - 1),
        usd_per_hour=per_hour,
        usd_per_month=a_month(count),
        low_usd_per_month=a_month(low_count),
        high_usd_per_month=a_month(high_count),
        usd_per_million=usd_per_million_of(count, per_hour, need.rate_per_s),
    )


def usd_per_million_of(count: int, usd_per_hour: float | None, rate_per_s: float) -> float | None:
    """Dollars for a million of what comes at a rate, from so many instances."""
    return None if usd_per_hour is None else count * usd_per_hour / SECONDS_PER_HOUR / rate_per_s * 1e6


def without_price(options: Iterable[CapacityOption]) -> Iterator[str]:
    """A note on what would keep the limit and has no dollars to be sorted by."""
    able = [one for one in options if one.feasible]
    names = dict.fromkeys(one.device_name for one in able if one.usd_per_month is None)
    if not names:
        return
    stands = "it stands" if len(names) == 1 else "they stand"
    priced = any(one.usd_per_month is not None for one in able)
    behind = f"{stands} behind all that has one" if priced else "--prices adds prices of your own"
    yield f"No price of {first_few(names)} is known: {behind}."


def check_spare(counts: Iterable[int | None], spare: int) -> None:
    """Refuses more spare instances than any kind of them is needed of; counts hold the spare ones.

    Raises:
        UsageError: There are more.
    """
    needs = [count - spare for count in counts if count is not None]
    if needs and spare > max(needs):
        raise UsageError(
            f"--spare {spare}: at most {max(needs)} are needed, and no more than those can fail.",
            hint="Give how many instances may fail at once, like --spare 1.",
        )
