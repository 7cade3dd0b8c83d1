"""What is known of a CPU: what was measured on it, or a reference core scaled by its figures.

Both give the same thing, a mapping by the keys of ``devices.calibration``, so that there is one model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analyzer.arrays import Floats
from analyzer.devices.calibration import taken_meanwhile, wavered
from analyzer.devices.device import Device
from analyzer.precision import DevicePrecision, on_device
from analyzer.prediction.calibration_tables import tables
from analyzer.prediction.reference_core import reference_ceilings

# A session's call on the reference core (``call`` in reference_core.toml: 1.74 us), where none was measured.
CPU_CALL_S = 1.8e-6
# Work on one thread from which ONNX Runtime's operators use several: 100,000 cycles in Eigen's cost model
# (unsupported/Eigen/CXX11/src/Tensor/TensorCostModel.h), 20 us at 5 GHz.
PARALLEL_S = 20e-6
# 45 runs of 15 samples on two threads of an EPYC: 8 % off at the median, 30 % at most.
_MEASURED_WIDTH = 1.35
# One measured core stands in for every other. BERT on one to six cores of an i7-8700, which nothing but the
# gain of cores was fitted to, is within 1.25 (tests/benchmarks/prediction.md); the rest is assumed. More where
# a figure is.
_CATALOGUE_WIDTH, _ASSUMED_WIDTH = 1.8, 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCeilings:
    """One CPU with a number of threads, in one precision.

    Attributes:
        values: By key of ``devices.calibration``.
        table: The number of threads in the keys of operators.
        scale: What fewer threads than ``table`` keep of its rates; 1 where there are as many.
        modelled: Whether what threads gain is modelled, not measured.
        dispatch_s: Cost of one more node.
        width: Half-width of the interval, as a factor.
    """

    values: Mapping[str, float]
    threads: int
    table: int
    scale: float
    modelled: bool
    dispatch_s: float
    precision: DevicePrecision
    width: float

    def of(self, key: str, threads: int | None = None) -> float | None:
        """A value by its key with ``{T}`` in it."""
        return self.values.get(key.replace("{T}", str(threads or self.table)))


def cpu_ceilings(device: Device, precision: str, threads: int | None = None) -> CpuCeilings:
    """What is known of a CPU: its calibration, else the reference core scaled by its figures."""
    device_precision = on_device(device, precision)
    values = device.calibration
    wanted = max(1, threads or int(values.get("threads", device.units)))
    if values:
        table = int(values.get("threads", 1)) if wanted > 1 else 1
        # Other processes made rates lower, by about as much as cores lacked (225 GFLOP/s became 129). A host's
        # other guests slow one minute and not the next: the calibration's, or the model's.
        disturbed = max(1.0 + taken_meanwhile(values), wavered(values, table))
        width = _MEASURED_WIDTH * disturbed
    else:
        wanted = min(wanted, device.threads or wanted)
        values, table = reference_ceilings(device, min(wanted, device.units)), 1
        width = _CATALOGUE_WIDTH
        width *= _ASSUMED_WIDTH if device.assumed else 1.0
    return CpuCeilings(
        values=values,
        threads=min(wanted, device.units) if not device.calibration else wanted,
        table=table,
        scale=min(1.0, wanted / table),
        modelled=not device.calibration,
        dispatch_s=values.get(f"dispatch.t{table}", 1.7e-7),
        precision=device_precision,
        width=width,
    )


def copy_rate(at: CpuCeilings, nbytes: Floats, threads: int | None = None) -> Floats:
    """Bytes per second of a copy by the bytes it touches; by all threads where none are named."""
    sizes, rates = tables(at.values).copies(threads or (at.threads if at.modelled else at.table))
    logarithms: Floats = np.interp(np.log(np.maximum(nbytes, 1.0)), sizes, rates)
    return np.exp(logarithms) * (at.scale if threads is None else 1.0)


def read_rate(at: CpuCeilings, nbytes: Floats) -> Floats | None:
    """Bytes per second of weights that are only read, by the bytes of all; None where it was not measured."""
    measured = None if at.modelled else tables(at.values).reads(at.table)
    if measured is None:
        return None
    sizes, rates = measured
    return np.exp(np.interp(np.log(np.maximum(nbytes, 1.0)), sizes, rates)) * at.scale
