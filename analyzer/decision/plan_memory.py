"""Bytes: what a plan needs on a device and what there is."""

from __future__ import annotations

from analyzer.decision.decision_input import DecisionInput
from analyzer.devices.device import Device
from analyzer.memory import fit
from analyzer.precision import is_full, narrowed


def weight_bytes(question: DecisionInput) -> int:
    """All weights on a GPU, at the question's precision."""
    # By type: an element has four bytes, so that no tensor's own rounding is lost. It is asked for each plan.
    return sum(
        narrowed(nbytes, question.precision) if dtype == "float32" else nbytes
        for dtype, nbytes in question.graph.initializer_bytes.items()
    )


def cpu_weight_bytes(question: DecisionInput) -> int:
    """All weights on the CPU, as its session keeps them."""
    kept = question.cpu_weight_bytes
    return question.graph.parameter_bytes if kept is None else kept


def _activations(question: DecisionInput, device: Device | None) -> int | None:
    """Activations alive at once: on a GPU at the question's precision, on a CPU at the model's own."""
    if device is question.cpu and question.cpu_peak_memory_bytes is not None:
        return question.cpu_peak_memory_bytes
    peak = question.peak_memory_bytes
    if peak is None or is_full(question.precision) or device is question.cpu:
        return peak
    # The peak was planned at the model's own types; at another precision it shrinks about as all outputs do
    # together. Which tensors are alive at the peak is not known here.
    by_type = question.graph.written_bytes
    before = sum(by_type.values())
    after = sum(
        narrowed(nbytes, question.precision) if dtype == "float32" else nbytes
        for dtype, nbytes in by_type.items()
    )
    return int(peak * after / before) if before else peak


def needed(question: DecisionInput, weights: int, device: Device | None) -> int | None:
    """Weights and the activations alive at once on a device; None where those are not known."""
    activations = _activations(question, device)
    return None if activations is None else weights + activations


def fits(question: DecisionInput, weights: int, device: Device | None) -> bool:
    """Whether a device has room for these weights and the activations; true as well where it is not known."""
    return fit.fits(weights + (_activations(question, device) or 0), fit.room(device))


def all_fits_gpu(question: DecisionInput) -> bool:
    """Whether the GPU has room for the whole model, as its CUDA session needs it."""
    return fits(question, weight_bytes(question), question.gpu)


def room_for_weights(question: DecisionInput) -> float | None:
    """What the activations leave on the GPU for weights; None for no limit."""
    limit = fit.room(question.gpu)
    # All activations, as if every operator ran there: the cut may leave room unused, but never runs out of it.
    return None if limit is None else max(0, limit - (_activations(question, question.gpu) or 0))
