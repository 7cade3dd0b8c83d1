"""Products on tensor cores: tiles and waves, the latency of a tile's own loop, splits, caches.

``time = (loop^p + moved^p)^(1/p)``, in which

* loop is the least over tile shapes and splits of the inner dimension of ``waves x one tile's time + split``;
  one tile takes the longer (in the same soft sense) of its arithmetic, its reads from the last-level cache and
  its steps one after the other, which is what few tiles are bound by;
* moved is what comes from memory: operands that the cache does not hold.

A product of packed weights unpacks them on the way: fewer bytes and, up to some rows, one more fixed time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from analyzer.arrays import Bools, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorConstants:
    """Constants of libraries' products on tensor cores; ``constants.toml`` explains each."""

    staged: tuple[float, ...]
    streamed: tuple[float, ...]
    staged_step: float
    streamed_step: float
    efficiency: float
    depth: float
    waves: float
    cache: float
    split_s: float
    memory: float
    packed_s: float
    row_step: float
    narrow: float
    sharpness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCores:
    """A device's figures for products in one type.

    Attributes:
        rate: Operations per second that its best product sustains.
        units: Multiprocessors.
        bandwidth: Memory's peak, bytes per second.
        cache: Bytes of the last-level cache.
        streamed: Whether a copy engine feeds the tensor cores, as from Hopper on in data centres.
        exponentials: How many times 16 exponentials a clock and multiprocessor.
        tensor_memory: Whether results stay in a memory of the tensor cores' own, as on data centres' Blackwell.
        element_bytes: Bytes of a float.
    """

    rate: float
    units: float
    clock_hz: float
    bandwidth: float
    cache: float
    streamed: bool
    exponentials: float
    tensor_memory: bool
    element_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Products as columns: ``batch`` of [m, k] by [k, n].

    Attributes:
        batch, m, n, k: Their shapes.
        stored: Bytes of constant operands as they are kept.
        passing: Bytes of all other operands and results.
        packed: Whether the constant operand is unpacked on the way.
        kept: Bytes of all weights that are read before these are read again.
    """

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    stored: Floats
    passing: Floats
    packed: Bools
    kept: Floats


_LEVELS = ((256, 256), (256, 128), (128, 128), (64, 64), (0, 0))
_TILES = (
    (256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128),
    (64, 64), (64, 32), (32, 64), (16, 64), (16, 128),
)  # fmt: skip
_SPLITS = (1, 2, 4, 8, 16, 32)
# Rows up to which packed weights go to matrix-vector kernels, and what each more adds.
_FEW_ROWS, _ROW_MORE = 4.0, 0.1
# A step of the inner dimension: 64 bytes, 32 halves.
_STEP_BYTES = 64.0


def product_times(products: Products, at: TensorCores, constants: TensorConstants) -> tuple[Floats, Bools]:
    """Return seconds of each product in its kernel, and whether it computes rather than reads."""
    p = constants.sharpness
    looping = _looping(products, at, constants)
    # A few rows by packed weights go to matrix-vector kernels on ordinary cores.
    by_row = products.k * constants.row_step / at.clock_hz * (1.0 + _ROW_MORE * (products.m - 1.0))
    few = products.packed & (products.m <= _FEW_ROWS)
    looping = np.where(few, np.minimum(looping, by_row), looping) * _alignment_loss(products, at)
    moved = from_memory(products, at, constants)
    time = (looping**p + moved**p) ** (1 / p)
    return time + np.where(products.packed, constants.packed_s, 0.0), looping > moved


# Rows that begin at multiples of 16 bytes are loaded whole; where they begin elsewhere, older kernels with
# narrower loads multiply, slowest where a load has one half. On an H100 cuBLAS fell back to kernels of Ampere
# and Turing, which took 3 and 5 times as long (``tests/data/gpu``, rounded). That they lose half as much where
# they are the usual ones is assumed; no table has such products.
_ALIGNED_BYTES, _NARROW_BYTES = 16.0, 4.0
_STREAMED_LOSS, _STAGED_LOSS = (3.0, 5.0), (1.5, 2.5)
# What an interval widens by where kernels are those.
UNALIGNED_WIDTH = 1.6


def is_unaligned(m: Floats, n: Floats, k: Floats, element_bytes: float) -> Bools:
    """Return which products [m, k] by [k, n] have rows in memory that do not begin at multiples of 16 bytes.

    One row or column goes to a matrix-vector kernel, which reads element by element.
    """
    odd = (n * element_bytes % _ALIGNED_BYTES > 0) | (k * element_bytes % _ALIGNED_BYTES > 0)
    return np.asarray(odd & (m > 1.0) & (n > 1.0))


def _alignment_loss(products: Products, at: TensorCores) -> Floats:
    """Return how much longer the arithmetic takes by how the rows lie in memory."""
    narrow, narrowest = _STREAMED_LOSS if at.streamed else _STAGED_LOSS
    each = at.element_bytes
    worst = (products.n * each % _NARROW_BYTES > 0) | (products.k * each % _NARROW_BYTES > 0)
    odd = is_unaligned(products.m, products.n, products.k, each) & ~products.packed
    return np.where(odd, np.where(worst, narrowest, narrow), 1.0)


def from_memory(products: Products, at: TensorCores, constants: TensorConstants) -> Floats:
    """Seconds that memory needs: weights as far as all of them overflow the cache, the rest by its own size."""
    missed = products.stored * overflow(products.kept + products.passing, at.cache)
    missed = missed + products.passing * overflow(products.passing, at.cache)
    return missed / (at.bandwidth * constants.memory)


def overflow(size: Floats, cache: float) -> Floats:
    """Share of so many bytes that a cache no longer holds when they are read again: all, from its size on."""
    return np.clip((size / cache - 0.5) / 0.5, 0.0, 1.0)


def _looping(products: Products, at: TensorCores, constants: TensorConstants) -> Floats:
    p = constants.sharpness
    quality = constants.streamed if at.streamed else constants.staged
    rows, columns, share, split = _grid(quality)
    count = products.batch * np.ceil(products.m / rows) * np.ceil(products.n / columns) * split
    filled = count / at.units
    waves = np.where(filled <= 1, 1.0, constants.waves * np.ceil(filled) + (1 - constants.waves) * filled)
    halves = at.element_bytes / 2.0
    step = _STEP_BYTES / at.element_bytes
    depth = np.ceil(products.k / split / step) * step
    area = rows * columns
    computing = (
        2.0 * area * (depth + constants.depth / halves) / (at.rate / at.units * constants.efficiency * share)
    )
    weights = np.maximum(products.batch * products.n * products.k, 1.0)
    weight_bytes = np.where(products.packed, products.stored / weights, at.element_bytes)
    reading = (at.element_bytes * rows + weight_bytes * columns) * depth / (constants.cache * at.clock_hz)
    stepping = (
        (constants.streamed_step if at.streamed else constants.staged_step) / at.clock_hz * depth * halves
    )
    time = waves * (computing**p + reading**p + stepping**p) ** (1 / p)
    # Libraries split the inner dimension of single products only.
    extra = np.where(split > 1, constants.split_s, 0.0)
    extra = np.where((split > 1) & (products.batch > 1), np.inf, extra)
    best: Floats = (time + extra).min(axis=0)
    return best


@lru_cache(maxsize=64)
def _grid(quality: tuple[float, ...]) -> tuple[Floats, Floats, Floats, Floats]:
    shapes = []
    for rows, columns in _TILES:
        level = next(index for index, (m, n) in enumerate(_LEVELS) if rows * columns >= m * n)
        if quality[level] > 0:
            shapes += [(rows, columns, quality[level], split) for split in _SPLITS]
    columns_of = np.array(shapes, dtype=np.float64).T
    return tuple(column[:, None] for column in columns_of)


# Activations made 8-bit floats before a product, a scale for each row: two passes of ordinary cores.
#
# ``time = start + passes x bytes / bandwidth + elements x element / units + rows x row / units``. The cores'
# own work is what takes the time: the largest of a row, a division, a rounding for every element, which cards
# with three times the bandwidth do no quicker.
@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisingConstants:
    """Constants of engines' quantisation of activations; ``constants.toml`` explains each."""

    start_s: float
    passes: float
    element_s: float
    row_s: float


def quantising_times(rows: Floats, elements: Floats, at: TensorCores, constants: QuantisingConstants) -> Floats:
    """Seconds of each, without a launch; a row has a scale of its own, elements are those of all rows."""
    c = constants
    working = (elements * c.element_s + rows * c.row_s) / at.units
    return c.start_s + c.passes * elements / at.bandwidth + working
