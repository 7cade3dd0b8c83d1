"""Placement: which node of a [CUDA, CPU] session falls back to the CPU, and what is copied between the two.

The rules of ONNX Runtime 1.31, applied to a release's kernel registry (``ort/kernels.py``) and to what the
provider refuses (``ort/capability.py``); checked against the real provider by ``tests/judge``, against that of
other releases by ``benchmarks/judging_releases.py``. No GPU, no ONNX Runtime and no weights are needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heappop, heappush

from analyzer.graph import Graph, Node, Tensor
from analyzer.ort.capability import failing, unsupported
from analyzer.ort.execution import Copy, Direction, NodePlacement, PlacedBody, Placement, Provider
from analyzer.ort.function_inlining import Expanded, expand, parts_on_cpu
from analyzer.ort.kernels import Registry, refusal, registry, releases, type_name
from analyzer.ort.quantized_groups import quantized_copies
from analyzer.ort.simplify import Simplified, passed_input, simplify

# kSmallInitializerThreshold of onnxruntime/core/framework/fallback_cpu_capability.cc: the largest constant that
# a shape computation takes to the CPU, in elements.
SMALL_INITIALIZER = 100
Verdicts = Mapping[int, NodePlacement]
# GetCpuPreferredNodes of the same file leaves nodes with these on the GPU: the CPU has few such kernels.
_REDUCED = ("float16", "bfloat16", "float8", "float4")
_ON_PURPOSE = NodePlacement(
    provider="cpu",
    supported=True,
    why="shape-arithmetic",
    detail="computes with shapes that are in host memory already; ONNX Runtime keeps it on the CPU",
)

_ANNOTATED = NodePlacement(provider="cpu", supported=True, why="annotated", detail="the plan has it on the CPU")
_TAKEN = NodePlacement(provider="cpu", supported=True, why="cuda-kernel", detail="part of a kernel on the CPU")
_NOWHERE = "no provider of ONNX Runtime has a kernel for it"
_MERGED = "does what an earlier operator does: ONNX Runtime runs one of them"


def place(
    graph: Graph, simplified: Simplified | None = None, *, annotated: Set[int] = frozenset()
) -> Placement:
    """Predicts the placement of every operator and every copy; shapes may be open.

    ``simplified``, what level 1 of a release leaves of the graph, is placed by the same release; the newest one
    that is known where it is None. Operators with indices in ``annotated`` carry the session's annotation for
    the CPU, with their bodies.

    Returns:
        One entry per operator of the graph; copies in execution order. ``fails`` says why ONNX Runtime
        refuses to create the session at all.
    """
    simplified = simplified or simplify(graph)
    expanded, verdicts = partition(graph, simplified, annotated)
    bodies = tuple(_bodies(graph, simplified, annotated))
    placed = tuple(_by_operator(graph, expanded, verdicts, simplified))
    left = {expanded.owners[index]: placed[expanded.owners[index]] for index in verdicts}
    taken, biases = quantized_copies(graph, simplified, left)
    failures = [
        *_failures(expanded.graph, verdicts, simplified.release),
        *((body.placement.fails, body.placement.lacks) for body in bodies if body.placement.fails),
    ]
    without_cpu = {
        **{body.operator: body.placement.cpu_fails for body in bodies if body.placement.cpu_fails},
        **dict(_failures_on_cpu(expanded, verdicts, simplified.release)),
    }
    moved = {index: _TAKEN for index in verdicts if expanded.owners[index] in taken}
    return Placement(
        nodes=placed,
        copies=(*_copies(expanded, {**verdicts, **moved}, simplified), *biases),
        # What only one of the devices fails by is said first: without it there still is no session.
        fails=next((why for why, lacks in sorted(failures, key=lambda one: bool(one[1]))), ""),
        lacks=tuple(dict.fromkeys(name for _, lacks in failures for name in lacks))
        if all(lacks for _, lacks in failures)
        else (),
        cpu_fails=next(iter(without_cpu.values()), ""),
        gpu_only=frozenset(without_cpu),
        bodies=bodies,
        release=simplified.release.version,
    )


def _bodies(graph: Graph, simplified: Simplified, annotated: Set[int]) -> Iterable[PlacedBody]:
    """Yield every subgraph, placed as a graph of its own, with the constants of the graphs around it.

    What else it reads from outside it is fed, as its own inputs.
    """
    constants = tuple(_constants(graph, simplified).values())
    for node in graph.nodes:
        # What level 1 took away has no subgraph left to place.
        if node.index in simplified.folded or node.index in simplified.removed:
            continue
        for name, body in node.graphs.items():
            own = {tensor.name for tensor in (*body.inputs, *body.initializers)} | set(body.producer)
            around = tuple(tensor for tensor in constants if tensor.name not in own)
            whole = dataclasses.replace(body, initializers=(*body.initializers, *around))
            # A body without annotations of its own inherits that of its operator.
            inherited = frozenset(range(len(body.nodes))) if node.index in annotated else frozenset()
            placed = place(whole, simplify(whole, simplified.release), annotated=inherited)
            yield PlacedBody(operator=node.index, name=name, graph=body, placement=placed)


def partition(
    graph: Graph, simplified: Simplified, annotated: Set[int] = frozenset()
) -> tuple[Expanded, dict[int, NodePlacement]]:
    """Return the nodes that ONNX Runtime places, and where each goes, by its index in the expanded graph."""
    expanded = expand(graph, simplified.release, without=simplified.folded | simplified.removed)
    verdicts: dict[int, NodePlacement] = {
        node.index: _ANNOTATED if owner in annotated else _own_kernel(node, simplified.release)
        for node, owner in zip(expanded.graph.nodes, expanded.owners, strict=True)
        if owner not in simplified.folded and owner not in simplified.removed
    }
    for index in _shape_arithmetic(expanded.graph, verdicts, simplified):
        verdicts[index] = _ON_PURPOSE
    return expanded, verdicts


def best_opset(node: Node, release: str = "") -> int | None:
    """Newest opset at which a release has a CUDA kernel for this operator and these types.

    ``release`` is as in ``Placement``.
    """
    return registry(release).newest_opset_with_kernel("cuda", node)


def _own_kernel(node: Node, release: Registry) -> NodePlacement:
    """Return the placement of a node by itself: by its kernel and what the provider refuses."""
    # CUDAExecutionProvider::GetCapability (onnxruntime/core/providers/cuda/cuda_execution_provider.cc) looks
    # the kernel up first, then at attributes; what it leaves goes to the CPU provider, which comes last.
    if release.lacks(node) and not release.has_definition(node):
        return NodePlacement(provider="cuda", supported=False, why="no-kernel", detail=_NOWHERE)
    why, detail = refusal(node, known=release)
    if why:
        detail += _casts(node, release)
        return NodePlacement(provider="cpu", supported=False, why=why, detail=detail)
    refused = unsupported(node)
    if refused:
        return NodePlacement(provider="cpu", supported=False, why="capability", detail=refused)
    return NodePlacement(provider="cuda", supported=True, why="cuda-kernel")


def _casts(node: Node, known: Registry) -> str:
    """Return how ONNX Runtime treats an fp16 operator that no provider has a kernel for."""
    # onnxruntime/core/optimizer/insert_cast_transformer.cc
    half = any(tensor.dtype.name == "float16" for tensor in node.present_inputs)
    if half and not known.has_kernel("cpu", node) and known.has_kernel("cpu", node, half_as_float=True):
        return "; nor on the CPU: it runs there in float32 between two casts"
    return ""


def _shape_arithmetic(graph: Graph, verdicts: Verdicts, simplified: Simplified) -> Iterable[int]:
    """Nodes that only compute with host tensors: ONNX Runtime leaves them on the CPU.

    Starts from what CUDA kernels write to host memory (shapes) and walks consumers in execution order. A
    node goes along if each input is a small constant, a graph input, or such a host tensor that its CUDA
    kernel would have to copy to the device, and none is of reduced precision.
    """
    # GetCpuPreferredNodes, onnxruntime/core/framework/fallback_cpu_capability.cc.
    readers: dict[str, list[int]] = {}
    for index in verdicts:
        for tensor in graph.nodes[index].present_inputs:
            readers.setdefault(simplified.name(tensor), []).append(index)
    host = {tensor.name for tensor in _written_to_host(graph, verdicts, simplified.release)}
    hidden = {index for index, verdict in verdicts.items() if verdict is _ANNOTATED}
    # The CUDA provider is shown the graph without annotated nodes (graph_partitioner.cc): what they write is an
    # input of what it sees.
    fed = {tensor.name for tensor in graph.inputs}
    fed |= {tensor.name for index in hidden for tensor in graph.nodes[index].present_outputs}
    constants = _constants(graph, simplified)
    preferred: list[int] = []
    seen: set[int] = set()
    # A priority queue over the topological order there: inputs are decided before what reads them.
    queue = sorted({index for name in host for index in readers.get(name, ())})
    while queue:
        index = heappop(queue)
        if index in seen or index in hidden:
            continue
        seen.add(index)
        node = graph.nodes[index]
        # A node without a CUDA kernel is on the CPU anyway: its results are in host memory, whatever it reads.
        if verdicts[index].provider == "cuda":
            if not _only_host(node, host, fed, constants, simplified):
                continue
            preferred.append(index)
        for tensor in node.present_outputs:
            host.add(tensor.name)
            for reader in readers.get(tensor.name, ()):
                heappush(queue, reader)
    return preferred


def _written_to_host(graph: Graph, verdicts: Verdicts, release: Registry) -> Iterable[Tensor]:
    for index, verdict in verdicts.items():
        if verdict.provider == "cuda":
            node = graph.nodes[index]
            written = (node.output(position) for position in release.host_outputs(node))
            yield from (tensor for tensor in written if tensor is not None)


def _only_host(
    node: Node, host: set[str], fed: set[str], constants: Mapping[str, Tensor], simplified: Simplified
) -> bool:
    wanted_on_host = simplified.release.host_inputs(node)
    for position, tensor in enumerate(node.inputs):
        if tensor is None:
            return False
        name = simplified.name(tensor)
        if tensor.dtype.name.startswith(_REDUCED):
            return False
        small = name in constants and (constants[name].elements or 0) <= SMALL_INITIALIZER
        if small or name in fed:
            continue
        # What the CUDA kernel reads on the host (a Reshape's shape) costs no copy: no reason to go.
        if name not in host or position in wanted_on_host:
            return False
    return True


def _constants(graph: Graph, simplified: Simplified) -> dict[str, Tensor]:
    """Return initializers and tensors that were folded into initializers, by name."""
    constants = {tensor.name: tensor for tensor in graph.initializers}
    constants.update((tensor.name, tensor) for tensor in simplified.constants)
    return constants


def _copies(expanded: Expanded, verdicts: Verdicts, simplified: Simplified) -> Iterable[Copy]:
    """One copy per tensor and direction where the side that writes is not the side that reads."""
    # MemcpyTransformer, onnxruntime/core/optimizer/transformer_memcpy.cc: a node for each tensor and direction,
    # shared by all readers; constants are stored on both sides instead.
    graph, known = expanded.graph, simplified.release
    constants = _constants(graph, simplified)
    tensors: dict[str, Tensor] = {tensor.name: tensor for tensor in graph.inputs}
    producer: dict[str, int | None] = dict.fromkeys(tensors)
    at_host: dict[str, bool] = {}
    readers: dict[tuple[str, bool], list[int]] = {}
    for index, verdict in verdicts.items():
        node, cuda, owner = graph.nodes[index], verdict.provider == "cuda", expanded.owners[index]
        host_inputs = known.host_inputs(node) if cuda else ()
        host_outputs = known.host_outputs(node) if cuda else ()
        for position, tensor in enumerate(node.inputs):
            name = simplified.name(tensor) if tensor is not None else ""
            if tensor is not None and name not in constants:
                if name not in tensors:  # of the graph around a subgraph, which is fed it
                    tensors[name], producer[name] = tensor, None
                readers.setdefault((name, not cuda or position in host_inputs), []).append(owner)
        for position, tensor in enumerate(node.outputs):
            if tensor is not None:
                tensors[tensor.name], producer[tensor.name] = tensor, owner
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
    graph: Graph, expanded: Expanded, verdicts: Verdicts, simplified: Simplified
) -> Iterable[NodePlacement]:
    """One placement per operator: that of its parts, or of the operator whose result it passes on."""
    parts: dict[int, list[NodePlacement]] = {}
    for index, verdict in verdicts.items():
        parts.setdefault(expanded.owners[index], []).append(verdict)
    placed: list[NodePlacement] = []
    for node in graph.nodes:
        if node.index in parts:
            placed.append(_joined(node, parts[node.index], simplified.release))
        elif node.index in simplified.twins:
            placed.append(dataclasses.replace(placed[simplified.twins[node.index]], detail=_MERGED))
        elif node.index in simplified.removed:
            placed.append(_removed(graph, node, placed, simplified.release))
        else:
            placed.append(_folded(node, simplified.release))
    return placed


def _folded(node: Node, release: Registry) -> NodePlacement:
    return NodePlacement(
        provider="cpu",
        supported=not refusal(node, known=release)[0],
        why="folded",
        detail="a constant: computed once when the session is created",
    )


def _removed(graph: Graph, node: Node, placed: Sequence[NodePlacement], release: Registry) -> NodePlacement:
    source = passed_input(node)
    producer = graph.producer.get(source.name) if source is not None else None
    provider: Provider = placed[producer].provider if producer is not None else "cuda"
    why, detail = refusal(node, known=release)
    return NodePlacement(
        provider=provider,
        supported=not why,
        why=why or "cuda-kernel",
        detail=f"{detail}; removed before the run" if detail else "removed before the run",
    )


def _joined(node: Node, parts: Sequence[NodePlacement], release: Registry) -> NodePlacement:
    """Return a composite operator is where its parts are; on the CPU if one of them has no CUDA kernel."""
    worst = next((part for part in parts if not part.supported), None)
    if worst is None:
        worst = next((part for part in parts if part.provider == "cuda"), parts[0])
    if len(parts) == 1 and (not worst.supported or not refusal(node, known=release)[0]):
        return worst
    sentence = f"{worst.detail}; " if worst.detail else ""
    return dataclasses.replace(worst, detail=f"{sentence}{node.op_type} runs as its ONNX definition")


def _failures(graph: Graph, verdicts: Verdicts, known: Registry) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Return why there is no session: operators without a kernel on either provider that casts do not save.

    With each goes its type where no provider has any kernel for it.
    """
    # float16 is saved by casts to float32 (insert_cast_transformer.cc); bfloat16 is not, and the session fails.
    for index, verdict in verdicts.items():
        node = graph.nodes[index]
        reason = failing(node, verdict.provider)
        if reason:
            yield reason, ()
            continue
        nowhere = verdict.why == "no-kernel"
        lost = verdict.provider == "cpu" and not known.has_kernel("cpu", node, half_as_float=True)
        if nowhere or (lost and not known.has_definition(node)):
            kinds = ", ".join(dict.fromkeys(type_name(tensor.dtype) for tensor in node.present_inputs))
            of = f" with {kinds}" if kinds and not nowhere else ""
            yield (
                f"no provider has a kernel for {node.op_type}{of} ({node.name})",
                (node.op_type,) if nowhere else (),
            )


def _failures_on_cpu(expanded: Expanded, verdicts: Verdicts, known: Registry) -> Iterator[tuple[int, str]]:
    """Yield operators without a kernel of the CPU provider, and why there is no session with it alone."""
    for index in verdicts:
        node, owner = expanded.graph.nodes[index], expanded.owners[index]
        if reason := failing(node, "cpu"):
            yield owner, reason
        elif not all(known.has_kernel("cpu", part, half_as_float=True) for part in parts_on_cpu(node, known)):
            kinds = ", ".join(dict.fromkeys(type_name(tensor.dtype) for tensor in node.present_inputs))
            nearest = known.nearest("cpu", node)
            takes = f"; its nearest takes {nearest}" if nearest else ""
            yield owner, f"the CPU provider has no kernel for {node.op_type} with {kinds} ({node.name}){takes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlacement:
    """A model's placement by one release at one opset.

    Attributes:
        release: Version of ONNX Runtime.
        opset: Of the default domain.
        without_kernel: Operators without a CUDA kernel, those in subgraphs among them; what does not run
            (folded, removed) is not counted.
        copies: Copies between the devices inside the graph, one pass through each subgraph among them.
        fails: Why there is no session, else empty.
    """

    release: str
    opset: int
    without_kernel: int
    copies: int
    fails: str = ""


def placements_by_release(graphs: Mapping[int, Graph]) -> tuple[ReleasePlacement, ...]:
    """Return how each known release places a model, the oldest first, at each opset in rising order.

    ``graphs`` are the model by the opset that it is written in.
    """
    return tuple(
        _placement(opset, graphs[opset], registry(release))
        for release in releases()
        for opset in sorted(graphs)
    )


def _placement(opset: int, graph: Graph, release: Registry) -> ReleasePlacement:
    simplified = simplify(graph, release)
    placement = place(graph, simplified)
    without, copies = _counted(graph, placement, simplified.removed)
    return ReleasePlacement(
        release=release.version,
        opset=opset,
        without_kernel=without,
        copies=copies,
        fails=release.refuses_opset(opset) or placement.fails,
    )


def _counted(graph: Graph, placement: Placement, removed: frozenset[int]) -> tuple[int, int]:
    """Return operators that run and have no CUDA kernel, and copies."""
    without = sum(
        not placed.supported and placed.why != "folded" and node.index not in removed
        for node, placed in zip(graph.nodes, placement.nodes, strict=True)
    )
    copies = len(placement.copies)
    for body in placement.bodies:
        taken_out = simplify(body.graph, registry(placement.release)).removed
        inner_without, inner_copies = _counted(body.graph, body.placement, taken_out)
        without, copies = without + inner_without, copies + inner_copies
    return without, copies
