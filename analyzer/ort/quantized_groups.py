"""Integer kernels that a session makes of QuantizeLinear and DequantizeLinear, on the CPU alone.

``DequantizeLinear -> Conv -> QuantizeLinear`` is one QLinearConv there, and the like. On CUDA only products
with packed weights become a kernel (``MatMulNBits``); all else computes in floats between the two.

They change copies of a CUDA session too: a MaxPool without a CUDA kernel takes the Q and DQ nodes around it to
the CPU, so that integers are copied; a bias that ONNX Runtime quantises beside quantised data is dequantised on
the CPU, where alone there is a kernel for int32, and copied in each run.

Before and after integer kernels are looked for, quantisation is passed on through operators that only move
data, each reader gets a DequantizeLinear of its own, and float weights and biases beside quantised data are
quantised. The file that such a pass mirrors stands above it, below ``onnxruntime/core/optimizer/`` or, without
a folder of its own, ``qdq_transformer/`` there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from analyzer.graph import Graph
from analyzer.ort.execution import Copy, NodePlacement
from analyzer.ort.fusion_view import HELPERS, Fused, View
from analyzer.ort.quantized_selectors import is_redundant, select
from analyzer.ort.rewriting import (
    DEQUANTIZE,
    QUANTIZE,
    QUANTIZERS,
    SMALL,
    ExecutedNode,
    Rewriting,
    equal_values,
    has_scalars,
    input_of,
    quantize_alike,
    rewriting,
    scalar,
)
from analyzer.ort.simplify import Simplified


def quantized_groups(view: View) -> None:
    """Levels 1 and 2: what the Q and DQ nodes of a graph become."""
    if has_quantization(view.graph):
        _tell(view, rewritten(view))


def has_quantization(graph: Graph) -> bool:
    """Return whether a graph has Q or DQ nodes at all."""
    return any(node.op_type in QUANTIZERS for node in graph.nodes)


def rewritten(view: View) -> Rewriting:
    """Return the nodes that are left once integer kernels have been found."""
    graph = rewriting(view)
    remove_double_pairs(graph)
    transpose_weights(graph)
    while propagate_forward(graph) | propagate_backward(graph):
        pass
    quantize_weights_and_biases(graph)
    one_dequantize_for_each_reader(graph)
    remove_redundant_limits(graph)
    signed_to_unsigned(graph)
    for executed in graph.alive():
        select(graph, executed)
    remove_opposites(graph)
    return graph


def _tell(view: View, graph: Rewriting) -> None:
    """Give the view the remaining nodes as its groups."""
    nodes = view.graph.nodes
    _give_shared_to_one(graph)
    _pass_on(graph)
    for executed in graph.alive():
        if executed.operator is not None and executed.reads and executed.reads[0] is not None:
            view.data_read[executed.operator.index] = executed.reads[0]
        if not executed.members:
            continue
        fused = view.group[executed.members[0]]
        if executed.op_type != fused.op_type or len(executed.members) != len(fused.members):
            fused = view.fuse(executed.op_type, *(nodes[index] for index in executed.members))
            fused.final = executed.op_type not in _EVEN_IF_FINAL
        # What was inserted before a node does its work in the same group: it has no operator of its own.
        inserted = list(_inserted_before(graph, executed))
        if inserted:
            fused.extra += tuple(each.op_type for each in inserted)
            view.rewired.update(executed.members)
            if fused.op_type in HELPERS:
                fused.op_type = inserted[-1].op_type


_EVEN_IF_FINAL = ("Slice",)  # level 2 makes a Split of those of integers, too


def _give_shared_to_one(graph: Rewriting) -> None:
    """Give a repeated DQ to one node: an executed copy, else the first node that took one."""
    copies: dict[int, list[ExecutedNode]] = {}
    for executed in graph.nodes:
        if executed.operator is not None and executed.op_type == DEQUANTIZE:
            copies.setdefault(executed.operator.index, []).append(executed)
    owners: dict[int, list[ExecutedNode]] = {}
    for executed in graph.alive():
        for index in executed.members:
            owners.setdefault(index, []).append(executed)
    for index, repeated in copies.items():
        left = [executed for executed in repeated if executed.alive]
        takers = [each.taken_by for each in repeated if each.taken_by is not None and each.taken_by.members]
        wanted = left[0] if left else min(takers, key=lambda taker: max(taker.members), default=None)
        if len(repeated) == 1 or wanted is None:
            continue
        for owner in owners.get(index, []):
            owner.members.remove(index)
        wanted.members.append(index)


def _pass_on(graph: Rewriting) -> None:
    """Give the operators of inserted nodes to the nodes that read these."""
    for executed in graph.alive():
        owner = executed
        while owner.operator is None and owner.members and graph.edges(owner):
            reader = graph.edges(owner)[0][0]
            reader.members += owner.members
            owner.members = []
            owner = reader


def _inserted_before(graph: Rewriting, executed: ExecutedNode) -> Iterator[ExecutedNode]:
    for name in executed.reads:
        before = graph.producer(name, QUANTIZE, DEQUANTIZE)
        # Of a repeated DQ one copy stands for its operator.
        if before is not None and not before.members:
            yield before
            yield from _inserted_before(graph, before)


def quantized_copies(
    graph: Graph, simplified: Simplified, placed: Mapping[int, NodePlacement]
) -> tuple[set[int], list[Copy]]:
    """Return operators that became part of a kernel on the other device, and the copies of biases for the GPU.

    Those are dequantised on the CPU. Both follow from where each operator is placed by itself.
    """
    if not has_quantization(graph):
        return set(), []
    groups = {
        node.index: Fused(op_type=node.op_type, members=[node.index], provider=placed[node.index].provider)
        for node in graph.nodes
        if node.index in placed
    }
    executed = rewritten(View(graph=graph, simplified=simplified, group=groups))
    taken = {
        member
        for each in executed.alive()
        if each.provider == "cpu"
        for member in each.members
        if placed[member].provider == "cuda"
    }
    biases = []
    for each in executed.alive(DEQUANTIZE):
        reader = next((reader for reader, _ in executed.edges(each)), None)
        if each.operator is None and each.stands_for and reader is not None and reader.provider == "cuda":
            bias = executed.tensors[each.stands_for]
            biases.append(
                Copy(
                    tensor=bias.name,
                    direction="to_gpu",
                    nbytes=bias.nbytes,
                    producer=None,
                    consumers=tuple(sorted(reader.members)[:1]),
                )
            )
    return taken, biases


# double_qdq_pairs_remover.cc
def remove_double_pairs(graph: Rewriting) -> None:
    """Of Q, DQ, Q, DQ in a row the two in the middle are taken out."""
    for dequantize in graph.alive(DEQUANTIZE):
        parent = graph.producer(dequantize.reads[0], QUANTIZE)
        edge = graph.only_edge(dequantize)
        if parent is None or graph.only_edge(parent) is None or edge is None or edge[0].op_type != QUANTIZE:
            continue
        child = edge[0]
        last = graph.only_edge(child)
        if last is None or last[0].op_type != DEQUANTIZE:
            continue
        if not quantize_alike(graph, parent, dequantize) or not quantize_alike(graph, child, last[0]):
            continue
        types = {graph.types.get(name or "") for name in (input_of(dequantize, 2), input_of(child, 2))}
        if len(types) == 1 and types <= SMALL:
            graph.read_instead(last[0], 0, dequantize.reads[0])
            last[0].members += dequantize.members + child.members
            graph.remove(child)
            graph.remove(dequantize)


# transpose_optimization/onnx_transpose_optimization.cc
def transpose_weights(graph: Rewriting) -> None:
    """Transpose dequantised weights when the session is made, in place of a Transpose in the graph."""
    for dequantize in graph.alive(DEQUANTIZE):
        edge, node = graph.only_edge(dequantize), dequantize.operator
        if edge is None or edge[0].op_type != "Transpose" or not graph.is_constant(dequantize.reads[0]):
            continue
        order = edge[0].operator.attributes.get("perm", ()) if edge[0].operator is not None else ()
        if node is None or node.attributes.get("block_size", 0) or not order:
            continue
        dequantize.axis = tuple(order).index(dequantize.axis % len(order))
        dequantize.members += edge[0].members
        result = edge[0].writes[0] or ""
        graph.remove(edge[0])
        graph.write_instead(dequantize, 0, result)


# ``CanNodePropagate`` of qdq_propagation.cc
_PROPAGATING = frozenset({"MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice"})


# ``PropagateDQForward``
def propagate_forward(graph: Rewriting) -> bool:
    """Return a DQ before an operator that moves data is repeated behind it, with a Q before it."""
    changed = False
    for dequantize in graph.alive(DEQUANTIZE):
        edge = graph.only_edge(dequantize)
        if edge is None or not has_scalars(graph, dequantize):
            continue
        waiting = [edge[0]]
        while waiting:
            mover = waiting.pop()
            if mover.op_type not in _PROPAGATING or mover.writes[0] is None:
                continue
            edges = [edge for edge in graph.edges(mover) if edge[0].op_type != QUANTIZE]
            to_output = mover.writes[0] in graph.outputs
            if (to_output and graph.edges(mover)) or (not edges and not to_output):
                continue
            _insert_pairs(graph, dequantize, mover, edges)
            changed = True
            waiting += [reader for reader, position in edges]
    return changed


# ``PropagateQBackward``
def propagate_backward(graph: Rewriting) -> bool:
    """Return a Q behind an operator that moves data is repeated before it, with a DQ behind it."""
    changed = False
    for quantize in graph.alive(QUANTIZE):
        if not has_scalars(graph, quantize):
            continue
        mover = graph.producer(quantize.reads[0])
        while mover is not None and mover.op_type in _PROPAGATING and graph.only_edge(mover):
            source = graph.producer(mover.reads[0])
            if source is None:
                if mover.reads[0] is None or list(graph.readers.get(mover.reads[0], ())) != [(mover, 0)]:
                    break
            elif source.op_type == DEQUANTIZE or graph.only_edge(source) is None:
                break
            _insert_before(graph, quantize, mover)
            changed = True
            mover = source
    return changed


def _insert_pairs(
    graph: Rewriting, like: ExecutedNode, source: ExecutedNode, edges: Iterable[tuple[ExecutedNode, int]]
) -> None:
    """``InsertQDQPairs``: a Q behind a node, and a DQ before each of these readers."""
    name = source.writes[0] or ""
    edges = list(edges)
    before = name
    if name in graph.outputs:
        before = graph.fresh(name)
        graph.write_instead(source, 0, before)
    quantized = graph.fresh(name, like.reads[0])
    parameters = like.reads[1:]
    graph.add(_inserted(QUANTIZE, like, [before, *parameters], quantized))
    if not edges:
        graph.add(_inserted(DEQUANTIZE, like, [quantized, *parameters], name))
    for reader, position in edges:
        dequantized = graph.fresh(name)
        graph.add(_inserted(DEQUANTIZE, like, [quantized, *parameters], dequantized))
        graph.read_instead(reader, position, dequantized)


def _insert_before(graph: Rewriting, like: ExecutedNode, reader: ExecutedNode) -> None:
    """``InsertQDQPairs`` of one edge: a Q and a DQ before a node's first input."""
    name = reader.reads[0] or ""
    quantized = graph.fresh(name, like.writes[0])
    dequantized = graph.fresh(name)
    parameters = like.reads[1:]
    graph.add(_inserted(QUANTIZE, like, [name, *parameters], quantized))
    graph.read_instead(reader, 0, dequantized)
    graph.add(_inserted(DEQUANTIZE, like, [quantized, *parameters], dequantized))


def _inserted(op_type: str, like: ExecutedNode, reads: list[str | None], writes: str) -> ExecutedNode:
    return ExecutedNode(
        op_type=op_type, operator=None, members=[], provider=like.provider, reads=reads, writes=[writes]
    )  # fmt: skip


# weight_bias_quantization.cc
def quantize_weights_and_biases(graph: Rewriting) -> None:
    """Float weights and biases of what reads quantised data and is quantised itself become integers."""
    for executed in graph.alive("Conv", "ConvTranspose", "Gemm"):
        data = graph.producer(executed.reads[0], DEQUANTIZE)
        if data is None or scalar(graph, input_of(data, 1)) is None or not _leads_to_quantize(graph, executed):
            continue
        weight, bias = input_of(executed, 1), input_of(executed, 2)
        dequantize = graph.producer(weight, DEQUANTIZE)
        if dequantize is None and not (
            graph.is_constant(weight) and graph.types.get(weight or "") == "float32"
        ):
            continue
        if bias is not None and (not graph.is_constant(bias) or graph.tensors[bias].rank != 1):
            continue
        if dequantize is not None and (bias is None or not _scales_fit(graph, executed, dequantize, bias)):
            continue
        if dequantize is None and weight is not None:
            _constant_dequantize(graph, executed, 1, weight, "int8")
        if bias is not None:
            _constant_dequantize(graph, executed, 2, bias, "int32")


def _leads_to_quantize(graph: Rewriting, executed: ExecutedNode) -> bool:
    """Return whether a Q alone reads the result, a Relu or Clip between allowed."""
    edges = graph.edges(executed)
    while len(edges) == 1 and edges[0][0].op_type in ("Relu", "Clip"):
        edges = graph.edges(edges[0][0])
    return len(edges) == 1 and edges[0][0].op_type == QUANTIZE


def _scales_fit(graph: Rewriting, executed: ExecutedNode, dequantize: ExecutedNode, bias: str) -> bool:
    """Return whether the weight has one scale, or one for each element of the bias."""
    name = input_of(dequantize, 1)
    if scalar(graph, name) is not None:
        return True
    scale = graph.tensors.get(name or "")
    node = dequantize.operator
    if scale is None or node is None or scale.rank != 1 or scale.shape != graph.tensors[bias].shape:
        return False
    if node.attributes.get("block_size", 0):
        return False
    axis = dequantize.axis
    gemm = executed.operator if executed.op_type == "Gemm" else None
    return bool(axis == (0 if gemm is None or gemm.attributes.get("transB", 0) else 1))


def _constant_dequantize(graph: Rewriting, executed: ExecutedNode, position: int, name: str, kind: str) -> None:
    stored, result = graph.fresh(name), graph.fresh(name)
    graph.types[stored] = kind
    dequantize = graph.add(_inserted(DEQUANTIZE, executed, [stored], result))
    graph.read_instead(executed, position, result)
    if kind == "int32":
        dequantize.stands_for = name


# ensure_unique_dq_for_node_unit.cc
def one_dequantize_for_each_reader(graph: Rewriting) -> None:
    """Repeat a DQ with several readers, so that each has its own."""
    for dequantize in graph.alive(DEQUANTIZE):
        edges, stays = graph.edges(dequantize), graph.gives_output(dequantize)
        stays = stays or dequantize.writes[0] in graph.inner
        for reader, position in list(edges)[0 if stays else 1 :]:
            result = graph.fresh(dequantize.writes[0] or "")
            twin = _inserted(DEQUANTIZE, dequantize, list(dequantize.reads), result)
            twin.operator = dequantize.operator
            graph.add(twin)
            graph.read_instead(reader, position, result)


# relu_quantizelinear.cc and clip_quantizelinear.cc below onnxruntime/core/optimizer
def remove_redundant_limits(graph: Rewriting) -> None:
    """Remove on the CPU a Relu or Clip that limits nothing that the Q behind it would not."""
    for quantize in graph.alive(QUANTIZE):
        limit = graph.producer(quantize.reads[0], "Relu", "Clip") if quantize.provider == "cpu" else None
        if limit is None or limit.provider != "cpu" or graph.only_edge(limit) is None:
            continue
        if scalar(graph, input_of(quantize, 2)) is None:
            continue
        if graph.types.get(quantize.writes[0] or "") in SMALL and is_redundant(graph, limit, quantize):
            quantize.members += limit.members
            graph.read_instead(quantize, 0, limit.reads[0])
            graph.remove(limit)


# qdq_s8_to_u8.cc
def signed_to_unsigned(graph: Rewriting) -> None:
    """Change an int8 Q that one DQ alone reads to uint8."""
    for quantize in graph.alive(QUANTIZE):
        edge = graph.only_edge(quantize)
        if quantize.provider != "cpu" or edge is None or edge[0].op_type != DEQUANTIZE:
            continue
        first, second = (scalar(graph, input_of(executed, 2)) for executed in (quantize, edge[0]))
        if first is None or second is None or first.dtype.name != "int8" or second.dtype.name != "int8":
            continue
        if first is not second and not equal_values(first, second):
            continue
        graph.types[quantize.writes[0] or ""] = "uint8"


# qdq_final_cleanup.cc
def remove_opposites(graph: Rewriting) -> None:
    """Remove a DQ and a Q behind it that undo each other."""
    for dequantize in graph.alive(DEQUANTIZE):
        edge = graph.only_edge(dequantize)
        if edge is None or edge[0].op_type != QUANTIZE or not quantize_alike(graph, edge[0], dequantize):
            continue
        quantize = edge[0]
        readers = list(graph.edges(quantize))
        if graph.gives_output(quantize) or not readers:
            continue
        source = dequantize.reads[0]
        owner = graph.producer(source) or readers[0][0]
        owner.members += dequantize.members + quantize.members
        for reader, position in readers:
            graph.read_instead(reader, position, source)
        graph.remove(dequantize)
        graph.remove(quantize)
