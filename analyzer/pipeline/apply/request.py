"""The request of ``analyze apply``: what a session can express, and at which opset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analyzer.decision.decision_input import DecisionInput
from analyzer.decision.pins import pins_by_operator
from analyzer.decision.placement_problem import HOST, PlacementProblem
from analyzer.decision.plans import Plan, Plans, objective_value, plan_all, plan_of_session
from analyzer.errors import AnalyzerError, OutputError, UsageError
from analyzer.figures import Latency
from analyzer.loading.loaded import DEFAULT_OPSET
from analyzer.option_kinds import AUTO, parts
from analyzer.options import ALL, FIXES, ApplyOptions, PlanName
from analyzer.ort.execution import Placement
from analyzer.ort.kernels import registry
from analyzer.ort.placement import place
from analyzer.ort.session_nodes import LevelOne
from analyzer.ort.simplify import simplify
from analyzer.pipeline.forms import CONVERTED
from analyzer.record.analysis import Analysis
from analyzer.text import listed, plural
from analyzer.units import seconds

# Precisions that it is not converted to; the rest say what float32 is computed in.
_NO_CONVERTER = {
    "bf16": "ONNX Runtime ships no converter to it, and its CPU provider no kernels to compare numbers with",
    "int4": "weights in 4 bits are predicted, not written",
}
# What `apply` writes beside the model and its weights.
SESSION, PROGRAM, RESULT, RECORD = "session.json", "run.py", "apply.json", "record.json"
# Of the model before its fixes.
ORIGINAL_RECORD = "original.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """The plan to apply, and its destination.

    Attributes:
        plan: None for the verdict's.
        folder: Where the files go.
        force: Whether files of that folder may be replaced.
        auto_opset: Whether the opset is chosen by time.
        fixes: Names of those to apply.
        every_fix: Whether all were options for, so that one that does not apply is left out.
        form: The precision that the model is to be converted to where it is not in it; None for none.
        provider_options: Options of the CUDA provider to turn on.
    """

    plan: PlanName | None
    folder: Path
    force: bool = False
    auto_opset: bool = False
    fixes: tuple[str, ...] = ()
    every_fix: bool = False
    form: str | None = None
    provider_options: tuple[str, ...] = ()

    @property
    def changes_model(self) -> bool:
        """Return whether the model is rewritten before its plan is applied."""
        return bool(self.fixes or self.form)


def make_request(given: Mapping[str, Any], folder: Path, *, force: bool = False) -> ApplyRequest:
    """Check what was given.

    ``given`` are keywords of ``apply_plan()``.

    Raises:
        OutputError: The folder is a file, or holds something already.
        UsageError: A plan that is none, no folder, several GPUs or batches, a training step.
    """
    for name in ("gpu", "batch"):
        value = given.get(name)
        several = parts(value) if isinstance(value, (str, list, tuple)) else []
        if len(several) > 1 or (name == "gpu" and ALL in several):
            raise UsageError(
                f"--{name} {','.join(map(str, several))}: one session is for one {name}.",
                hint=f"Compare them with `analyze MODEL --{name} ...`, then apply one.",
            )
    options, precision = ApplyOptions.of(given), given.get("precision")
    every_fix = ALL in options.fixes
    request = ApplyRequest(
        plan=options.plan,
        folder=folder,
        force=force,
        auto_opset=given.get("opset") == AUTO,
        fixes=tuple(name for name in FIXES if every_fix or name in options.fixes),
        every_fix=every_fix,
        form=precision if precision in (*CONVERTED, *_NO_CONVERTER) else None,
        provider_options=options.provider_options,
    )
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file.", hint="--output names a folder.")
    try:
        filled = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise OutputError(f"{folder} cannot be read: {error.strerror}.") from error
    if filled and not force:
        raise OutputError(
            f"The folder {folder} is not empty.", hint="Name another, or --force to replace what apply writes."
        )
    return request


def check_form(form: str) -> None:
    """Refuse a precision that nothing converts a model to."""
    if form in _NO_CONVERTER:
        raise UsageError(
            f"--precision {form}: {_NO_CONVERTER[form]}.",
            hint=f"One of {', '.join(CONVERTED)}, or a model that is exported in {form}.",
        )


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
    """Refuse a pin that the session would not keep: shape arithmetic goes to the CPU whatever it is told."""
    for index, pin in pins_by_operator(question.graph, question.pins).items():
        placed = session.placement.nodes[index]
        if placed.why != "folded" and placed.provider != ("cuda" if pin.device == "gpu" else "cpu"):
            node = question.graph.nodes[index]
            why = placed.detail or "ONNX Runtime places it elsewhere"
            raise UsageError(
                f"{node.name} ({node.op_type}) cannot be pinned to the {pin.device.upper()}: {why}.",
                hint=f"Drop the pin {pin.pattern}={pin.device}.",
            )


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
