"""A generating model run on this machine's CPU and GPU: its prompt, and tokens at places of its answer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analyzer.errors import AnalyzerError
from analyzer.figures import Figure, total
from analyzer.generation.request import StepSizes, StepTypes
from analyzer.generation.steps.mixers import SEQLENS
from analyzer.generation.steps.step_writer import OWN_DOMAIN
from analyzer.generation.times import GeneratingModel, RequestPhases
from analyzer.graph import Graph
from analyzer.loading.runnable_files import RandomWeights
from analyzer.loading.weights import random_feeds
from analyzer.measurement.child_process import measure
from analyzer.measurement.cuda_libraries import free_bytes
from analyzer.measurement.machine_load import default_threads
from analyzer.measurement.noise import chain
from analyzer.measurement.request import Latency, Measurement, MeasureRequest
from analyzer.measurement.tensor_files import save_tensors
from analyzer.memory import fit
from analyzer.options import LaunchMode, Options
from analyzer.ort.execution import Session
from analyzer.pipeline.measure import Measured, facts_of, in_one_text, sharing
from analyzer.progress import Progress
from analyzer.run_folder import run_folder
from analyzer.units import byte_count

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


# Weights live three times for a while: as a file, in the session, and as the session packs them. Of a CUDA
# session the file is read once more on its way to the GPU.
_WEIGHT_COPIES = 3
# A step is run some ten times: longer ones are predicted.
_LONGEST_PROMPT_S, _LONGEST_TOKEN_S = 5.0, 1.0
# Weights are written once and loaded for each step, caches drawn, written and read for each: a byte of them
# takes as long as eight of weights. About three minutes on a disk that gives a gigabyte a second.
_MOST_MOVED_BYTES, _CACHE_MOVES = 200e9, 8
_ORIGINS: Mapping[Session, str] = {
    "cpu": "unprofiled runs of ONNX Runtime's CPU provider, inputs and outputs bound, weights random",
    "cuda": "unprofiled runs of ONNX Runtime's CUDA provider, the cache kept on the GPU, weights random",
}
_WHERE: Mapping[Session, str] = {"cpu": "the CPU", "cuda": "the GPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequest:
    """The measurements on one side.

    ``phases``, ``prompt`` and ``middle`` are None where they were not run: the request's times, the step that
    reads its prompt and that half way through its answer, as a session runs them node by node.
    """

    phases: RequestPhases | None = None
    prompt: Figure | None = None
    middle: Figure | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSides:
    """The measurements in this machine.

    A side is None where it is not one of the question.
    """

    cpu: MeasuredRequest | None = None
    gpu: MeasuredRequest | None = None

    @property
    def sides(self) -> tuple[MeasuredRequest, ...]:
        """Those that are."""
        return tuple(side for side in (self.cpu, self.gpu) if side is not None)

    def seen(self, batch: int, step: Literal["prompt", "middle"]) -> dict[int, Measured]:
        """Return a step as it was run here, by batch."""
        on_cpu, on_gpu = (None if side is None else getattr(side, step) for side in (self.cpu, self.gpu))
        return {batch: Measured(cpu_latency=on_cpu, cuda_latency=on_gpu)} if on_cpu or on_gpu else {}


def measure_request(
    model: GeneratingModel,
    types: StepTypes,
    predicted: RequestPhases,
    options: Options,
    progress: Progress,
    *,
    session: Session = "cpu",
    launch: LaunchMode = "session",
) -> MeasuredRequest:
    """Run a request's prompt, and tokens at the contexts that its mean is made of.

    Weights are random: no time depends on them. What cannot be run is a message, never an error.
    """
    request = predicted.request
    steps = request.steps(1)
    why = _unfit(model, types, predicted, len(steps), session)
    if why:
        return not_run(session, why)
    # A state space's scan of many tokens is one kernel on a GPU. In ONNX's operators it is a loop, whose time
    # would be that of its passes: it is predicted as it is elsewhere. One token needs none.
    prompt = model.whole_step(request.prefill(1), types).nodes
    lacking = next((node.op_type for node in prompt if node.domain == OWN_DOMAIN), "")
    steps = steps[1 if lacking else 0 :]
    try:
        with run_folder() as folder:
            if session == "cuda":
                # A node on the GPU, before gigabytes are written for it.
                node = folder / "node.onnx"
                node.write_bytes(chain(1))
                measure(
                    MeasureRequest(
                        model_path=node,
                        provider="cuda",
                        time_budget_s=0.05,
                        profile=False,
                        cuda_graph=False,
                    )
                )
            weights, result = RandomWeights(folder=folder), []
            for number, sizes in enumerate(steps):
                is_prompt = sizes.tokens == sizes.context
                what = f"a prompt of {sizes.tokens}" if is_prompt else f"a token behind {sizes.context - 1}"
                progress(f"running on {_WHERE[session]}: {what}", number / len(steps))
                graph = model.whole_step(sizes, types)
                path = weights.write(graph, f"step{number}.onnx")
                step = _step_request(graph, sizes, path, options, session, launch)
                result.append(measure(replace(step, time_budget_s=options.time_budget_s / len(steps))))
                # Its cache may be gigabytes; weights stay for the next one.
                if step.feeds is not None:
                    step.feeds.unlink()
    except AnalyzerError as error:
        return not_run(session, in_one_text(error))
    except (OSError, MemoryError) as error:  # the files of weights and caches are large
        return not_run(session, f"{getattr(error, 'strerror', None) or 'out of memory'}.")
    plain = [measurement.latency for measurement in result]
    notes = (f"The prompt was not run, predicted instead: ONNX Runtime has no {lacking}.",) if lacking else ()
    messages = (*notes, *(text for measurement in result for text in measurement.messages))
    replays = [measurement.ways["graph"] for measurement in result if "graph" in measurement.ways]
    is_replayed = session == "cuda" and launch == "graph"
    failed = is_replayed and len(replays) < len(result)
    if failed:
        messages = (*messages, "Not run as one CUDA graph on the GPU, predicted instead.")
    counted = replays if is_replayed and not failed else plain
    # With the predicted prompt where that was not run.
    first, others = (predicted.first, counted) if lacking else (counted[0], counted[1:])
    decodes = [time.scaled(weight) for time, (_, weight) in zip(others, request.contexts(), strict=True)]
    phases = None if failed else RequestPhases(request=request, first=first, other=total(decodes))
    tokens = plain if lacking else plain[1:]
    return MeasuredRequest(
        phases=phases,
        prompt=None if lacking else plain[0],
        middle=tokens[len(tokens) // 2],
        facts=_facts(steps, result, counted, session),
        messages=tuple(dict.fromkeys(messages)),
    )


def not_run(session: Session, why: str) -> MeasuredRequest:
    """Return a request that stays predicted, and why."""
    return MeasuredRequest(messages=(f"Not run on {_WHERE[session]}, predicted instead: {why}",))


def _unfit(
    model: GeneratingModel,
    types: StepTypes,
    predicted: RequestPhases,
    steps: int,
    session: Session,
) -> str:
    """Return why a run of so many steps is not begun; empty where nothing speaks against it."""
    import psutil

    if session == "cuda" and types.weights == "fp8" and not types.is_packed:
        return "ONNX Runtime has no kernel that multiplies 8-bit floats; engines have."
    if types.own is not None and not model.runs_as_stored:
        return "ONNX Runtime has no operator for weights that are stored so; `--weights` names others."
    request = predicted.request
    held = model.footprint(request, types, 1, "cpu" if session == "cpu" else "gpu")
    # A cache is drawn here, and read from its file by the process that runs the step.
    cache = request.batch * held.cache(request.context)
    needed = held.device_bytes(request) + cache + (_WEIGHT_COPIES - 1) * held.weights
    if needed > psutil.virtual_memory().available:
        return "it lacks the memory." if session == "cpu" else "the host lacks the memory to load it."
    free, own = free_bytes() if session == "cuda" else None, held.device_bytes(request)
    if not fit.fits(own, None if free is None else fit.cuda_room(free)):
        return f"it would need {byte_count(own)} of the GPU's memory, {byte_count(free or 0)} are free."
    if held.weights + cache > shutil.disk_usage(tempfile.gettempdir()).free:
        return "the folder of temporary files lacks the room for its weights and cache."
    moved = held.weights * (1 + steps) + _CACHE_MOVES * cache * steps
    is_long = predicted.first.value > _LONGEST_PROMPT_S or predicted.other.value > _LONGEST_TOKEN_S
    return "it would take too long." if is_long or moved > _MOST_MOVED_BYTES else ""


def _step_request(
    graph: Graph, sizes: StepSizes, path: Path, options: Options, session: Session, launch: LaunchMode
) -> MeasureRequest:
    """Return a run of one step; its inputs are written beside its model."""
    feeds = path.with_suffix(".npz")
    kinds = {tensor.name: "bfloat16" for tensor in graph.inputs if tensor.dtype.name == "bfloat16"}
    save_tensors(feeds, step_inputs(graph, sizes), types=kinds)
    on_gpu = session == "cuda"
    return MeasureRequest(
        model_path=path,
        provider=session,
        feeds=feeds,
        time_budget_s=options.time_budget_s,
        runs=options.runs,
        threads=options.threads,
        timeout_s=max(300.0, 20 * options.time_budget_s),
        profile=False,
        cuda_graph=on_gpu and launch == "graph",
        sharing_s=None if on_gpu else sharing(options.threads or default_threads()),
        in_place=in_place(graph),
        # What the host gives anew in each step: ids and places of tokens, lengths; no state, no floats.
        ids=tuple(
            tensor.name
            for tensor in graph.inputs
            if on_gpu and tensor.name not in graph.carried and not tensor.dtype.is_float
        ),
        ids_back=sizes.batch if on_gpu else 0,
    )


def _facts(
    steps: Sequence[StepSizes],
    measurements: Sequence[Measurement],
    counted: Sequence[Latency],
    session: Session,
) -> dict[str, Any]:
    # Three steps of tokens or one, behind the prompt where that was run.
    middle = measurements[len(measurements) // 2]
    return {
        session: {**facts_of(middle), "origin": _ORIGINS[session]},
        "steps" if session == "cpu" else "steps_on_gpu": [
            {
                "batch": sizes.batch,
                "tokens": sizes.tokens,
                "context": sizes.context,
                "median_s": latency.value,
                "low_s": latency.low,
                "high_s": latency.high,
                "runs": latency.runs,
            }
            for sizes, latency in zip(steps, counted, strict=True)
        ],
    }


def step_inputs(graph: Graph, sizes: StepSizes) -> dict[str, Array]:
    """Return inputs by name."""
    import numpy as np

    feeds = random_feeds(graph)
    places = np.arange(sizes.context - sizes.tokens, sizes.context)
    for name, array in feeds.items():
        shape, kind = array.shape, array.dtype
        if name.startswith(SEQLENS):
            length = name.removeprefix(SEQLENS).strip("_") or str(sizes.context)
            feeds[name] = np.full(shape, int(length) - 1, kind)
        elif "mask" in name.lower():
            feeds[name] = np.ones(shape, kind)
        elif "position" in name.lower() and shape:
            feeds[name] = np.broadcast_to(places, shape).astype(kind)
        elif name.startswith("total_sequence"):
            feeds[name] = np.full(shape, sizes.context, kind)
    return feeds


def in_place(graph: Graph) -> Mapping[str, str]:
    """Return caches whose next value is written into their own memory: those that do not grow."""
    inputs = {tensor.name: tensor.shape for tensor in graph.inputs}
    outputs = {tensor.name: tensor.shape for tensor in graph.outputs}
    return {
        past: present
        for past, present in graph.carried.items()
        if past != present and inputs.get(past) == outputs.get(present)
    }
