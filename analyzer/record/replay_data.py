"""Data by which a recorded model is predicted again: for another device, at another batch.

Everything else of a prediction is in the record's operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from analyzer.devices.device import Instance
from analyzer.figures import Figure, Timed
from analyzer.options import Pricing
from analyzer.quantities import Amount, Count, Positive

_Shape = tuple[Count | None, ...] | None
# Figures of `costs/cost.py`, which lies above this room.
CostFigure = Literal["flops", "macs", "bytes_read", "bytes_written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult(Timed):
    """An executed group of a session."""

    session: Literal["cpu", "cuda"]
    name: str
    op_type: str
    members: tuple[Count, ...]
    provider: Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """Measurements at one batch in one session; ``groups`` is empty without a profile.

    ``busy`` says whether other processes disturbed it.
    """

    batch: Count
    session: Literal["cpu", "cuda"]
    latency_s: Amount
    low_s: Amount
    high_s: Amount
    groups: tuple[GroupResult, ...] = ()
    busy: bool = False

    @property
    def latency(self) -> Figure:
        """The seconds of the whole run."""
        return Figure.about(self.latency_s, self.low_s, self.high_s, "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The growth of the model with the batch.

    Attributes:
        looked_at: Batches at which all of this is known.
        between: Whether the model runs at every batch between them, and all its sizes are known there.
        sizes: Shapes, one for each batch, and the tensors that have them; one that is not among them does not
            grow.
        rows: Values of figures, one for each batch.
        flops, macs, bytes_read, bytes_written: For each operator the index of its row.
    """

    looked_at: tuple[Count, ...]
    between: bool
    sizes: tuple[tuple[tuple[_Shape, ...], tuple[str, ...]], ...]
    rows: tuple[tuple[Count, ...], ...]
    flops: tuple[Count, ...]
    macs: tuple[Count, ...]
    bytes_read: tuple[Count, ...]
    bytes_written: tuple[Count, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayData:
    """All that is read again. Operators are named by their index.

    Attributes:
        precision, cpu, threads, slo_s, pins, utilisation, pricing, regions: Options that a prediction goes by;
            ``Analysis.invocation`` has them as they were written.
        fixed: Whether no figure of the machine was used (``check``).
        opsets: Version by domain.
        instances: The user's own price list.
        values: Elements of small constants, what is not finite as a text, and the constants that have them;
            shapes differ between them and grow with the batch.
        absent_inputs: Positions of the optional inputs that an operator leaves out.
        absent_outputs: The same of outputs.
        batches: None where the model is fixed to one.
        runs: What was measured.
        steps: Fewest and most steps of the longest sequence of a recurrence whose lengths an input holds; the
            most are what its time is predicted by.
    """

    opsets: Mapping[str, Count]
    precision: str | None = None
    cpu: str | None = None
    threads: Count | None = None
    slo_s: Amount | None = None
    pins: tuple[str, ...] = ()
    utilisation: Positive = 1.0
    fixed: bool = False
    pricing: Pricing = "on-demand"
    regions: tuple[str, ...] = ()
    values: tuple[tuple[tuple[bool | int | float | str, ...], tuple[str, ...]], ...] = ()
    absent_inputs: Mapping[Count, tuple[Count, ...]] = field(default_factory=dict)
    absent_outputs: Mapping[Count, tuple[Count, ...]] = field(default_factory=dict)
    batches: Batches | None = None
    runs: tuple[ReplayRun, ...] = ()
    instances: tuple[Instance, ...] = ()
    steps: Mapping[Count, tuple[Count, Count]] = field(default_factory=dict)
