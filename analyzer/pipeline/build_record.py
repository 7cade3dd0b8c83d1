"""Build the record from results, with the environment of the run."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from analyzer import __version__
from analyzer.costs import CostTable, folded_flops, fused
from analyzer.costs.families.control_flow import trips
from analyzer.costs.table import parameter_bytes, parameters
from analyzer.decision import Decision, DecisionInput
from analyzer.devices.calibration import disturbance, taken_meanwhile
from analyzer.devices.device import Device
from analyzer.figures import NOT_TIMED, seen_as
from analyzer.graph import Graph, Node, SizeOrigin, Tensor
from analyzer.loading.from_onnx import sizes_as_written
from analyzer.loading.input_values import by_graph_name, deciding_inputs
from analyzer.loading.loaded import Loaded
from analyzer.loading.onnx_graph.build import open_tensors
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.torch_private import untested
from analyzer.ort.execution import PlacedBody, Placement
from analyzer.ort.placement import best_opset
from analyzer.pipeline import forms
from analyzer.pipeline.measure import Measured, installed_version
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import (
    BodyCopy,
    BodyOperator,
    BodyResult,
    CpuTime,
    Environment,
    GpuTime,
    GroupResult,
    ModelInfo,
    OperatorResult,
    StateInfo,
    TensorInfo,
    Totals,
    Where,
)
from analyzer.record.batch_ranges import DECIDE_SIZES
from analyzer.text import first_few, plural

if TYPE_CHECKING:
    import onnx

# The two distributions of ONNX Runtime carry one module; whichever is installed is named.
_PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime-gpu", "onnxruntime", "numpy")


def describe(
    *,
    measured: Measured | None,
    timings_s: Mapping[str, float],
    cached: bool,
    cpu: Device,
    exported: bool = False,
) -> Environment:
    """Return the run's entry in the report's method section.

    ``measured`` is of the report's own batch; ``exported`` says that PyTorch made the graph.
    """
    facts: Mapping[str, Any] = measured.facts if measured else {}
    # Threads, load and runs are of the CPU's session: a CUDA session's are in ``measurement``.
    run = facts.get("cpu", {})
    messages, disturbed = measured.messages if measured else (), disturbance(cpu.calibration)
    if disturbed:
        off = "too slow" if taken_meanwhile(cpu.calibration) else "too slow or too quick"
        messages = (
            *messages,
            f"This CPU was {disturbed}: what is predicted for it may be {off}, its intervals are widened; "
            "`analyze calibrate` on a quiet machine measures anew.",
        )
    installed = versions()
    if exported and (newer := untested(installed.get("torch", ""))):
        messages = (*messages, newer)
    return Environment(
        versions=installed,
        platform=f"{platform.system()} {platform.machine()}",
        cpu=cpu.name,
        threads=run.get("threads"),
        load_before=run.get("load_before"),
        load_after=run.get("load_after"),
        warmup_runs=run.get("warmup_runs"),
        runs=run.get("runs"),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        export_cached=cached,
        timings_s={name: round(value, 4) for name, value in timings_s.items()},
        measurement=facts,
        messages=messages,
    )


def versions() -> dict[str, str]:
    """Return versions of what takes part, by package; absent ones are left out."""
    installed = {"analyzer": __version__, "python": platform.python_version()}
    return installed | {name: version for name in _PACKAGES if (version := installed_version(name)) is not None}


# Arrays with more elements than this are data, not attributes of an operator.
_SHOWN_ELEMENTS = 16
# A record's values are so deep and no deeper (``quantities.Value``).
_SHOWN_AXES = 4
# Lists are cut after more, so that pads and permutations stand whole; those of tree ensembles have thousands.
_SHOWN_ENTRIES = 64
_SHOWN_CHARACTERS = 200


CONVENTIONS: Mapping[str, int | str] = {
    "flops_per_mac": 2,
    "dense": "taps on padding and masked attention scores count",
    "elementwise": "1 FLOP per output element and pass, transcendental functions too",
    "bias": "counts",
    "movement": "0 FLOPs, bytes read and written",
    "views": "0 FLOPs, 0 bytes",
    "bytes": "each element needed is read once, each output written once, at its own width",
    "constant_subgraphs": "cost nothing",
    "unknown": "null, never 0; totals with unknown operators read at least",
    "intervals": "90 %",
    "latency": "host to host, copies of inputs and outputs included",
}


def model_info(loaded: Loaded, graph: Graph, precision: str, *, converted: bool) -> ModelInfo:
    """Return the analysed model.

    ``converted`` says whether ``graph`` is another one than the model's own.
    """
    return ModelInfo(
        name=loaded.name,
        source=loaded.source,
        digest=digest(loaded.proto),
        opset=graph.opsets.get("ai.onnx", 0),
        batch=loaded.batch,
        precision=precision,
        parameters=parameters(graph) if loaded.parameters is None else loaded.parameters,
        parameter_bytes=parameter_bytes(graph)
        if loaded.parameter_bytes is None or converted
        else loaded.parameter_bytes,
        inputs=tuple(map(tensor_info, graph.inputs)),
        outputs=tuple(map(tensor_info, graph.outputs)),
        training=loaded.step is not None,
        inputs_origin=loaded.inputs_origin,
        guessed_inputs=loaded.guessed,
        exporter=loaded.exporter,
        assumed_sizes=dict(graph.open_dimensions),
        state=state_info(graph) if loaded.step is None else (),
        ir_version=graph.ir_version,
        problems=graph.problems,
        empty_inputs=graph.empty_inputs,
        notes=(
            *loaded.notes,
            *graph.notes,
            *size_notes(loaded, graph),
            *((forms.note(precision),) if converted else ()),
        ),
    )


def state_info(graph: Graph) -> tuple[StateInfo, ...]:
    """Return the state that stays on the device from run to run, as the record shows it."""
    shapes = {tensor.name: tensor.shape for tensor in graph.inputs}
    return tuple(StateInfo(input=past, output=new, shape=shapes[past]) for past, new in graph.carried.items())


def digest(proto: onnx.ModelProto) -> str:
    """SHA-256 of the graph and the shapes of its weights: no names of files or lines, no values of weights."""
    # Field by field, and not the file's bytes: those hold doc strings, paths, lines and the exporter's version.
    sha = hashlib.sha256()

    def add(*parts: object) -> None:
        sha.update(repr(parts).encode())

    for entry in sorted(proto.opset_import, key=lambda opset: opset.domain):
        add(entry.domain, entry.version)
    for value in proto.graph.input:
        add(value.name, value.type.SerializeToString(deterministic=True))
    for weight in proto.graph.initializer:
        add(weight.name, weight.data_type, tuple(weight.dims))
    for node in proto.graph.node:
        # ONNX gives attributes no order, and two exporters need not write them in the same one.
        attributes = sorted(field.SerializeToString(deterministic=True) for field in node.attribute)
        add(node.domain, node.op_type, tuple(node.input), tuple(node.output), attributes)
    add(tuple(value.name for value in proto.graph.output))
    return sha.hexdigest()


def tensor_info(tensor: Tensor) -> TensorInfo:
    """Return a tensor as the record shows it."""
    return TensorInfo(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype.name, constant=tensor.constant)


def plain(value: Any) -> Any:
    """Return an attribute as JSON has it; large arrays become their shape."""
    if hasattr(value, "tolist"):
        small = value.size <= _SHOWN_ELEMENTS and value.ndim <= _SHOWN_AXES
        return _plain_elements(value.tolist()) if small else f"{value.dtype} {list(value.shape)}"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")[:_SHOWN_CHARACTERS]
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value[:_SHOWN_ENTRIES]]
    # JSON has no number for these (RFC 8259, section 6).
    if (isinstance(value, float) and math.isnan(value)) or value in (float("inf"), float("-inf")):
        return str(value)
    return value if isinstance(value, (int, float, str, bool)) or value is None else str(value)


def _plain_elements(elements: Any) -> Any:
    return list(map(_plain_elements, elements)) if isinstance(elements, list) else plain(elements)


_OF_COST = ("flops", "macs", "bytes_read", "bytes_written", "intensity", "basis", "note")


def operators(decision_input: DecisionInput, decision: Decision) -> tuple[OperatorResult, ...]:
    """Return every operator with its cost, its times, its verdict and its place in the best plan."""
    graph, table = decision_input.graph, decision_input.table
    no_gpu: tuple[None, ...] = (None,) * len(graph.nodes)
    columns = (
        table.costs,
        decision_input.cpu_shares,
        decision_input.gpu_shares if decision_input.gpu else no_gpu,
        decision_input.placement.nodes if decision_input.placement else no_gpu,
        decision.operators,
        decision.placement,
    )
    infos = cache(tensor_info)  # a tensor is told where it is written and wherever it is read
    release = decision_input.placement.release if decision_input.placement else ""
    result = []
    for node, cost, cpu, gpu, placed, verdict, side in zip(graph.nodes, *columns, strict=True):
        shown = {name: plain(value) for name, value in node.attributes.items()}
        result.append(
            seen_as(
                OperatorResult,
                node,
                source=source_line(node),
                inputs=tuple(map(infos, node.present_inputs)),
                outputs=tuple(map(infos, node.present_outputs)),
                attributes=shown,
                **{name: getattr(cost, name) for name in _OF_COST},
                cpu=CpuTime(**_seconds(cpu), bound=cpu.bound if cpu else None),
                gpu=placed
                and GpuTime(
                    **_seconds(gpu),
                    bound=gpu.bound if gpu else None,
                    supported=placed.supported,
                    placed_on=placed.provider,
                    why=placed.why,
                    detail=placed.detail,
                    kernel_opset=best_opset(node, release) if placed.why == "no-kernel-for-opset" else None,
                    overhead=gpu.overhead if gpu and gpu.origin == "predicted" else None,
                ),
                verdict=verdict,
                placement=side,
            )
        )
    return tuple(result)


def source_line(node: Node) -> Where | None:
    """Return the user's own line that an operator comes from; None where nothing tells."""
    source = node.source
    return Where(file=source.file, line=source.line, code=source.code) if source else None


def _seconds(estimate: Estimate | None) -> dict[str, Any]:
    # None of an operator that is folded before the run, and of one whose group the profile did not show.
    return NOT_TIMED if estimate is None else estimate.keys("time_s")


def groups(decision_input: DecisionInput) -> tuple[GroupResult, ...]:
    """Return the executed groups of both sessions."""
    pairs = [*zip(decision_input.cpu_groups, decision_input.cpu_times, strict=True)]
    pairs += zip(decision_input.cuda_groups, decision_input.cuda_times, strict=True)
    return tuple(seen_as(GroupResult, group, **_seconds(estimate)) for group, estimate in pairs)


def totals(prepared: PreparedGraph, decision_input: DecisionInput) -> Totals:
    """Return sums over operators; the fused bytes are those of the groups that the CUDA session executes."""
    table: CostTable = prepared.table
    whole = table.total
    executed = prepared.cuda_groups if decision_input.gpu else prepared.cpu_groups
    # Where what lies between two members of a group does not reach memory.
    costs = fused(prepared.graph, prepared.table, executed)
    known = all(cost.bytes_read is not None and cost.bytes_written is not None for cost in costs)
    fused_read, fused_written = (
        sum(getattr(cost, name) for cost in costs) if known else None
        for name in ("bytes_read", "bytes_written")
    )
    moved = (fused_read or 0) + (fused_written or 0)
    times = [share.value if share else None for share in decision_input.cpu_shares]
    return Totals(
        # An operator without a count adds nothing: the sum is then "at least", which `coverage.unknown` tells.
        flops=whole.flops or 0,
        macs=whole.macs or 0,
        bytes_read=whole.bytes_read or 0,
        bytes_written=whole.bytes_written or 0,
        intensity=whole.intensity,
        fused_bytes_read=fused_read,
        fused_bytes_written=fused_written,
        fused_intensity=(whole.flops or 0) / moved if moved else None,
        peak_memory_bytes=decision_input.peak_memory_bytes,
        operators=len(prepared.graph.nodes),
        coverage=table.coverage(),
        coverage_time=table.coverage(times) if any(times) else None,
        folded_flops=sum(map(folded_flops, prepared.graph.nodes)),
    )


def size_notes(loaded: Loaded, graph: Graph) -> Iterator[str]:
    """Yield a sentence for each way in which sizes are known, and one for those that are not."""
    if loaded.step is not None:
        return
    guesses = [parse_input(text) for text in loaded.guessed]
    specs = {**by_graph_name(guesses), **by_graph_name(loaded.specs)}

    def option(tensor: Tensor) -> str:
        spec = specs.get(tensor.name)
        if spec is not None:
            return f"--input {spec.name}={spec.sizes_text}:{spec.dtype}=LOW..HIGH"
        sizes = sizes_as_written(loaded.proto, loaded.symbol, tensor)
        return f"--input {tensor.name}={sizes}:{tensor.dtype.name}=LOW..HIGH"

    def options(inputs: Sequence[Tensor], gives: str) -> str:
        """Return how to give the values of inputs of whole numbers; of floats nothing is worked out."""
        whole = [tensor for tensor in inputs if not tensor.dtype.is_float and tensor.dtype.bits is not None]
        if not whole or len(whole) < len(inputs):
            return ""
        return f" ({' '.join(map(option, whole[:3]))} gives {gives})"

    by_origin: dict[SizeOrigin, list[str]] = {}
    for name, origin in graph.size_origins.items():
        by_origin.setdefault(origin, []).append(name)
    for origin, names in by_origin.items():
        first = graph.tensors[names[0]]
        sizes = "x".join(map(str, first.shape or ())) or "a number"
        what = f"{DECIDE_SIZES} {plural(len(names), 'tensor')} ({first.name} is {sizes})"
        if origin.kind == "measured":
            inputs = deciding_inputs(graph, names)
            who = f"The values of {first_few(tensor.name for tensor in inputs)}" if inputs else "The data"
            lines = options(inputs, "others")
            yield f"{who} {what}: as measured, which holds for the data of that run alone{lines}."
        else:
            who = f"The values of {first_few(origin.inputs)}"
            texts = first_few(specs[name].option for name in origin.inputs)
            yield f"{who} {what}: by those given ({texts}); others make other sizes and times."
    unknown = open_tensors(graph)
    if unknown and (inputs := deciding_inputs(graph, unknown)):
        who = f"The values of {first_few(tensor.name for tensor in inputs)} {DECIDE_SIZES} {first_few(unknown)}"
        yield f"{who}, and are not known before a run{options(inputs, 'them')}."


def body_results(graph: Graph, placement: Placement) -> tuple[BodyResult, ...]:
    """Return every subgraph of a graph, those inside of others after the one that holds them."""
    nested = (_with_inner(body, graph.nodes[body.operator], body.operator, "", 1) for body in placement.bodies)
    return tuple(result for results in nested for result in results)


def _with_inner(
    body: PlacedBody, node: Node, operator: int, path: str, outer_passes: int | None
) -> Iterator[BodyResult]:
    """Yield a body and all bodies inside of it; ``outer_passes`` is how often the body around it runs."""
    own_passes = _passes(node)
    passes = None if own_passes is None or outer_passes is None else own_passes * outer_passes
    placed_nodes = list(zip(body.graph.nodes, body.placement.nodes, strict=True))
    on_cpu = (
        seen_as(BodyOperator, child, source=source_line(child), why=placed.why, detail=placed.detail)
        for child, placed in placed_nodes
        # A folded operator has the CPU's provider, a removed one its producer's: neither runs there.
        if placed.provider == "cpu"
        and placed.why != "folded"
        and not placed.detail.endswith("removed before the run")
    )
    yield BodyResult(
        operator=operator,
        name=f"{path}{body.name}",
        operators=sum(placed.why != "folded" for _, placed in placed_nodes),
        passes=passes,
        on_cpu=tuple(on_cpu),
        copies=tuple(seen_as(BodyCopy, copy, bytes=copy.nbytes) for copy in body.placement.copies),
    )
    for inner in body.placement.bodies:
        child = body.graph.nodes[inner.operator]
        yield from _with_inner(inner, child, operator, f"{path}{body.name}/{child.name}.", passes)


def _passes(node: Node) -> int | None:
    """Return how often a body runs at most in one run of its operator; None where only the run tells."""
    if node.op_type == "If":
        return 1  # one of its two branches, once
    if node.op_type == "Loop":
        count = trips(node)
        return None if count is None else math.ceil(count)  # inside of another loop it is a mean
    # Scan of opset 8 has a batch axis before the one that it scans, and a first input with lengths.
    if node.op_type == "Scan" and node.version >= 9:
        scanned = node.inputs[-int(node.attributes["num_scan_inputs"])]
        axis = int((node.attributes.get("scan_input_axes") or (0,))[0])
        return scanned.shape[axis] if scanned is not None and scanned.shape else None
    return None
