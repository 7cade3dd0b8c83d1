"""Traffic and limit of a capacity plan: from options, and from the record of an earlier plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from analyzer.devices import catalogue
from analyzer.errors import UsageError
from analyzer.figures import seen_as
from analyzer.options import GenerationOptions, TrafficOptions
from analyzer.record.analysis import Analysis
from analyzer.serving.arrivals import POISSON, Arrivals, Trace, mean_rate_per_s, read_conversations, read_trace
from analyzer.serving.continuous import Conversations
from analyzer.serving.queue import Need, Percentile
from analyzer.serving.search import Demand, GenerationDemand
from analyzer.units import seconds

AnyNeed = TypeVar("AnyNeed", bound=Need)

POISSON_NAME = "poisson"
# Options that limit a latency, and of which percentile; None for the mean.
LIMITS: dict[str, Percentile | None] = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "mean": None}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapacityQuestion(Generic[AnyNeed]):
    """Traffic and what it may take; see ``record.capacity.CapacityResult``.

    ``arrivals`` are ``poisson`` or the trace's file as reports show it, ``limit_option`` the option that gave
    the limit; ``demand`` is the same for the search, growth in its rate.
    """

    rate_per_s: float
    limit_option: str
    arrivals: str
    growth: float
    demand: AnyNeed


def make_question(given: Mapping[str, Any], *, shown: str = POISSON_NAME) -> CapacityQuestion[Demand]:
    """Check the options for single inferences.

    ``shown`` is how reports write the trace's file.

    Raises:
        UsageError: A value that cannot be right, no rate or no limit.
    """
    named = [name for name in LIMITS if given.get(name) is not None]
    if not named:
        raise UsageError(
            "A limit of latency is missing.", hint="For example --p99 50ms; also --p50, --p90, --p95, --mean."
        )
    if len(named) > 1:
        raise UsageError(
            f"Only one limit can be planned for, not {' and '.join(f'--{name}' for name in named)}.",
            hint="Give the one that is hardest to keep.",
        )
    options, name = TrafficOptions.of(given), named[0]
    arrivals_s = None if is_poisson(options.arrivals) else read_trace(Path(str(options.arrivals)))
    own_rate_per_s = None if arrivals_s is None else mean_rate_per_s(arrivals_s)
    rate_per_s = _rate(options, own_rate_per_s, hint="Requests a second, like --rate 500.")
    planned: Arrivals = POISSON
    if arrivals_s is not None:
        planned = Trace(arrivals_s=arrivals_s, whole_rate_per_s=rate_per_s * options.growth)
    limits = {"limit_s": getattr(options, name), "percentile": LIMITS[name]}
    return _question(Demand, options, rate_per_s, f"--{name} {given[name]}", shown, arrivals=planned, **limits)


def _question(
    kind: type[AnyNeed],
    options: TrafficOptions,
    rate_per_s: float,
    limit_option: str,
    shown: str,
    **of_kind: Any,
) -> CapacityQuestion[AnyNeed]:
    return CapacityQuestion(
        rate_per_s=rate_per_s,
        limit_option=limit_option,
        arrivals=POISSON_NAME if is_poisson(options.arrivals) else shown,
        growth=options.growth,
        demand=seen_as(kind, options, rate_per_s=rate_per_s * options.growth, **of_kind),
    )


def make_generation_question(given: Mapping[str, Any], *, shown: str) -> CapacityQuestion[GenerationDemand]:
    """Check the options for a model that generates; without a trace, requests are of one token for now.

    ``shown`` is how reports write the trace's file.

    Raises:
        UsageError: A value that cannot be right, no rate, or a limit that is not one of generation.
    """
    wrong = next((name for name in (*LIMITS, "max_delay") if given.get(name) is not None), None)
    if wrong is not None:
        raise UsageError(
            f"--{wrong.replace('_', '-')} is of single inferences, and the model generates.",
            hint="Limit 99 of 100 requests by --ttft 500ms, and by --tpot 50ms.",
        )
    limits = GenerationOptions.of({name: given.get(name) for name in ("ttft", "tpot")})
    if limits.ttft_s is None:
        raise UsageError(
            "A limit of the time to the first token is missing.", hint="For example --ttft 500ms --tpot 50ms."
        )
    options = TrafficOptions.of(given)
    own_rate_per_s, conversations = None, of_lengths(1, 1)
    if not is_poisson(options.arrivals):
        own_rate_per_s, conversations = read_conversations(Path(str(options.arrivals)))
    rate_per_s = _rate(options, own_rate_per_s, hint="Requests a second, like --rate 5.")
    limit_option = f"--ttft {seconds(limits.ttft_s)}"
    of_kind = {"limit_s": limits.ttft_s, "tpot_s": limits.tpot_s, "conversations": conversations}
    return _question(GenerationDemand, options, rate_per_s, limit_option, shown, **of_kind)


def of_lengths(prompt_tokens: int, output_tokens: int) -> Conversations:
    """Return requests that have each so many tokens in and out."""
    return Conversations(prompts=np.array([prompt_tokens]), outputs=np.array([output_tokens]))


def _rate(options: TrafficOptions, own_rate_per_s: float | None, *, hint: str) -> float:
    """Return the requests a second; ``own_rate_per_s`` is a trace's, which an option's takes the place of."""
    if options.rate_per_s is not None:
        return options.rate_per_s
    if own_rate_per_s is None:
        raise UsageError("--rate is missing.", hint=hint)
    checked = TrafficOptions.of({"rate": own_rate_per_s}).rate_per_s
    assert checked is not None
    return checked


def is_poisson(arrivals: object) -> bool:
    """Return whether no file is meant; a settings file's value comes as a path of its folder."""
    return arrivals is None or Path(str(arrivals)).name.lower() == POISSON_NAME


def with_earlier(analysis: Analysis, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, and those of the record's own question that were not.

    Raises:
        UsageError: The record's arrivals are of a file, or one of its GPUs is none of the catalogue.
    """
    plan = analysis.capacity
    options = {name: value for name, value in given.items() if value is not None}
    if plan is None or plan.requests != "inference":
        return options
    # Of several limits one is meant, and a trace has a rate of its own.
    if not options.keys() & LIMITS.keys():
        options |= {
            name: f"{plan.limit_s!r}s" for name, percentile in LIMITS.items() if percentile == plan.percentile
        }
    if "arrivals" not in options and not is_poisson(plan.arrivals):
        # A path in a record is anybody's: no file is read that was not named here.
        raise UsageError(
            f"The record's traffic is that of {plan.arrivals}.",
            hint=f"Give it again: --arrivals {Path(plan.arrivals).name}, or --arrivals {POISSON_NAME}.",
        )
    # A default needs no option in the command that asks the same again.
    earlier: dict[str, Any] = {
        "rate": plan.rate_per_s if is_poisson(options.get("arrivals")) else None,
        # From 1 on a share needs its sign.
        "headroom": (plan.headroom if plan.headroom < 1 else f"{plan.headroom * 100!r}%") or None,
        "growth": plan.growth if plan.growth != 1 else None,
        "spare": plan.spare or None,
        "max_batch": plan.max_batch,
        "max_delay": None if plan.max_delay_s is None else f"{plan.max_delay_s or 0!r}s",
    }
    earlier = {name: value for name, value in earlier.items() if value is not None} | options
    # The record's devices, where they were named for its plan.
    before = analysis.invocation
    named = before.options if before is not None and before.command == "capacity" else {}
    if "gpu" in named and "gpu" not in options:
        own = analysis.devices.gpu
        known = {gpu.slug for gpu in (*catalogue.gpus(), *([own] if own is not None else []))}
        slugs = tuple(dict.fromkeys(option.device for option in plan.options if option.kind == "gpu"))
        # As with a trace: the name of a GPU's file is one that was given here.
        strange = next((slug for slug in slugs if slug not in known), None)
        if strange is not None:
            raise UsageError(f"The catalogue has no GPU {strange!r}.", hint="Give it again with --gpu.")
        earlier["gpu"] = ",".join(slugs) or "none"
    if "cpu" in named and "cpu" not in options:
        earlier["cpu"] = analysis.devices.cpu.slug
    return earlier
