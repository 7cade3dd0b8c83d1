"""The most that live activations take at once, whether a session fits a device, and its largest batch.

Of a training step: weights, gradients, optimizer state, activations that stay for the backward pass.

One model for the verdict, the sweep, a training step, the findings and a run on the GPU here: weights and
planned activations must lie in what the device leaves once its runtime has taken its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from analyzer.devices.device import Device
from analyzer.graph import Graph, Node, Tensor, names_read
from analyzer.operators import IN_PLACE, is_view
from analyzer.record.training_step import StepMemory
from analyzer.units import byte_count


def peak_memory_bytes(graph: Graph, *, inputs: bool = True, in_place: bool = True) -> int | None:
    """Return the most bytes of activations that are alive at once, operator by operator; weights are apart.

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
        live = sum(filter(None, input_sizes))
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
    """Return the tensor whose memory a view's output shows; None where the output has its own."""
    source = node.inputs[0] if node.inputs else None
    if source is None or not is_view(node) or tensor is not node.outputs[0]:
        return None
    return owner.get(source.name, source.name)


def _last_use(graph: Graph) -> dict[str, int]:
    """Return last operator that reads each tensor, a view's readers being its source's too; outputs live on."""
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
    """Return bytes of an input that the output takes over; that input is then no longer counted."""
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
    """Return the memory of a step.

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
    """Return tensors of the forward pass that the backward pass reads, views counted as what they show."""
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
    """Return the peak before the optimizer, gradients living to the end; after it nothing new is needed."""
    before = tuple(node for node in graph.nodes if node.phase != "optimizer")
    numbered = tuple(
        node if node.index == index else replace(node, index=index) for index, node in enumerate(before)
    )
    gradient_tensors = tuple(
        tensor for node in before for tensor in node.present_outputs if tensor.name in gradients
    )
    return peak_memory_bytes(replace(graph, nodes=numbered, outputs=(*graph.outputs, *gradient_tensors)))


# What a process holds of a GPU's memory before its first tensor: about 300 MB with CUDA 11.7 or newer, which
# loads kernels when they are used (a maintainer of PyTorch, github.com/pytorch/pytorch/issues/107667); the
# NAIRR's guide to GPU estimates says 300 MB to 1 GB with the libraries' workspaces. Assumed for every GPU.
CUDA_CONTEXT_BYTES = 300_000_000

# ONNX Runtime's arena doubles what it asks the GPU for (the default arena_extend_strategy, kNextPowerOfTwo;
# BFCArena::Extend in onnxruntime/core/framework/bfc_arena.cc): it may hold twice what is in use.
_ARENA_GROWTH = 2


def room(device: Device | None) -> int | None:
    """Return bytes that a device leaves for weights and activations; None where its memory is not known."""
    if device is None or device.memory_bytes is None:
        return None
    # A CPU's memory counts whole: what the system and other processes hold of it is not known.
    return cuda_room(device.memory_bytes) if device.kind == "gpu" else device.memory_bytes


def cuda_room(free: int) -> int:
    """Return the bytes that CUDA's context leaves of a GPU's memory."""
    return max(0, free - CUDA_CONTEXT_BYTES)


def cuda_room_if_arena_grows(free: int) -> int:
    """Return the bytes that may be in use where the arena grows to its largest size."""
    return cuda_room(free) // _ARENA_GROWTH


def fits(needed: int | None, available: int | None) -> bool:
    """Return whether so much fits; true as well where either is not known."""
    # Unknown is no finding: a verdict may not rest on what nobody knows.
    return needed is None or available is None or needed <= available


def context_note(needed: int | None, memory: int | None) -> str:
    """Return a note where a GPU's memory would do but for CUDA's own part of it; empty elsewhere."""
    if needed is None or memory is None or not cuda_room(memory) < needed <= memory:
        return ""
    return f" beside the {byte_count(CUDA_CONTEXT_BYTES)} of CUDA's own"


def largest_between(batch_fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest batch that fits, by bisection.

    Args:
        batch_fits: Whether a batch fits; no batch above one that does not fit does.
        low: One that fits, or one below all that are allowed.
        high: A larger one that does not.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if batch_fits(middle) else (low, middle)
    return low


def largest_from(batch_fits: Callable[[int], bool], guess: int) -> int:
    """Return largest batch that fits, 0 where none does: from a guess in growing strides, then by bisection."""
    return largest_between(batch_fits, *_bracket(batch_fits, max(1, guess)))


def _bracket(batch_fits: Callable[[int], bool], guess: int) -> tuple[int, int]:
    """Return a batch that fits (0 where none does) and a larger one that does not."""
    # Growing strides: each try prepares a whole model, and the guess is usually near.
    stride = 1
    if batch_fits(guess):
        while batch_fits(guess + stride):
            guess, stride = guess + stride, 2 * stride
        return guess, guess + stride
    while guess > stride and not batch_fits(guess - stride):
        guess, stride = guess - stride, 2 * stride
    return max(0, guess - stride), guess


def largest_by_growth(fixed: int, needed: int | None, batch: int | None, available: int | None) -> int | None:
    """Return the largest batch where all but a fixed part grows with it.

    Args:
        fixed: Bytes that no batch changes.
        needed: Bytes at a batch.
        batch: That batch.
        available: Bytes that there are.

    Returns:
        0 where not even one fits; None where a figure is not known or nothing grows.
    """
    if needed is None or not batch or available is None or needed <= fixed:
        return None
    return max(0, (available - fixed) * batch // (needed - fixed))
