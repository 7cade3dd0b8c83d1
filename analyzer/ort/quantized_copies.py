"""What integer kernels of the CPU change about the copies of a CUDA session.

A MaxPool without a CUDA kernel takes the Q and DQ nodes around it to the CPU, so that integers are copied; a
bias that ONNX Runtime quantises beside quantised data is dequantised on the CPU, where alone there is a kernel
for int32, and copied in each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.graph import Graph
from analyzer.ort.execution import Copy, NodePlacement
from analyzer.ort.fusion_view import Fused, View
from analyzer.ort.quantization_parameters import DEQUANTIZE
from analyzer.ort.quantized_groups import has_quantization, rewritten
from analyzer.ort.simplify import Simplified


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
