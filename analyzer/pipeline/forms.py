"""The graph that the decision is about: the model's own or one in another precision; what is said of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from analyzer.conversion import HALF, PRODUCTS, NoForm, convert, in_floats, integer_form, without_half_kernel
from analyzer.decision import DecisionInput
from analyzer.errors import UsageError
from analyzer.graph import Graph
from analyzer.operators import INTEGER_PRODUCTS
from analyzer.options import Options
from analyzer.ort.execution import Group
from analyzer.ort.rewriting import QUANTIZERS
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.target_devices import model_precision
from analyzer.precision import INTEGER_FORMS
from analyzer.text import first_few, plural

HOW_MADE = {
    "int8": "as onnxruntime.quantization.quantize_static makes it by default (QDQ, one scale a tensor)",
    "int4": "with the weights of MatMul in 4 bits (MatMulNBits, blocks of 32), Gemm split into MatMul and Add",
}
"""What an integer form is."""
CONVERTED = ("fp16", "int8")
"""What `analyze apply` converts a model of fp32 to."""


def in_form(graph: Graph, options: Options) -> Graph:
    """Return the graph in the precision that was asked for; the very same one for another width of floats.

    Raises:
        UsageError: The model has no such form.
    """
    if options.precision is None:
        return graph
    if options.precision not in INTEGER_FORMS:
        # Of 32-bit floats any width is counted as they are; halves are made whole first.
        return graph if model_precision(graph) == options.precision else in_full(graph)
    form = convert(in_full(graph), options.precision)
    if isinstance(form, NoForm):
        raise UsageError(
            f"--precision {options.precision}: {form.why}.",
            hint="Leave --precision out: the report then shows every precision that the model can have.",
        )
    return form


def in_full(graph: Graph) -> Graph:
    """Return graph with its halves as 32-bit floats, as quantisers read them; one that has none as it is."""
    halves = model_precision(graph) in HALF and integer_form(graph) is None
    return in_floats(graph, "float32") if halves else graph


def requested_precision(options: Options, decision_input: DecisionInput) -> str:
    """Return the precision that the record tells: the form that was asked for, else that of the floats."""
    precision = options.precision
    return precision if precision is not None and precision in INTEGER_FORMS else decision_input.precision


def note(precision: str) -> str:
    """Return the report's note on a converted model."""
    how = HOW_MADE.get(precision, "made of its floats in 32 bits")
    return f"The model is predicted in {precision}, {how}; nothing was run in that form."


_FLOATS = frozenset({"float32", "float16", "bfloat16"})


def sentences(prepared: PreparedGraph, *, gpu: bool) -> Iterator[str]:
    """Yield notes on a quantised model, or on one that a CPU cannot run."""
    form = integer_form(prepared.graph)
    if form is None and model_precision(prepared.graph) == "bf16":
        why = no_bf16_on_cpu(in_floats(prepared.graph, "float32"), prepared.placement.release)
        yield f"{why}: its plan is what the model would take in fp32."
    if form == "int4":
        yield f"{packed(prepared)}."
    elif form == "int8":
        if gpu and _kernels(prepared.graph, prepared.cuda_groups):
            yield f"{on_cuda(prepared)}."
        if _kernels(prepared.graph, prepared.cpu_groups):
            yield f"{on_cpu(prepared)} on the CPU."


def no_bf16_on_cpu(graph: Graph, release: str) -> str:
    """Return why a model in float32 would not run in bf16 on a CPU, by a release as in ``Placement``."""
    result = without_half_kernel(graph, HALF["bf16"], "cpu", release=release)
    lacking = (graph.nodes[index].op_type for index in result)
    first = next(lacking, None)
    if first is None:
        return "what ONNX Runtime's CPU provider makes of bf16 is not modelled"
    return f"ONNX Runtime's CPU provider has no bf16 kernel for {first}, and makes no session"


def multiplies_on_cuda(prepared: PreparedGraph) -> bool:
    """Return whether a session on CUDA runs any product of floats on the GPU."""
    costs = prepared.table.costs
    return any(costs[index].macs for index in _floats(prepared, "cuda"))


def floats_on_cuda(prepared: PreparedGraph) -> bool:
    """Return whether a session on CUDA runs anything that reads or writes floats on the GPU."""
    return any(True for _ in _floats(prepared, "cuda"))


def left_on_cpu(prepared: PreparedGraph) -> str:
    """Return float operators that a CUDA session leaves to the CPU, where they stay wide; may be empty."""
    result = list(dict.fromkeys(_floats(prepared, "cpu")))
    if not result:
        return ""
    types = first_few(dict.fromkeys(prepared.graph.nodes[index].op_type for index in result))
    verb = "stays" if len(result) == 1 else "stay"
    return f"{plural(len(result), 'operator')} ({types}) {verb} on the CPU, in fp32"


def _floats(prepared: PreparedGraph, provider: str) -> Iterator[int]:
    """Yield operators of the session on CUDA that read or write floats on the provider's side."""
    for group in prepared.cuda_groups:
        for index in group.members if group.provider == provider else ():
            node = prepared.graph.nodes[index]
            if any(one.dtype.name in _FLOATS for one in (*node.present_inputs, *node.present_outputs)):
                yield index


def packed(prepared: PreparedGraph) -> str:
    """Return how many products read packed weights."""
    return f"{_share(prepared, frozenset({'MatMulNBits'}))} read packed weights"


def on_cpu(prepared: PreparedGraph) -> str:
    """Return how many products run in integers."""
    return f"{_share(prepared, INTEGER_PRODUCTS)} run in integer kernels"


def _share(prepared: PreparedGraph, types: Collection[str]) -> str:
    kernels = _kernels(prepared.graph, prepared.cpu_groups)
    return f"{sum(kernel in types for _, kernel in kernels):,} of {_multiplications(kernels)}"


def on_cuda(prepared: PreparedGraph) -> str:
    """Return which products ONNX Runtime's CUDA provider leaves in floats, and what stands between them."""
    kernels = _kernels(prepared.graph, prepared.cuda_groups)
    floats = [kind for kind, kernel in kernels if kernel not in INTEGER_PRODUCTS]
    packed_weights = sum(kernel == "MatMulNBits" for _, kernel in kernels)
    convolves = any(kind.startswith("Conv") for kind in floats)
    every = _multiplications(kernels)
    parts = []
    if floats:
        parts.append(f"{len(floats):,} of {every} in floats")
    if packed_weights:
        parts.append(f"{packed_weights:,} of {every} with packed weights")
    between = sum(group.op_type in QUANTIZERS for group in prepared.cuda_groups)
    if between:
        parts.append(f"{plural(between, 'kernel')} between them to quantise and back")
    reason = (
        f"ONNX Runtime's CUDA provider has no int8 {'convolution' if convolves else 'matrix multiplication'}"
    )
    return f"{reason}: {', '.join(parts)}" if parts else reason


def _multiplications(kernels: Sequence[tuple[str, str]]) -> str:
    return plural(
        len(kernels), "convolution or matrix multiplication", "convolutions and matrix multiplications"
    )


def _kernels(graph: Graph, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return the products of a model, each with the type of what is executed for it."""
    executed = {index: group.op_type for group in groups for index in group.members}
    return [
        (node.op_type, executed[node.index])
        for node in graph.nodes
        if node.index in executed and (node.op_type in PRODUCTS or node.op_type in INTEGER_PRODUCTS)
    ]
