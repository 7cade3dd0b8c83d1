"""Convolutions on a CPU: by class, size of a plane and blocks of channels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.prediction.calibration_tables import tables
from analyzer.prediction.cpu.ceilings import CpuCeilings, copy_rate
from analyzer.prediction.cpu.products import integer_families
from analyzer.prediction.features import TRANSPOSED_VOLUME
from analyzer.prediction.integer_kernels import IntegerShapes
from analyzer.prediction.reference_core import loops
from analyzer.prediction.work_item import Kind
from analyzer.prediction.workload import Workload, whether

# Channels of a group that are too few for a product of their own; those of the probe of groups.
_FEW, _GROUPED = 4, 8.0


def convolution_seconds(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings) -> Floats:
    """Seconds of the arithmetic of the pieces that ``chosen`` names."""
    taps, stride, batch = (work[name][chosen] for name in ("taps", "stride", "batch"))
    channels = work["k"][chosen] / np.maximum(taps, 1.0)
    thin = work.kind[chosen] == Kind.DEPTHWISE
    positions = work["spatial"][chosen]
    sequence, volume, flat, deep = (
        whether(work, (op,))[work.op[chosen]] for op in ("Conv1d", "Conv3d", "ConvTranspose", TRANSPOSED_VOLUME)
    )
    transposed = flat | deep
    classes = (
        (sequence & thin, "depthwise1d"),
        (volume & thin, "depthwise3d"),
        (volume & (taps > 1), "conv3d"),
        (sequence & (taps > 1) & (batch <= 1) & (channels > _FEW), "conv1d"),
        (transposed, "1x1"),
        (thin & (taps > 16), "depthwise5x5"),
        (thin & (stride > 1), "depthwise3x3s2"),
        (thin, "depthwise3x3"),
        (batch > 1, "group32"),
        ((channels <= _FEW) & (taps > 16), "stem7x7s2"),
        (channels <= _FEW, "stem3x3s2"),
        (taps == 1, "1x1"),
        (taps > 16, "5x5"),
        (stride > 1, "3x3s2"),
    )
    names = np.select([mask for mask, _ in classes], [name for _, name in classes], default="3x3")
    small = np.isin(names, ("3x3", "1x1", "3x3s2")) & (positions <= 150)
    names = np.where(small, np.where(names == "1x1", "1x1small", "3x3small"), names)
    # A class that an older calibration did not measure takes the rate of plain 3x3.
    known = {name: at.of(f"conv.float32.t{{T}}.{name}") for name in np.unique(names).tolist()}
    general = at.of("conv.float32.t{T}.3x3") or 1e10
    rate = np.array([known[name] or general for name in names.tolist()]) * at.scale
    # Groups of whole blocks of channels are computed in blocks, others the better the more channels they have.
    full = np.where(sequence, at.of("conv.float32.t{T}.conv1d") or general, general) * at.scale
    blocked = ~(sequence | volume | transposed) & (channels % _BLOCK == 0) & (work["n"][chosen] % _BLOCK == 0)
    nearer = np.where(
        blocked | volume, 1.0, np.clip(np.log2(np.maximum(channels, 1.0) / _GROUPED) / 3.0, 0.0, 1.0)
    )
    rate = np.where(names == "group32", rate ** (1.0 - nearer) * full**nearer, rate)
    integers = np.zeros(len(chosen), dtype=np.bool_)
    for family, mine in integer_families(work, chosen):
        integers |= mine
        rate = np.where(mine, _integer_rates(at, family, names, rate), rate)
    if integers.any():
        shapes = IntegerShapes(lambda name: at.of(f"conv.u8s8.t{{T}}.{name}"))
        slower = shapes.factors(names, work["n"][chosen], work["k"][chosen], taps)
        rate = np.where(integers, rate / slower, rate)
    # Channels are computed in blocks; the rims of small images cost depthwise convolutions more.
    filled = _blocks(work["n"][chosen]) * np.where(channels > _BLOCK / 2, _blocks(channels), 1.0)
    # Images alone are: sequences, volumes and transposed convolutions become products.
    image = ~(sequence | volume | transposed)
    padded = np.where((batch == 1) & ~thin & ~integers & image, filled, 1.0)
    rim = np.where(thin & ~integers & image, _rim(np.sqrt(np.maximum(positions, 1.0))), 1.0)
    seconds: Floats = work["flops"][chosen] * padded * rim / rate

    def each(name: str) -> float:
        return loops()[name].element_s * tables(at.values).pace / (at.threads if loops()[name].shared else 1)

    # The product of a transposed convolution has a column for each tap, which are then added up. Columns of
    # volumes are gathered one after the other, which a group has few filters for.
    rows = batch * work["m"][chosen]
    added = np.where(deep, each("Col2ImSumsOfVolumes"), each("Col2ImSums")) * rows * work["n"][chosen]
    seconds += np.where(transposed, added + np.where(batch > 1, batch * each("GroupOfColumns"), 0.0), 0.0)
    gathered = volume & (batch > 1) & ~thin
    gathered |= sequence & (taps > 1) & ~thin & (channels <= _FEW)
    seconds += np.where(gathered, rows * work["k"][chosen] * each("Im2ColOfVolumes"), 0.0)
    # Images are gathered likewise where nothing is blocked: filters that are fed, several of one channel.
    fed = (work["weights"][chosen] <= 0) & ~thin & (taps > 1)
    gathered = image & ~integers & (fed | (thin & (work["n"][chosen] > 1)))
    seconds += np.where(gathered, rows * work["k"][chosen] * each("Im2ColOfImages"), 0.0)
    return seconds


def _integer_rates(at: CpuCeilings, family: str, names: npt.NDArray[np.str_], floats: Floats) -> Floats:
    """Rates of convolutions on integers by class, from those of floats where they were not measured."""
    gain = _ratio(at, "conv.u8s8.t{T}.3x3", "conv.float32.t{T}.3x3")
    # Weights without a sign have kernels of their own, measured for a few classes.
    slower = _ratio(at, "conv.u8u8.t{T}.3x3", "conv.u8s8.t{T}.3x3")
    rates: dict[str, float] = {}
    for name in np.unique(names).tolist():
        signed = (at.of(f"conv.u8s8.t{{T}}.{name}") or 0.0) * at.scale
        own = (at.of(f"conv.u8u8.t{{T}}.{name}") or 0.0) * at.scale
        rates[name] = (own or signed * slower) if family == "u8u8" else signed
    known = np.array([rates[name] for name in names.tolist()])
    return np.asarray(np.where(known > 0, known, floats * gain), dtype=np.float64)


def _ratio(at: CpuCeilings, one: str, other: str) -> float:
    first, second = at.of(one), at.of(other)
    return first / second if first and second else 1.0


# Channels of a block in ONNX Runtime's NCHWc layout with AVX-512; the side of the depthwise probe's image.
_BLOCK, _PROBE_SIDE, _RIM = 16.0, 56.0, 6.0


def _blocks(channels: Floats) -> Floats:
    """Channels rounded up to whole blocks, over the channels."""
    return np.ceil(np.maximum(channels, 1.0) / _BLOCK) * _BLOCK / np.maximum(channels, 1.0)


_FAR_PLANES = (14.0, 56.0)


def plane_factors(work: Workload, at: CpuCeilings) -> Floats:
    """How much longer than copies depthwise convolutions take for their bytes, by the side of a plane.

    A plane is walked on its own, and small ones end before what is read ahead pays off. Two probes tell, whose
    data the caches do not keep; between them the logarithm of the side counts.
    """
    thin = work.kind == Kind.DEPTHWISE
    rates = [at.of(f"conv.float32.t{{T}}.depthwise3x3far{side:.0f}") for side in _FAR_PLANES]
    near = at.of("conv.float32.t{T}.depthwise3x3")
    if near is None or None in rates or not thin.any():
        return np.ones(len(work.kind))
    # A probe's seconds by its bytes: 18 operations and two passes of 4 bytes an element.
    beyond = [
        (18.0 / rate - 18.0 / near * float(_rim(np.float64(side)))) * copy_rate(at, np.full(1, 1.5e8))[0] / 8.0
        for rate, side in zip(rates, _FAR_PLANES, strict=True)
        if rate is not None
    ]
    sides = np.log(np.sqrt(np.maximum(work["spatial"], 1.0)))
    factors = np.interp(sides, np.log(_FAR_PLANES), np.maximum(1.0, beyond))
    return np.where(thin & (work["stride"] <= 1), factors, 1.0)


def _rim(side: Floats | np.float64) -> Floats | np.float64:
    """How much longer a depthwise convolution takes for a plane's rims than at the probe's size."""
    return (1 + _RIM / side) / (1 + _RIM / _PROBE_SIDE)
