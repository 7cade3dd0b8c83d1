"""Three ways to run the model: on the CPU, in a CUDA session, and each unit where it costs least."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

import numpy as np

from analyzer.arrays import Floats
from analyzer.decision.decision_input import (
    DecisionInput,
    Side,
    all_fits_gpu,
    cpu_weight_bytes,
    fits,
    needed,
    room_for_weights,
    weight_bytes,
)
from analyzer.decision.energy import watts
from analyzer.decision.error_components import (
    EVEN,
    ErrorComponent,
    ErrorComponents,
    Resource,
    component,
    of_measured_run,
    rescaled,
    summed,
)
from analyzer.decision.min_cut import Cut, PlacementCosts, partition, weight_bytes_on_gpu
from analyzer.decision.pins import bound_units
from analyzer.decision.placement_problem import HOST, PlacementProblem, Problems, TensorEdge
from analyzer.errors import DeviceError
from analyzer.figures import Figure
from analyzer.ort.execution import Copy, Direction, Group
from analyzer.prediction.collectives import transfer
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import TransferItem
from analyzer.text import listed
from analyzer.units import count, share

Name = Literal["cpu", "gpu", "hybrid"]
_EXACT = 1e-3  # a relative difference that no figure shows: reports print three digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One copy of a plan with its time's interval."""

    item: TransferItem
    time: Figure


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A way to run the model.

    Attributes:
        name: ``cpu``, ``gpu`` or ``hybrid``.
        components: What its time is made of.
        transfers: Its copies.
        sides: Device of each operator.
        on_gpu, on_cpu: How many operators run on each; those that are folded away run on neither.
        memory_bytes: Weights and the activations alive at once, on both devices; None where not known.
        fits: Whether each device's share fits its memory (true where that is not known).
        why: What to know about it, in sentences.
    """

    name: Name
    components: ErrorComponents
    transfers: tuple[Transfer, ...] = ()
    sides: tuple[Side, ...] = ()
    on_gpu: int = 0
    on_cpu: int = 0
    memory_bytes: int | None = None
    fits: bool = True
    why: str = ""

    @cached_property
    def latency(self) -> Figure:
        """Host to host."""
        return summed(self.components)


@dataclass(frozen=True, kw_only=True)
class Plans:
    """The plans of a question; ``gpu`` and ``hybrid`` are None where there is nothing but the CPU."""

    cpu: Plan
    gpu: Plan | None = None
    hybrid: Plan | None = None
    problem: PlacementProblem | None = None
    cut: Cut | None = None

    def __iter__(self) -> Iterator[Plan]:
        """Those that there are."""
        return (plan for plan in (self.cpu, self.gpu, self.hybrid) if plan is not None)


def plan_all(question: DecisionInput, problems: Problems | None = None) -> Plans:
    """Return all plans of a question.

    ``problems`` are those of other questions about the model, which are not worked out again.
    """
    plans = session_plans(question, problems)
    cpu, gpu, problem = plans.cpu, plans.gpu, plans.problem
    if gpu is None or problem is None:
        return plans
    # The GPU holds the activations, and ONNX Runtime's wheel has code for it.
    usable = question.gpu is not None and question.gpu.runs_release_wheel and fits(question, 0, question.gpu)
    if not question.pins and not usable:
        # Whatever the search found could not run: if anything can, it is the CPU's session.
        return replace(plans, hybrid=replace(cpu, name="hybrid"))
    if question.graph.is_training_step and not question.pins:
        # No framework splits a step between the devices: one of them trains, unless a pin asks for a split.
        sessions = (gpu,) if question.cpu_refuses else (cpu, gpu)
        whole = min(sessions, key=lambda plan: (not plan.fits, objective_value(question, plan)))
        return replace(plans, hybrid=replace(whole, name="hybrid"))
    cut = partition(_placement_costs(question, problem), memory_bytes=room_for_weights(question))
    return replace(plans, hybrid=_hybrid_plan(question, problem, cut, cpu, gpu), cut=cut)


def session_plans(question: DecisionInput, problems: Problems | None = None) -> Plans:
    """Return the CPU's session and the CUDA session alone, without the search for the best split."""
    cpu = _cpu_plan(question)
    # The CPU's session executes something and no CUDA session is known: nothing says what the GPU would do.
    # Where both are empty every operator is folded away, and both plans take no time.
    no_session = bool(question.cpu_groups) and not question.cuda_groups
    # What no provider runs at all says nothing against either device.
    refused = question.placement is not None and bool(question.placement.fails) and not question.lacks
    if question.gpu is None or no_session or refused:
        return Plans(cpu=cpu)
    problem = (problems or Problems()).of(question)
    return Plans(cpu=cpu, gpu=_gpu_plan(question, problem), problem=problem)


def by_operator_type(question: DecisionInput, plan: Plan) -> ErrorComponents:
    """Return parts of a session's plan, each with the error of its type: kernels of one type err together."""
    if plan.name == "hybrid":
        return plan.components
    on_cpu = plan.name == "cpu"
    groups, times = (
        (question.cpu_groups, question.cpu_times) if on_cpu else (question.cuda_groups, question.cuda_times)
    )
    parts: dict[tuple[Resource, str], list[Figure]] = {}
    for group, time in zip(groups, times, strict=True):
        if time is not None:
            resource: Resource = "cpu" if on_cpu else _resource(group, time)
            parts.setdefault((resource, group.op_type), []).append(time)
    links = (part for part in plan.components if part.resource == "link")
    timed = (
        replace(part := component(resource, each), source=f"{part.source} {op_type}")
        for (resource, op_type), each in parts.items()
    )
    return (*timed, *links)


CopyEnd = Literal["input", "output", "inside"]


def copy_time(
    question: DecisionInput, nbytes: int | None, direction: Direction, where: CopyEnd = "inside"
) -> Figure:
    """Time of one copy over the GPU's link; of an unknown size, its fixed time alone.

    Arrays that a program passes to ``run()`` lie in pageable memory, which CUDA copies through a pinned buffer
    of its own: slower (CUDA C++ Best Practices Guide, "Pinned Memory"). So does what an operator of the CPU
    wrote: 34 MB of it take 3.6 ms to an H200, at 9.4 GB/s. What comes to such an operator goes to pinned memory
    of the CUDA provider's.

    Raises:
        DeviceError: The GPU has no link.
    """
    if question.gpu is None or question.gpu.link is None:
        name = question.gpu.name if question.gpu else "the GPU"
        raise DeviceError(
            f"The link between the host and {name} is not known.",
            hint="Give the device a link with a bandwidth.",
        )
    pinned = direction == "to_cpu" and where == "inside"
    # One byte stands for the fixed time: a copy of no bytes would cost nothing, and is never made.
    return transfer(question.gpu.link, 1 if nbytes is None else nbytes, pinned=pinned)


def _cpu_scale(question: DecisionInput) -> float:
    """Return the factor from the CPU groups' times to the whole run as measured."""
    whole, spent = question.cpu_latency, sum(time.value for time in question.cpu_times if time is not None)
    return whole.value / spent if whole is not None and spent else 1.0


def _cuda_scale(question: DecisionInput, problem: PlacementProblem) -> float:
    """Return the factor from the CUDA session's groups and copies to the whole run as measured."""
    if question.cuda_latency is None:
        return 1.0
    components = _session_components(question, _session_transfers(question, problem))
    spent = sum(item.time.value for item in components)
    return question.cuda_latency.value / spent if spent else 1.0


def _sentences(*texts: str) -> str:
    return " ".join(filter(None, texts))


def _cpu_plan(question: DecisionInput) -> Plan:
    part, cpu = component("cpu", (time for time in question.cpu_times if time is not None)), question.cpu
    here: Side = "cpu"
    if question.cpu_latency is not None:
        # Timed without the profiler, which adds a microsecond or two to each node.
        part = ErrorComponent(resource="cpu", source="cpu", time=question.cpu_latency)
    return Plan(
        name="cpu",
        components=(part,),
        sides=(here,) * len(question.graph.nodes),
        on_cpu=len(set().union(*[group.members for group in question.cpu_groups])),
        memory_bytes=needed(question, cpu_weight_bytes(question), cpu),
        fits=fits(question, cpu_weight_bytes(question), cpu),
        why=_sentences(_missing_kernels(question), _runs_nowhere(question), _missing_times(question.cpu_times)),
    )


def _gpu_plan(question: DecisionInput, problem: PlacementProblem) -> Plan:
    transfers = _session_transfers(question, problem)
    components = _session_components(question, transfers)
    if question.cuda_latency is not None:
        components = rescaled(components, question.cuda_latency)
    sides = problem.gpu_sides
    return Plan(
        name="gpu",
        components=components,
        transfers=transfers,
        sides=sides,
        on_gpu=_operators_on(problem, sides, "gpu"),
        on_cpu=_operators_on(problem, sides, "cpu"),
        memory_bytes=needed(question, weight_bytes(question), question.gpu),
        fits=all_fits_gpu(question),
        why=_sentences(_runs_nowhere(question), _missing_times(question.cuda_times), _missing_sizes(transfers)),
    )


def _hybrid_plan(question: DecisionInput, problem: PlacementProblem, cut: Cut, cpu: Plan, gpu: Plan) -> Plan:
    """Return the best plan: the cut, or a plan of one session where that is as fast or the same."""
    sides = problem.sides(cut.on_gpu)
    # A uniform cut is a session that exists: its own times and copies are nearer than the sum over units.
    whole = cpu if "gpu" not in sides else gpu if sides == gpu.sides and gpu.fits else None
    if whole is None:
        mixed = _mixed_plan(question, problem, cut, sides)
        # The cut is exact for sums over units and only near it where memory limits: a session's own figures may
        # be better. With pins neither session is a rival, since it need not keep them.
        rivals = () if question.pins else (gpu,) if question.cpu_refuses else (cpu, gpu)
        whole = min((mixed, *rivals), key=lambda plan: (not plan.fits, objective_value(question, plan)))
    return replace(whole, name="hybrid")


def plan_of_session(
    question: DecisionInput, problem: PlacementProblem, on_gpu: Sequence[bool], copies: Iterable[Copy]
) -> Plan:
    """Return the plan of a session with units where ``on_gpu`` has them and the copies that it makes inside."""
    cut = Cut(on_gpu=tuple(on_gpu), cost=0.0, least=0.0)
    mixed = _mixed_plan(question, problem, cut, problem.sides(on_gpu))
    transfers = _with_inside(question, problem, mixed.transfers, copies)
    components = tuple(each for each in mixed.components if each.resource != "link")
    if transfers:
        components = (*components, component("link", [one.time for one in transfers]))
    return replace(mixed, components=components, transfers=transfers)


def objective_value(question: DecisionInput, plan: Plan) -> float:
    """Return the quantity that the best plan minimises: joules for that objective, else seconds."""
    return summed(plan.components, busy_weights(question, with_gpu="gpu" in plan.sides)).value


def busy_weights(question: DecisionInput, *, with_gpu: bool) -> Mapping[Resource, float]:
    """Weight of each resource's time under the objective, in a machine with the GPU or without."""
    if question.objective != "energy":
        return EVEN
    return watts(question.cpu, question.gpu if with_gpu else None) or EVEN


def _mixed_plan(question: DecisionInput, problem: PlacementProblem, cut: Cut, sides: tuple[Side, ...]) -> Plan:
    scale = _cpu_scale(question)
    on_cpu = [
        time.scaled(scale)
        for unit, time in _times_by_unit(problem, question.cpu_groups, question.cpu_times)
        if not cut.on_gpu[unit]
    ]
    scale = _cuda_scale(question, problem)
    session = [
        (group, time.scaled(scale))
        for group, time in zip(question.cuda_groups, question.cuda_times, strict=True)
        if time is not None and group.members and cut.on_gpu[problem.unit[group.members[0]]]
    ]
    transfers = _crossing_transfers(question, problem, cut.on_gpu)
    weights, gpu_weights = weight_bytes(question), weight_bytes_on_gpu(problem, cut.on_gpu)
    return Plan(
        name="hybrid",
        components=_components(question, on_cpu, session, transfers),
        transfers=transfers,
        sides=sides,
        on_gpu=_operators_on(problem, sides, "gpu"),
        on_cpu=_operators_on(problem, sides, "cpu"),
        memory_bytes=needed(question, weights, question.gpu),
        # Either device may have to hold all activations at its peak: which part of them is not worked out.
        fits=fits(question, gpu_weights, question.gpu)
        and fits(question, max(0, weights - gpu_weights), question.cpu),
        why=_sentences(_runs_nowhere(question), _missing_sizes(transfers), _optimality_gap(cut)),
    )


def _optimality_gap(cut: Cut) -> str:
    """Return how much better another placement could be, where the GPU's memory makes the search inexact."""
    if cut.least >= cut.cost * (1 - _EXACT):
        return ""
    excess = share(1 - cut.least / cut.cost)
    return f"The GPU's memory limits the split: another one could be better, by {excess} at most."


def _components(
    question: DecisionInput,
    on_cpu: Iterable[Figure],
    session: Iterable[tuple[Group, Estimate]],
    transfers: Iterable[Transfer],
) -> ErrorComponents:
    """Return the parts of a plan; what the CUDA session runs on the CPU is the CPU's."""
    by_resource: dict[Resource, list[Figure]] = {"cpu": list(on_cpu), "gpu": [], "launch": [], "link": []}
    for group, time in session:
        by_resource[_resource(group, time)].append(time)
    by_resource["link"].extend(transfer.time for transfer in transfers)
    run, busy = question.cpu_latency, by_resource.pop("cpu")
    parts = (component("cpu", busy),) if run is None else of_measured_run("cpu", busy, run)
    others = (component(resource, times) for resource, times in by_resource.items() if times)
    return (*(parts if busy else ()), *others)


def _resource(group: Group, time: Estimate) -> Resource:
    """Return who is busy while the CUDA session runs this group."""
    if group.provider == "cpu":
        return "cpu"
    # Where the host cannot hand over kernels fast enough the GPU idles between them, and draws less power.
    return "launch" if time.bound == "overhead" else "gpu"


def _session_components(question: DecisionInput, transfers: Iterable[Transfer]) -> ErrorComponents:
    pairs = zip(question.cuda_groups, question.cuda_times, strict=True)
    timed = ((group, time) for group, time in pairs if time is not None)
    return _components(question, (), timed, transfers)


def _session_transfers(question: DecisionInput, problem: PlacementProblem) -> tuple[Transfer, ...]:
    """Return inputs and outputs by the wiring, and inside the graph the session's actual copies."""
    crossing = _crossing_transfers(question, problem, problem.gpu_capable_units)
    return _with_inside(question, problem, crossing, question.placement.copies if question.placement else ())


def _with_inside(
    question: DecisionInput, problem: PlacementProblem, crossing: Iterable[Transfer], copies: Iterable[Copy]
) -> tuple[Transfer, ...]:
    """Return the copies of inputs and outputs among those, and what a session inserts inside the graph."""
    transfers = {(one.item.tensor, one.item.direction): one for one in crossing if one.item.where != "inside"}
    sizes = dict(zip([edge.tensor for edge in problem.edges], problem.nbytes, strict=True))
    for copy in copies:
        name = problem.roots.get(copy.tensor, copy.tensor) or copy.tensor
        nbytes = sizes.get(name, copy.nbytes)
        # ONNX Runtime inserts one Memcpy node a tensor and direction, however many nodes read the copy
        # (onnxruntime/core/optimizer/transformer_memcpy.cc).
        if (name, copy.direction) not in transfers and nbytes != 0:
            transfers[name, copy.direction] = _transfer(question, name, copy.direction, nbytes, "inside")
    return tuple(transfers.values())


def _crossing_transfers(
    question: DecisionInput, problem: PlacementProblem, on_gpu: Sequence[bool]
) -> tuple[Transfer, ...]:
    to_gpu, to_cpu = problem.edge_arrays.crossed(np.array(on_gpu, dtype=np.bool_))
    transfers = []
    for position in np.flatnonzero(to_gpu | to_cpu).tolist():
        edge, nbytes = problem.edges[position], problem.nbytes[position]
        direction: Direction = "to_gpu" if to_gpu[position] else "to_cpu"
        if nbytes != 0:
            transfers.append(_transfer(question, edge.tensor, direction, nbytes, _where(edge, direction)))
    return tuple(transfers)


def _where(edge: TensorEdge, direction: Direction) -> CopyEnd:
    if edge.is_input and direction == "to_gpu":
        return "input"
    return "output" if edge.is_output and direction == "to_cpu" else "inside"


def _transfer(
    question: DecisionInput, tensor: str, direction: Direction, nbytes: int | None, where: CopyEnd
) -> Transfer:
    time = copy_time(question, nbytes, direction, where)
    item = TransferItem(tensor=tensor, direction=direction, bytes=nbytes or 0, time_s=time.value, where=where)
    return Transfer(item=item, time=time)


def _operators_on(problem: PlacementProblem, sides: Sequence[Side], side: Side) -> int:
    return [device for unit, device in zip(problem.unit, sides, strict=True) if unit != HOST].count(side)


def _times_by_unit(
    problem: PlacementProblem, groups: Sequence[Group], times: Sequence[Figure | None]
) -> Iterator[tuple[int, Figure]]:
    for group, time in zip(groups, times, strict=True):
        if time is not None and group.members:
            yield problem.unit[group.members[0]], time


def _placement_costs(question: DecisionInput, problem: PlacementProblem) -> PlacementCosts:
    """Return costs of each unit under the objective.

    A unit of which a time is known on one side alone is bound to that side, unless a pin says otherwise.
    """
    weights = busy_weights(question, with_gpu=True)
    cpu, gpu = [0.0] * problem.units, [0.0] * problem.units
    # Groups lie inside one unit by construction, so that the first member tells the unit of all.
    scale = _cpu_scale(question)
    for unit, time in _times_by_unit(problem, question.cpu_groups, question.cpu_times):
        cpu[unit] += weights["cpu"] * time.value * scale
    scale = _cuda_scale(question, problem)
    for group, spent in zip(question.cuda_groups, question.cuda_times, strict=True):
        if spent is not None and group.members:
            busy = weights[_resource(group, spent)]
            gpu[problem.unit[group.members[0]]] += busy * spent.value * scale
    # A copy's price: seconds, or joules of the whole machine while it waits for the link.
    weight = weights["link"]

    @cache  # layers that are alike have tensors of the same sizes
    def price(nbytes: int | None, direction: Direction, where: CopyEnd) -> float:
        return weight * copy_time(question, nbytes, direction, where).value

    def prices(direction: Direction) -> Floats:
        edges = zip(problem.edges, problem.nbytes, strict=True)
        return np.array([price(nbytes, direction, _where(edge, direction)) for edge, nbytes in edges], float)

    # Plans of a model that no session runs are as if one did, whatever the kernels.
    bound = bound_units(
        question.graph, question.pins, problem, frozenset() if question.fails else question.gpu_only
    )
    # An unknown time must not read as 0 seconds, or the cut would put the unit where nothing is known.
    unknown_cpu = _units_without_time(problem, question.cpu_groups, question.cpu_times)
    unknown_gpu = _units_without_time(problem, question.cuda_groups, question.cuda_times)
    for unit in unknown_cpu ^ unknown_gpu:
        bound[unit] = unit in unknown_cpu if bound[unit] is None else bound[unit]
    return PlacementCosts(
        problem=problem,
        cpu=np.array(cpu, dtype=np.float64),
        gpu=np.array(gpu, dtype=np.float64),
        to_gpu=prices("to_gpu"),
        to_cpu=prices("to_cpu"),
        bound=tuple(bound),
    )


def _units_without_time(
    problem: PlacementProblem, groups: Sequence[Group], times: Sequence[Figure | None]
) -> set[int]:
    pairs = zip(groups, times, strict=True)
    return {problem.unit[group.members[0]] for group, time in pairs if time is None and group.members}


def _missing_kernels(question: DecisionInput) -> str:
    if question.cpu_refuses and not question.fails:
        return f"No session runs it: {question.cpu_refuses}."
    lacking = question.cpu_lacks
    if not lacking:
        return ""
    kernels = f"kernel{'s' * (len(lacking) > 1)} for {listed(lacking)}"
    return f"For reference: ONNX Runtime's CPU provider lacks the {kernels}."


def _runs_nowhere(question: DecisionInput) -> str:
    if question.fails:
        empty = "The file declares an input without elements: this is of other sizes."
        return empty if question.graph.empty_inputs else "No session runs it: this is predicted as if one did."
    if not question.lacks:
        return ""
    return f"As if it ran: no provider has a kernel for {listed(question.lacks)}, whose time is not known."


def _missing_times(times: Iterable[Figure | None]) -> str:
    missing = sum([time is None for time in times])
    if not missing:
        return ""
    return f"The time of {count(missing)} operator{'s' * (missing > 1)} is not known: this is at least."


def _missing_sizes(transfers: Iterable[Transfer]) -> str:
    missing = sum(transfer.item.bytes == 0 for transfer in transfers)  # empty tensors are not copied
    if not missing:
        return ""
    return f"{count(missing)} cop{'ies' if missing > 1 else 'y'} of unknown size count at the fixed time alone."
