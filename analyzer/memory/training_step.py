"""Counting memory of a training step: weights, gradients, optimizer state, activations kept for backward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analyzer.graph import Graph, Tensor, names_read
from analyzer.memory.liveness import peak_memory_bytes
from analyzer.operators import is_view
from analyzer.record.training_step import StepMemory


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
