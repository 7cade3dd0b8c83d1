"""Mixtures of experts as kernels of a CUDA session: what grouped products need to know of an operator."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from analyzer.graph import Node
from analyzer.prediction.work_item import Kind, Piece

# Weights of fc1, fc2 and fc3 (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
_WEIGHTS = {"MoE": (2, 4, 6), "QMoE": (2, 5, 8)}


def experts_piece(node: Node, base: Piece, macs: float) -> Piece | None:
    """The piece of a mixture; None where its sizes are open.

    Args:
        node: The operator.
        base: Its piece by count alone.
        macs: Its multiply-accumulates: tokens x choices x weights of an expert.
    """
    source, routed = node.input(0), node.input(1)
    if source is None or routed is None or source.shape is None or routed.shape is None:
        return None
    width, (tokens, experts) = (
        source.shape[-1],
        (prod(size or 0 for size in routed.shape[:-1]), routed.shape[-1]),
    )
    chosen = float(node.attributes.get("k", 1))
    if not width or not tokens or not experts or not macs:
        return None
    weights = macs / (tokens * chosen)
    stored = [node.input(position) for position in _WEIGHTS[node.op_type]]
    packed = [tensor for tensor in stored if tensor is not None and tensor.dtype.is_packed]
    whole = [tensor for tensor in stored if tensor is not None and not tensor.dtype.is_packed]
    # fc1 makes gate and values of gated activations, in one tensor or, with fc3, in two: a third of the weights
    # each. Without a gate there are two matrices.
    gated = len([tensor for tensor in stored if tensor is not None]) > 2 or "swiglu" in str(
        node.attributes.get("activation_type", "")
    )
    matrices = 3.0 if gated else 2.0
    return replace(
        base,
        kind=Kind.EXPERTS,
        batch=float(experts),
        m=float(tokens),
        k=float(width),
        n=weights / (matrices * float(width)),
        steps=chosen,
        taps=matrices,
        # Weights of 8-bit floats are multiplied as such.
        narrow=float(bool(packed) and all(tensor.dtype.is_float for tensor in packed)),
        weights=4.0 * sum(float(tensor.elements or 0) for tensor in whole if tensor.constant),
        fixed_weights=float(sum(tensor.nbytes or 0 for tensor in packed if tensor.constant)),
    )
