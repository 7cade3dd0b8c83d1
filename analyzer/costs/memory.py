"""Counting memory: the most that live activations take at once, from lifetimes in execution order."""

from __future__ import annotations

from analyzer.costs.traffic import is_view
from analyzer.graph import Graph, Node, Tensor, names_read

_IN_PLACE = """
Abs Add BatchNormalization Ceil Clip Div Elu Erf Exp Floor HardSigmoid HardSwish LeakyRelu Log Mul Neg PRelu
Relu Round Selu Sigmoid Softplus Softsign Sqrt Sub Sum Tanh ThresholdedRelu Where
"""
IN_PLACE = frozenset(_IN_PLACE.split())
"""Operators whose output may take the memory of an input that nothing reads afterwards."""


def peak_memory_bytes(graph: Graph, *, inputs: bool = True, in_place: bool = False) -> int | None:
    """The most bytes of activations that are alive at once; weights are apart.

    A tensor lives from the operator that writes it to the last one that reads it; inputs and outputs of the
    model live throughout and to the end. Views share their source's memory.

    Args:
        graph: Nodes in execution order.
        inputs: Count the model's inputs, which the caller holds.
        in_place: Let elementwise operators write over an input of the same size that nothing reads later, as
            ONNX Runtime does.

    Returns:
        Bytes; None where the size of a tensor that is used is not known.
    """
    last = _last_use(graph)
    owner = {tensor.name: tensor.name for tensor in graph.inputs}
    sizes: dict[str, int] = {}
    live = 0
    if inputs:
        given = [tensor.nbytes for tensor in graph.inputs]
        if None in given:
            return None
        live = sum(size for size in given if size is not None)
    peak = live
    expiring: dict[int, list[str]] = {}
    for node in graph.nodes:
        for tensor in node.present_outputs:
            if tensor.constant:
                continue
            root = _root(node, tensor, owner)
            if root is not None:
                owner[tensor.name] = root
                continue
            size = tensor.nbytes
            if size is None:
                if tensor.name not in last:
                    continue
                return None
            owner[tensor.name] = tensor.name
            sizes[tensor.name] = size
            live += size
            if in_place:
                live -= _taken_over(node, size, last, owner, sizes)
            expiring.setdefault(last.get(tensor.name, node.index), []).append(tensor.name)
        peak = max(peak, live)
        live -= sum(sizes.pop(name, 0) for name in expiring.pop(node.index, ()))
    return peak


def _root(node: Node, tensor: Tensor, owner: dict[str, str]) -> str | None:
    """The tensor whose memory a view's output shows; None where the output has its own."""
    source = node.inputs[0] if node.inputs else None
    if source is None or not is_view(node) or tensor is not node.outputs[0]:
        return None
    return owner.get(source.name, source.name)


def _last_use(graph: Graph) -> dict[str, int]:
    """The last operator that reads each tensor, a view's readers being its source's too; outputs live on."""
    last: dict[str, int] = {tensor.name: len(graph.nodes) for tensor in graph.outputs}
    for node in reversed(graph.nodes):
        for name in names_read(node):
            last.setdefault(name, node.index)
        if is_view(node) and node.inputs[0] is not None and node.outputs[0] is not None:
            name, shown = node.inputs[0].name, node.outputs[0].name
            last[name] = max(last.get(name, -1), last.get(shown, -1))
    return last


def _taken_over(
    node: Node, size: int, last: dict[str, int], owner: dict[str, str], sizes: dict[str, int]
) -> int:
    """Bytes of an input that the output takes over; that input is then no longer counted."""
    if node.op_type not in IN_PLACE or len(node.outputs) != 1:
        return 0
    for tensor in node.present_inputs:
        root = owner.get(tensor.name, tensor.name)
        if sizes.get(root) == size and last.get(root) == node.index and last.get(tensor.name) == node.index:
            return sizes.pop(root)
    return 0
