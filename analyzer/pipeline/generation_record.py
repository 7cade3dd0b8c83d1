"""A generating model -> Analysis: the decode step decided as any model is, its prefill, and the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.errors import UsageError
from analyzer.generation.answer import BATCHES, ComparedDevices, answer, corrected, request_of, setting_of
from analyzer.generation.model import GeneratingModel
from analyzer.generation.options import Market
from analyzer.generation.request import Request, TimeLimits
from analyzer.generation.steps.step_sizes import StepSizes, StepTypes
from analyzer.generation.times import RequestPhases, Runner
from analyzer.graph import Graph, Node
from analyzer.options import GenerationOptions, Options
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.device_decisions import analysis_of, decide_on
from analyzer.pipeline.generation_measure import MeasuredSides
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import CpuForm, PreparedGraph, prepare
from analyzer.pipeline.target_devices import Targets
from analyzer.record.analysis import Analysis, ModelInfo, PhaseResult, Phases

# In operators. Of larger steps fewer batches are looked at: each is decided in a tenth of a second a thousand.
_ALL_BATCHES_UP_TO = 2000
_FEW_BATCHES = (1, 16, 256)
# GPUs asked for beside the first whose plans are worked out as well.
_MOST_ALTERNATIVES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a report calls the model."""

    name: str
    source: str
    notes: tuple[str, ...] = ()


def generation_analysis(
    model: GeneratingModel,
    named: Named,
    question: GenerationOptions,
    options: Options,
    targets: Targets,
    measured: MeasuredSides | None = None,
) -> Analysis:
    """The record of a generating model, without the circumstances.

    Args:
        model: What generates.
        named: What reports call it.
        question: What is asked about generation.
        options: What is asked as of any model.
        targets: The devices.
        measured: What was run here.
    """
    measured = measured or MeasuredSides()
    gpus = targets.gpus
    if not gpus and question.gpus is not None:
        raise UsageError(f"--gpus {question.gpus}: there is no GPU to share the model.", hint="Name a --gpu.")
    first = gpus[0] if gpus else targets.cpu
    setting = setting_of(model, question, first)
    types = model.types_on(first, setting) or StepTypes()
    request = request_of(model, question)
    predictor = Predictor(options, targets.cpu)
    market = Market(
        runner=Runner(host=predictor.host, threads=options.threads if targets.local_cpu else None),
        instances=predictor.instances,
        limits=TimeLimits(ttft_s=question.ttft_s, tpot_s=question.tpot_s),
    )
    devices = ComparedDevices(
        first=first,
        cpu=targets.cpu,
        compared=_compared(gpus, targets.cpu),
        measured=_measured_phases(measured, first, targets.cpu),
    )
    market = corrected(model, question, devices, request, market)
    on_cpu = market.runner.correction(targets.cpu)
    steps = _Steps(
        model=model,
        types=types,
        cpu_types=model.types_on(targets.cpu, setting_of(model, question, targets.cpu)),
        request=request,
    )
    decode = steps.decode(request.batch)
    decided = decide_on(
        Predictor(options, targets.cpu, on_cpu.other, predictor.offers), decode,
        BatchModels(prepared_graphs=steps.decodes(question.batches, decode)),
        gpus[: 1 + _MOST_ALTERNATIVES], request.batch,
        measured.seen(request.batch, "middle"),
    )  # fmt: skip
    precision = model.floats_of(setting.weights) if gpus else model.precision_on(first, setting)
    info = _model_info(model, named, decode.graph, request, precision)
    analysis = analysis_of(info, decode, decided, targets.cpu, gpus)
    prefill = _phase(
        Predictor(options, targets.cpu, on_cpu.first, predictor.offers), steps.prefill(request.batch),
        gpus[:1], request.batch, measured.seen(request.batch, "prompt"),
    )  # fmt: skip
    return replace(
        analysis, generation=answer(model, question, devices, market), phases=Phases(prefill=prefill)
    )


def _measured_phases(measured: MeasuredSides, gpu: Device, cpu: Device) -> dict[str, RequestPhases]:
    """What was run, by the slug of the device that ran it."""
    sides = ((gpu, measured.gpu), (cpu, measured.cpu))
    return {device.slug: side.phases for device, side in sides if side is not None and side.phases is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The whole model's steps, each layer written out, on one device.

    Attributes:
        model: What generates.
        types: In which the device that the answer is about runs it.
        cpu_types: In which the CPU beside it does; None where that cannot.
        request: What is asked.
    """

    model: GeneratingModel
    types: StepTypes
    cpu_types: StepTypes | None
    request: Request

    def decode(self, batch: int) -> PreparedGraph:
        request = replace(self.request, batch=batch)
        return self._prepared(request, request.decode(self.request.middle, 1))

    def prefill(self, batch: int) -> PreparedGraph:
        request = replace(self.request, batch=batch)
        return self._prepared(request, request.prefill(1))

    def decodes(self, asked: Sequence[int], own: PreparedGraph) -> dict[int, PreparedGraph]:
        few = len(own.graph.nodes) > _ALL_BATCHES_UP_TO
        batches = sorted({*(_FEW_BATCHES if few else BATCHES), *asked})
        return {batch: own if batch == self.request.batch else self.decode(batch) for batch in batches}

    def _prepared(self, request: Request, sizes: StepSizes) -> PreparedGraph:
        prepared = prepare(self.model.whole_step(sizes, self.types))
        if self.cpu_types == self.types:
            return prepared
        return replace(prepared, cpu_form=self._cpu_form(prepared, request, sizes))

    def _cpu_form(self, prepared: PreparedGraph, request: Request, sizes: StepSizes) -> CpuForm:
        """The step in the types of the CPU: the same operators, but where the CPU has none of them."""
        types = self.cpu_types
        if types is None:
            lacking = {node.op_type for node in prepared.graph.nodes if _reads_narrow_floats(node)}
            return CpuForm(
                prepared=prepared, weight_bytes=prepared.graph.parameter_bytes, lacks=tuple(sorted(lacking))
            )
        graph = self.model.whole_step(sizes, types)
        held = self.model.footprint(request, types, 1, "cpu")
        return CpuForm(
            prepared=prepared if graph is prepared.graph else prepare(graph),
            weight_bytes=held.weights + held.tables,
        )


def _compared(gpus: tuple[Device, ...], cpu: Device) -> tuple[Device, ...]:
    """Those that were named; of one, or none, all of the catalogue."""
    table = gpus if len(gpus) > 1 else (*gpus, *catalogue.gpus())
    if not gpus:
        table = ()
    by_slug: dict[str, Device] = {}
    for device in table:  # this machine's own comes first: it is calibrated where the catalogue's is not
        by_slug.setdefault(device.slug, device)
    return (*by_slug.values(), cpu)


def _reads_narrow_floats(node: Node) -> bool:
    return any(tensor.dtype.name.startswith("float8") for tensor in node.present_inputs)


def _phase(
    predictor: Predictor,
    prepared: PreparedGraph,
    gpus: tuple[Device, ...],
    batch: int,
    measured: dict[int, Measured],
) -> PhaseResult:
    decided = decide_on(predictor, prepared, BatchModels(), gpus, batch, measured)
    return PhaseResult(
        totals=build_record.totals(prepared, decided.decision_input),
        operators=build_record.operators(decided.decision_input, decided.decision),
        plans=decided.decision.plans,
        verdict=decided.decision.verdict,
    )


def _model_info(
    model: GeneratingModel, named: Named, graph: Graph, request: Request, precision: str
) -> ModelInfo:
    return ModelInfo(
        name=named.name,
        source=named.source,
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
        notes=(*named.notes, *model.notes),
        state=build_record.state_info(graph),
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
