"""What a session makes of QuantizeLinear and DequantizeLinear: integer kernels, on the CPU alone.

``DequantizeLinear -> Conv -> QuantizeLinear`` is one QLinearConv there, and the like. On CUDA only products
with packed weights become a kernel (``MatMulNBits``); all else computes in floats between the two.

They change copies of a CUDA session too: a MaxPool without a CUDA kernel takes the Q and DQ nodes around it to
the CPU, so that integers are copied; a bias that ONNX Runtime quantises beside quantised data is dequantised on
the CPU, where alone there is a kernel for int32, and copied in each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analyzer.graph import Graph
from analyzer.ort.execution import Copy, NodePlacement
from analyzer.ort.fusion_view import HELPERS, Fused, View
from analyzer.ort.quantized_passes import (
    one_dequantize_for_each_reader,
    propagate_backward,
    propagate_forward,
    quantize_weights_and_biases,
    remove_double_pairs,
    remove_opposites,
    signed_to_unsigned,
    transpose_weights,
)
from analyzer.ort.quantized_selectors import select
from analyzer.ort.rewriting import DEQUANTIZE, QUANTIZE, QUANTIZERS, ExecutedNode, Rewriting, rewriting
from analyzer.ort.simplify import Simplified


def quantized_groups(view: View) -> None:
    """Levels 1 and 2: what the Q and DQ nodes of a graph become."""
    if has_quantization(view.graph):
        _tell(view, rewritten(view))


def has_quantization(graph: Graph) -> bool:
    """Whether a graph has Q or DQ nodes at all."""
    return any(node.op_type in QUANTIZERS for node in graph.nodes)


def rewritten(view: View) -> Rewriting:
    """The nodes that are left once integer kernels have been found."""
    graph = rewriting(view)
    remove_double_pairs(graph)
    transpose_weights(graph)
    while propagate_forward(graph) | propagate_backward(graph):
        pass
    quantize_weights_and_biases(graph)
    one_dequantize_for_each_reader(graph)
    signed_to_unsigned(graph)
    for executed in graph.alive():
        select(graph, executed)
    remove_opposites(graph)
    return graph


def _tell(view: View, graph: Rewriting) -> None:
    """Gives the view the nodes that are left as its groups."""
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
    """A repeated DQ is one operator: of a copy that is executed, else of the first node that took one."""
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
    """Gives the operators of nodes that were inserted to what reads these."""
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
        if before is not None and before.operator is None:
            yield before
            yield from _inserted_before(graph, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedCopies:
    """What is copied otherwise.

    Attributes:
        taken: Indices of operators that became part of a kernel on the other device.
        biases: Copies of what is dequantised on the CPU for the GPU.
    """

    taken: frozenset[int] = frozenset()
    biases: tuple[Copy, ...] = ()


def quantized_copies(
    graph: Graph, simplified: Simplified, placed: Mapping[int, NodePlacement]
) -> QuantizedCopies:
    """The changes, from where each operator is placed by itself."""
    if not has_quantization(graph):
        return QuantizedCopies()
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
    return QuantizedCopies(taken=frozenset(taken), biases=tuple(biases))
