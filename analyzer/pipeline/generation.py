"""MODEL and options of ``analyze generate`` -> its record: the pipeline of a model that generates."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzer.checks import run as find_findings
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.errors import UsageError
from analyzer.generation.answer import (
    BATCHES,
    ComparedDevices,
    answer,
    best_gpu,
    corrected,
    request_of,
    setting_of,
)
from analyzer.generation.options import Market, candidate
from analyzer.generation.ranking import rank_requests
from analyzer.generation.request import Request, StepSizes, StepTypes, TimeLimits
from analyzer.generation.sources import (
    OpenedModel,
    from_configuration,
    from_genai,
    from_graph,
    from_module,
    from_python,
    is_configuration,
    is_python,
    no_way,
)
from analyzer.generation.sources import is_generating as names_generating
from analyzer.generation.times import GeneratingModel, Runner, timed
from analyzer.graph import Graph
from analyzer.loading.model_reference import is_genai, parse_reference, split_path, with_arguments
from analyzer.options import ALL, GenerationOptions, Options, keywords_of
from analyzer.ort.execution import Session
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.device_decisions import analysis_of, decide_on
from analyzer.pipeline.generation_measure import MeasuredRequest, MeasuredSides, measure_request, not_run
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.opportunities import of_request
from analyzer.pipeline.options import make_options, path_shower
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import CpuForm, PreparedGraph, prepare
from analyzer.pipeline.target_devices import Targets, find_targets
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis, ModelInfo, PhaseResult, Phases
from analyzer.record.invocation import Invocation, written
from analyzer.record.outcome import Guess

_MOST_SEQUENCES = 2**16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationBasis:
    """The basis of a generation record, for further questions about the same model."""

    model: GeneratingModel
    question: GenerationOptions
    options: Options
    targets: Targets


def generation_with_basis(
    model: Any, inputs: Any, given: Mapping[str, Any], progress: Progress
) -> tuple[Analysis, GenerationBasis]:
    """Return the record of a model that generates, and its basis; see ``analyzer.api.analyze_generation``."""
    started = time.perf_counter()
    of_any = {name: value for name, value in given.items() if name in keywords_of("run")}
    if of_any.get("gpu") in (ALL, [ALL], (ALL,)):
        # All of the catalogue stand in the table as it is; the answer is for the usual one.
        del of_any["gpu"]
    options = make_options(**of_any)
    largest = max(options.batches, default=1)
    if largest > _MOST_SEQUENCES:
        raise UsageError(f"--batch {largest}: must be a whole number from 1 to {_MOST_SEQUENCES:,}.")
    question = GenerationOptions.of(given).replace(batches=options.batches)
    targets = find_targets(options)
    progress("reading the model", None)
    source = _source(model, inputs, options, progress)
    shown = None
    if isinstance(model, (str, os.PathLike)):
        # MODEL, its path as reports show it.
        path, name = split_path(os.fspath(model))
        shown = path_shower()(path or name) + (name if path else "")
    loaded = time.perf_counter()
    measured = _measured(source.model, question, options, targets, progress)
    run = time.perf_counter()
    progress("predicting", None)
    invocation = Invocation(
        command="generate",
        model=shown,
        options=written("generate", given, path_shower()),
        stand_ins={} if targets.default_gpu is None else {"gpu": (targets.default_gpu,)},
    )
    name = shown or f"{type(model).__name__} in memory"
    analysis = generation_analysis(source, name, question, options, targets, measured, invocation)
    spent = {"load": loaded - started, "predict and decide": time.perf_counter() - run}
    facts = {key: value for side in measured.sides for key, value in side.facts.items()}
    messages = tuple(dict.fromkeys(text for side in measured.sides for text in side.messages))
    ran = bool(facts or messages)
    if ran:
        spent["measure"] = run - loaded
    analysis = replace(
        analysis,
        environment=build_record.describe(
            measured=Measured(facts=facts, messages=messages) if ran else None,
            timings_s=spent,
            cached=source.cached,
            cpu=targets.cpu,
        ),
    )
    basis = GenerationBasis(model=source.model, question=question, options=options, targets=targets)
    return replace(analysis, findings=find_findings(analysis)), basis


def is_generating(model: Any) -> bool:
    """Return whether MODEL, if it is named by a text, can only be one that generates."""
    text = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
    return bool(text) and names_generating(text)


def _measured(
    model: GeneratingModel, question: GenerationOptions, options: Options, targets: Targets, progress: Progress
) -> MeasuredSides:
    """Run the request on this machine's CPU and GPU, as far as the question covers them and may execute."""
    if not options.run:
        return MeasuredSides()
    request = request_of(model, question)
    # The CPU of this machine is known by its calibration; another one that launches was named.
    host = None if targets.local_cpu else targets.cpu

    def on(device: Device, session: Session) -> MeasuredRequest | None:
        setting = setting_of(model, question, device)
        types = model.types_on(device, setting)
        if types is None:
            return None
        if setting.width > 1:
            return not_run(session, f"{setting.width} of them share the model.")
        runner = Runner(host=host, threads=options.threads if session == "cpu" else None)
        (predicted,) = timed(model, device, setting, [request], runner)
        return measure_request(
            model, types, predicted, options, progress, session=session, launch=setting.launch
        )

    return MeasuredSides(
        cpu=on(targets.cpu, "cpu") if targets.local_cpu else None,
        gpu=on(targets.gpus[0], "cuda") if targets.local_gpu else None,
    )


def _source(model: Any, inputs: Any, options: Options, progress: Progress) -> OpenedModel:
    if not isinstance(model, (str, os.PathLike)):
        # By the class's module: torch need not be imported to say that a model is none of its.
        if any(
            base.__module__.startswith("torch.nn") and base.__name__ == "Module" for base in type(model).__mro__
        ):
            return from_module(model, inputs, lambda stage: progress(stage, None))
        raise no_way(type(model).__name__)
    text = os.fspath(model)
    if options.arguments and not is_python(text):
        raise UsageError(
            f"--arg {options.arguments[0]}: {text} is no Python code that builds a model.",
            hint="Arguments go to a class or a function of a .py file or of a module.",
        )
    if is_genai(text):
        return from_genai(text, limits=options.limits)
    if text.lower().endswith(".onnx"):
        return from_graph(text, limits=options.limits)
    if is_python(text):
        return from_python(
            with_arguments(parse_reference(text), options.arguments, options.script_arguments),
            lambda stage: progress(stage, None),
            use_cache=options.cache,
            limits=options.limits,
        )
    if is_configuration(text) or not os.path.exists(text):
        return from_configuration(text)
    raise no_way(text)


# In operators. Of larger steps fewer batches are looked at: each is decided in a tenth of a second a thousand.
_ALL_BATCHES_UP_TO = 2000
_FEW_BATCHES = (1, 16, 256)
# GPUs asked for beside the first whose plans are worked out as well.
_MOST_ALTERNATIVES = 8


def generation_analysis(
    source: OpenedModel,
    shown: str,
    question: GenerationOptions,
    options: Options,
    targets: Targets,
    measured: MeasuredSides,
    invocation: Invocation,
) -> Analysis:
    """Return the record of a generating model, without the circumstances."""
    model, gpus = source.model, targets.gpus
    if not gpus and question.gpus is not None:
        raise UsageError(f"--gpus {question.gpus}: there is no GPU to share the model.", hint="Name a --gpu.")
    request = ran = request_of(model, question)
    predictor = Predictor(options, targets.cpu)
    first = gpus[0] if gpus else targets.cpu
    sides = ((first, measured.gpu), (targets.cpu, measured.cpu))
    market = Market(
        runner=Runner(host=predictor.host, threads=options.threads if targets.local_cpu else None),
        instances=predictor.instances,
        limits=TimeLimits(ttft_s=question.ttft_s, tpot_s=question.tpot_s),
        measured={device.slug: side.phases for device, side in sides if side is not None and side.phases},
    )
    market = corrected(model, question, (first, targets.cpu), market)
    width_of_others = question.gpus if len(gpus) > 1 else None
    # The record is about the answer's device, at the batch that it takes.
    searches = market.limits.any and not question.batches
    market = replace(market, searches=searches)
    if searches or (len(gpus) > 1 and measured.gpu is None):
        first, width, batch = best_gpu(model, question, gpus or (targets.cpu,), market)
        gpus = tuple(sorted(gpus, key=lambda gpu: gpu.slug != first.slug))
        request = replace(request, batch=batch)
        if gpus:
            question = question.replace(gpus=width)
    setting = setting_of(model, question, first)
    types = model.types_on(first, setting) or StepTypes()
    by_slug: dict[str, Device] = {}
    # Those that were named; of one all of the catalogue, this machine's own first: it is calibrated.
    for gpu in (*gpus, *(catalogue.gpus() if len(gpus) == 1 else ())):
        by_slug.setdefault(gpu.slug, gpu)
    devices = ComparedDevices(
        first=first,
        cpu=targets.cpu,
        compared=(*by_slug.values(), targets.cpu),
        gpus=width_of_others,
    )
    on_cpu = market.runner.correction(targets.cpu)
    steps = _Steps(
        model=model,
        types=types,
        cpu_types=model.types_on(targets.cpu, setting_of(model, question, targets.cpu)),
        request=request,
    )
    decode = steps.decode(request.batch)
    few = len(decode.graph.nodes) > _ALL_BATCHES_UP_TO
    batches = sorted({*(_FEW_BATCHES if few else BATCHES), request.batch, *question.batches})
    decodes = {batch: decode if batch == request.batch else steps.decode(batch) for batch in batches}
    decided = decide_on(
        Predictor(options, targets.cpu, on_cpu.other, predictor.offers), decode,
        BatchModels(prepared_graphs=decodes),
        gpus[: 1 + _MOST_ALTERNATIVES], request.batch,
        measured.seen(ran.batch, "middle"),
    )  # fmt: skip
    precision = model.floats_of(setting.weights) if gpus else model.precision_on(first, setting)
    graph = decode.graph
    info = ModelInfo(
        name=source.name,
        source=shown,
        digest=digest(graph),
        opset=graph.opsets["ai.onnx"],
        batch=request.batch,
        precision=precision,
        parameters=model.parameters,
        parameter_bytes=graph.parameter_bytes,
        inputs=tuple(map(build_record.tensor_info, graph.inputs)),
        outputs=tuple(map(build_record.tensor_info, graph.outputs)),
        training=False,
        inputs_origin="model",
        exporter=model.exporter,
        notes=(*source.notes, *model.notes),
        state=build_record.state_info(graph),
    )
    # In place of the answer and the ranking of a decode step alone.
    result = answer(model, question, devices, market, request)
    about = first if result.gpus else targets.cpu
    best, ranking = rank_requests(result, about.name, {gpu.slug for gpu in gpus} or {targets.cpu.slug})
    guessed = tuple(
        Guess(what=f"{what} tokens", value=str(number), fix=f"--{option} {number}")
        for what, given, number, option in (
            ("prompt", question.prompt, result.prompt_tokens, "prompt"),
            ("output", question.output, result.output_tokens, "output-tokens"),
        )
        if given is None
    )
    analysis = replace(
        analysis_of(info, decode, decided, targets.cpu),
        answer=best and replace(best, guessed=guessed),
        ranking=ranking,
        generation=result,
        invocation=invocation,
    )
    first_tokens = Predictor(options, targets.cpu, on_cpu.first, predictor.offers)
    prompt, seen = steps.prefill(), measured.seen(ran.batch, "prompt")
    read = decide_on(first_tokens, prompt, BatchModels(), gpus[:1], request.batch, seen)
    prefill = PhaseResult(
        totals=build_record.totals(prompt, read.decision_input),
        operators=build_record.operators(read.decision_input, read.decision),
        plans=read.decision.plans,
        verdict=read.decision.verdict,
    )
    analysis = replace(analysis, phases=Phases(prefill=prefill))
    one = candidate(model, first, setting, request, market)
    return analysis if one is None else replace(analysis, opportunities=of_request(analysis, one, market))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The whole model's steps, each layer written out, on one device.

    ``types`` are those in which the device that the answer is about runs it, ``cpu_types`` those of the CPU
    beside it; None where that cannot.
    """

    model: GeneratingModel
    types: StepTypes
    cpu_types: StepTypes | None
    request: Request

    def decode(self, batch: int) -> PreparedGraph:
        request = replace(self.request, batch=batch)
        return self._prepared(request, request.decode(self.request.middle, 1))

    def prefill(self) -> PreparedGraph:
        return self._prepared(self.request, self.request.prefill(1))

    def _prepared(self, request: Request, sizes: StepSizes) -> PreparedGraph:
        prepared = prepare(self.model.whole_step(sizes, self.types))
        if self.cpu_types == self.types:
            return prepared
        return replace(prepared, cpu_form=self._cpu_form(prepared, request, sizes))

    def _cpu_form(self, prepared: PreparedGraph, request: Request, sizes: StepSizes) -> CpuForm:
        """Return the step in the types of the CPU: the same operators, but where the CPU has none of them."""
        types = self.cpu_types
        if types is None:
            lacking = {
                node.op_type
                for node in prepared.graph.nodes
                if any(tensor.dtype.name.startswith("float8") for tensor in node.present_inputs)
            }
            return CpuForm(
                prepared=prepared, weight_bytes=prepared.graph.parameter_bytes, lacks=tuple(sorted(lacking))
            )
        graph = self.model.whole_step(sizes, types)
        held = self.model.footprint(request, types, 1, "cpu")
        return CpuForm(
            prepared=prepared if graph is prepared.graph else prepare(graph),
            weight_bytes=held.weights + held.tables,
        )


def digest(graph: Graph) -> str:
    """SHA-256 of operators, sizes and types."""
    sha = hashlib.sha256()
    for node in graph.nodes:
        tensors = [
            None if tensor is None else (tensor.name, tensor.shape, tensor.dtype.name)
            for tensor in (*node.inputs, *node.outputs)
        ]
        sha.update(repr((node.op_type, node.domain, sorted(node.attributes.items()), tensors)).encode())
    return sha.hexdigest()
