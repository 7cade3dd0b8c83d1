"""A model that generates and a question of traffic -> its record with its capacity: continuous batching."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.devices.instances import Instance
from analyzer.errors import UsageError
from analyzer.figures import Figure
from analyzer.generation.answer import request_of, setting_of
from analyzer.generation.memory import sequences_held
from analyzer.generation.request import Request, Setting
from analyzer.generation.times import Runner, timed
from analyzer.options import GenerationOptions, TrafficOptions
from analyzer.pipeline.capacity.counted import (
    Need,
    check_spare,
    counted,
    uncounted,
    usd_per_million_of,
    without_price,
)
from analyzer.pipeline.capacity.sizing import (
    by_dollars,
    dollars_by_pricing,
    gpus_asked,
    short,
    traffic_steps,
)
from analyzer.pipeline.capacity.traffic import LIMITS, POISSON_NAME, is_poisson
from analyzer.pipeline.generation import GenerationBasis
from analyzer.pipeline.predictor import Predictor
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis
from analyzer.record.capacity import (
    CapacityOption,
    CapacityResult,
    InstanceLoads,
    LimitPoint,
    LoadPoint,
    ServicePoint,
)
from analyzer.serving.continuous import Conversations, GenerationLoad, GenerationServer
from analyzer.serving.generation_search import (
    GeneratingInstance,
    GenerationDemand,
    GenerationSizing,
    generation_sizings,
)
from analyzer.serving.trace_file import read_conversations
from analyzer.units import seconds

# Sequences at once: engines' usual limit, far beyond which a step has nothing to gain.
_MOST_SEQUENCES = 256
DECODE_BATCHES, _CPU_BATCHES = (1, 4, 16, 64, 256), (1, 8, 64)
# Shares of the prompts at which prefill is predicted: between them it is nearly a line.
_QUANTILES = (0.0, 0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationTraffic:
    """What is asked; rates and limits as in ``GenerationDemand``."""

    rate_per_s: float
    growth: float
    arrivals: str
    demand: GenerationDemand


def of_lengths(traffic: GenerationTraffic, prompt_tokens: int, output_tokens: int) -> GenerationTraffic:
    """The same requests, each of so many tokens in and out."""
    conversations = Conversations(prompts=np.array([prompt_tokens]), outputs=np.array([output_tokens]))
    return replace(traffic, demand=replace(traffic.demand, conversations=conversations))


def generation_traffic(given: Mapping[str, Any], *, shown: str) -> GenerationTraffic:
    """Checks what a user gave; where no trace has lengths, requests are of one token until ``of_lengths``.

    Args:
        given: Keywords of ``plan_capacity()``.
        shown: How the trace's file is written in reports.

    Raises:
        UsageError: A value that cannot be right, no rate, or a limit that is not one of generation.
    """
    wrong = next((name for name in (*LIMITS, "max_delay") if given.get(name) is not None), None)
    if wrong is not None:
        raise UsageError(
            f"--{wrong.replace('_', '-')} is of single inferences, and the model generates.",
            hint="Limit 99 of 100 requests by --ttft 500ms, and by --tpot 50ms.",
        )
    limits = GenerationOptions.of({name: given.get(name) for name in ("ttft", "tpot")})
    if limits.ttft_s is None:
        raise UsageError(
            "A limit of the time to the first token is missing.", hint="For example --ttft 500ms --tpot 50ms."
        )
    options = TrafficOptions.of(given)
    rate_per_s, conversations = options.rate_per_s, Conversations(prompts=np.array([1]), outputs=np.array([1]))
    if not is_poisson(options.arrivals):
        own_rate_per_s, conversations = read_conversations(Path(str(options.arrivals)))
        rate_per_s = own_rate_per_s if rate_per_s is None else rate_per_s
    if rate_per_s is None:
        raise UsageError("--rate is missing.", hint="Requests a second, like --rate 5.")
    return GenerationTraffic(
        rate_per_s=rate_per_s,
        growth=options.growth,
        arrivals=POISSON_NAME if is_poisson(options.arrivals) else shown,
        demand=GenerationDemand(
            rate_per_s=rate_per_s * options.growth,
            conversations=conversations,
            ttft_s=limits.ttft_s,
            tpot_s=limits.tpot_s,
            headroom=options.headroom,
            spare=options.spare,
            max_batch=options.max_batch,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratingOffer:
    """What can be rented, and how a model generates on it.

    Attributes:
        instance: None for a GPU that was named and that nobody in the price list rents out.
        device, name, kind: What it runs on.
        precision: Types of weights there.
        width: Devices that share one copy.
        runs: None where it cannot run; ``problem`` says why.
    """

    instance: Instance | None
    device: str
    name: str
    kind: Literal["cpu", "gpu"]
    precision: str
    width: int = 1
    runs: GeneratingInstance | None = None
    problem: str = ""


def with_generation_capacity(
    analysis: Analysis,
    basis: GenerationBasis,
    traffic: GenerationTraffic,
    gpus: Sequence[str] | None,
    cpus: Sequence[str],
    progress: Progress,
) -> Analysis:
    """Sizes every instance that could serve a model that generates; as ``with_capacity``.

    Raises:
        DeviceError: Nobody knows a name.
        UsageError: No instance can run it, no first token comes within the limit, or more instances may fail
            than are needed.
    """
    progress("predicting every instance", None)
    offers = tuple(GeneratingOffers(basis, traffic).every(gpus, cpus))
    _check(offers, traffic)
    progress("searching for the highest rates", None)
    sized = generation_sizings([one.runs for one in offers if one.runs is not None], traffic.demand)
    chosen = [(one, sized[one.runs] if one.runs is not None else None) for one in offers]
    check_spare((sizing.count for _, sizing in chosen if sizing is not None), traffic.demand.spare)
    rows = sorted(((_option(traffic, *one), one) for one in chosen), key=lambda row: by_dollars(row[0]))
    options, demand = tuple(option for option, _ in rows), traffic.demand
    best = 0 if options[0].feasible else None
    lengths = demand.conversations
    return replace(
        analysis,
        capacity=CapacityResult(
            requests="generation",
            rate_per_s=traffic.rate_per_s,
            percentile=99,
            limit_s=demand.ttft_s,
            tpot_limit_s=demand.tpot_s,
            prompt_tokens=float(lengths.prompts.mean()),
            output_tokens=float(lengths.outputs.mean()),
            arrivals=traffic.arrivals,
            headroom=demand.headroom,
            growth=traffic.growth,
            spare=demand.spare,
            pricing=basis.options.pricing,
            options=options,
            best=best,
            max_batch=demand.max_batch,
            instances=tuple(_instances(rows)),
            traffic=()
            if best is None
            else tuple(traffic_steps(options[best], demand.rate_per_s, demand.headroom, demand.spare)),
            notes=tuple(_notes(traffic, options)),
        ),
    )


class GeneratingOffers:
    """The model on everything that can be rented."""

    def __init__(self, basis: GenerationBasis, traffic: GenerationTraffic) -> None:
        self._basis = basis
        predictor = Predictor(basis.options, basis.targets.cpu)
        self._instances, self._host = predictor.instances, predictor.host
        lengths = traffic.demand.conversations
        self._prompts = sorted(
            {int(prompt) for prompt in np.quantile(lengths.prompts, _QUANTILES, method="lower")}
        )
        self._longest = request_of(
            basis.model,
            basis.question.replace(
                prompt=int(lengths.prompts.max()), output=int(lengths.outputs.max()), batches=(1,)
            ),
        )
        self._mean_context = max(2, round(float((lengths.prompts + lengths.outputs).mean())))

    def every(self, gpus: Sequence[str] | None, cpus: Sequence[str]) -> Iterator[GeneratingOffer]:
        """On every instance with one of these GPUs or CPUs; as for ``with_generation_capacity``."""
        targets = self._basis.targets
        own = targets.gpus[0] if targets.gpus else None
        for gpu in gpus_asked(self._instances, own, gpus):
            yield from self._with_gpu(gpu, named=gpus is not None)
        for instance in self._instances:
            # An accelerator that is not used would be paid for.
            on_cpu = instance.gpu is None and not instance.accelerator and instance.cpu and instance.vcpus
            if on_cpu and (not cpus or instance.cpu in cpus):
                yield from self._with_cpu(instance)

    def _with_gpu(self, gpu: Device, *, named: bool) -> Iterator[GeneratingOffer]:
        model, question = self._basis.model, self._basis.question
        setting = setting_of(model, question, gpu)
        offer = GeneratingOffer(
            instance=None, device=gpu.slug, name=gpu.name, kind="gpu", precision=setting.weights
        )
        problem, servers = "", {}
        if not gpu.runs_release_wheel:
            problem = f"ONNX Runtime's release wheel has no code for {gpu.name}."
        elif model.types_on(gpu, setting) is None:
            problem = f"{gpu.name} has no kernels for weights of {setting.weights}."
        else:
            widths = [question.gpus] if question.gpus is not None else model.widths
            runner = Runner(host=self._host)
            for width in widths:
                found = self.servers(gpu, replace(setting, width=width), DECODE_BATCHES, runner)
                if found is not None:
                    servers[width] = found
            if not servers:
                problem = f"{gpu.name} has no room for the model and a request, however many share it."
        rented = [one for one in self._instances if one.gpu == gpu.slug and one.gpu_count >= 1]
        unrented: list[Instance | None] = [None] if named else []
        for instance in rented or unrented:
            number = int(instance.gpu_count) if instance else max(servers, default=1)
            able = [width for width in servers if width <= number]
            if not able:
                holders = gpu.name if number == 1 else f"{number} {gpu.name} together"
                short_of = problem or f"No room for the model and a request: {holders} cannot hold them."
                yield replace(offer, instance=instance, problem=short_of)
            for width in able:
                copies = 1 if instance is None else number // width
                yield replace(offer, instance=instance, width=width, runs=_copies(copies, servers[width]))

    def _with_cpu(self, instance: Instance) -> Iterator[GeneratingOffer]:
        model = self._basis.model
        cpu = catalogue.instance_cpu(instance)
        if cpu is None:
            return
        cpu = replace(cpu, memory_bytes=instance.memory_bytes or cpu.memory_bytes)
        setting = setting_of(model, self._basis.question.replace(gpus=None), cpu)
        types = model.types_on(cpu, setting)
        found = None if types is None else self.servers(cpu, replace(setting, width=1), _CPU_BATCHES, Runner())
        offer = GeneratingOffer(
            instance=instance,
            device=instance.cpu,
            name=cpu.name,
            kind="cpu",
            precision=types.weights if types is not None else setting.weights,
        )
        if found is not None:
            yield replace(offer, runs=_copies(1, found))
        elif types is None:
            yield replace(offer, problem=f"A CPU has no kernels for weights of {setting.weights}.")
        else:
            yield replace(offer, problem=f"{instance.name} has no room for the model and a request.")

    def servers(
        self, device: Device, setting: Setting, batches: Sequence[int], runner: Runner
    ) -> tuple[GenerationServer, GenerationServer, GenerationServer] | None:
        """The server at its time and at both ends of its interval; None where a request does not fit."""
        model = self._basis.model
        types = model.types_on(device, setting)
        assert types is not None
        footprint = model.footprint(self._longest, types, setting.width, device.kind)
        held = sequences_held(footprint, self._longest, self._mean_context, device, _MOST_SEQUENCES)
        if held is None:
            return None
        most = held.sequences
        grid = sorted({*(batch for batch in batches if batch < most), most})
        source = self._longest.source
        prefill = [Request(batch=1, prompt=prompt, output=2, source=source) for prompt in self._prompts]
        # Two contexts give the line on which a step's time lies.
        near, far = max(1, self._prompts[0]), max(2, self._longest.context - 1)
        far = far if far > near else near + 1
        decode = [
            Request(batch=batch, prompt=context, output=1, source=source)
            for batch in grid
            for context in (near, far)
        ]
        phases = timed(model, device, setting, [*prefill, *decode], runner)
        first, steps = phases[: len(prefill)], phases[len(prefill) :]

        def server(end: Callable[[Figure], float]) -> GenerationServer:
            return GenerationServer(
                prefill=tuple((one.request.prompt, end(one.first)) for one in first),
                decode=tuple(
                    (batch, *_line(end(low.other), end(high.other), near, far))
                    for batch, low, high in zip(grid, steps[::2], steps[1::2], strict=True)
                ),
                cache_tokens=held.tokens,
                max_batch=most,
            )

        return server(_middle), server(_low), server(_high)


def _middle(estimate: Figure) -> float:
    return estimate.value


def _low(estimate: Figure) -> float:
    return estimate.low


def _high(estimate: Figure) -> float:
    return estimate.high


def _line(near_s: float, far_s: float, near: int, far: int) -> tuple[float, float]:
    """Seconds of a step with empty caches, and more for each cached token."""
    each = max(0.0, (far_s - near_s) / (far - near))
    return max(near_s - each * near, 0.1 * near_s), each


def _copies(
    number: int, servers: tuple[GenerationServer, GenerationServer, GenerationServer]
) -> GeneratingInstance:
    middle, quick, slow = servers
    return GeneratingInstance(server=middle, quick=quick, slow=slow, copies=number)


def _check(offers: Sequence[GeneratingOffer], traffic: GenerationTraffic) -> None:
    shortest = np.array([float(traffic.demand.conversations.prompts.min())])
    quickest = min(
        ((float(one.runs.server.prefill_s(shortest)[0]), one.name) for one in offers if one.runs is not None),
        default=None,
    )
    if quickest is None:
        reason = next((f" {one.problem}" for one in offers if one.problem), "")
        raise UsageError(
            f"Nothing that was asked for can run the model.{reason}",
            hint="`analyze devices` lists GPUs and CPUs; --weights int4 takes less room.",
        )
    time_s, name = quickest
    if time_s > traffic.demand.ttft_s:
        raise UsageError(
            f"--ttft {seconds(traffic.demand.ttft_s)}: the quickest first token of all takes {seconds(time_s)} "
            f"on {name}.",
            hint="No traffic is so light that this limit is kept: give a longer one, or other devices.",
        )


def _option(
    traffic: GenerationTraffic, offer: GeneratingOffer, sizing: GenerationSizing | None
) -> CapacityOption:
    demand = traffic.demand
    option = uncounted(
        offer.instance,
        device=offer.device,
        name=offer.name,
        kind=offer.kind,
        precision=offer.precision,
        reason=offer.problem,
    )
    option = replace(option, width=offer.width)
    if sizing is None or offer.runs is None:
        return option
    load, count = sizing.load, sizing.count
    if load is None or count is None or load.saturated:
        return replace(option, reason=_why_not(traffic, offer.runs))
    tokens_per_s = demand.rate_per_s * float(demand.conversations.outputs.mean())
    option = counted(
        option,
        offer.instance,
        Need(rate_per_s=demand.rate_per_s, headroom=demand.headroom, spare=demand.spare),
        count,
        highest_rate_per_s=sizing.highest_rate_per_s,
        low_rate_per_s=sizing.low_rate_per_s,
        high_rate_per_s=sizing.high_rate_per_s,
    )
    return replace(
        option,
        reason=_why(traffic, load),
        replicas=offer.runs.copies,
        max_batch=sizing.max_batch,
        max_delay_s=0.0,
        utilisation=min(1.0, demand.rate_per_s / (count * sizing.throughput_per_s)),
        mean_batch=load.mean_batch,
        mean_s=load.ttft_mean_s,
        p50_s=load.ttft_p50_s,
        p90_s=load.ttft_p90_s,
        p95_s=load.ttft_p95_s,
        p99_s=load.ttft_p99_s,
        tpot_p50_s=load.tpot_p50_s,
        tpot_p99_s=load.tpot_p99_s,
        tokens_per_s=tokens_per_s,
        usd_per_million_tokens=usd_per_million_of(count, option.usd_per_hour, tokens_per_s),
    )


def _why(traffic: GenerationTraffic, load: GenerationLoad) -> str:
    demand = traffic.demand
    text = f"The p99 to the first token is {seconds(load.ttft_p99_s)} of {seconds(demand.ttft_s)}"
    if demand.tpot_s is not None:
        text += f", of each further token {seconds(load.tpot_p99_s)} of {seconds(demand.tpot_s)}"
    return f"{text}."


def _why_not(traffic: GenerationTraffic, runs: GeneratingInstance) -> str:
    demand, server = traffic.demand, runs.server
    alone = float(server.prefill_s(np.array([float(demand.conversations.prompts.max())]))[0])
    if alone > demand.ttft_s:
        return f"The longest prompt alone takes {seconds(alone)}, over the limit of {seconds(demand.ttft_s)}."
    context = float(demand.conversations.prompts.mean())
    table = server.decode_table()
    step = float(table[0, 1] + table[1, 1] * context)
    if demand.tpot_s is not None and step > demand.tpot_s:
        return f"A single sequence takes {seconds(step)} a token, over the limit of {seconds(demand.tpot_s)}."
    return "No rate keeps the limits: what one sequence takes leaves no time to wait for others."


def _instances(
    rows: Sequence[tuple[CapacityOption, tuple[GeneratingOffer, GenerationSizing | None]]],
) -> Iterator[InstanceLoads]:
    for number, (_, (offer, sizing)) in enumerate(rows):
        if offer.runs is None or sizing is None:
            continue
        yield InstanceLoads(
            option=number,
            service=tuple(_service(offer.runs)),
            loads=tuple(_load_point(load, sizing, offer.runs.copies) for load in sizing.loads),
            limits=tuple(
                LimitPoint(
                    limit_s=row.limit_s, rate_per_s=row.rate_per_s, max_batch=row.max_batch, max_delay_s=0.0
                )
                for row in sizing.within
            ),
            usd_per_hour=dollars_by_pricing(offer.instance),
        )


def _service(runs: GeneratingInstance) -> Iterator[ServicePoint]:
    """A decode step with empty caches, by batch."""
    for middle, low, high in zip(runs.server.decode, runs.quick.decode, runs.slow.decode, strict=True):
        yield ServicePoint(batch=middle[0], time_s=short(middle[1]), low_s=short(low[1]), high_s=short(high[1]))


def _load_point(load: GenerationLoad, sizing: GenerationSizing, copies: int) -> LoadPoint:
    rate_per_s = load.rate_per_s * copies
    figures = (load.mean_batch, load.ttft_mean_s, load.ttft_p50_s, load.ttft_p90_s, load.ttft_p95_s)
    mean_batch, mean_s, p50_s, p90_s, p95_s = (short(figure or 0.0) for figure in figures)
    return LoadPoint(
        rate_per_s=short(rate_per_s),
        utilisation=short(min(1.0, rate_per_s / sizing.throughput_per_s)),
        mean_batch=mean_batch,
        mean_s=mean_s,
        p50_s=p50_s,
        p90_s=p90_s,
        p95_s=p95_s,
        p99_s=short(load.ttft_p99_s or 0.0),
        tpot_p50_s=short(load.tpot_p50_s or 0.0),
        tpot_p99_s=short(load.tpot_p99_s or 0.0),
    )


def _notes(traffic: GenerationTraffic, options: Sequence[CapacityOption]) -> Iterator[str]:
    if traffic.arrivals != POISSON_NAME:
        yield (
            f"Requests have the lengths of {traffic.arrivals}, drawn at random, and arrive independently of "
            "each other: its bursts are not followed."
        )
    yield "A cache keeps room for all of a request's output from its first token on; nothing is taken back."
    yield f"At most {_MOST_SEQUENCES} sequences run at once in a copy of the model."
    yield from without_price(options)
    yield "Disks, networks and load balancers are not in the dollars."
