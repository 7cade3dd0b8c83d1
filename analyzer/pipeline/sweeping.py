"""The same decision over batches 1 to 4096."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from analyzer import prediction
from analyzer.decision import BATCHES, Question, Sweep, sweep
from analyzer.devices.device import Device
from analyzer.errors import AnalyzerError, GraphError
from analyzer.loading.load import Loaded, load
from analyzer.pipeline.forecast import Forecaster, Scene, at_batch, batch_questions, set_scene
from analyzer.pipeline.measuring import Measured
from analyzer.pipeline.options import Options
from analyzer.pipeline.targets import cpu_precision, decision_precision
from analyzer.pipeline.training import memory_of
from analyzer.prediction.estimate import total

# Binding a graph to a batch costs time by its size: large graphs are looked at on fewer batches.
_ALL_BATCHES_UP_TO = 1000
_FEW = (1, 8, 64, 512, 4096)
# Operators up to which tracing a training step at five batches takes a few seconds.
_SMALL_STEP = 200
# For graphs up to this size the crossover is searched between those batches, to one inference.
_EXACT_UP_TO = 160

Progress = Callable[[str, float | None], None]


def correction_of(options: Options, cpu: Device, scene: Scene, measured: Measured | None) -> float:
    """Measured over predicted latency of the CPU, so that other batches start from what was seen; else 1."""
    if measured is None or measured.cpu_latency is None:
        return 1.0
    precision = cpu_precision(decision_precision(options, scene.graph, None), scene.graph)
    predicted = total(prediction.predict(scene.cpu_work, cpu, precision=precision, threads=options.threads))
    return measured.cpu_latency.time_s / predicted.time_s if predicted.time_s > 0 else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Swept:
    """The model at many batches.

    Attributes:
        scenes: By batch.
        between: The model at any batch between them; None where it cannot be had.
    """

    scenes: Mapping[int, Scene] = field(default_factory=dict)
    between: Callable[[int], Scene] | None = None


def swept(loaded: Loaded, scene: Scene, options: Options, tell: Progress) -> Swept:
    """A loaded model at the batches of the sweep."""
    scenes = scenes_of(loaded, scene, options, tell)

    def between(batch: int) -> Scene:
        return at_batch(scene, loaded.graph(batch))

    return Swept(scenes=scenes, between=between if loaded.symbol else None)


def sweep_of(
    model: Swept, forecaster: Forecaster, gpu: Device | None, measured: Mapping[int, Measured]
) -> Sweep:
    """Plans at every batch; measured batches keep what was measured."""
    questions = batch_questions(forecaster, model.scenes, gpu, measured)
    scene, between = next(iter(model.scenes.values()), None), model.between
    if scene is None or between is None or len(scene.graph.nodes) > _EXACT_UP_TO:
        return sweep(questions)

    def at(batch: int) -> Question:
        return forecaster.question(between(batch), gpu, batch, None, whole=False)

    return sweep(questions, at=at)


def scenes_of(loaded: Loaded, scene: Scene, options: Options, tell: Progress) -> dict[int, Scene]:
    """The model at each batch of the sweep."""
    wanted = BATCHES if len(scene.graph.nodes) <= _ALL_BATCHES_UP_TO else _FEW
    batches = sorted({*wanted, *options.batches, *([loaded.batch] if loaded.batch else [])})
    found: dict[int, Scene] = {}
    for number, batch in enumerate(batches):
        if batch == loaded.batch:
            found[batch] = scene
        elif loaded.symbol and loaded.supports(batch):
            tell("predicting other batches", number / len(batches))
            try:
                found[batch] = at_batch(scene, loaded.graph(batch))
            except GraphError:  # a size overflows, or the model's own arithmetic forbids this batch
                continue
        elif loaded.step is not None and batch in _step_batches(loaded, scene, options):
            tell("tracing the step at other batches", number / len(batches))
            traced = _step_at(loaded, batch, options)
            if traced is not None:
                found[batch] = traced
    return found


def _step_batches(loaded: Loaded, scene: Scene, options: Options) -> tuple[int, ...]:
    """A step is traced at one batch: small ones at a few others too, large ones where the user asks."""
    if loaded.reference is None:
        return ()
    few = _FEW if len(scene.graph.nodes) <= _SMALL_STEP else ()
    return (*options.batches, *few)


def _step_at(loaded: Loaded, batch: int, options: Options) -> Scene | None:
    """The same step at another batch; None where the user's code forbids it."""
    assert loaded.reference is not None
    try:
        other = load(
            loaded.reference,
            batch=batch,
            specs=options.inputs,
            opset=options.opset,
            use_cache=options.cache,
            training=True,
        )
        scene = set_scene(other.graph())
    except AnalyzerError:
        return None
    memory = memory_of(other, scene.graph)
    return scene if memory is None else replace(scene, step_peak=memory.peak)
