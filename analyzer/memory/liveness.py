"""Counting memory: the most that live activations take at once, from lifetimes in execution order.

Of a training step: weights, gradients, optimizer state, activations that stay for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analyzer.graph import Graph, Node, Tensor, names_read
from analyzer.operators import IN_PLACE, is_view
from analyzer.record.training_step import StepMemory


def peak_memory_bytes(graph: Graph, *, inputs: bool = True, in_place: bool = True) -> int | None:
    """The most bytes of activations that are alive at once, operator by operator; weights are apart.

    A tensor lives from the operator that writes it to the last one that reads it; inputs and outputs of the
    model live throughout and to the end. Views share their source's memory. What a session that fuses operators
    and plans its buffers holds is ``SessionPlan.peak_bytes``.

    Args:
        graph: Nodes in execution order.
        inputs: Count the model's inputs, which the caller holds.
        in_place: Let activation functions write over their input where nothing reads it later, as ONNX Runtime
            does.

    Returns:
        Bytes; None where the size of a tensor that is used is not known.
    """
    last = _last_use(graph)
    owner = {tensor.name: tensor.name for tensor in graph.inputs}
    sizes: dict[str, int] = {}
    live = 0
    if inputs:
        input_sizes = [tensor.nbytes for tensor in graph.inputs]
        if None in input_sizes:
            return None
        live = sum(size for size in input_sizes if size is not None)
    peak = live
    expiring: dict[int, list[str]] = {}
    for node in graph.nodes:
        for tensor in node.present_outputs:
            if tensor.constant:
                continue
            memory_owner = _aliased_tensor(node, tensor, owner)
            if memory_owner is not None:
                owner[tensor.name] = memory_owner
                continue
            size = 0 if inputs and tensor.name in graph.shared_outputs else tensor.nbytes
            if size is None:
                if tensor.name not in last:
                    continue
                return None
            owner[tensor.name] = tensor.name
            sizes[tensor.name] = size
            live += size
            if in_place and last.get(tensor.name) != len(graph.nodes):  # outputs have memory of their own
                live -= _overwritten_bytes(node, size, last, owner, sizes)
            expiring.setdefault(last.get(tensor.name, node.index), []).append(tensor.name)
        # Inputs and outputs of an operator are alive together: those that end here go after the peak is taken.
        peak = max(peak, live)
        live -= sum(sizes.pop(name, 0) for name in expiring.pop(node.index, ()))
    return peak


def _aliased_tensor(node: Node, tensor: Tensor, owner: dict[str, str]) -> str | None:
    """The tensor whose memory a view's output shows; None where the output has its own."""
    source = node.inputs[0] if node.inputs else None
    if source is None or not is_view(node) or tensor is not node.outputs[0]:
        return None
    return owner.get(source.name, source.name)


def _last_use(graph: Graph) -> dict[str, int]:
    """The last operator that reads each tensor, a view's readers being its source's too; outputs live on."""
    last: dict[str, int] = {tensor.name: len(graph.nodes) for tensor in graph.outputs}
    # Backwards, so that a view of a view has its own last use before its source asks for it.
    for node in reversed(graph.nodes):
        for name in graph.names_read[node.index]:
            last[name] = max(last.get(name, -1), node.index)
        if is_view(node) and node.inputs[0] is not None and node.outputs[0] is not None:
            name, view = node.inputs[0].name, node.outputs[0].name
            last[name] = max(last.get(name, -1), last.get(view, -1))
    return last


def _overwritten_bytes(
    node: Node, size: int, last: dict[str, int], owner: dict[str, str], sizes: dict[str, int]
) -> int:
    """Bytes of an input that the output takes over; that input is then no longer counted."""
    if node.op_type not in IN_PLACE or len(node.outputs) != 1:
        return 0
    tensor = node.input(0)
    if tensor is None:
        return 0
    memory_owner = owner.get(tensor.name, tensor.name)
    # The input must end here under this very name: a view of it that lives on keeps the memory as it is.
    if sizes.get(memory_owner) == size and last.get(memory_owner) == last.get(tensor.name) == node.index:
        return sizes.pop(memory_owner)
    return 0


def step_bytes(
    graph: Graph, weights: Iterable[str], states: Iterable[str], gradients: Iterable[str]
) -> StepMemory:
    """The memory of a step.

    Args:
        graph: With a phase on every operator.
        weights: Inputs that are parameters and buffers.
        states: Inputs that are the optimizer's.
        gradients: Tensors that are gradients of parameters.
    """
    tensors = graph.tensors
    weight_names, state_names = set(weights), set(states)
    sums = [
        _sum(tensors[name] for name in names if name in tensors)
        for names in (weight_names, state_names, set(gradients))
    ]
    fixed = StepMemory(
        weights_bytes=sums[0] or 0, optimizer_state_bytes=sums[1] or 0, gradients_bytes=sums[2] or 0
    )
    activations = _saved_activations(graph, weight_names | state_names)
    peak, other = _peak(graph, set(gradients)), None
    if peak is not None and activations is not None:
        # The peak may lie where not all of the fixed part is there yet: then nothing else is left to name.
        other = max(0, peak - fixed.fixed_bytes - activations)
    return replace(fixed, activations_bytes=activations, other_bytes=other, peak_bytes=peak)


def _sum(tensors: Iterable[Tensor]) -> int | None:
    total = 0
    for tensor in tensors:
        if tensor.nbytes is None:
            return None
        total += tensor.nbytes
    return total


def _saved_activations(graph: Graph, resident: set[str]) -> int | None:
    """Tensors of the forward pass that the backward pass reads, views counted as what they show."""
    owner: dict[str, Tensor] = {tensor.name: tensor for tensor in graph.inputs if tensor.name not in resident}
    saved: dict[str, Tensor] = {}
    for node in graph.nodes:
        if node.phase == "backward":
            saved.update((owner[name].name, owner[name]) for name in names_read(node) if name in owner)
        if node.phase != "forward" and not is_view(node):
            continue
        source = node.input(0)
        for tensor in node.present_outputs:
            if tensor.constant:
                continue
            # What autograd saves of a view is the tensor's own memory: counted once for all its views.
            if is_view(node) and tensor is node.outputs[0]:
                if source is not None and source.name in owner:
                    owner[tensor.name] = owner[source.name]
            elif node.phase == "forward":
                owner[tensor.name] = tensor
    return _sum(saved.values())


def _peak(graph: Graph, gradients: set[str]) -> int | None:
    """The peak before the optimizer, gradients living to the end; after it nothing new is needed."""
    before = tuple(node for node in graph.nodes if node.phase != "optimizer")
    numbered = tuple(
        node if node.index == index else replace(node, index=index) for index, node in enumerate(before)
    )
    computed = {tensor.name: tensor for node in before for tensor in node.present_outputs}
    # Sorted: `gradients` is a set, and a record must have the same bytes at each run.
    outputs = tuple(computed[name] for name in sorted(gradients) if name in computed)
    outputs += tuple(
        tensor for tensor in graph.outputs if tensor.name in computed and tensor.name not in gradients
    )
    return peak_memory_bytes(replace(graph, nodes=numbered, outputs=outputs))
