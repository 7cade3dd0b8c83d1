"""A generating model run on this machine's CPU: its prompt, and tokens at a few places of its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.generation.model import GeneratingModel
from analyzer.generation.request import Request
from analyzer.generation.steps.step_inputs import in_place, step_inputs
from analyzer.generation.steps.step_sizes import StepSizes, StepTypes
from analyzer.generation.steps.step_writer import OWN_DOMAIN
from analyzer.generation.times import RequestPhases
from analyzer.loading.random_weights import RandomWeights
from analyzer.measurement.child_process import measure
from analyzer.measurement.noise.machine_load import default_threads
from analyzer.measurement.request import Measurement, MeasureRequest
from analyzer.measurement.tensor_files import save_tensors
from analyzer.pipeline.measure import facts_of, sharing
from analyzer.pipeline.options import Options
from analyzer.prediction import Estimate, total
from analyzer.progress import Progress
from analyzer.run_folder import run_folder

# Weights live three times for a while: as a file, in the session, and as the session packs them.
_WEIGHT_COPIES = 3
# A step is run some ten times: longer ones are predicted.
_LONGEST_PROMPT_S, _LONGEST_TOKEN_S = 5.0, 1.0
_ORIGIN = "unprofiled runs of ONNX Runtime's CPU provider, inputs and outputs bound, weights random"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequest:
    """What was run.

    Attributes:
        phases: Its times; None where it was not run.
        middle: The step half way through its answer, whose operators the record shows.
        facts: For ``environment.measurement``.
        messages: Why it was not, in plain sentences.
    """

    phases: RequestPhases | None = None
    middle: Estimate | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


def measure_request(
    model: GeneratingModel,
    types: StepTypes,
    predicted: RequestPhases,
    options: Options,
    progress: Progress,
) -> MeasuredRequest:
    """Runs a request's prompt, and tokens at the contexts that its mean is made of.

    Weights are random: no time depends on them. What cannot be run is a message.

    Args:
        model: What generates.
        types: As the CPU runs it.
        predicted: The request, and what it is expected to take.
        options: How to measure.
        progress: Told what is happening.
    """
    import psutil

    request = predicted.request
    held = model.footprint(request, types, 1, "cpu")
    needed = held.device_bytes(request) + (_WEIGHT_COPIES - 1) * held.weights
    if needed > psutil.virtual_memory().available:
        return MeasuredRequest(messages=("Not run on the CPU, predicted instead: it lacks the memory.",))
    if predicted.first.time_s > _LONGEST_PROMPT_S or predicted.other.time_s > _LONGEST_TOKEN_S:
        return MeasuredRequest(messages=("Not run on the CPU, predicted instead: it would take too long.",))
    lacking = _without_kernel(model, types, request)
    steps = _steps(request)[1 if lacking else 0 :]
    try:
        with run_folder() as folder:
            found = _run(model, types, steps, folder, options, progress)
    except AnalyzerError as error:
        return MeasuredRequest(messages=(f"Not run on the CPU, predicted instead: {error.message}",))
    estimates = [_estimate(measurement) for measurement in found]
    first, tokens = (predicted.first, estimates) if lacking else (estimates[0], estimates[1:])
    decodes = [
        estimate.scaled(weight) for estimate, (_, weight) in zip(tokens, request.contexts(), strict=True)
    ]
    phases = RequestPhases(request=request, first=first, other=total(decodes))
    told = (f"The prompt was not run, predicted instead: ONNX Runtime has no {lacking}.",) if lacking else ()
    messages = dict.fromkeys((*told, *(text for measurement in found for text in measurement.messages)))
    return MeasuredRequest(
        phases=phases,
        middle=tokens[len(tokens) // 2],
        facts=_facts(steps, found),
        messages=tuple(messages),
    )


def _without_kernel(model: GeneratingModel, types: StepTypes, request: Request) -> str:
    """The operator of reading a prompt that no session runs; empty where there is none.

    A state space's scan of many tokens is one kernel on a GPU. In ONNX's operators it is a loop, whose time
    would be that of its passes: it is predicted as it is elsewhere. One token needs none.
    """
    nodes = model.whole_step(request.prefill(1), types).nodes
    return next((node.op_type for node in nodes if node.domain == OWN_DOMAIN), "")


def _steps(request: Request) -> list[StepSizes]:
    return [request.prefill(1), *(request.decode(context, 1) for context, _ in request.contexts())]


def _run(
    model: GeneratingModel,
    types: StepTypes,
    steps: Sequence[StepSizes],
    folder: Path,
    options: Options,
    progress: Progress,
) -> list[Measurement]:
    weights = RandomWeights(folder=folder)
    found = []
    for number, sizes in enumerate(steps):
        is_prompt = sizes.tokens == sizes.context
        what = f"a prompt of {sizes.tokens}" if is_prompt else f"a token behind {sizes.context - 1}"
        progress(f"running on the CPU: {what}", number / len(steps))
        graph = model.whole_step(sizes, types)
        path = weights.write(graph, f"step{number}.onnx")
        feeds = folder / f"feeds{number}.npz"
        kinds = {tensor.name: "bfloat16" for tensor in graph.inputs if tensor.dtype.name == "bfloat16"}
        save_tensors(feeds, step_inputs(graph, sizes), types=kinds)
        threads = options.threads or default_threads()
        request = MeasureRequest(
            model_path=path,
            feeds=feeds,
            time_budget_s=options.time_budget_s / len(steps),
            runs=options.runs,
            threads=options.threads,
            timeout_s=max(300.0, 20 * options.time_budget_s),
            profile=False,
            sharing_s=sharing(threads),
            in_place=in_place(graph),
        )
        found.append(measure(request))
    return found


def _estimate(measurement: Measurement) -> Estimate:
    latency = measurement.latency
    return Estimate(
        time_s=latency.median_s,
        low_s=latency.low_s,
        high_s=latency.high_s,
        origin="measured",
        method=latency.origin,
    )


def _facts(steps: Sequence[StepSizes], found: Sequence[Measurement]) -> dict[str, Any]:
    # Three steps of tokens or one, behind the prompt where that was run.
    middle = found[len(found) // 2]
    return {
        "cpu": {**facts_of(middle), "origin": _ORIGIN},
        "steps": [
            {
                "batch": sizes.batch,
                "tokens": sizes.tokens,
                "context": sizes.context,
                "median_s": measurement.latency.median_s,
                "low_s": measurement.latency.low_s,
                "high_s": measurement.latency.high_s,
                "runs": measurement.latency.runs,
            }
            for sizes, measurement in zip(steps, found, strict=True)
        ],
    }
