"""Reporting: the times of two records' operators as they are compared: on the target, for the same work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzer.record.analysis import Analysis, CpuTime, GpuTime, OperatorResult

Ends = tuple[float | None, float | None]

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
        """Return both sides; of different batches, one inference is compared with one."""
        batches = base.model.batch, new.model.batch
        # Of the same batch the times stay as they are in both records, to be found there again.
        if None in batches or batches[0] == batches[1]:
            batches = 1, 1
        one, other = (
            cls(analysis=each, per=batch or 1, session="cpu" if each.plan("gpu") is None else "cuda")
            for each, batch in zip((base, new), batches, strict=True)
        )
        return one, other

    def time(self, operator: OperatorResult | None) -> tuple[float | None, Ends]:
        """Return an operator's time in the target device's plan and the ends of its interval."""
        if operator is None:
            return None, (None, None)
        time = self.on_target(operator)
        time_s, low_s, high_s = (
            None if each is None else each / self.per for each in (time.time_s, time.low_s, time.high_s)
        )
        return time_s, (low_s, high_s)

    def on_target(self, operator: OperatorResult) -> CpuTime | GpuTime:
        """Return the record's own time, for a whole batch: on the GPU where there is one, else on the CPU."""
        return operator.gpu if self.session == "cuda" and operator.gpu is not None else operator.cpu


def is_change(base_s: float | None, new_s: float | None) -> bool:
    """Return whether a time changed by more than noise; what is not known on both sides did not."""
    before, after = base_s or 0.0, new_s or 0.0
    return abs(after - before) > NOISE * before
