"""Hosts of rented GPUs, and memory that measurements take on this machine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from analyzer.decision import DecisionInput
from analyzer.decision.choice import choose, plan_with_gpu
from analyzer.decision.decision_input import HostBasis, HostedRun
from analyzer.decision.placement_problem import Problems
from analyzer.decision.plans import Plans, plan_all, session_plans
from analyzer.devices import catalogue
from analyzer.devices.device import Device, Instance
from analyzer.errors import GraphError
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.memory import fit
from analyzer.memory.fit import step_bytes
from analyzer.memory.session_plan import SessionPlan
from analyzer.ort.execution import Session
from analyzer.ort.fusion import predicted_groups
from analyzer.record.training_step import StepMemory
from analyzer.units import byte_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The processor that one copy of a model has in a rented machine.

    ``cpu`` is the share of each copy, where one runs on each GPU: what stays on the CPU is computed there.
    """

    cpu: Device
    basis: HostBasis

    @property
    def core(self) -> Hashable:
        """The key of its core."""
        return self.cpu.slug.partition("@")[0], self.basis

    @property
    def key(self) -> Hashable:
        """The key of the host: instances of one size have the same share of one processor."""
        cpu = self.cpu
        return cpu.name, cpu.units, cpu.threads, cpu.memory_bytes, self.basis


def host_of(instance: Instance) -> Host:
    """Return the processor of an instance with a GPU.

    Where the source of its price names none, one in the middle of those that are rented with GPUs stands for
    it: its core is 0.79 times as fast as that of speed 1 (``single_core_speed``), they from 0.44 to 1.4 times.
    """
    return _host_of(
        replace(instance, usd_per_hour=0.0, price_date="", region="", source="", pricing="on-demand")
    )


@cache  # by what the machine is: its price is asked for in many regions and ways of paying
def _host_of(instance: Instance) -> Host:
    known = bool(instance.cpu)
    slug = instance.cpu or catalogue.DEFAULT_CPU
    whole = catalogue.device(slug)
    vcpus = instance.vcpus or whole.threads
    share = replace(
        instance,
        cpu=slug,
        # A machine with several GPUs runs as many copies side by side: each has its part of the cores.
        vcpus=max(1, vcpus // instance.replicas),
        cpu_nearest=instance.cpu_nearest or not known,
    )
    cpu = catalogue.instance_cpu(share)
    assert cpu is not None  # it has a CPU and threads
    memory = (instance.memory_bytes or 0) // instance.replicas
    basis: HostBasis = "assumed" if not known else "nearest" if instance.cpu_nearest else "known"
    return Host(cpu=replace(cpu, memory_bytes=memory or None), basis=basis)


class HostedRuns:
    """The runs of one model on one GPU, by the machine that it stands in.

    ``question_on`` asks about the model beside a rented machine's processor; ``falls_back`` says whether the
    CUDA session runs a part of it on the CPU.
    """

    def __init__(
        self, question_on: Callable[[Host], DecisionInput], problems: Problems, *, falls_back: bool
    ) -> None:
        self._question_on, self._problems = question_on, problems
        self._falls_back = falls_back
        self._questions: dict[Hashable, DecisionInput] = {}
        self._plans: dict[tuple[Hashable, bool], Plans] = {}

    def __call__(self, instance: Instance, plan: Literal["gpu", "hybrid"]) -> HostedRun | None:
        """Return a run of this plan, the better one of ``hybrid``; None without room or session."""
        host = host_of(instance)
        split = plan == "hybrid"
        # Launching is one core's work: without more on the CPU, how many cores there are makes no difference.
        key = host.key if split or self._falls_back else host.core
        if key not in self._questions:
            self._questions[key] = self._question_on(host)
        question = self._questions[key]
        if (key, split) not in self._plans:
            self._plans[key, split] = (plan_all if split else session_plans)(question, self._problems)
        plans = self._plans[key, split]
        result = plans.gpu
        if result is not None and split:
            # Whether it is worth another deployment is decided by time: what it costs is not known yet.
            result = plan_with_gpu(question, plans, choose(question, plans, {}))
        if result is None or not result.fits:
            return None
        return HostedRun(
            plan="hybrid" if result.name == "hybrid" else "gpu",
            latency=result.latency,
            host=host.cpu.name,
            basis=host.basis,
        )


def memory_of(loaded: Loaded, graph: Graph) -> StepMemory | None:
    """Return the memory of a step; None for a model of inference."""
    step = loaded.step
    if step is None:
        return None
    return step_bytes(graph, step.weights, step.states, step.gradients.values())


def needed_bytes(loaded: Loaded, graph: Graph) -> int | None:
    """Return weights and the buffers that ONNX Runtime plans, CUDA's own apart; None where a size is open."""
    step = memory_of(loaded, graph)
    if step is not None:
        return step.peak_bytes
    activations = planned_bytes(graph, "cuda")
    return None if activations is None else graph.parameter_bytes + activations


def planned_bytes(graph: Graph, session: Session) -> int | None:
    """Return bytes of activations that ONNX Runtime plans for a session of that kind, before one is made."""
    return SessionPlan.of(graph, predicted_groups(graph, session)).peak_bytes(session)


def does_not_fit(loaded: Loaded, graph: Graph, batch: int | None, free: int | None) -> str:
    """Return why a run would not fit, and the batch that would; empty where it fits."""
    needed = needed_bytes(loaded, graph)
    if needed is None or free is None or fit.fits(needed, fit.cuda_room(free)):
        return ""
    return (
        f"it would need about {byte_count(needed + fit.CUDA_CONTEXT_BYTES)} of the GPU's memory, "
        f"{byte_count(free)} are free. {_advice(largest_batch(loaded, graph, batch, fit.cuda_room(free)))}"
    )


def smaller_batch(loaded: Loaded, graph: Graph, batch: int | None, free: int | None) -> str:
    """Return advice after memory ran out: the largest batch that fits with room for the arena's growth."""
    if free is None:
        return "Use a smaller --batch, or --no-run for predictions alone."
    room = fit.cuda_room_if_arena_grows(free)
    # Where it fits, the estimate is wrong, or another process took the memory meanwhile.
    if fit.fits(needed_bytes(loaded, graph), room):
        smaller = batch // 2 if batch and loaded.symbol else None
    else:
        smaller = largest_batch(loaded, graph, batch, room)
    return f"{byte_count(free)} are free on the GPU. {_advice(smaller)}"


def _advice(batch: int | None) -> str:
    if batch is None:
        return "Use a smaller --batch, or --no-run for predictions alone."
    if batch == 0:
        return "Not even batch 1 is expected to fit: use --no-run for predictions alone."
    return f"Batch {batch} is the largest expected to fit: use --batch {batch}."


def largest_batch(loaded: Loaded, graph: Graph, batch: int | None, room: int) -> int | None:
    """Return the largest batch below this one that fits; 0 where none does, None where that cannot be told."""
    if batch is None:
        return None
    step = memory_of(loaded, graph)
    if step is not None:
        # Advice after a failure: a line through two points will do, tracing the step again would take seconds.
        largest = fit.largest_by_growth(step.fixed_bytes, step.peak_bytes, batch, room)
        return None if largest is None else min(largest, batch - 1)
    if not loaded.symbol:  # another batch is another export, of which nothing is known yet
        return 0 if batch == 1 else None
    least = loaded.batch_range[0]

    def fits(size: int) -> bool:
        needed = needed_bytes(loaded, loaded.graph(size))
        if needed is None:
            raise GraphError(f"a size is open at batch {size}")
        return needed <= room

    try:
        largest = fit.largest_between(fits, max(0, least - 1), batch)
    except GraphError:  # the model's own arithmetic forbids this batch, or leaves its sizes open
        return None
    return largest if largest >= least else 0
