"""Changes between ONNX Runtime's blocked layout (NCHWc) and the plain one, which its CPU session inserts."""

from __future__ import annotations

from analyzer.graph import Graph, Node, Tensor
from analyzer.ort.execution import Group
from analyzer.prediction.work_item import FLOAT_BYTES, Kind, Piece

# What ONNX Runtime's NchwcTransformer carries on in the blocked layout once a convolution has started it.
_BLOCKED = frozenset(
    {
        *("Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Concat"),
        *("Add", "Sum", "Mul", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Clip", "HardSigmoid"),
        "BatchNormalization",
    }
)
# Images with fewer channels are read as they are.
_LEAST_CHANNELS = 16
# Costs per element what a transposition of heads does (both move runs of a block).
_OP = "TransposeHeads"


def turned(graph: Graph, group: Group) -> list[Piece]:
    """Reorderings at the border of a convolution's group on the CPU; none elsewhere."""
    if group.provider != "cpu":
        return []
    convolutions = [graph.nodes[member] for member in group.members if _starts(graph.nodes[member])]
    if not convolutions:
        return []
    tensors = [tensor for node in convolutions if (tensor := _read_plain(graph, node)) is not None]
    tensors += _written_plain(graph, group)
    return [_piece(tensor) for tensor in tensors]


def _starts(node: Node) -> bool:
    """Whether this convolution runs in the blocked layout."""
    weight = node.input(1)
    if node.op_type not in ("Conv", "FusedConv") or weight is None or weight.rank != 4 or not weight.constant:
        return False
    shape = weight.shape or ()
    group = int(node.attributes.get("group", 1))
    return group == 1 or shape[1] == 1


def _read_plain(graph: Graph, node: Node) -> Tensor | None:
    source = node.input(0)
    if source is None or not source.shape or len(source.shape) != 4 or (source.shape[1] or 0) < _LEAST_CHANNELS:
        return None
    producer = graph.producer.get(source.name)
    blocked = producer is not None and graph.nodes[producer].op_type in _BLOCKED
    return None if blocked else source


def _written_plain(graph: Graph, group: Group) -> list[Tensor]:
    members = set(group.members)
    needed = {tensor.name for tensor in graph.outputs}
    found = []
    for member in group.members:
        for tensor in graph.nodes[member].present_outputs:
            readers = [index for index in graph.consumers.get(tensor.name, ()) if index not in members]
            if tensor.name in needed or any(graph.nodes[index].op_type not in _BLOCKED for index in readers):
                found.append(tensor)
    return [tensor for tensor in found if tensor.rank == 4]


def _piece(tensor: Tensor) -> Piece:
    elements = float(tensor.elements or 0)
    size = elements * FLOAT_BYTES
    return Piece(kind=Kind.MOVE, op=_OP, read=size, written=size, elements=elements)
