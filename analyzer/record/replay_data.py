"""What a record keeps so that its model can be predicted again: for another device, at another batch.

Everything else of a prediction is in the record's operators. A figure at batch B is its value at the record's
own batch plus its growth for each inference more; a record is only written so where that holds exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

CostFigure = Literal["flops", "macs", "bytes_read", "bytes_written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked for. ``fixed`` is True where no figure of the machine was used (``check``)."""

    precision: str | None = None
    cpu: str | None = None
    threads: int | None = None
    slo_s: float | None = None
    pins: tuple[str, ...] = ()
    utilisation: float = 1.0
    fixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFigures:
    """What predictions read of a CPU that is in no catalogue, beside what ``devices.cpu`` holds."""

    vendor: str
    architecture: str
    units: int
    threads: int
    clock_hz: float | None
    cache_bytes: int | None
    calibration: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallValue:
    """Constants of one value, by name; a row of its elements, where what is not finite is a text."""

    value: tuple[Any, ...]
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Positions of the optional inputs and outputs that an operator leaves out."""

    operator: int
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeGrowth:
    """Tensors whose axes grow alike: by how much for each inference more."""

    axes: tuple[int, ...]
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OddSizes:
    """A tensor that grows otherwise: its shape at each batch."""

    tensor: str
    shapes: tuple[tuple[int | None, ...] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OddFigure:
    """A figure that grows otherwise: it is ``square`` times the batch squared, or ``values`` at each batch."""

    operator: int
    figure: CostFigure
    square: int | None = None
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How the model grows with the batch.

    Attributes:
        looked_at: Batches at which all of this was checked.
        between: Whether the model runs at every batch between them, and all its sizes are known there.
        sizes, odd_sizes: Of tensors; one that is in neither does not grow.
        flops, macs, bytes_read, bytes_written: Of each operator, for each inference more.
        odd_figures: Those that this does not hold for.
    """

    looked_at: tuple[int, ...]
    between: bool
    sizes: tuple[SizeGrowth, ...]
    flops: tuple[int, ...]
    macs: tuple[int, ...]
    bytes_read: tuple[int, ...]
    bytes_written: tuple[int, ...]
    odd_sizes: tuple[OddSizes, ...] = ()
    odd_figures: tuple[OddFigure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayData:
    """The parts.

    Attributes:
        asked: The options that a prediction goes by.
        opsets: Version by domain.
        cpu: Of the CPU, None where its catalogue has it.
        values: Of small constants.
        absent: What operators leave out.
        batches: None where the model is fixed to one.
    """

    asked: Asked
    opsets: Mapping[str, int]
    cpu: CpuFigures | None = None
    values: tuple[SmallValue, ...] = ()
    absent: tuple[Absent, ...] = ()
    batches: Batches | None = None
