"""The same decision over batches 1 to 4096."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from analyzer import prediction
from analyzer.decision import BATCHES, DecisionInput, Sweep, sweep
from analyzer.devices.device import Device
from analyzer.errors import GraphError
from analyzer.loading.loaded import Loaded
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.options import Options
from analyzer.pipeline.prepared import Predictor, PreparedGraph, at_batch, batch_questions
from analyzer.pipeline.target_devices import cpu_precision, decision_precision
from analyzer.pipeline.training_batches import Steps, prepared_steps
from analyzer.prediction.estimate import total
from analyzer.progress import Progress

# Binding a graph to a batch costs time by its size: large graphs are looked at on fewer batches.
_ALL_BATCHES_UP_TO = 1000
_FEW = (1, 8, 64, 512, 4096)
# For graphs up to this size the crossover is searched between those batches, to one inference.
_EXACT_UP_TO = 160


def correction_of(options: Options, cpu: Device, prepared: PreparedGraph, measured: Measured | None) -> float:
    """Measured over predicted latency of the CPU, so that other batches start from what was seen; else 1."""
    if measured is None or measured.cpu_latency is None:
        return 1.0
    precision = cpu_precision(decision_precision(options, prepared.graph, None), prepared.graph)
    predicted = total(prediction.predict(prepared.cpu_work, cpu, precision=precision, threads=options.threads))
    return measured.cpu_latency.time_s / predicted.time_s if predicted.time_s > 0 else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchModels:
    """The model at many batches.

    Attributes:
        prepared_graphs: By batch.
        between: The model at any batch between them; None where it cannot be had.
    """

    prepared_graphs: Mapping[int, PreparedGraph] = field(default_factory=dict)
    between: Callable[[int], PreparedGraph] | None = None


def batch_models(
    loaded: Loaded,
    prepared: PreparedGraph,
    options: Options,
    tell: Progress,
    traced: Steps = MappingProxyType({}),
) -> BatchModels:
    """A loaded model at the batches of the sweep; ``traced`` as for ``prepared_steps``."""
    if loaded.step is not None and loaded.batch is not None:
        wanted = _wanted(loaded, prepared, options)
        at_each, any_other = prepared_steps(loaded, prepared, options, wanted, tell, traced)
        return BatchModels(prepared_graphs=at_each, between=any_other)
    prepared_graphs = prepared_batches(loaded, prepared, options, tell)

    def between(batch: int) -> PreparedGraph:
        return at_batch(prepared, loaded.graph(batch))

    return BatchModels(prepared_graphs=prepared_graphs, between=between if loaded.symbol else None)


def sweep_of(
    model: BatchModels, predictor: Predictor, gpu: Device | None, measured: Mapping[int, Measured]
) -> Sweep:
    """Plans at every batch; measured batches keep what was measured."""
    questions = batch_questions(predictor, model.prepared_graphs, gpu, measured)
    prepared, between = next(iter(model.prepared_graphs.values()), None), model.between
    if prepared is None or between is None or len(prepared.graph.nodes) > _EXACT_UP_TO:
        return sweep(questions)

    def at(batch: int) -> DecisionInput:
        return predictor.question(between(batch), gpu, batch, None, whole=False)

    return sweep(questions, at=at)


def prepared_batches(
    loaded: Loaded, prepared: PreparedGraph, options: Options, tell: Progress
) -> dict[int, PreparedGraph]:
    """The model at each batch of the sweep."""
    batches = _wanted(loaded, prepared, options)
    found: dict[int, PreparedGraph] = {}
    for number, batch in enumerate(batches):
        if batch == loaded.batch:
            found[batch] = prepared
        elif loaded.symbol and loaded.supports(batch):
            tell("predicting other batches", number / len(batches))
            try:
                found[batch] = at_batch(prepared, loaded.graph(batch))
            except GraphError:  # a size overflows, or the model's own arithmetic forbids this batch
                continue
    return found


def _wanted(loaded: Loaded, prepared: PreparedGraph, options: Options) -> list[int]:
    """The batches to look at."""
    few = BATCHES if len(prepared.graph.nodes) <= _ALL_BATCHES_UP_TO else _FEW
    return sorted({*few, *options.batches, *([loaded.batch] if loaded.batch else [])})
