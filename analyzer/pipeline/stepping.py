"""A training step at other batches: traced again at two, and from those exactly at every other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.costs import count
from analyzer.errors import AnalyzerError
from analyzer.graph import Graph
from analyzer.loading.load import DEFAULT_OPSET, Loaded, load
from analyzer.loading.training.anybatch import AnyBatch, DifferentError, agree, bound, without_constants
from analyzer.pipeline.forecast import Scene, at_batch
from analyzer.pipeline.options import Options
from analyzer.pipeline.training import memory_of

# Batches to trace at, beside the report's, until all others are known: 1, which may have fewer operators, and
# some that are no likely width (where a size equals the batch, equal operators become one).
_PROBES = (1, 11, 13, 17)
# Operators up to which two or three more traces take a few seconds.
_SMALL_STEP = 400

Tell = Callable[[str, float | None], None]


def loaded_at(loaded: Loaded, batch: int | None, options: Options) -> Loaded | None:
    """The same step traced at a batch, once; None where the user's code forbids that batch."""
    if batch is None or batch == loaded.batch:
        return loaded
    if batch not in loaded.retraced:
        try:
            loaded.retraced[batch] = replace(_traced(loaded, batch, options), compared=False)
        except AnalyzerError:
            loaded.retraced[batch] = None
    found: Loaded | None = loaded.retraced[batch]
    return found


def _traced(loaded: Loaded, batch: int, options: Options) -> Loaded:
    opset = options.opset or DEFAULT_OPSET
    if loaded.reference is not None:
        return load(
            loaded.reference,
            batch=batch,
            specs=options.inputs,
            opset=opset,
            use_cache=options.cache,
            training=True,
        )
    from analyzer.loading.inputs import resolve_inputs
    from analyzer.loading.training.load import step_of_user

    inputs = resolve_inputs(loaded.live, loaded.specs, batch, meta=loaded.live.meta)
    exported = step_of_user(loaded.live, inputs, opset)
    return replace(loaded, proto=exported.proto, batch=batch, static_batch=batch)


def step_scenes(
    loaded: Loaded, scene: Scene, options: Options, wanted: Sequence[int], tell: Tell
) -> tuple[dict[int, Scene], StepAt | None]:
    """The step at each batch that is wanted, and a way to any other; without one, at those traced alone."""
    assert loaded.batch is not None
    asked = [batch for batch in options.batches if batch != loaded.batch]
    small = len(scene.graph.nodes) <= _SMALL_STEP
    if not asked and not small:
        return {loaded.batch: scene}, None
    tell("tracing the step at other batches", None)
    graphs = {loaded.batch: scene.graph}
    for batch in dict.fromkeys((*asked, *(_PROBES if small or len(asked) > 1 else ()))):
        if batch in graphs:
            continue
        found = any_batch(graphs)
        if found is not None and batch not in asked:
            break
        other = loaded_at(loaded, batch, options)
        if other is not None:
            graphs[batch] = other.graph()
    found = any_batch(graphs)
    own = {batch: _scene(loaded, scene, graph) for batch, graph in graphs.items() if batch != loaded.batch}
    scenes = {loaded.batch: scene, **own}
    if found is None:
        return {batch: scenes[batch] for batch in sorted(scenes)}, None

    between = StepAt(loaded=loaded, base=scene, scenes=scenes, graph=found)
    reached = sorted(batch for batch in {*wanted, loaded.batch} if batch >= min(graphs))
    return {batch: between(batch) for batch in reached}, between


@dataclass(frozen=True, kw_only=True, eq=False)
class StepAt:
    """A step at any batch.

    Attributes:
        loaded: At the report's batch.
        base: Its scene.
        scenes: What was traced, by batch.
        graph: The step at every other batch.
    """

    loaded: Loaded
    base: Scene
    scenes: Mapping[int, Scene]
    graph: AnyBatch

    def __call__(self, batch: int) -> Scene:
        """The step at a batch, counted."""
        if batch in self.scenes:
            return self.scenes[batch]
        return _scene(self.loaded, self.base, self.graph.at(batch))

    def peak(self, batch: int) -> int | None:
        """The bytes alive at its peak, without counting the rest."""
        if batch in self.scenes:
            return self.scenes[batch].step_peak
        memory = memory_of(self.loaded, self.graph.at(batch))
        return memory.peak if memory is not None else None


def any_batch(graphs: dict[int, Graph]) -> AnyBatch | None:
    """The step at every batch from the first two that are alike, if a third one comes out as it was traced."""
    batches = list(graphs)
    for position, one in enumerate(batches):
        for other in batches[position + 1 :]:
            try:
                found = bound(graphs[one], one, graphs[other], other)
                rest = [batch for batch in batches if batch not in (one, other)]
                if any(_proven(found.at(batch), graphs[batch]) for batch in rest):
                    return found
            except DifferentError:
                continue
    return None


def _proven(found: Graph, traced: Graph) -> bool:
    """Whether a bound graph is the traced one, and every operator's cost the same."""
    return agree(found, traced) and count(found).costs == count(without_constants(traced)).costs


def _scene(loaded: Loaded, scene: Scene, graph: Graph) -> Scene:
    made = at_batch(scene, graph)
    memory = memory_of(loaded, graph)
    return made if memory is None else replace(made, step_peak=memory.peak)
