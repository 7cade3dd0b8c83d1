"""What ``apply.json`` says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from analyzer.figures import KnownLatency
from analyzer.options import PlanName
from analyzer.ort.releases import ReleasePlacement
from analyzer.pipeline.apply.opsets import OpsetCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was checked: true, false, or None with a reason.

    Attributes:
        placement: Whether the session's own record has every node where the plan has it, and as many copies.
        numbers: Whether the outputs agree with those of the unannotated model on the CPU.
        time: Whether a measured run lies within the plan's interval.
        reasons: Why one was not checked, or what is wrong, by its name.
    """

    placement: bool | None = None
    numbers: bool | None = None
    time: bool | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedFix:
    """A fix that was applied.

    Attributes:
        name: Of ``--fix``, or the precision.
        what: What was done, in a sentence.
        latency_before_s, low_before_s, high_before_s: Of the model before it, predicted: a 90 % interval.
        latency_after_s, low_after_s, high_after_s: Of what it made.
        blocked: Operators that were left in their type: ``name``, ``op_type`` and ``why``.
        numbers: How the outputs compare with those of the original model on the CPU.
    """

    name: str
    what: str
    latency_before_s: float
    low_before_s: float
    high_before_s: float
    latency_after_s: float
    low_after_s: float
    high_after_s: float
    blocked: tuple[Mapping[str, str], ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Applied(KnownLatency):
    """A plan that was applied.

    Attributes:
        folder: Where it was written.
        plan: Which plan.
        model, batch, opset, precision: What was applied.
        where: The devices in words.
        cpu, gpu: Slugs of the devices that it was planned for; no GPU for a plan of the CPU alone.
        nodes: ``CUDA`` or ``CPU`` by node name, as the session's assignment record names them.
        copies: Memcpy nodes of the optimised graph.
        annotated: How many nodes carry the annotation.
        verified: What was checked.
        onnxruntime: The release whose rules placed it.
        state: Output by the input whose next value it is, where both have one shape.
        differences: The largest difference of each output, and what is allowed.
        tolerances: By output, what it may be off by where the plan runs: a share of the largest magnitude that
            is right, and an absolute difference; without those that NumPy cannot hold or the model draws.
        bits: By input of a type that NumPy lacks, ONNX's number of it.
        measured_s: The median of a run, host to host, or with the state on the device; None without a GPU.
        notes: What to know, in sentences.
        fixes: What was done to the model before.
        opsets: What the model costs at each opset, the one that was chosen first; empty where it was named.
        releases: How releases of ONNX Runtime place it at each of them.
    """

    plan: PlanName
    model: str
    batch: int | None
    opset: int
    precision: str
    cpu: str
    gpu: str | None
    onnxruntime: str
    measured_s: float | None = None
    verified: Verified = Verified()
    differences: tuple[Mapping[str, Any], ...] = ()
    tolerances: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    bits: Mapping[str, int] = field(default_factory=dict)
    copies: int
    annotated: int
    state: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fixes: tuple[AppliedFix, ...] = ()
    opsets: tuple[OpsetCost, ...] = ()
    releases: tuple[ReleasePlacement, ...] = ()
    nodes: Mapping[str, str]
    # Where it is, and what its devices are called, is not in the file.
    folder: Path
    where: str

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``apply.json``: the fields in their order, without the last two."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=os.fspath)
        return {name: value for name, value in values.items() if name not in ("folder", "where")}
