"""Bytes: what a plan needs on a device and what there is."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from analyzer.decision.decision_input import DecisionInput
from analyzer.devices.device import Device
from analyzer.graph import Graph
from analyzer.memory import fit
from analyzer.precision import bytes_at, is_full


def weight_bytes(question: DecisionInput) -> int:
    """All weights, at the question's precision."""
    return sum(bytes_at(tensor, question.precision) or 0 for tensor in question.graph.initializers)


def _activations(question: DecisionInput) -> int | None:
    """Activations alive at once, at the question's precision."""
    peak = question.peak_memory_bytes
    if peak is None or is_full(question.precision):
        return peak
    # The peak was planned at the model's own types; at another precision it shrinks about as all outputs do
    # together. Which tensors are alive at the peak is not known here.
    before, after = _output_bytes(question.graph, question.precision)
    return int(peak * after / before) if before else peak


# Each plan of a question asks, and each look at whether it fits.
_OUTPUT_BYTES: WeakKeyDictionary[Graph, dict[str, tuple[int, int]]] = WeakKeyDictionary()


def _output_bytes(graph: Graph, precision: str) -> tuple[int, int]:
    """Bytes of all outputs of operators, in the model's own types and at this precision."""
    known = _OUTPUT_BYTES.setdefault(graph, {})
    if precision not in known:
        tensors = [tensor for node in graph.nodes for tensor in node.present_outputs]
        before = sum(tensor.nbytes or 0 for tensor in tensors)
        known[precision] = before, sum(bytes_at(tensor, precision) or 0 for tensor in tensors)
    return known[precision]


def needed(question: DecisionInput, weights: int) -> int | None:
    """Weights and the activations alive at once; None where those are not known."""
    activations = _activations(question)
    return None if activations is None else weights + activations


def fits(question: DecisionInput, weights: int, device: Device | None) -> bool:
    """Whether a device has room for these weights and the activations; true as well where it is not known."""
    return fit.fits(weights + (_activations(question) or 0), fit.room(device))


def room_for_weights(question: DecisionInput) -> float | None:
    """What the activations leave on the GPU for weights; None for no limit."""
    limit = fit.room(question.gpu)
    # All activations, as if every operator ran there: the cut may leave room unused, but never runs out of it.
    return None if limit is None else max(0, limit - (_activations(question) or 0))
