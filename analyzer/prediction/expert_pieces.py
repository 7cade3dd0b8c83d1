"""Mixtures of experts: what grouped products of a CUDA session need to know, and the kernels on a CPU."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from analyzer.graph import Node
from analyzer.prediction.work_item import FLOAT_BYTES, Kind, Piece

# Weights of fc1, fc2 and fc3 (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
_WEIGHTS = {"MoE": (2, 4, 6), "QMoE": (2, 5, 8)}


def experts_piece(node: Node, base: Piece, macs: float) -> Piece | None:
    """The piece of a mixture; None where its sizes are open.

    ``macs`` are tokens x choices x weights of an expert; ``base`` is its piece by count alone.
    """
    source, routed = node.input(0), node.input(1)
    if source is None or routed is None or source.shape is None or routed.shape is None:
        return None
    width, experts = source.shape[-1], routed.shape[-1]
    tokens = prod(size or 0 for size in routed.shape[:-1])
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
        spatial=float(int(node.attributes.get("block_size", 0)) > 0),
        weights=4.0 * sum(float(tensor.elements or 0) for tensor in whole if tensor.constant),
        fixed_weights=float(sum(tensor.nbytes or 0 for tensor in packed if tensor.constant)),
    )


ACTIVATION = "ExpertActivation"
"""An element of a gated activation, one after the other."""
_PLAIN = frozenset({"relu", "identity"})
# Threads take whole experts of floats, eight of them at most (onnxruntime/contrib_ops/cpu/moe/moe_cpu.cc); of
# packed weights a single expert is shared out too (1.31.1, one of 1,024: 1.6 times as fast on two threads).
_MOST_THREADS = 8.0
# Experts of packed weights make floats of them; wider ones by the same loop.
_UNPACKED = "nbits4a0"
EXPERT_PRODUCT = "ExpertProduct"
"""A product of an expert of floats, whose weights lie by rows."""


def experts_on_cpu(node: Node, base: Piece, macs: float) -> list[Piece]:
    """The kernels of ONNX Runtime's CPU provider: two products an expert, whose weights no session packs.

    Tokens are taken to spread over the experts. Empty where sizes are open.
    """
    shape = experts_piece(node, base, macs)
    if shape is None:
        return []
    hit = min(shape.m * shape.steps, shape.batch)
    shared_by = 0.0 if shape.fixed_weights else min(hit, _MOST_THREADS)
    rows = shape.m * shape.steps / hit
    # Bytes of a weight.
    packed = shape.fixed_weights / (shape.batch * shape.n * shape.k * shape.taps)

    def product(n: float, k: float) -> Piece:
        floats, integers = (0.0, n * k * packed) if packed else (n * k * FLOAT_BYTES, 0.0)
        return replace(
            base,
            kind=Kind.MATMUL,
            op=_UNPACKED if packed else EXPERT_PRODUCT,
            flops=2.0 * rows * n * k,
            read=floats,
            kept=floats,
            written=rows * n * FLOAT_BYTES,
            weights=0.0,
            fixed=integers,
            fixed_weights=integers,
            m=rows,
            n=n,
            k=k,
            repeats=hit,
            shared_by=shared_by,
        )

    # fc1 makes gates and values in one product, or in two of the same size together.
    kernels = [product(shape.n * (shape.taps - 1.0), shape.k), product(shape.k, shape.n)]
    if str(node.attributes.get("activation_type", "relu")) not in _PLAIN:
        elements = rows * hit * shape.n
        kernels.append(
            replace(base, kind=Kind.VECTOR, op=ACTIVATION, flops=0.0, read=0.0, written=0.0, fixed=0.0,
                    weights=0.0, fixed_weights=0.0, elements=elements, shared_by=shared_by)
        )  # fmt: skip
    return kernels
