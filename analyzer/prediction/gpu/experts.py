"""Mixtures of experts on tensor cores: grouped products over the experts that are hit, and routing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzer.arrays import Bools, Floats
from analyzer.prediction.gpu.tensor_products import (
    Products,
    TensorConstants,
    TensorCores,
    overflow,
    product_times,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertConstants:
    """How engines run mixtures; ``constants.toml`` says what each constant is."""

    route_s: float
    sort_s: float
    expert_s: float
    share: float
    pass_share: float
    hit: float
    blocks: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixtures:
    """Mixtures as columns.

    Attributes:
        tokens, hidden, inner: Tokens, their width, and an expert's.
        chosen, experts: Experts that a token takes, of how many.
        matrices: 3 with a gate, else 2.
        weight_bytes: Of one weight as it is kept.
        packed: Whether weights are unpacked on the way.
        skewed: 1 where tokens choose unevenly, or where that is not known; 0 where they spread evenly.
        kept: Bytes of weights that are read before an expert's are read again.
        by_blocks: 1 where weights of 8-bit floats have a scale for each block, else 0.
    """

    tokens: Floats
    hidden: Floats
    inner: Floats
    chosen: Floats
    experts: Floats
    matrices: Floats
    weight_bytes: Floats
    packed: Bools
    skewed: Floats
    kept: Floats
    by_blocks: Floats


def hit_experts(mixtures: Mixtures, constants: ExpertConstants) -> Floats:
    """How many experts have a token, of tokens that choose at random; all at once at most."""
    rows = mixtures.tokens * mixtures.chosen
    missed = (1.0 - np.minimum(1.0, mixtures.chosen / mixtures.experts)) ** mixtures.tokens
    spread = np.minimum(mixtures.experts, rows)
    at_random = mixtures.experts * (1.0 - missed) * constants.hit
    return np.maximum(1.0, np.where(mixtures.skewed > 0, np.minimum(spread, at_random), spread))


def expert_times(
    mixtures: Mixtures, at: TensorCores, constants: ExpertConstants, tensor: TensorConstants
) -> Floats:
    """Seconds of each mixture, routing included."""
    hit = hit_experts(mixtures, constants)
    rows = np.maximum(1.0, mixtures.tokens * mixtures.chosen)
    slower = replace(at, rate=at.rate * constants.share)
    sorting = np.clip(np.log2(rows) / 8.0, 0.0, 1.0)
    time = constants.route_s + constants.sort_s * sorting + constants.expert_s * hit
    hidden, inner = mixtures.hidden, mixtures.inner
    for n, k in (((mixtures.matrices - 1) * inner, hidden), (hidden, inner)):
        grouped = Products(
            # More than one: grouped products are not split.
            batch=np.maximum(hit, 1.0 + 1e-9),
            m=np.maximum(1.0, rows / hit),
            n=n,
            k=k,
            stored=hit * n * k * mixtures.weight_bytes,
            passing=rows * (n + k) * at.element_bytes,
            packed=mixtures.packed,
            kept=mixtures.kept,
        )
        time = time + product_times(grouped, slower, tensor)[0]
    moved = 2.0 * rows * 4.0 * (hidden + inner)
    # Part of it passes the cache alone.
    passed = np.maximum(0.3, overflow(moved, at.cache))
    return time + constants.pass_share * moved / (at.bandwidth * tensor.memory) * passed
