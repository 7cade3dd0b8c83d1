"""What a record of ``analyze capacity`` was asked: it stays where it is not asked anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from analyzer.devices import catalogue
from analyzer.errors import UsageError
from analyzer.option_table import CapacityOptions
from analyzer.pipeline.capacity.question import LIMITS, POISSON_NAME, is_poisson
from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityResult


def with_earlier(analysis: Analysis, given: CapacityOptions) -> CapacityOptions:
    """The options that were given, and those of the record's own question that were not.

    Raises:
        UsageError: The record's arrivals are of a file.
    """
    told = analysis.capacity
    if told is None or told.requests != "inference":
        return given
    asked = {name: value for name, value in given.items() if value is not None}
    # Of several limits one is meant, and a trace has a rate of its own.
    if not asked.keys() & LIMITS.keys():
        asked |= {
            name: f"{told.limit_s!r}s" for name, percentile in LIMITS.items() if percentile == told.percentile
        }
    if "arrivals" not in asked and not is_poisson(told.arrivals):
        # A path in a record is anybody's: no file is read that was not named here.
        raise UsageError(
            f"The record's traffic is that of {told.arrivals}.",
            hint=f"Give it again: --arrivals {Path(told.arrivals).name}, or --arrivals {POISSON_NAME}.",
        )
    earlier = {name: value for name, value in _question(told).items() if value is not None}
    if not is_poisson(asked.get("arrivals")):
        del earlier["rate"]
    return cast(CapacityOptions, earlier | asked)


def _question(told: CapacityResult) -> Mapping[str, Any]:
    """By keyword; None for what nobody needs to write, being the default."""
    return {
        "rate": told.rate_per_s,
        "headroom": told.headroom or None,
        "growth": told.growth if told.growth != 1 else None,
        "spare": told.spare or None,
        "max_batch": told.max_batch,
        "max_delay": None
        if told.max_delay_s is None
        else f"{told.max_delay_s!r}s"
        if told.max_delay_s
        else "0s",
    }


def earlier_gpus(analysis: Analysis) -> tuple[str, ...] | None:
    """Slugs of the GPUs that were named for the record's plan; None where none were.

    Raises:
        UsageError: The catalogue does not know one of them.
    """
    told = analysis.capacity
    if told is None or not _was_given(analysis, "gpu"):
        return None
    own = analysis.devices.gpu
    known = {gpu.slug for gpu in catalogue.gpus()} | ({own.slug} if own is not None else set())
    slugs = tuple(dict.fromkeys(option.device for option in told.options if option.kind == "gpu"))
    for slug in slugs:
        # As with a trace: the name of a GPU's file is one that was given here.
        if slug not in known:
            raise UsageError(f"The catalogue has no GPU {slug!r}.", hint="Give it again with --gpu.")
    return slugs


def earlier_cpus(analysis: Analysis) -> tuple[str, ...]:
    """The slug of the CPU that was named for the record's plan; empty where none was."""
    given = analysis.capacity is not None and _was_given(analysis, "cpu")
    return (analysis.devices.cpu.slug,) if given else ()


def _was_given(analysis: Analysis, name: str) -> bool:
    asked = analysis.invocation
    return asked is not None and asked.command == "capacity" and name in asked.options
