"""Whether a run fits the GPU memory that is free here, and a batch that does."""

from __future__ import annotations

from analyzer.errors import GraphError
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.memory import fit
from analyzer.memory.fit import step_bytes
from analyzer.memory.session_plan import SessionPlan
from analyzer.ort.execution import Session
from analyzer.ort.fusion import predicted_groups
from analyzer.record.training_step import StepMemory
from analyzer.units import byte_count


def memory_of(loaded: Loaded, graph: Graph) -> StepMemory | None:
    """Return the memory of a step; None for a model of inference."""
    step = loaded.step
    if step is None:
        return None
    return step_bytes(graph, step.weights, step.states, step.gradients.values())


def needed_bytes(loaded: Loaded, graph: Graph) -> int | None:
    """Weights and the buffers that ONNX Runtime plans, CUDA's own apart; None where a size is open."""
    step = memory_of(loaded, graph)
    if step is not None:
        return step.peak_bytes
    activations = planned_bytes(graph, "cuda")
    return None if activations is None else graph.parameter_bytes + activations


def planned_bytes(graph: Graph, session: Session) -> int | None:
    """Bytes of activations that ONNX Runtime plans for a session of that kind, before one is made."""
    return SessionPlan.of(graph, predicted_groups(graph, session)).peak_bytes(session)


def does_not_fit(loaded: Loaded, graph: Graph, batch: int | None, free: int | None) -> str:
    """Return why a run would not fit, and the batch that would; empty where it fits."""
    needed = needed_bytes(loaded, graph)
    if needed is None or free is None or fit.fits(needed, fit.cuda_room(free)):
        return ""
    return (
        f"it would need about {byte_count(needed + fit.CUDA_CONTEXT_BYTES)} of the GPU's memory, "
        f"{byte_count(free)} are free. {_advice(largest_batch(loaded, graph, batch, fit.cuda_room(free)))}"
    )


def smaller_batch(loaded: Loaded, graph: Graph, batch: int | None, free: int | None) -> str:
    """Return advice after memory ran out: the largest batch that fits with room for the arena's growth."""
    if free is None:
        return "Use a smaller --batch, or --no-run for predictions alone."
    room = fit.cuda_room_if_arena_grows(free)
    # Where it fits, the estimate is wrong, or another process took the memory meanwhile.
    if fit.fits(needed_bytes(loaded, graph), room):
        smaller = batch // 2 if batch and loaded.symbol else None
    else:
        smaller = largest_batch(loaded, graph, batch, room)
    return f"{byte_count(free)} are free on the GPU. {_advice(smaller)}"


def _advice(batch: int | None) -> str:
    if batch is None:
        return "Use a smaller --batch, or --no-run for predictions alone."
    if batch == 0:
        return "Not even batch 1 is expected to fit: use --no-run for predictions alone."
    return f"Batch {batch} is the largest expected to fit: use --batch {batch}."


def largest_batch(loaded: Loaded, graph: Graph, batch: int | None, room: int) -> int | None:
    """Return the largest batch below this one that fits; 0 where none does, None where that cannot be told."""
    if batch is None:
        return None
    step = memory_of(loaded, graph)
    if step is not None:
        # Advice after a failure: a line through two points will do, tracing the step again would take seconds.
        largest = fit.largest_by_growth(step.fixed_bytes, step.peak_bytes, batch, room)
        return None if largest is None else min(largest, batch - 1)
    if not loaded.symbol:  # another batch is another export, of which nothing is known yet
        return 0 if batch == 1 else None
    least = loaded.batch_range[0]

    def fits(size: int) -> bool:
        needed = needed_bytes(loaded, loaded.graph(size))
        if needed is None:
            raise GraphError(f"a size is open at batch {size}")
        return needed <= room

    try:
        largest = fit.largest_between(fits, max(0, least - 1), batch)
    except GraphError:  # the model's own arithmetic forbids this batch, or leaves its sizes open
        return None
    return largest if largest >= least else 0
