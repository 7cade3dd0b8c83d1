"""What is asked of a generating model: a request, how it is run, the limits that it must keep."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.generation.steps.step_sizes import StepSizes
from analyzer.options import Cache, LaunchMode, Weights

# Tokens in and out where nobody says how many.
DEFAULT_PROMPT, DEFAULT_OUTPUT = 1024, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Sequences that are begun together.

    Attributes:
        batch: How many.
        prompt: Tokens of each that are given.
        output: Tokens of each that are made.
        source: Tokens or frames of each that an encoder reads; 0 without one.
    """

    batch: int
    prompt: int
    output: int
    source: int = 0

    @property
    def context(self) -> int:
        """Tokens of a sequence in the end."""
        return self.prompt + self.output

    def prefill(self, width: int) -> StepSizes:
        """The step that reads the prompt and makes the first token."""
        return StepSizes(
            batch=self.batch,
            tokens=self.prompt,
            context=self.prompt,
            width=width,
            source=self.source,
            reads_source=self.source > 0,
        )

    def decode(self, context: int, width: int) -> StepSizes:
        """A step that makes one more token of each sequence, which then has so many."""
        return StepSizes(batch=self.batch, tokens=1, context=context, width=width, source=self.source)

    def steps(self, width: int) -> tuple[StepSizes, ...]:
        """The prompt's step, then those that the mean of the others is made of."""
        return (self.prefill(width), *(self.decode(context, width) for context, _ in self.contexts()))

    def contexts(self) -> tuple[tuple[int, float], ...]:
        """Contexts of decode steps, and the weight of each in their mean (Simpson's rule).

        Times grow linearly along the context, but for windows and caches that fill up.
        """
        first, last = self.prompt + 1, max(self.prompt + 1, self.prompt + self.output - 1)
        if last - first < _FEW:
            return (((first + last) // 2, 1.0),)
        return ((first, 1 / 6), ((first + last) // 2, 4 / 6), (last, 1 / 6))

    @property
    def middle(self) -> int:
        """Tokens of a sequence half way through its answer."""
        contexts = self.contexts()
        return contexts[len(contexts) // 2][0]


_FEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """What a request must keep; None for no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self.ttft_s is not None or self.tpot_s is not None

    def keep(self, ttft_s: float, tpot_s: float) -> bool:
        """Whether these times keep them."""
        return (self.ttft_s is None or ttft_s <= self.ttft_s) and (self.tpot_s is None or tpot_s <= self.tpot_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a model is run on a kind of device.

    Attributes:
        weights, cache: Types.
        width: Devices that share the model.
        launch: How a GPU's kernels are launched.
    """

    weights: Weights
    cache: Cache
    width: int = 1
    launch: LaunchMode = "session"
