"""Flash attention and mixtures of experts on a GPU.

``time = floor + overlap(computing, reading)``. The floor is what one call costs with next to nothing to do: its
few kernels (the write to the cache, attention, the sum of its splits), the gaps between them in a CUDA graph
and one latency of memory. Grouped heads read the cache once for a group.
"""

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
class AttentionConstants:
    """Constants of engines' attention kernels; ``constants.toml`` explains each."""

    memory: float
    cache: float
    cache_share: float
    sharpness: float
    prefill_s: float
    decode_s: float
    narrow: float
    unpacked: float
    staged: float
    streamed: float
    softmax: float
    wide: float
    crowded: float
    streamed_overlap: float
    odd: float
    widest: float
    row_s: float
    tile_s: float
    streamed_tile_s: float
    key_clocks: float
    packing: float
    streamed_packing: float
    narrow_element_s: float
    passes: float
    latency_s: float
    streamed_latency: float
    products: float
    request_s: float
    streamed_request_s: float
    streamed_request: float
    window_s: float
    key_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attentions:
    """Calls of attention as columns.

    Attributes:
        batch, queries, before: Sequences, new tokens of each, and keys that are older.
        heads, key_heads, size: Query heads, heads of keys and values, elements of a head.
        window: Keys that a query sees at most; 0 for all.
        causal: Whether a query sees no later key.
        cache_bytes: Of an element of keys and values.
        kept: Bytes read by all others before the same cache is read again.
    """

    batch: Floats
    queries: Floats
    before: Floats
    heads: Floats
    key_heads: Floats
    size: Floats
    window: Floats
    causal: Bools
    cache_bytes: Floats
    kept: Floats

    @property
    def keys(self) -> Floats:
        """Keys that the last query sees."""
        every = self.before + self.queries
        return np.where(self.window > 0, np.minimum(every, self.window), every)

    @property
    def pairs(self) -> Floats:
        """Pairs of query and key that one head works on in one sequence."""
        limit = np.where(self.window > 0, self.window, np.inf)
        # Each row sees one key more until the window is full.
        growing = np.clip(limit - self.before, 0.0, self.queries)
        full = np.where(np.isfinite(limit), (self.queries - growing) * np.minimum(limit, self.keys), 0.0)
        causal = growing * self.before + growing * (growing + 1) / 2 + full
        return np.where(self.causal, causal, self.queries * self.keys)

    @property
    def cached(self) -> Floats:
        """Bytes of keys and values that are read, new ones among them."""
        return 2.0 * self.batch * self.key_heads * self.keys * self.size * self.cache_bytes


_USUAL_GROUP = 48.0


def is_ordinary(size: Floats, heads: Floats, key_heads: Floats) -> Bools:
    """Return whether heads are of a size, and as many on one of keys, that every engine has kernels for."""
    return np.isin(size, (64.0, 128.0, 256.0)) & (heads <= _USUAL_GROUP * key_heads)


# Heads on one head of keys that kernels serve together; beyond, every head reads the cache for itself.
_LARGEST_GROUP = 64.0
_CLOCK_HZ = 2e9
# Queries up to which kernels split the keys as for single tokens, the heads of a group and these filling a
# tile.
_FEW_QUERIES = 16.0
_TILE, _LEAST_TILE = 128.0, 64.0


def attention_times(
    calls: Attentions, at: TensorCores, constants: AttentionConstants
) -> tuple[Floats, Bools, Floats]:
    """Return seconds of each call inside a CUDA graph, whether it computes, and the floor among them."""
    prefill, prefill_computes, prefill_floor = _prefill(calls, at, constants)
    decode, decode_computes, decode_floor = _decode(calls, at, constants)
    # Without older keys there is nothing to split: a prompt of one token runs as a prompt.
    split = (calls.queries == 1) | ((calls.queries <= _FEW_QUERIES) & (decode < prefill))
    split &= calls.before > 0
    return (
        np.where(split, decode, prefill),
        np.where(split, decode_computes, prefill_computes),
        np.where(split, decode_floor, prefill_floor),
    )


def _prefill(calls: Attentions, at: TensorCores, c: AttentionConstants) -> tuple[Floats, Bools, Floats]:
    pair = _pair_s(calls.size, at, c)
    alone = _tiled(calls, at, c, pair, heads=np.ones_like(calls.heads))
    # Some engines fill a tile with the heads of a group, which counts where there are few queries.
    together = _tiled(calls, at, c, pair, heads=calls.heads / calls.key_heads)
    packing = c.streamed_packing if at.streamed else c.packing
    computing = alone ** (1.0 - packing) * np.minimum(alone, together) ** packing
    new = calls.batch * calls.queries * calls.size
    passed = 2.0 * at.element_bytes * new * calls.heads
    passed = passed + 2.0 * new * calls.key_heads * (at.element_bytes + 2.0 * calls.cache_bytes)
    old = 2.0 * calls.batch * calls.before * calls.key_heads * calls.size * calls.cache_bytes
    reading = _read_s(c.passes * passed + old, calls.kept, at, c)
    floor = _floor(c.prefill_s, at) * np.where(at.element_bytes < 2.0, c.narrow, 1.0)
    seconds = floor + _overlap(c, computing, reading)
    if not at.tensor_memory:
        narrowed = new * calls.heads * (at.element_bytes < 2.0)
        narrowed = narrowed + 2.0 * new * calls.key_heads * (calls.cache_bytes < 2.0)
        seconds = seconds + narrowed * c.narrow_element_s / at.units
    return seconds, computing > reading, floor + 0.0 * computing


def _tiled(calls: Attentions, at: TensorCores, c: AttentionConstants, pair: Floats, *, heads: Floats) -> Floats:
    """Return seconds of the products of a prefill whose tiles hold the queries of so many heads each."""
    queries = calls.queries * heads
    # Tiles are padded; on the diagonal half of the padding is worked.
    rows = np.minimum(_TILE, np.ceil(queries / _LEAST_TILE) * _LEAST_TILE)
    tiles = np.ceil(queries / rows)
    worked = tiles * rows * (calls.pairs / np.maximum(calls.queries, 1.0) + rows / heads / 4)
    each = tiles * (c.streamed_tile_s if at.streamed else c.tile_s) + queries * c.row_s + worked * pair
    spread = calls.batch * calls.heads / heads * each / at.units
    # The longest tile alone on a multiprocessor: kernels with few tiles make them low. Its blocks of keys
    # follow each other, however fast the cores are.
    key = _LEAST_TILE * pair + c.key_clocks / at.clock_hz
    longest = np.minimum(calls.keys + rows / heads, calls.before + calls.queries) * key
    return np.hypot(spread, longest)


def _decode(calls: Attentions, at: TensorCores, c: AttentionConstants) -> tuple[Floats, Bools, Floats]:
    group = calls.heads / calls.key_heads
    streams = calls.batch * calls.key_heads
    key_bytes = 2.0 * calls.size * calls.cache_bytes
    new = 2.0 * calls.batch * calls.queries * calls.size
    moved = calls.cached + new * calls.heads * at.element_bytes
    moved = moved + new * calls.key_heads * (at.element_bytes + calls.cache_bytes)
    reading = _read_s(moved, calls.kept, at, c)
    alone = group > _LARGEST_GROUP
    each = calls.batch * calls.heads * calls.keys * key_bytes / (c.cache * at.units * at.clock_hz)
    reading = np.where(alone, np.maximum(reading, each), reading)
    # The best number of splits balances a split's own keys against the sum: the root of the keys remains.
    once = c.latency_s * (c.streamed_latency if at.streamed else 1.0)
    latency: Floats = once * np.sqrt(calls.keys / 1024 * key_bytes / 512) * np.maximum(1.0, streams / at.units)
    # The heads of a group fill up a tile of 16 rows.
    pair = 4.0 * calls.size / (_DECODING * at.rate / at.units) + c.softmax / at.clock_hz
    products = c.products * streams * calls.keys * np.ceil(calls.queries * group / 16) * 16 * pair
    requests = calls.batch * np.where(alone, calls.heads, calls.heads**0.4 * calls.key_heads**0.6)
    request = c.streamed_request_s * (calls.size / 128) ** c.streamed_request if at.streamed else c.request_s
    computing = (products + requests * request) / at.units
    if not at.streamed:
        # FlashAttention 2 has each head walk its window for itself.
        walks = np.where(calls.window > 0, calls.batch * calls.heads * calls.keys / 128, 0.0)
        computing = computing + walks * c.window_s / at.units
    floor = _floor(c.decode_s, at) * np.where(calls.cache_bytes < 2.0, c.unpacked, 1.0)
    waiting = _overlap(c, reading, latency)
    seconds = floor + _overlap(c, waiting, computing)
    if not at.streamed:
        # With as many heads of keys as of queries, one engine in three does not split the keys.
        turns = np.ceil(streams / at.units)
        walked = floor + turns * calls.keys * key_bytes / 512 * c.key_s * _CLOCK_HZ / at.clock_hz
        seconds = np.where(group == 1.0, seconds * (np.maximum(1.0, walked / seconds)) ** (1 / 3), seconds)
    return seconds, computing > waiting, floor


# Share of the sustained rate that a decode's products are counted from; ``products`` is fitted to go with it.
_DECODING = 0.7


def _pair_s(size: Floats, at: TensorCores, c: AttentionConstants) -> Floats:
    """Return seconds of one multiprocessor for a pair: two products, then the exponential."""
    wide = c.crowded if at.tensor_memory else c.wide
    share = (c.streamed if at.streamed else c.staged) * np.where(size == 256, wide, 1.0)
    share = share * np.where(size == 192, c.odd, 1.0) * np.where(size > 256, c.widest, 1.0)
    products = 4.0 * size / (share * at.rate / at.units)
    exponential = c.softmax / (at.exponentials * at.clock_hz)
    overlap = c.streamed_overlap if at.streamed else 1.0
    seconds: Floats = (products**overlap + exponential**overlap) ** (1 / overlap)
    return seconds


def _read_s(moved: Floats, others: Floats, at: TensorCores, c: AttentionConstants) -> Floats:
    """From the last-level cache where all that is touched between two uses fits, else from memory."""
    warm = 1.0 / (1.0 + ((moved + others) / (c.cache_share * at.cache)) ** 4)
    near = moved / (c.cache * at.units * at.clock_hz)
    far = np.maximum(moved / (c.memory * at.bandwidth), near)
    return warm * near + (1.0 - warm) * far


def _floor(seconds: float, at: TensorCores) -> float:
    return seconds * (0.5 + 0.5 * _CLOCK_HZ / at.clock_hz)


def _overlap(c: AttentionConstants, one: Floats, other: Floats) -> Floats:
    return (one**c.sharpness + other**c.sharpness) ** (1 / c.sharpness)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertConstants:
    """Constants of engines' mixtures of experts; ``constants.toml`` explains each."""

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
    """Return how many experts have a token, of tokens that choose at random; all at once at most."""
    rows = mixtures.tokens * mixtures.chosen
    missed = (1.0 - np.minimum(1.0, mixtures.chosen / mixtures.experts)) ** mixtures.tokens
    spread = np.minimum(mixtures.experts, rows)
    at_random = mixtures.experts * (1.0 - missed) * constants.hit
    return np.maximum(1.0, np.where(mixtures.skewed > 0, np.minimum(spread, at_random), spread))


def expert_times(
    mixtures: Mixtures, at: TensorCores, constants: ExpertConstants, tensor: TensorConstants
) -> Floats:
    """Return seconds of each mixture, routing included."""
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
