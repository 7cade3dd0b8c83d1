"""A model that generates under traffic: what continuous batching takes on each instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analyzer.devices import catalogue
from analyzer.devices.device import Device, Instance
from analyzer.figures import Figure, QueueLoad
from analyzer.generation.answer import request_of, setting_of
from analyzer.generation.memory import sequences_held
from analyzer.generation.options import Market, candidate, option, other_settings
from analyzer.generation.request import Request, Setting, TimeLimits
from analyzer.generation.times import Runner, timed
from analyzer.pipeline.capacity.inference import CHOSEN_BATCHES
from analyzer.pipeline.capacity.sizing import (
    Copies,
    InstanceOffer,
    no_machine_code,
    rented,
    rented_cpus,
    requested_gpus,
)
from analyzer.pipeline.capacity.traffic import POISSON_NAME, CapacityQuestion
from analyzer.pipeline.generation import GenerationBasis
from analyzer.pipeline.predictor import Predictor
from analyzer.record.capacity import CapacityOption, ServicePoint
from analyzer.record.invocation import Texts
from analyzer.record.outcome import WhyNot
from analyzer.serving.continuous import GenerationServer
from analyzer.serving.queue import Server, Sizing
from analyzer.serving.search import GeneratingServer, GenerationDemand
from analyzer.units import dollars, factor, seconds

# Sequences at once: engines' usual limit, far beyond which a step has nothing to gain.
_MOST_SEQUENCES = 256
DECODE_BATCHES, _CPU_BATCHES = (1, 4, 16, 64, 256), (1, 8, 64)
# Shares of the prompts at which prefill is predicted: between them it is nearly a line.
_QUANTILES = (0.0, 0.5, 0.9, 1.0)


class GenerationService:
    """A model whose requests are prompts that are answered; members are those of ``InferenceService``."""

    quickest = "the quickest first token of all takes {} on {}."
    no_way = "`analyze devices` lists GPUs and CPUs; --weights int4 takes less room."

    def __init__(self, basis: GenerationBasis, question: CapacityQuestion[GenerationDemand]) -> None:
        self._basis, self.question = basis, question
        self._demand: GenerationDemand = question.demand
        self.pricing = basis.options.pricing
        predictor = Predictor(basis.options, basis.targets.cpu)
        self._instances, self._host = predictor.instances, predictor.host
        lengths = self._demand.conversations
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

    @property
    def keys(self) -> dict[str, Any]:
        """Return the keys that only records of such a service have."""
        lengths = self._demand.conversations
        return {
            "requests": "generation",
            "tpot_limit_s": self._demand.tpot_s,
            "prompt_tokens": float(lengths.prompts.mean()),
            "output_tokens": float(lengths.outputs.mean()),
        }

    def offers(self, gpus: Sequence[str] | None, cpus: Sequence[str]) -> Iterator[InstanceOffer]:
        """Yield instances with these GPUs, one for each number that share a copy, then those without any."""
        targets = self._basis.targets
        own = targets.gpus[0] if targets.gpus else None
        for gpu in requested_gpus(self._instances, own, gpus):
            yield from self._with_gpu(gpu, named=gpus is not None)
        for instance, cpu in rented_cpus(self._instances, cpus):
            yield self._with_cpu(instance, cpu)

    def _with_gpu(self, gpu: Device, *, named: bool) -> Iterator[InstanceOffer]:
        model, question = self._basis.model, self._basis.question
        setting = setting_of(model, question, gpu)
        offer = InstanceOffer(
            instance=None, device=gpu.slug, name=gpu.name, kind="gpu", precision=setting.weights
        )
        why_not, servers = no_machine_code(gpu), {}
        if why_not is None and model.types_on(gpu, setting) is None:
            sentence = f"{gpu.name} has no kernels for weights of {setting.weights}."
            why_not = WhyNot(reason="kernels", sentence=sentence)
        if why_not is None:
            widths = [question.gpus] if question.gpus is not None else model.widths
            runner = Runner(host=self._host)
            for width in widths:
                result = self.server(gpu, replace(setting, width=width), DECODE_BATCHES, runner)
                if result is not None:
                    servers[width] = result
            if not servers:
                sentence = f"{gpu.name} has no room for the model and a request, however many share it."
                why_not = WhyNot(reason="memory", sentence=sentence)
        for instance in rented(self._instances, gpu, named=named):
            number = int(instance.gpu_count) if instance else max(servers, default=1)
            able = [width for width in servers if width <= number]
            if not able:
                holders = gpu.name if number == 1 else f"{number} {gpu.name} together"
                sentence = f"No room for the model and a request: {holders} cannot hold them."
                short_of = why_not or WhyNot(reason="memory", sentence=sentence)
                yield replace(offer, instance=instance, why_not=short_of)
            for width in able:
                copies = _copies(1 if instance is None else number // width, servers[width])
                yield replace(offer, instance=instance, width=width, copies=(copies,))

    def _with_cpu(self, instance: Instance, cpu: Device) -> InstanceOffer:
        model = self._basis.model
        cpu = replace(cpu, memory_bytes=instance.memory_bytes or cpu.memory_bytes)
        setting = setting_of(model, self._basis.question.replace(gpus=None), cpu)
        types = model.types_on(cpu, setting)
        result = None if types is None else self.server(cpu, replace(setting, width=1), _CPU_BATCHES, Runner())
        offer = InstanceOffer(
            instance=instance,
            device=instance.cpu,
            name=cpu.name,
            kind="cpu",
            precision=types.weights if types is not None else setting.weights,
        )
        if result is not None:
            return replace(offer, copies=(_copies(1, result),))
        why_not = (
            WhyNot(reason="kernels", sentence=f"A CPU has no kernels for weights of {setting.weights}.")
            if types is None
            else WhyNot(reason="memory", sentence=f"{instance.name} has no room for the model and a request.")
        )
        return replace(offer, why_not=why_not)

    def server(
        self, device: Device, setting: Setting, batches: Sequence[int], runner: Runner
    ) -> GeneratingServer | None:
        """Return one copy of the model; None where a request does not fit."""
        model = self._basis.model
        types = model.types_on(device, setting)
        assert types is not None
        footprint = model.footprint(self._longest, types, setting.width, device.kind)
        held = sequences_held(footprint, self._longest, self._mean_context, device, _MOST_SEQUENCES)
        if held is None:
            return None
        most, tokens = held
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

        def line(near_s: float, far_s: float) -> tuple[float, float]:
            """Return seconds of a step with empty caches, and more for each cached token."""
            each = max(0.0, (far_s - near_s) / (far - near))
            return max(near_s - each * near, 0.1 * near_s), each

        def at(end: Callable[[Figure], float]) -> GenerationServer:
            return GenerationServer(
                prefill=tuple((one.request.prompt, end(one.first)) for one in first),
                decode=tuple(
                    (batch, *line(end(low.other), end(high.other)))
                    for batch, low, high in zip(grid, steps[::2], steps[1::2], strict=True)
                ),
                cache_tokens=tokens,
                max_batch=most,
            )

        return Server(
            times=at(lambda time: time.value),
            quick=at(lambda time: time.low),
            slow=at(lambda time: time.high),
            copies=1,
        )

    def changes(self, best: CapacityOption) -> Iterator[tuple[str, str, Texts, GenerationService]]:
        """Yield other services of the same requests: a code, what to do, its options, and the service."""
        basis, question = self._basis, self._basis.question
        own = setting_of(basis.model, question, catalogue.device(best.device))
        for name, value, title, setting in other_settings(own, best.kind):
            changed = question.replace(weights=setting.weights, cache=setting.cache, launch=setting.launch)
            service = GenerationService(replace(basis, question=changed), self.question)
            yield name, title, {name: (value,)}, service
        if self._demand.max_batch is not None:
            free = replace(self.question, demand=replace(self._demand, max_batch=None))
            yield "batching", CHOSEN_BATCHES, {"max-batch": ()}, GenerationService(basis, free)

    def least_s(self, copies: Copies) -> float:
        """Return the time to the first token of the shortest prompt."""
        return _first_token_s(copies, self._demand.conversations.prompts.min())

    def why(self, load: QueueLoad, count: int) -> str:
        """Return both times."""
        del count
        demand = self._demand
        text = f"The p99 to the first token is {seconds(load.p99_s)} of {seconds(demand.limit_s)}"
        if demand.tpot_s is not None:
            text += f", of each further token {seconds(load.tpot_p99_s)} of {seconds(demand.tpot_s)}"
        return f"{text}."

    def why_not(self, offer: InstanceOffer, copies: Copies, sizing: Sizing) -> str:
        """Return which of both times a request alone does not keep."""
        del offer, sizing
        demand = self._demand
        prompts = demand.conversations.prompts
        alone = _first_token_s(copies, prompts.max())
        if alone > demand.limit_s:
            limit = seconds(demand.limit_s)
            return f"The longest prompt alone takes {seconds(alone)}, over the limit of {limit}."
        table = copies.server.times.decode_table()
        step = float(table[0, 1] + table[1, 1] * float(prompts.mean()))
        if demand.tpot_s is not None and step > demand.tpot_s:
            return (
                f"A single sequence takes {seconds(step)} a token, over the limit of {seconds(demand.tpot_s)}."
            )
        return "No rate keeps the limits: what one sequence takes leaves no time to wait for others."

    def notes(self, options: Sequence[CapacityOption]) -> Iterator[str]:
        """Yield how far `analyze generate` prices it otherwise, and what an engine is taken to do."""
        if options[0].feasible and options[0].kind == "gpu":
            yield from self._begun_together(options[0])
        if self.question.arrivals != POISSON_NAME:
            yield (
                f"Requests have the lengths of {self.question.arrivals}, drawn at random, and arrive "
                "independently of each other: its bursts are not followed."
            )
        yield "A cache keeps room for all of a request's output from its first token on; nothing is taken back."
        yield f"At most {_MOST_SEQUENCES} sequences run at once in a copy of the model."

    def _begun_together(self, best: CapacityOption) -> Iterator[str]:
        """Yield the dollars of a batch that begins together on the same machine, which is another question."""
        model, question, demand = self._basis.model, self._basis.question, self._demand
        gpu = catalogue.device(best.device)
        machine = tuple(
            one for one in self._instances if (one.provider, one.name) == (best.provider, best.instance)
        )
        market = Market(
            runner=Runner(host=self._host),
            instances=machine,
            limits=TimeLimits(ttft_s=demand.limit_s, tpot_s=demand.tpot_s),
            searches=True,
        )
        setting = replace(setting_of(model, question, gpu), width=best.width)
        lengths = {"prompt": round(self.keys["prompt_tokens"]), "output": round(self.keys["output_tokens"])}
        request = request_of(model, question.replace(**lengths, batches=()))
        one = candidate(model, gpu, setting, request, market)
        row = None if one is None else option(one, market, exact=True)
        if row and row.meets_limits and row.usd_per_million_tokens and best.usd_per_million_tokens:
            times = factor(best.usd_per_million_tokens / row.usd_per_million_tokens)
            yield (
                f"`analyze generate` prices {row.batch} sequences that begin together on a machine that is "
                f"always full: {dollars(row.usd_per_million_tokens)} per million output tokens on "
                f"{row.instance}. This traffic, with requests that join and wait, costs {times} that."
            )


def _first_token_s(copies: Copies, prompt: int) -> float:
    return float(copies.server.times.prefill_s(np.array([float(prompt)]))[0])


def _copies(number: int, server: GeneratingServer) -> Copies:
    ends = zip(server.times.decode, server.quick.decode, server.slow.decode, strict=True)
    return Copies(
        number=number,
        points=tuple(
            ServicePoint(batch=middle[0], time_s=middle[1], low_s=low[1], high_s=high[1])
            for middle, low, high in ends
        ),
        server=replace(server, copies=number),
    )
