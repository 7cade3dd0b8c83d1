"""The processor of a rented machine with a GPU, and the model's times on it."""

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
