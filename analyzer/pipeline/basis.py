"""What an analysis rests on, for whoever asks more of the same model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.devices.device import Device
from analyzer.loading.loaded import Loaded
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnalysisBasis:
    """A model, prepared, with whatever was measured of it.

    ``gpu`` is the verdict's and None where only the CPU was looked at; ``measured`` is by batch. ``loaded`` is
    None where a record is all that is known of the model.
    """

    predictor: Predictor
    prepared: PreparedGraph
    models: BatchModels
    gpu: Device | None
    measured: Mapping[int, Measured]
    loaded: Loaded | None = None


# A model, its inputs and options -> its record and what that rests on.
Analyse = Callable[[Any, Any, Mapping[str, Any], Progress], tuple[Analysis, AnalysisBasis]]
