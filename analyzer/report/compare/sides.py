"""Reporting: the times of two records' operators as they are compared: on the target, for the same work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzer.record.analysis import Analysis, CpuTime, GpuTime, OperatorResult

# A time that changed by a smaller share counts neither as slower nor as faster: no measurement's interval is
# given as narrower than 2 % to each side.
NOISE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """One of the two analyses, and the inferences that its operators' times are divided by.

    ``session`` is that of the target device's plan, whose times and groups these are.
    """

    analysis: Analysis
    per: int
    session: Literal["cpu", "cuda"]

    @classmethod
    def pair(cls, base: Analysis, new: Analysis) -> tuple[ComparedSide, ComparedSide]:
        """Both sides; of different batches, one inference is compared with one."""
        batches = base.model.batch, new.model.batch
        # Of the same batch the times stay as they are in both records, to be found there again.
        if None in batches or batches[0] == batches[1]:
            batches = 1, 1
        one, other = (
            cls(analysis=each, per=batch or 1, session="cpu" if each.plan("gpu") is None else "cuda")
            for each, batch in zip((base, new), batches, strict=True)
        )
        return one, other

    def time(self, operator: OperatorResult) -> float | None:
        """An operator's time in the target device's plan: on the GPU where there is one, else on the CPU."""
        time_s = self.on_target(operator).time_s
        return None if time_s is None else time_s / self.per

    def interval(self, operator: OperatorResult) -> tuple[float, float] | None:
        """The ends of its interval, None where not known."""
        time = self.on_target(operator)
        if time.low_s is None or time.high_s is None:
            return None
        return time.low_s / self.per, time.high_s / self.per

    def on_target(self, operator: OperatorResult) -> CpuTime | GpuTime:
        """The record's own time, for a whole batch."""
        return operator.gpu if self.session == "cuda" and operator.gpu is not None else operator.cpu


def is_change(base_s: float | None, new_s: float | None) -> bool:
    """Whether a time changed by more than noise; what is not known on both sides did not."""
    before, after = base_s or 0.0, new_s or 0.0
    return abs(after - before) > NOISE * before


Ends = tuple[str, str]


def flips(
    base: ComparedSide, old: OperatorResult, new: ComparedSide, now: OperatorResult
) -> tuple[Ends | None, Ends | None]:
    """Before and after of the best plan's device, and of the CUDA session's; None where that did not change."""
    # Of a record without a GPU all is on the CPU: that is another question and no flip.
    gpus = base.analysis.devices.gpu and new.analysis.devices.gpu
    return (
        _apart(old.placement, now.placement) if gpus else None,
        _apart(old.gpu.placed_on, now.gpu.placed_on) if old.gpu and now.gpu else None,
    )


def _apart(before: str, after: str) -> Ends | None:
    return None if before == after else (before, after)
