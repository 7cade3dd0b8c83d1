"""Placement: where a session with [CUDA, CPU] puts every operator, and what it copies between the two.

The rules of ONNX Runtime 1.31, applied to its kernel registry; checked against the real provider by
``tests/judge``. No GPU, no ONNX Runtime and no weights are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analyzer.graph import Graph, Node, Tensor
from analyzer.runtime.capability import unsupported
from analyzer.runtime.execution import Copy, Direction, NodePlacement, Placement, Provider
from analyzer.runtime.functions import expand
from analyzer.runtime.kernels import refusal, registry
from analyzer.runtime.simplify import Simplified, simplify

# The largest constant that ONNX Runtime lets a shape computation take to the CPU, in elements.
SMALL_INITIALIZER = 100
_REDUCED = ("float16", "bfloat16", "float8", "float4")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One node that ONNX Runtime places: an operator of the graph, or a part of a composite one."""

    node: Node
    index: int


def place(graph: Graph) -> Placement:
    """Predicts the placement of every operator and every copy; shapes may be open.

    Returns:
        One entry per operator of the graph; copies in execution order. ``fails`` says why ONNX Runtime
        refuses to create the session at all.
    """
    left = simplify(graph)
    steps = [
        _Step(node=part, index=node.index)
        for node in graph.nodes
        if node.index not in left.folded and node.index not in left.removed
        for part in expand(node)
    ]
    verdicts = [_own_kernel(step.node) for step in steps]
    on_cuda = [verdict.provider == "cuda" for verdict in verdicts]
    for position in _shape_arithmetic(graph, steps, on_cuda, left):
        on_cuda[position] = False
        verdicts[position] = NodePlacement(
            provider="cpu",
            supported=True,
            why="shape-arithmetic",
            detail="computes with shapes that are in host memory already; ONNX Runtime keeps it on the CPU",
        )
    return Placement(
        nodes=tuple(_by_operator(graph, steps, verdicts, left)),
        copies=tuple(_copies(graph, steps, on_cuda, left)),
        fails=_failure(steps, on_cuda),
    )


def best_opset(node: Node) -> int | None:
    """Newest opset at which ONNX Runtime has a CUDA kernel for this operator and these types."""
    return registry().newest_opset_with_kernel("cuda", node)


def _own_kernel(node: Node) -> NodePlacement:
    """The placement of a node by itself: by its kernel and what the provider refuses."""
    why, detail = refusal(node)
    if why:
        return NodePlacement(provider="cpu", supported=False, why=why, detail=detail + _casts(node))
    refused = unsupported(node)
    if refused:
        return NodePlacement(provider="cpu", supported=False, why="capability", detail=refused)
    return NodePlacement(provider="cuda", supported=True, why="cuda-kernel")


def _casts(node: Node) -> str:
    """What ONNX Runtime does about an fp16 operator that no provider has a kernel for."""
    half = any(tensor.dtype.name == "float16" for tensor in node.present_inputs)
    if half and not registry().has_kernel("cpu", node):
        return "; nor on the CPU: it runs there in float32 between two casts"
    return ""


def _shape_arithmetic(
    graph: Graph, steps: Sequence[_Step], on_cuda: Sequence[bool], left: Simplified
) -> Iterable[int]:
    """Positions of nodes that only compute with host tensors: ONNX Runtime leaves them on the CPU.

    Starts from what CUDA kernels write to host memory (shapes) and walks consumers in execution order. A
    node goes along if each input is a small constant, a graph input, or such a host tensor that its CUDA
    kernel would have to copy to the device, and none is of reduced precision.
    """
    known = registry()
    consumers: dict[str, list[int]] = {}
    for position, step in enumerate(steps):
        for tensor in step.node.present_inputs:
            consumers.setdefault(left.name(tensor), []).append(position)
    free = {tensor.name for tensor in graph.inputs}
    constants = _constants(graph, left)
    host: set[str] = set()
    waiting: set[int] = set()
    for position, step in enumerate(steps):
        if on_cuda[position]:
            for output in known.host_outputs(step.node):
                written = step.node.output(output)
                if written is not None:
                    host.add(written.name)
                    waiting.update(consumers.get(written.name, ()))
    taken: list[int] = []
    seen: set[int] = set()
    while waiting:
        position = min(waiting)
        waiting.discard(position)
        if position in seen:
            continue
        seen.add(position)
        node = steps[position].node
        if on_cuda[position]:
            if not _only_host(node, host, free, constants, left):
                continue
            taken.append(position)
        for tensor in node.present_outputs:
            host.add(tensor.name)
            waiting.update(consumers.get(tensor.name, ()))
    return taken


def _only_host(
    node: Node, host: set[str], free: set[str], constants: Mapping[str, Tensor], left: Simplified
) -> bool:
    wanted_on_host = registry().host_inputs(node)
    for position, tensor in enumerate(node.inputs):
        if tensor is None:
            return False
        name = left.name(tensor)
        if tensor.dtype.name.startswith(_REDUCED):
            return False
        small = name in constants and (constants[name].elements or 0) <= SMALL_INITIALIZER
        if small or name in free:
            continue
        if name not in host or position in wanted_on_host:
            return False
    return True


def _constants(graph: Graph, left: Simplified) -> dict[str, Tensor]:
    """Initializers and what was folded into initializers, by name."""
    found = {tensor.name: tensor for tensor in graph.initializers}
    for index in left.folded:
        found.update((tensor.name, tensor) for tensor in graph.nodes[index].present_outputs)
    return found


def _copies(graph: Graph, steps: Sequence[_Step], on_cuda: Sequence[bool], left: Simplified) -> Iterable[Copy]:
    """One copy per tensor and direction where the side that writes is not the side that reads."""
    known = registry()
    constants = _constants(graph, left)
    tensors: dict[str, Tensor] = {tensor.name: tensor for tensor in graph.inputs}
    producer: dict[str, int | None] = dict.fromkeys(tensors)
    at_host: dict[str, bool] = {}
    readers: dict[tuple[str, bool], list[int]] = {}
    for step, cuda in zip(steps, on_cuda, strict=True):
        host_inputs = known.host_inputs(step.node) if cuda else ()
        host_outputs = known.host_outputs(step.node) if cuda else ()
        for position, tensor in enumerate(step.node.inputs):
            name = left.name(tensor) if tensor is not None else ""
            if name and name not in constants:
                readers.setdefault((name, not cuda or position in host_inputs), []).append(step.index)
        for position, tensor in enumerate(step.node.outputs):
            if tensor is not None:
                tensors[tensor.name], producer[tensor.name] = tensor, step.index
                at_host[tensor.name] = not cuda or position in host_outputs
    for name, tensor in tensors.items():
        on_host = at_host.get(name, True)
        direction: Direction = "to_gpu" if on_host else "to_cpu"
        others = readers.get((name, not on_host), ())
        # A graph input that only the GPU reads is fed there directly.
        if others and (name in at_host or readers.get((name, True))):
            yield Copy(
                tensor=name,
                direction=direction,
                nbytes=tensor.nbytes,
                producer=producer[name],
                consumers=tuple(dict.fromkeys(others)),
            )


def _by_operator(
    graph: Graph, steps: Sequence[_Step], verdicts: Sequence[NodePlacement], left: Simplified
) -> Iterable[NodePlacement]:
    """One placement per operator: that of its parts, or of the operator whose result it passes on."""
    parts: dict[int, list[NodePlacement]] = {}
    for step, verdict in zip(steps, verdicts, strict=True):
        parts.setdefault(step.index, []).append(verdict)
    placed: list[NodePlacement] = []
    for node in graph.nodes:
        if node.index in left.folded:
            placed.append(
                NodePlacement(
                    provider="cpu",
                    supported=not refusal(node)[0],
                    why="folded",
                    detail="a constant: computed once when the session is created",
                )
            )
        elif node.index in left.removed:
            placed.append(_removed(graph, node, placed))
        else:
            placed.append(_joined(parts[node.index]))
    return placed


def _removed(graph: Graph, node: Node, placed: Sequence[NodePlacement]) -> NodePlacement:
    source = node.input(0)
    producer = graph.producer.get(source.name) if source is not None else None
    provider: Provider = placed[producer].provider if producer is not None else "cuda"
    why, detail = refusal(node)
    return NodePlacement(
        provider=provider,
        supported=not why,
        why=why or "cuda-kernel",
        detail=f"{detail}; removed before the run" if detail else "removed before the run",
    )


def _joined(parts: Sequence[NodePlacement]) -> NodePlacement:
    """A composite operator is where all its parts are; on the CPU if any part is."""
    return next((part for part in parts if part.provider == "cpu"), parts[0])


def _failure(steps: Sequence[_Step], on_cuda: Sequence[bool]) -> str:
    """Why there is no session: a bfloat16 operator without a kernel on either provider."""
    for step, cuda in zip(steps, on_cuda, strict=True):
        node = step.node
        brain = any(tensor.dtype.name == "bfloat16" for tensor in node.present_inputs)
        if not cuda and brain and not registry().has_kernel("cpu", node):
            return f"no provider has a kernel for {node.op_type} with bfloat16 ({node.name})"
    return ""
