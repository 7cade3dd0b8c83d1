"""The best plan that a session can be told, and what that session then does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzer.decision.decision_input import DecisionInput
from analyzer.decision.pins import pins_by_operator
from analyzer.decision.placement_problem import HOST, PlacementProblem
from analyzer.decision.plans import Plan, Plans, objective_value, plan_all, plan_of_session
from analyzer.errors import UsageError
from analyzer.ort.execution import Placement
from analyzer.ort.kernels import registry
from analyzer.ort.placement import place
from analyzer.ort.session_nodes import LevelOne
from analyzer.ort.simplify import simplify


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldSession:
    """A session and the annotations that it is told a plan by.

    Attributes:
        plan: What it costs.
        placement: Where ONNX Runtime puts each operator.
        annotated: Indices of the operators that carry the annotation for the CPU.
        best: The best plan of all, which need not be expressible; None where nothing was searched.
        nodes: ``CUDA`` or ``CPU`` by the names of the nodes that it will record.
    """

    plan: Plan
    placement: Placement
    annotated: frozenset[int] = frozenset()
    best: Plan | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def uses_gpu(self) -> bool:
        """Return whether CUDA's provider takes part."""
        return any(node.provider == "cuda" for node in self.placement.nodes)


def release_of(question: DecisionInput) -> str:
    """Return the release of ONNX Runtime that a question is about; empty for the newest that is known."""
    return question.placement.release if question.placement is not None else ""


def hybrid_session(question: DecisionInput, level_one: LevelOne) -> ToldSession:
    """Return the best split that annotations express.

    Raises:
        UsageError: A pin cannot be kept.
    """
    free = plan_all(question)
    gpu_only = question.gpu_only | level_one.gpu_only(release_of(question))
    bound = replace(question, together=level_one.together(), gpu_only=gpu_only)
    plans = plan_all(bound)
    if plans.problem is None or plans.cut is None:
        raise UsageError(
            "There is no split between the CPU and this GPU: nothing of the model can run there.",
            hint="Choose another --gpu, or --plan cpu.",
        )
    best = min(
        _sessions(bound, plans, plans.problem, plans.cut.on_gpu),
        key=lambda session: (not session.plan.fits, objective_value(question, session.plan)),
    )
    _check_pins(question, best)
    return replace(best, best=free.hybrid)


def _sessions(
    question: DecisionInput,
    plans: Plans,
    problem: PlacementProblem,
    on_gpu: Sequence[bool],
) -> Iterator[ToldSession]:
    """Ways to tell a session one split: annotations on all that the CPU runs, or on what CUDA would take."""
    capable = problem.gpu_capable_units
    if plans.gpu is not None and list(on_gpu) == list(capable) and question.placement is not None:
        # What CUDA's session does by itself needs no word.
        yield ToldSession(plan=replace(plans.gpu, name="hybrid"), placement=question.placement)
        return
    simplified = simplify(question.graph, registry(release_of(question)))
    for whole in (True, False):
        annotated = frozenset(
            index
            for index, unit in enumerate(problem.unit)
            if unit != HOST and not on_gpu[unit] and (whole or capable[unit]) and index not in question.gpu_only
        )
        placement = place(question.graph, simplified, annotated=annotated)
        plan = plan_of_session(question, problem, on_gpu, placement.copies)
        yield ToldSession(plan=plan, placement=placement, annotated=annotated)


def _check_pins(question: DecisionInput, session: ToldSession) -> None:
    """Refuses a pin that the session would not keep: shape arithmetic goes to the CPU whatever it is told."""
    for index, pin in pins_by_operator(question.graph, question.pins).items():
        placed = session.placement.nodes[index]
        if placed.why != "folded" and placed.provider != ("cuda" if pin.device == "gpu" else "cpu"):
            node = question.graph.nodes[index]
            why = placed.detail or "ONNX Runtime places it elsewhere"
            raise UsageError(
                f"{node.name} ({node.op_type}) cannot be pinned to the {pin.device.upper()}: {why}.",
                hint=f"Drop the pin {pin.pattern}={pin.device}.",
            )
