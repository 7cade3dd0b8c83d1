"""Products cut into tiles: waves over the multiprocessors, and rows too far apart for address translation."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from analyzer.arrays import Floats
from analyzer.prediction.gpu.constants import GpuConstants, Tiles
from analyzer.prediction.work_item import FLOAT_BYTES

# fp32 products: tiles resident on a multiprocessor, their side, and the floats of one read of a row.
_RESIDENT, _SIDE, _SECTOR = 2.0, 128.0, 8.0


def tiled(
    batch: Floats,
    m: Floats,
    n: Floats,
    k: Floats,
    out_s: Floats,
    rate: Floats | float,
    units: float,
    tiles: Tiles,
) -> Floats:
    """Time of products, ``batch`` of [m, k] by [k, n], by their best tile shape.

    ``out_s`` is the time to move the output once, which a split of ``k`` costs twice a part; ``rate`` are
    sustained operations per second, ``units`` multiprocessors.
    """
    rows, columns, quality, split = _grid(tiles)
    count = batch * np.ceil(m / rows) * np.ceil(n / columns) * split
    depth = np.ceil(k / (8.0 * split)) * 8.0 + tiles.depth
    time = np.ceil(count / units) * (2.0 * rows * columns) * depth / (rate / units * tiles.efficiency * quality)
    extra = np.where(split > 1, 2.0 * split * out_s + tiles.split_s, 0.0)
    # Libraries split the inner dimension of single products only.
    extra = np.where((split > 1) & (batch > 1), np.inf, extra)
    best: Floats = (time + extra).min(axis=0)
    return best


@lru_cache(maxsize=16)
def _grid(tiles: Tiles) -> tuple[Floats, Floats, Floats, Floats]:
    shapes = [
        (*size, quality, split)
        for size, quality in zip(tiles.sizes, tiles.quality, strict=True)
        for split in tiles.splits
    ]
    columns = np.array(shapes, dtype=np.float64).T
    return tuple(column[:, None] for column in columns)


def untranslated(batch: Floats, m: Floats, n: Floats, k: Floats, reach: float, units: float) -> Floats:
    """Return how many 32-byte reads of products in fp32 find no translation of their address.

    Tiles are worked off along ``m``; those in flight read rows of the inner dimension, one after the other in
    memory for both operands (``x W^T``). Of what these rows span, the part beyond the translation's ``reach``,
    in bytes, misses.
    """
    resident = _RESIDENT * units
    across = _SIDE * np.ceil(resident / np.ceil(m / _SIDE))
    spanned = (np.minimum(m, _SIDE * resident) + np.minimum(n, across)) * k * FLOAT_BYTES
    missed = np.maximum(0.0, 1.0 - reach / np.maximum(spanned, 1.0))
    # A tile reads its rows whole, however narrow the product is across them.
    reads: Floats = batch * k / _SECTOR * (m * np.ceil(n / _SIDE) + n * np.ceil(m / _SIDE))
    return reads * missed


@lru_cache(maxsize=16)
def _conv_tiles(quality: tuple[float, ...], efficiency: float, depth: float, splits: tuple[int, ...]) -> Tiles:
    q = (quality[0], quality[1], quality[1], quality[2], quality[3], quality[3], quality[4])
    sizes = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32))
    return Tiles(
        sizes=sizes, quality=q, efficiency=efficiency, depth=depth, bandwidth=1.0, split_s=5e-6, splits=splits
    )


def conv_tiles(constants: GpuConstants) -> Tiles:
    """Return the tiles of implicit GEMM."""
    return _conv_tiles(constants.conv_tiles, constants.conv_efficiency, constants.conv_depth, (1, 2, 4, 8))


def winograd_tiles(constants: GpuConstants) -> Tiles:
    """Return the tiles of Winograd's products."""
    return _conv_tiles(constants.conv_tiles, constants.winograd_efficiency, constants.winograd_depth, (1,))
