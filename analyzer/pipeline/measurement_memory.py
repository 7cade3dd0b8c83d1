"""Whether a run fits the memory that is free on the GPU here, and the batch that would."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.errors import GraphError
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.memory.session_plan import planned_peak_bytes
from analyzer.memory.training_step import StepBytes, step_bytes
from analyzer.ort.execution import Session
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
from analyzer.units import byte_count

# What a process holds of a GPU's memory before its first tensor: about 300 MB with CUDA 11.7 or newer, which
# loads kernels when they are used (a maintainer of PyTorch, github.com/pytorch/pytorch/issues/107667); the
# NAIRR's guide to GPU estimates says 300 MB to 1 GB with the libraries' workspaces. Assumed for every GPU.
_CONTEXT_BYTES = 300_000_000
# ONNX Runtime's arena doubles what it asks the GPU for: it may hold twice what is in use.
_ARENA_GROWTH = 2


def needed_bytes(loaded: Loaded, graph: Graph) -> int | None:
    """Weights, the buffers that ONNX Runtime plans and CUDA's own; None where a size is open."""
    step = _step(loaded, graph)
    if step is not None:
        return None if step.peak is None else step.peak + _CONTEXT_BYTES
    activations = planned_bytes(graph, "cuda")
    return None if activations is None else graph.parameter_bytes + activations + _CONTEXT_BYTES


def planned_bytes(graph: Graph, session: Session) -> int | None:
    """Bytes of activations that ONNX Runtime plans for a session of that kind, before one is made."""
    groups = predicted_groups(graph, session, place(graph) if session == "cuda" else None)
    return planned_peak_bytes(graph, groups, provider=session)


def _step(loaded: Loaded, graph: Graph) -> StepBytes | None:
    step = loaded.step
    if step is None:
        return None
    return step_bytes(graph, step.weights, step.states, step.gradients.values())


def does_not_fit(loaded: Loaded, graph: Graph, batch: int | None, free: int | None) -> str:
    """Why a run is not worth starting and the batch that would fit; empty where nothing speaks against it."""
    needed = needed_bytes(loaded, graph)
    if needed is None or free is None or needed <= free:
        return ""
    return (
        f"it would need about {byte_count(needed)} of the GPU's memory, {byte_count(free)} are free. "
        f"{_advice(largest_batch(loaded, graph, batch, lambda size: size <= free))}"
    )


def smaller_batch(loaded: Loaded, graph: Graph, batch: int | None, free: int | None) -> str:
    """What to do after memory ended: the largest batch that fits with room for the arena's growth."""
    if free is None:
        return "Use a smaller --batch, or --no-run for predictions alone."

    def fits(size: int) -> bool:
        return _CONTEXT_BYTES + _ARENA_GROWTH * (size - _CONTEXT_BYTES) <= free

    needed = needed_bytes(loaded, graph)
    if needed is None or fits(needed):  # the estimate is wrong, or another process took the memory meanwhile
        found = batch // 2 if batch and loaded.symbol else None
    else:
        found = largest_batch(loaded, graph, batch, fits)
    return f"{byte_count(free)} are free on the GPU. {_advice(found)}"


def _advice(batch: int | None) -> str:
    if batch is None:
        return "Use a smaller --batch, or --no-run for predictions alone."
    if batch == 0:
        return "Not even batch 1 is expected to fit: use --no-run for predictions alone."
    return f"Batch {batch} is the largest expected to fit: use --batch {batch}."


def largest_batch(loaded: Loaded, graph: Graph, batch: int | None, fits: Callable[[int], bool]) -> int | None:
    """The largest batch below this one whose bytes fit; 0 where none does, None where that cannot be told."""
    if batch is None:
        return None
    step = _step(loaded, graph)
    if step is not None:
        return _largest_step(step, batch, fits)
    if not loaded.symbol:
        return 0 if batch == 1 else None
    low, high = max(0, loaded.batch_range[0] - 1), batch  # the one fits (or is nothing), the other does not
    try:
        while high - low > 1:
            middle = (low + high) // 2
            needed = needed_bytes(loaded, loaded.graph(middle))
            if needed is None:
                return None
            low, high = (middle, high) if fits(needed) else (low, middle)
    except GraphError:  # the model's own arithmetic forbids this batch
        return None
    return low if low >= loaded.batch_range[0] else 0


def _largest_step(step: StepBytes, batch: int, fits: Callable[[int], bool]) -> int | None:
    """All but weights, gradients and state grows with the batch."""
    if step.peak is None:
        return None
    fixed = step.weights + step.gradients + step.states
    each = (step.peak - fixed) / batch
    sizes = range(batch - 1, 0, -1)
    return next((size for size in sizes if fits(int(fixed + each * size) + _CONTEXT_BYTES)), 0)
