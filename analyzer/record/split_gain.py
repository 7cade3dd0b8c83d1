"""What the best split of a record's operators gains over the better of its two sessions."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.record.outcome import PlanResult

# A plan on both devices needs copies and a session for each stretch: it must pay by more than this.
# A judgement of what another deployment is worth, no measurement.
WORTHWHILE = 1.05


def better_session(plans: Sequence[PlanResult]) -> PlanResult | None:
    """The quicker of the sessions on one device that fit; None where none does."""
    return min(
        (plan for plan in plans if plan.name != "hybrid" and plan.fits),
        key=lambda plan: plan.latency_s,
        default=None,
    )


def split_gain(plans: Sequence[PlanResult]) -> float | None:
    """The better session's latency over the best plan's; None where one of them is not known."""
    best, session = next((plan for plan in plans if plan.name == "hybrid"), None), better_session(plans)
    return session.latency_s / best.latency_s if best and session and best.latency_s else None
