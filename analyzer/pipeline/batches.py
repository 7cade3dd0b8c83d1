"""The same decision over batches 1 to 4096."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from analyzer import prediction
from analyzer.decision import BATCHES, DecisionInput, Sweep, sweep
from analyzer.decision.plans import Plans
from analyzer.devices.device import Device
from analyzer.errors import GraphError
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.options import Options
from analyzer.pipeline.exports import Steps, prepared_steps
from analyzer.pipeline.forms import in_form
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.predictor import Predictor, undisturbed_s
from analyzer.pipeline.prepared import PreparedGraph, at_batch, with_measured_sizes
from analyzer.pipeline.target_devices import model_precision
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis

# In operators. Binding a graph to a batch costs time by its size: larger graphs are looked at on fewer batches.
_ALL_BATCHES_UP_TO = 1000
_FEW_BATCHES = (1, 8, 64, 512, 4096)
_FEW_BATCHES_UP_TO = 20_000
_FEWEST_BATCHES = (1, 64, 4096)
# For graphs up to this many operators the crossover is searched between those batches, to one inference: up
# to eleven more predictions for each change of the faster device (bisection of 2048 to 4096).
_EXACT_UP_TO = 160


def corrections_of(
    options: Options, cpu: Device, prepared: PreparedGraph, measured: Measured | None
) -> tuple[float, float]:
    """Measured over predicted latency of the CPU, so that other batches start from what was seen; else 1.

    Returns:
        For this CPU, and for those of other machines, which nobody disturbs as this one was.
    """
    if measured is None or measured.cpu_latency is None:
        return 1.0, 1.0
    # One factor for the whole run, not one for each group: of other batches only the sum is corrected.
    precision = model_precision(prepared.graph)
    session = prediction.predict_session(prepared.cpu_work, cpu, precision=precision, threads=options.threads)
    predicted, timed = session.total().value, measured.cpu_latency
    if predicted <= 0:
        return 1.0, 1.0
    alone = undisturbed_s(predicted, timed) if measured.busy else timed.value
    return timed.value / predicted, alone / predicted


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchModels:
    """The model at many batches.

    ``between`` gives the model at any batch between them, made once; None where it cannot be had.
    """

    prepared_graphs: Mapping[int, PreparedGraph] = field(default_factory=dict)
    between: Callable[[int], PreparedGraph] | None = None

    def __post_init__(self) -> None:
        if self.between is not None:  # several GPUs ask for the same batches
            object.__setattr__(self, "between", cache(self.between))


def batch_models(
    loaded: Loaded,
    prepared: PreparedGraph,
    options: Options,
    progress: Progress,
    traced: Steps = MappingProxyType({}),
    measured: Mapping[int, Measured] = MappingProxyType({}),
) -> BatchModels:
    """Return a loaded model at the batches of the sweep.

    ``traced`` is the model at batches for which it was traced or exported anew, None where that is forbidden.
    Sizes that the data decide are those of the run that was ``measured``.
    """
    if loaded.step is not None and loaded.batch is not None:
        # A step is traced with its sizes put in: its graph has no symbol to bind to another batch.
        batches = _sweep_batches(loaded, prepared.graph, options)
        prepared_graphs, any_batch = prepared_steps(loaded, prepared, options, batches, progress, traced)
        return BatchModels(prepared_graphs=prepared_graphs, between=any_batch)
    batches = _sweep_batches(loaded, prepared.graph, options)
    by_batch: dict[int, PreparedGraph] = {}
    for number, batch in enumerate(batches):
        model, result = traced.get(batch, loaded if _can_be_bound(loaded, batch) else None), prepared
        if batch != loaded.batch:
            if model is None:
                continue
            progress("predicting other batches", number / len(batches))
            try:
                result = at_batch(prepared, in_form(model.graph(batch), options))
            except GraphError:  # a size overflows, or the model's own arithmetic forbids this batch
                continue
        by_batch[batch] = with_measured_sizes(result, measured[batch].shapes) if batch in measured else result

    def between(batch: int) -> PreparedGraph:
        return at_batch(prepared, in_form(loaded.graph(batch), options))

    return BatchModels(prepared_graphs=by_batch, between=between if loaded.symbol else None)


def sweep_of(
    model: BatchModels,
    predictor: Predictor,
    gpu: Device | None,
    measured: Mapping[int, Measured],
    known: Mapping[int, tuple[DecisionInput, Plans]],
    plan: Callable[[DecisionInput], Plans],
) -> Sweep:
    """Return plans at every batch; measured batches keep what was measured.

    ``known`` are question and plans at batches where they are known already, ``plan`` makes the others.
    """
    others = {batch: prepared for batch, prepared in model.prepared_graphs.items() if batch not in known}
    predictor.sessions.stack(prepared.cuda_work for prepared in others.values())
    inputs = {
        batch: predictor.decision_input(prepared, gpu, batch, measured.get(batch))
        for batch, prepared in others.items()
    }
    inputs |= {batch: question for batch, (question, _) in known.items()}
    plans = {batch: plans for batch, (_, plans) in known.items()}
    prepared, between = next(iter(model.prepared_graphs.values()), None), model.between
    if prepared is None or between is None or len(prepared.graph.nodes) > _EXACT_UP_TO:
        return sweep(inputs, planned=plans, plan=plan)

    def predicted_at(batch: int) -> DecisionInput:
        # Every batch that was run is one of the sweep's own, so one between them was not measured.
        return predictor.decision_input(between(batch), gpu, batch, None)

    def has_room(batch: int) -> bool:
        return gpu is not None and predictor.gpu_has_room(between(batch), gpu, batch)

    return sweep(inputs, at=predicted_at, has_room=has_room, planned=plans, plan=plan)


def _can_be_bound(loaded: Loaded, batch: int) -> bool:
    return bool(loaded.symbol) and loaded.supports(batch)


def _sweep_batches(loaded: Loaded, graph: Graph, options: Options) -> list[int]:
    """Return the batches to look at: those of every sweep, those that were asked for, and the report's own."""
    operators = len(graph.nodes)
    few = _FEW_BATCHES if operators <= _FEW_BATCHES_UP_TO else _FEWEST_BATCHES
    usual = BATCHES if operators <= _ALL_BATCHES_UP_TO else few
    return sorted({*usual, *options.batches, *([loaded.batch] if loaded.batch else [])})


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
