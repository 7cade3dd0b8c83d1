"""Requests on a device: time to the first token, time of each other one, tokens a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzer.decision.error_components import ErrorComponents
from analyzer.devices.device import Device
from analyzer.figures import Figure
from analyzer.generation.configured_model import ConfiguredModel
from analyzer.generation.graphs.graph_model import GraphModel
from analyzer.generation.request import Request, Setting, StepSizes, StepTypes
from analyzer.generation.steps.step_times import StepTimes, step_times
from analyzer.prediction import total
from analyzer.record.generation import RequestTimes, times_as_keys

GeneratingModel = ConfiguredModel | GraphModel


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPhases:
    """A request's two phases.

    ``first`` is the time to the first token, ``other`` the mean time of another one; ``times`` are of the
    ``steps`` that they were predicted from, each with how often it is made.
    """

    request: Request
    first: Figure
    other: Figure
    times: StepTimes | None = None
    steps: tuple[tuple[int, float], ...] = ()

    @property
    def whole(self) -> Figure:
        """The request from its first to its last token."""
        return total((self.first, self.other.scaled(max(0, self.request.output - 1))))

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of the whole batch in a second."""
        return self.request.batch * self.request.output / self.whole.value

    @property
    def components(self) -> ErrorComponents:
        """The whole request as predicted, by what errs together; what a run has shown cancels between two."""
        return tuple(
            replace(part, time=part.time.scaled(often))
            for at, often in self.steps
            for part in (self.times.components(at) if self.times is not None else ())
        )

    def recorded(self) -> RequestTimes:
        """As the record has it."""
        whole = self.whole
        return RequestTimes(
            **times_as_keys(ttft=self.first, tpot=self.other, request=whole),
            tokens_per_s=self.tokens_per_s,
            origin=whole.origin,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Measured over predicted time of a request that a device ran.

    ``first`` and ``other`` are those of its first and its other tokens, ``types`` what it was computed in.
    """

    first: float = 1.0
    other: float = 1.0
    types: StepTypes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """The runner of a model.

    ``host`` is the CPU that launches on a GPU, None for one of the usual speed; ``threads`` are those of a CPU.
    All that is predicted on a device starts from its ``corrections``, by slug.
    """

    host: Device | None = None
    threads: int | None = None
    corrections: Mapping[str, Correction] = field(default_factory=dict)

    def correction(self, device: Device) -> Correction:
        """Of a device; factors of 1 where nothing was run."""
        return self.corrections.get(device.slug, Correction())

    def corrected(self, phases: RequestPhases, device: Device, types: StepTypes) -> RequestPhases:
        """Predicted phases as they start from what was seen on a device.

        A CPU was busy or slow for all that it runs. What a GPU's run was off in may be the host, where another
        batch is bound by kernels, or the other way round: the interval holds both. In other types it has other
        kernels, of which the run says nothing but that predictions can be so far off.
        """
        result = self.correction(device)
        if device.kind == "cpu":
            return replace(
                phases, first=phases.first.scaled(result.first), other=phases.other.scaled(result.other)
            )

        def with_both(time: Figure, factor: float) -> Figure:
            scaled = time.scaled(factor)
            low, high = min(scaled.low, time.low), max(scaled.high, time.high)
            return replace(scaled if types == result.types else time, low=low, high=high)

        first, other = with_both(phases.first, result.first), with_both(phases.other, result.other)
        return replace(phases, first=first, other=other)


def timed(
    model: GeneratingModel, device: Device, setting: Setting, requests: Sequence[Request], runner: Runner
) -> tuple[RequestPhases, ...]:
    """Return requests on a device, all predicted together; empty where it cannot run the setting."""
    types = model.types_on(device, setting)
    if types is None:
        return ()
    width = setting.width
    position: dict[StepSizes, int] = {}
    for request in requests:
        for sizes in request.steps(width):
            position.setdefault(sizes, len(position))
    times = step_times(
        [model.step(sizes, types, device.kind) for sizes in position],
        model.exchange,
        device,
        precision=model.precision_on(device, setting),
        launch=setting.launch,
        host=runner.host,
        threads=runner.threads,
    )
    result = []
    for request in requests:
        prompt = position[request.prefill(width)]
        decodes = [(position[request.decode(context, width)], part) for context, part in request.contexts()]
        phases = RequestPhases(
            request=request,
            first=times.of(prompt),
            other=total(times.of(at).scaled(part) for at, part in decodes),
            times=times,
            steps=((prompt, 1.0), *((at, max(0, request.output - 1) * part) for at, part in decodes)),
        )
        one = runner.corrected(phases, device, types)
        unsure = model.unsure
        result.append(replace(one, first=one.first.widened(unsure), other=one.other.widened(unsure)))
    return tuple(result)
