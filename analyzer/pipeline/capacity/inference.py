"""A model of single inferences under traffic: how long each instance takes for each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from analyzer.decision import DecisionInput
from analyzer.decision.plans import plan_all
from analyzer.devices import catalogue
from analyzer.devices.device import Device, Instance
from analyzer.figures import Figure, QueueLoad
from analyzer.memory.fit import fits
from analyzer.pipeline.batches import AnalysisBasis
from analyzer.pipeline.capacity.sizing import (
    Copies,
    InstanceOffer,
    no_machine_code,
    rented,
    rented_cpus,
    requested_gpus,
)
from analyzer.pipeline.capacity.traffic import CapacityQuestion
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.target_devices import decision_precision, model_precision
from analyzer.precision import INTEGER_FORMS
from analyzer.record.capacity import CapacityOption, ServicePoint
from analyzer.record.invocation import Texts
from analyzer.record.outcome import WORTHWHILE, WhyNot
from analyzer.serving.queue import Server, ServiceCurve, Sizing
from analyzer.serving.search import LOOSEST_LIMIT, Demand
from analyzer.units import seconds, share

CHOSEN_BATCHES = "Let largest batch and longest wait be chosen"
Times = Mapping[int, Figure]
# Batches at which CPUs are predicted: one has each of many parts of it to be asked about.
_CPU_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


# Below this utilisation the limit, not the work, decides how many instances there are. A judgement.
_MOSTLY_IDLE = 0.1


class InferenceService:
    """A model whose requests are single inferences.

    ``quickest`` says in a message what the quickest answer of all is, ``no_way`` what to do where nothing can
    run the model; ``keys`` are further ones of the record.
    """

    quickest = "the quickest batch of all takes {}, on {}."
    keys: ClassVar[Mapping[str, Any]] = {}
    no_way = "`analyze check` says what stops it; `analyze devices` lists GPUs and CPUs."

    def __init__(self, basis: AnalysisBasis, question: CapacityQuestion[Demand]) -> None:
        self._basis, self.question = basis, question
        self._demand: Demand = question.demand
        self.pricing = basis.predictor.options.pricing

    def offers(self, gpus: Sequence[str] | None, cpus: Sequence[str]) -> Iterator[InstanceOffer]:
        """Yield instances with these GPUs, then those without an accelerator."""
        basis = self._basis
        predictor, graphs = basis.predictor, _graphs(basis).values()
        predictor.sessions.stack(prepared.cuda_work for prepared in graphs)
        predictor.sessions.stack(prepared.on_cpu.cpu_work for prepared in graphs)
        # No limit that is reported is kept by a batch that takes longer.
        longest_s = LOOSEST_LIMIT * self._demand.limit_s
        for gpu in requested_gpus(predictor.instances, basis.gpu, gpus):
            precision = _types(basis, decision_precision(predictor.options, basis.prepared.graph, gpu))
            runs = _GpuRuns(basis, gpu, longest_s)
            for instance in rented(predictor.instances, gpu, named=gpus is not None):
                times, why_not = runs.times(instance)
                number = instance.replicas if instance else 1
                yield InstanceOffer(
                    instance=instance,
                    device=gpu.slug,
                    name=gpu.name,
                    kind="gpu",
                    precision=precision,
                    copies=(_copies(number, times),) if times else (),
                    why_not=why_not,
                )
        yield from _cpu_offers(basis, cpus, longest_s)

    def changes(self, best: CapacityOption) -> Iterator[tuple[str, str, Texts, InferenceService]]:
        """Yield other services of the same requests: a code, what to do, its options, and the service."""
        basis, options, demand = self._basis, self._basis.predictor.options, self._demand
        # In halves a GPU runs the same graph; integers make another one, which is not at hand.
        if best.kind == "gpu" and options.precision is None:
            narrow = basis.predictor.alike(options.replace(precision="fp16"))
            service = InferenceService(replace(basis, predictor=narrow, measured={}), self.question)
            title = "Run it in fp16, another model, whose accuracy must be checked"
            yield "precision", title, {"precision": ("fp16",)}, service
        if demand.max_batch is not None or demand.max_delay_s is not None:
            free = replace(self.question, demand=replace(demand, max_batch=None, max_delay_s=None))
            yield "batching", CHOSEN_BATCHES, {"max-batch": (), "max-delay": ()}, InferenceService(basis, free)

    def least_s(self, copies: Copies) -> float:
        """Return the time of the quickest batch."""
        return min(point.time_s for point in copies.points)

    def why(self, load: QueueLoad, count: int) -> str:
        """Return the latency with so many, and that they are idle where the limit asks for it."""
        text, busy = self._latency(load), load.utilisation or 0.0
        if busy < _MOSTLY_IDLE and count > 1 + self._demand.spare:
            text += (
                ": hardly a request may wait for another within that, so each of the "
                f"{count:,} is idle {share(1 - busy)} of the time"
            )
        return f"{text}."

    def why_not(self, offer: InstanceOffer, copies: Copies, sizing: Sizing) -> str:
        """Return what a batch takes, or how long requests wait at so low a rate."""
        quickest, load = self.least_s(copies), sizing.load
        limit, alone = f"the limit of {seconds(self._demand.limit_s)}", seconds(quickest)
        if quickest > self._demand.limit_s:
            return f"The quickest batch takes {alone} on {offer.name}, over {limit}."
        if load is None:
            return f"No rate keeps {limit}: a batch takes {alone} or more, and requests wait for it."
        if self._demand.max_delay_s:
            return (
                f"{self._latency(load)}: at so low a rate requests wait up to {seconds(sizing.max_delay_s)} "
                "for their batch to fill."
            )
        busy = share(load.utilisation)
        return (
            f"{self._latency(load)} though each is busy only {busy} of the time: a batch alone takes {alone}."
        )

    def _latency(self, load: QueueLoad) -> str:
        percentile = self._demand.percentile
        name = "mean" if percentile is None else f"p{percentile:g}"
        return f"The {name} is {seconds(load.latency_s(percentile))} of {seconds(self._demand.limit_s)}"

    def notes(self, options: Sequence[CapacityOption]) -> Iterator[str]:
        """Yield what an instance's own processor and copies on one are taken to do."""
        if any(option.kind == "gpu" for option in options):
            predictor = self._basis.predictor
            yield (
                "What a GPU instance's own processor adds is that of "
                f"{predictor.cpu.name if predictor.host is not None else 'a usual host'}; requests "
                "reach it one after the other, without copies and runs overlapping."
            )
        if any((option.replicas or 1) > 1 and option.kind == "cpu" for option in options):
            yield (
                "Copies on one CPU have even parts of its cores, caches and bandwidth, and weights of "
                "their own."
            )


def _types(basis: AnalysisBasis, precision: str) -> str:
    """Return that the user asked for where it is a graph of integers, whose floats have the other."""
    requested = basis.predictor.options.precision
    return requested if requested in INTEGER_FORMS else precision


class _GpuRuns:
    """Times of a model on a GPU at each batch, and the reason where there is none."""

    def __init__(self, basis: AnalysisBasis, gpu: Device, longest_s: float) -> None:
        self._gpu = gpu
        self._best: dict[int, tuple[DecisionInput, Literal["gpu", "hybrid"], Figure]] = {}
        self._why_not = no_machine_code(gpu)
        if self._why_not is not None:
            return
        same = basis.gpu is not None and basis.gpu.slug == gpu.slug
        measured = {
            batch: at_batch if same else at_batch.cpu_alone for batch, at_batch in basis.measured.items()
        }
        runs, graphs = False, sorted(_graphs(basis).items())
        for batch, prepared in graphs:
            question = basis.predictor.decision_input(prepared, gpu, batch, measured.get(batch))
            self._why_not = _no_answer(question)
            if self._why_not is not None:
                return
            plans = plan_all(question, basis.predictor.problems)
            on_gpu = [plan for plan in plans if plan.name != "cpu" and plan.on_gpu]
            runs = runs or bool(on_gpu)
            able = [plan for plan in on_gpu if plan.fits and plan.latency.value > 0]
            if able:
                best = min(plan.latency.value for plan in able)
                # The CUDA session comes first.
                plan = next(plan for plan in able if plan.latency.value <= WORTHWHILE * best)
                self._best[batch] = question, "gpu" if plan.name == "gpu" else "hybrid", plan.latency
                if plan.latency.value > longest_s:
                    break
        if not self._best:
            self._why_not = (
                WhyNot(
                    reason="memory", sentence=f"{gpu.name} has no room for the model at batch {graphs[0][0]}."
                )
                if runs
                else WhyNot(
                    reason="kernels",
                    sentence=f"ONNX Runtime's CUDA session runs nothing of the model on {gpu.name}.",
                )
            )

    def times(self, instance: Instance | None) -> tuple[Times, WhyNot | None]:
        """In an instance, beside its own processor; None for the GPU beside the analysis's own CPU."""
        times = {}
        for batch, (question, plan, latency) in self._best.items():
            if instance is not None and question.gpu_on is not None:
                # Beside each processor a split is searched only where one is worth it here: it takes long.
                there = question.gpu_on(instance, plan)
                if there is None:
                    continue
                latency = there.latency
            if latency.value > 0:
                times[batch] = latency
        if self._best and not times and instance is not None:
            sentence = f"{instance.name} has no room for what {self._gpu.name} does not hold."
            return {}, WhyNot(reason="memory", sentence=sentence)
        return times, self._why_not


def _graphs(basis: AnalysisBasis) -> Mapping[int, PreparedGraph]:
    # A model without a batch takes one request at a time.
    return basis.models.prepared_graphs or {1: basis.prepared}


def _cpu_offers(basis: AnalysisBasis, cpus: Sequence[str], longest_s: float) -> Iterator[InstanceOffer]:
    """Every instance without an accelerator whose CPU the catalogue has; ``cpus`` are slugs, empty for all."""
    predicted = _CpuTimes(basis, longest_s)
    measured = next((run for run in basis.measured.values() if run.fails), None)
    question = basis.predictor.decision_input(basis.prepared, None, None, measured)
    fails = _no_answer(question)
    for instance, cpu in rented_cpus(basis.predictor.instances, cpus):
        copies = () if fails else tuple(predicted.ways(instance))
        yield InstanceOffer(
            instance=instance,
            device=instance.cpu,
            name=cpu.name,
            kind="cpu",
            precision=_types(basis, model_precision(basis.prepared.graph)),
            copies=copies,
            why_not=fails
            if fails or copies
            else WhyNot(reason="memory", sentence=f"{instance.name} has no room for the model at batch 1."),
        )


def _no_answer(question: DecisionInput) -> WhyNot | None:
    """Return why nothing is planned; None where something may be."""
    if not question.fails:
        return None
    fails = f"ONNX Runtime cannot run the model: {question.fails.rstrip('.')}."
    return WhyNot(reason="fails", sentence=" ".join(question.graph.empty_inputs) or fails)


class _CpuTimes:
    """Times of parts of CPUs: instances of a family differ in their number of cores."""

    def __init__(self, basis: AnalysisBasis, longest_s: float) -> None:
        self._basis, self._longest_s = basis, longest_s
        graphs = _graphs(basis)
        chosen = {batch: graph for batch, graph in graphs.items() if batch in _CPU_BATCHES}
        self._graphs = chosen or dict([min(graphs.items(), key=lambda item: item[0])])
        self._precision = model_precision(basis.prepared.graph)
        self._known: dict[tuple[str, int, int, bool], dict[int, Figure]] = {}
        self._runs = {batch or 1: at_batch.cpu_alone for batch, at_batch in basis.measured.items()}
        # Of this machine's CPU; it holds for an instance that is just like it.
        self._measured = {
            batch or 1: at_batch.cpu_latency
            for batch, at_batch in basis.measured.items()
            if at_batch.cpu_latency is not None
        }

    def ways(self, instance: Instance) -> Iterator[Copies]:
        """One copy on all cores, and copies that share them evenly."""
        assert instance.vcpus is not None
        own = self._basis.predictor.cpu
        if self._measured and instance.cpu == catalogue.model_of(own) and instance.vcpus == own.threads:
            # What was measured is one copy on the whole machine.
            yield from self._with_room(instance, 1, self._measured)
            return
        cores = max(1, instance.vcpus // instance.threads_per_core)
        parts = [2**power for power in range(cores.bit_length()) if 2**power < cores]
        for part in (*parts, cores):
            vcpus = part * instance.threads_per_core
            key = (instance.cpu, vcpus, instance.threads_per_core, instance.cpu_nearest)
            if key not in self._known:
                cpu = catalogue.instance_cpu(replace(instance, vcpus=vcpus))
                assert cpu is not None
                times = self._known[key] = {}
                for batch, graph in sorted(self._graphs.items()):
                    run = self._runs.get(batch)
                    times[batch] = self._basis.predictor.on_another_cpu(graph, cpu, self._precision, run)
                    if times[batch].value > self._longest_s:
                        break
            yield from self._with_room(instance, cores // part, self._known[key])

    def _with_room(self, instance: Instance, copies: int, times: Times) -> Iterator[Copies]:
        """At the batches at which so many copies have room, each with weights of its own."""
        room, able = instance.memory_bytes or None, {}
        for batch, time in times.items():
            prepared = self._graphs.get(batch, self._basis.prepared)
            peak, weights = prepared.cpu_peak, prepared.graph.parameter_bytes
            if peak is None or fits(copies * (peak + weights), room):
                able[batch] = time
        if able:
            yield _copies(copies, able)


def _copies(number: int, times: Times) -> Copies:
    known = [(batch, times[batch]) for batch in sorted(times) if times[batch].value > 0]

    def curve(end: Callable[[Figure], float]) -> ServiceCurve:
        return ServiceCurve(points=tuple((batch, end(time)) for batch, time in known))

    origins = {time.origin for time in times.values()}
    return Copies(
        number=number,
        points=tuple(
            ServicePoint(batch=batch, time_s=time.value, low_s=time.low, high_s=time.high)
            for batch, time in known
        ),
        server=Server(
            times=curve(lambda time: time.value),
            quick=curve(lambda time: time.low),
            slow=curve(lambda time: time.high),
            copies=number,
        ),
        origin=origins.pop() if len(origins) == 1 else "mixed",
    )
