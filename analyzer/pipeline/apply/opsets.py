"""The opset of a model that runs fastest, and what each of the others costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from analyzer.errors import AnalyzerError
from analyzer.figures import Latency
from analyzer.loading.loaded import DEFAULT_OPSET
from analyzer.options import PlanName
from analyzer.record.analysis import Analysis
from analyzer.text import listed, plural
from analyzer.units import seconds

# PyTorch's exporter writes from 18 on; models that are converted are taken through the same ones.
FIRST, LAST = 18, 23
_NO_KERNEL = ("no-kernel-for-opset", "no-cuda-kernel", "no-kernel-for-type", "capability")


@dataclass(frozen=True, kw_only=True)
class OpsetCost(Latency):
    """The cost of a model at one opset.

    Attributes:
        opset: It.
        plan: Whose latency it is.
        without_kernel: Operators of the CUDA session that run on the CPU for want of a kernel, by type.
        copies, copies_s: Of that session, inside the graph.
        why: Why it cannot be had, or what it costs, in a sentence.
    """

    opset: int
    plan: PlanName | None = None
    without_kernel: Mapping[str, int] = field(default_factory=dict)
    copies: int = 0
    copies_s: float = 0.0
    why: str = ""


def fastest(costs: Sequence[OpsetCost]) -> OpsetCost | None:
    """Return the opset of least latency; of equals the usual one, else the oldest."""
    had = [cost for cost in costs if cost.latency is not None]
    # Predictions repeat to the last digit: what differs by less is another order of the same sum.
    return min(
        had,
        key=lambda cost: (
            round(cost.latency.value if cost.latency else 0.0, 12),
            cost.opset != DEFAULT_OPSET,
            cost.opset,
        ),
        default=None,
    )


def cost_at(
    opset: int, analyse: Callable[[int], Analysis], plan_of: Callable[[Analysis], PlanName]
) -> OpsetCost:
    """Return what a model costs at an opset; ``analyse`` predicts it there, by the plan that is applied."""
    try:
        analysis = analyse(opset)
        name = plan_of(analysis)
    except AnalyzerError as error:
        return OpsetCost(opset=opset, why=error.message)
    plan = next(plan for plan in analysis.plans if plan.name == name)
    session = next((plan for plan in analysis.plans if plan.name == "gpu"), None)
    inside = [item for item in session.transfers.items if item.where == "inside"] if session else []
    without = Counter(
        operator.op_type
        for operator in analysis.operators
        if operator.gpu is not None and operator.gpu.why in _NO_KERNEL
    )
    copies_s, why = sum(item.time_s for item in inside), ""
    spent = f"{seconds(copies_s)} of copies ({plural(len(inside), 'copy')})" if inside else ""
    if analysis.session_fails:
        why = f"No session with CUDA: {analysis.session_fails}."
    elif without:
        verb = "has" if len(without) == 1 else "have"
        why = f"{listed(sorted(without))} {verb} no CUDA kernel{spent and f', {spent}'}."
    elif spent:
        why = f"{spent}."
    return OpsetCost(
        opset=opset,
        **plan.latency.keys("latency_s"),
        plan=name,
        without_kernel=dict(sorted(without.items())),
        copies=len(inside),
        copies_s=copies_s,
        why=why,
    )
