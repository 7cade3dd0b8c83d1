"""A training step at other batches: traced again at one or two, and from those exactly at every other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from analyzer.costs import count
from analyzer.errors import AnalyzerError
from analyzer.graph import Graph
from analyzer.loading.load import load
from analyzer.loading.loaded import DEFAULT_OPSET, Loaded
from analyzer.loading.training.batch_interpolation import (
    AnyBatch,
    DifferentError,
    agree,
    bound,
    without_constants,
)
from analyzer.pipeline.measurement_memory import memory_of
from analyzer.pipeline.options import Options
from analyzer.pipeline.prepared import PreparedGraph, at_batch
from analyzer.progress import Progress

# Batches to trace at, beside the report's, until all others are known: 1, which may have fewer operators, one
# beyond the sweep, two that are no likely width (where a size equals the batch, equal operators become one).
_PROBES = (1, 11, 4099, 13)
# Operators up to which a third trace takes less than a second: it must confirm what two say.
_CONFIRMED_UP_TO = 400
# Operators up to which one batch alone is swept too.
_SWEPT_UP_TO = 2000
# Traces in short that may differ from the whole one, as at batch 1, before they are given up.
_DOUBTS = 2

# A step at batches where it was traced; None where the user's code forbids one.
Steps = Mapping[int, Loaded | None]


def loaded_at(loaded: Loaded, batch: int | None, options: Options) -> Loaded | None:
    """The same step traced at a batch; None where the user's code forbids that batch."""
    if batch is None or batch == loaded.batch:
        return loaded
    try:
        return replace(_traced(loaded, batch, options), compared=False)
    except AnalyzerError:
        return None


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
    return _of_user(loaded, loaded.live, batch, opset)


def _of_user(loaded: Loaded, user: Any, batch: int, opset: int, *, modules: bool = True) -> Loaded:
    from analyzer.loading.python.example_inputs import resolve_inputs
    from analyzer.loading.training.load_step import step_of_user

    inputs = resolve_inputs(user, loaded.specs, batch, meta=user.meta)
    exported = step_of_user(user, inputs, opset, modules=modules)
    return replace(loaded, proto=exported.proto, batch=batch, static_batch=batch)


def prepared_steps(
    loaded: Loaded,
    prepared: PreparedGraph,
    options: Options,
    wanted: Sequence[int],
    tell: Progress,
    traced: Steps = MappingProxyType({}),
) -> tuple[dict[int, PreparedGraph], StepAt | None]:
    """The step at each batch that is wanted, and a way to any other; without one, at those traced alone.

    Args:
        loaded: The step.
        prepared: Of its own batch.
        options: What was asked.
        wanted: The batches.
        tell: Told what is happening.
        traced: The step at other batches, where it has been traced already.
    """
    assert loaded.batch is not None
    asked = [batch for batch in options.batches if batch != loaded.batch]
    nodes = len(prepared.graph.nodes)
    if not asked and nodes > _SWEPT_UP_TO:
        return {loaded.batch: prepared}, None
    tell("tracing the step at other batches", None)
    graphs = {loaded.batch: prepared.graph}
    graphs |= {batch: other.graph() for batch, other in traced.items() if other is not None}
    forbidden = frozenset(batch for batch, other in traced.items() if other is None)
    found = any_batch(graphs, confirmed=nodes <= _CONFIRMED_UP_TO) if 1 in graphs else None
    if found is None and (nodes <= _SWEPT_UP_TO or len(asked) > 1):
        found = _probed(loaded, graphs, options, forbidden)
    if found is None:
        left = [batch for batch in asked if batch not in graphs and batch not in forbidden]
        others = {batch: loaded_at(loaded, batch, options) for batch in left}
        graphs |= {batch: other.graph() for batch, other in others.items() if other is not None}
    own = {
        batch: _prepared(loaded, prepared, graph) for batch, graph in graphs.items() if batch != loaded.batch
    }
    prepared_graphs = {loaded.batch: prepared, **own}
    if found is None:
        return {batch: prepared_graphs[batch] for batch in sorted(prepared_graphs)}, None

    between = StepAt(loaded=loaded, base=prepared, prepared_graphs=prepared_graphs, graph=found)
    reached = sorted(batch for batch in {*wanted, loaded.batch} if batch >= min(graphs))
    return {batch: between(batch) for batch in reached}, between


def _probed(
    loaded: Loaded, graphs: dict[int, Graph], options: Options, forbidden: frozenset[int]
) -> AnyBatch | None:
    """The step at every batch, from traces at some more, which ``graphs`` receives; None if nothing tells it.

    Traces in short count once one of them is like the whole trace; else whole ones are made, but for batches
    that are ``forbidden``.
    """
    (base, like), *_ = graphs.items()
    doubtful: dict[int, Graph] = {}
    missing, trusted = 0, False
    for batch in (batch for batch in _PROBES if batch not in graphs):
        short = _in_short(loaded, batch, options)
        if short is not None and (trusted or _binds(like, base, short, batch)):
            trusted = True
            graphs |= {batch: short, **doubtful}
            doubtful = {}
            if (found := any_batch(graphs, confirmed=len(like.nodes) <= _CONFIRMED_UP_TO)) is not None:
                return found
        elif short is not None:
            doubtful[batch] = short
        missing += short is None
        if len(doubtful) + missing >= _DOUBTS:
            break
    for batch in _PROBES if not trusted else ():
        known = batch in graphs or batch in forbidden
        other = None if known else loaded_at(loaded, batch, options)
        graphs |= {} if other is None else {batch: other.graph()}
        if (found := any_batch(graphs)) is not None:
            return found
    return None


def _binds(first: Graph, one: int, second: Graph, other: int) -> bool:
    try:
        bound(first, one, second, other)
    except DifferentError:
        return False
    return True


def _in_short(loaded: Loaded, batch: int, options: Options) -> Graph | None:
    """The step traced at a batch without learning which module each operator is of; None where that fails."""
    from analyzer.loading.python.user_model import load_user_model

    try:
        user = loaded.live if loaded.reference is None else load_user_model(loaded.reference, meta=True)
        return _of_user(loaded, user, batch, options.opset or DEFAULT_OPSET, modules=False).graph()
    except Exception:  # the shortcut is ours: a whole trace tells what is the model's
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class StepAt:
    """A step at any batch.

    Attributes:
        loaded: At the report's batch.
        base: Its prepared.
        prepared_graphs: What was traced, by batch.
        graph: The step at every other batch.
    """

    loaded: Loaded
    base: PreparedGraph
    prepared_graphs: Mapping[int, PreparedGraph]
    graph: AnyBatch

    def __call__(self, batch: int) -> PreparedGraph:
        """The step at a batch, counted."""
        if batch in self.prepared_graphs:
            return self.prepared_graphs[batch]
        return _prepared(self.loaded, self.base, self.graph.at(batch))

    def peak(self, batch: int) -> int | None:
        """The bytes alive at its peak, without counting the rest."""
        if batch in self.prepared_graphs:
            return self.prepared_graphs[batch].step_peak
        memory = memory_of(self.loaded, self.graph.at(batch))
        return memory.peak if memory is not None else None


def any_batch(graphs: dict[int, Graph], *, confirmed: bool = True) -> AnyBatch | None:
    """The step at every batch from the first graph and one like it.

    Args:
        graphs: What was traced, by batch.
        confirmed: Whether a third must come out as it was traced even where all numbers are multiples.
    """
    first, *others = graphs
    for other in others:
        try:
            found = bound(graphs[first], first, graphs[other], other)
            if found.proportional and not confirmed:
                return found
            rest = [batch for batch in others if batch != other]
            if any(_proven(found.at(batch), graphs[batch]) for batch in rest):
                return found
        except DifferentError:
            continue
    return None


def _proven(found: Graph, traced: Graph) -> bool:
    """Whether a bound graph is the traced one, and every operator's cost the same."""
    return agree(found, traced) and count(found).costs == count(without_constants(traced)).costs


def _prepared(loaded: Loaded, prepared: PreparedGraph, graph: Graph) -> PreparedGraph:
    made = at_batch(prepared, graph)
    memory = memory_of(loaded, graph)
    return made if memory is None else replace(made, step_peak=memory.peak)
