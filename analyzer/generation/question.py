"""What a user asks about generation, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from analyzer.errors import UsageError
from analyzer.generation.request import TimeLimits
from analyzer.generation.steps.step_sizes import CACHES, WEIGHTS, Cache, Weights
from analyzer.generation.steps.step_times import LAUNCHES, LaunchMode
from analyzer.text import nearest

_MOST_TOKENS, _MOST_BATCH, _MOST_GPUS = 2**24, 2**16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked.

    Attributes:
        prompt, output: Tokens in and out, of each sequence; None for the usual, as far as the model goes.
        batches: Sequences at once; the first is the answer's.
        gpus: Devices that share the model; None for the fewest that hold it.
        weights, cache: Types; None for the model's own.
        launch: How kernels are launched.
        limits: What is to be kept.
    """

    prompt: int | None = None
    output: int | None = None
    batches: tuple[int, ...] = (1,)
    gpus: int | None = None
    weights: Weights | None = None
    cache: Cache | None = None
    launch: LaunchMode = "session"
    limits: TimeLimits = field(default_factory=TimeLimits)


def make_question(
    *,
    prompt: int | None = None,
    output_tokens: int | None = None,
    batches: tuple[int, ...] = (),
    gpus: int | None = None,
    weights: str | None = None,
    kv: str | None = None,
    launch: str | None = None,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
) -> Question:
    """Checks what was given; None is what was left out.

    Raises:
        UsageError: A value that cannot be right.
    """
    return Question(
        prompt=_whole(prompt, "--prompt", _MOST_TOKENS),
        output=_whole(output_tokens, "--output-tokens", _MOST_TOKENS),
        batches=tuple(_whole(batch, "--batch", _MOST_BATCH) or 1 for batch in batches) or (1,),
        gpus=_whole(gpus, "--gpus", _MOST_GPUS),
        weights=cast(Weights | None, _one_of(weights, WEIGHTS, "--weights")),
        cache=cast(Cache | None, _one_of(kv, CACHES, "--kv")),
        launch=cast(LaunchMode, _one_of(launch, LAUNCHES, "--launch") or "session"),
        limits=TimeLimits(ttft_s=_limit(ttft_s, "--ttft"), tpot_s=_limit(tpot_s, "--tpot")),
    )


def _whole(value: int | None, option: str, most: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UsageError(f"{option} {value}: a whole number from 1 to {most:,} is needed.")
    return value


def _one_of(value: str | None, known: tuple[str, ...], option: str) -> str | None:
    if value is None:
        return None
    name = value.lower()
    if name not in known:
        meant = nearest(name, known)
        hint = f"Did you mean {meant}?" if meant else f"It is one of {', '.join(known)}."
        raise UsageError(f"{option} {value}: there is no such choice.", hint=hint)
    return name


def _limit(value: float | None, option: str) -> float | None:
    if value is not None and not value > 0:
        raise UsageError(f"{option} {value:g}: a limit is a time above 0.", hint=f"{option} 200ms")
    return value
