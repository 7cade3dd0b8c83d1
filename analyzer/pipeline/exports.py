"""A training step at other batches: traced again at one or two, and from those exactly at every other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

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
from analyzer.options import Options
from analyzer.pipeline.machine import memory_of
from analyzer.pipeline.prepared import PreparedGraph, at_batch
from analyzer.pipeline.target_devices import Targets, measures_here
from analyzer.progress import Progress
from analyzer.text import listed

if TYPE_CHECKING:
    from analyzer.loading.python.user_model import UserModel


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


def traced_steps(loaded: Loaded, options: Options, targets: Targets) -> Steps:
    """Return a training step at each other batch that is to be run; empty for a model of inference."""
    if loaded.step is None or not measures_here(options, targets):
        return {}
    return {batch: loaded_at(loaded, batch, options) for batch in options.batches if batch != loaded.batch}


def loaded_at(loaded: Loaded, batch: int | None, options: Options) -> Loaded | None:
    """Return the same step traced at a batch; None where the user's code forbids that batch."""
    if batch is None or batch == loaded.batch:
        return loaded
    opset = options.opset or DEFAULT_OPSET
    try:
        if loaded.reference is None:
            traced = _of_user(loaded, loaded.live, batch, opset)
        else:
            traced = load(
                loaded.reference,
                batch=batch,
                specs=options.inputs,
                opset=opset,
                use_cache=options.cache,
                training=True,
            )
        return replace(traced, compared=False)
    except AnalyzerError:
        return None


def _of_user(loaded: Loaded, user: UserModel, batch: int, opset: int, *, modules: bool = True) -> Loaded:
    from analyzer.loading.python.example_inputs import resolve_inputs
    from analyzer.loading.training.load_step import step_of_user

    inputs = resolve_inputs(user, loaded.specs, batch)
    exported = step_of_user(user, inputs, opset, modules=modules)
    return replace(loaded, proto=exported.proto, batch=batch, static_batch=batch)


def prepared_steps(
    loaded: Loaded,
    prepared: PreparedGraph,
    options: Options,
    batches: Sequence[int],
    progress: Progress,
    traced: Steps = MappingProxyType({}),
) -> tuple[dict[int, PreparedGraph], StepAtAnyBatch | None]:
    """Return the step at each of the batches, and a way to any other; without one, at those traced alone.

    ``traced`` are steps at other batches, where they have been traced already.
    """
    assert loaded.batch is not None
    requested = [batch for batch in options.batches if batch != loaded.batch]
    nodes = len(prepared.graph.nodes)
    if not requested and nodes > _SWEPT_UP_TO:
        return {loaded.batch: prepared}, None
    progress("tracing the step at other batches", None)
    graphs = {loaded.batch: prepared.graph}
    graphs |= {batch: other.graph() for batch, other in traced.items() if other is not None}
    forbidden = frozenset(batch for batch, other in traced.items() if other is None)
    # Without batch 1 among the traces nothing tells whether it has the same operators: it is probed first.
    formula = any_batch(graphs, confirmed=nodes <= _CONFIRMED_UP_TO) if 1 in graphs else None
    if formula is None and (nodes <= _SWEPT_UP_TO or len(requested) > 1):
        formula = _formula_by_probing(loaded, graphs, options, forbidden)
    if formula is None:
        left = [batch for batch in requested if batch not in graphs and batch not in forbidden]
        others = {batch: loaded_at(loaded, batch, options) for batch in left}
        graphs |= {batch: other.graph() for batch, other in others.items() if other is not None}
    own = {
        batch: _prepared(loaded, prepared, graph) for batch, graph in graphs.items() if batch != loaded.batch
    }
    prepared_graphs = {loaded.batch: prepared, **own}
    if formula is None:
        return {batch: prepared_graphs[batch] for batch in sorted(prepared_graphs)}, None

    any_other = StepAtAnyBatch(loaded=loaded, base=prepared, prepared_graphs=prepared_graphs, formula=formula)
    # Below the smallest trace the step may have other operators, or not run at all.
    reached = sorted(batch for batch in {*batches, loaded.batch} if batch >= min(graphs))
    return {batch: any_other(batch) for batch in reached}, any_other


def _formula_by_probing(
    loaded: Loaded, graphs: dict[int, Graph], options: Options, forbidden: frozenset[int]
) -> AnyBatch | None:
    """Return step at every batch, from traces at some more, that ``graphs`` receives; None if nothing tells it.

    Traces in short count once one of them is like the whole trace; else whole ones are made, but for batches
    that are ``forbidden``.
    """
    (base, whole), *_ = graphs.items()
    doubtful: dict[int, Graph] = {}
    missing, trusted = 0, False
    for batch in (batch for batch in _PROBES if batch not in graphs):
        short = _in_short(loaded, batch, options)
        if short is not None and not trusted:
            with suppress(DifferentError):
                bound(whole, base, short, batch)
                trusted = True
        if short is not None and trusted:
            graphs |= {batch: short, **doubtful}
            doubtful = {}
            if (formula := any_batch(graphs, confirmed=len(whole.nodes) <= _CONFIRMED_UP_TO)) is not None:
                return formula
        elif short is not None:
            doubtful[batch] = short
        missing += short is None
        if len(doubtful) + missing >= _DOUBTS:
            break
    for batch in _PROBES if not trusted else ():
        known = batch in graphs or batch in forbidden
        other = None if known else loaded_at(loaded, batch, options)
        graphs |= {} if other is None else {batch: other.graph()}
        if (formula := any_batch(graphs)) is not None:
            return formula
    return None


def _in_short(loaded: Loaded, batch: int, options: Options) -> Graph | None:
    """Return step traced at a batch without learning that module each operator is of; None where that fails."""
    from analyzer.loading.python.user_model import load_user_model

    try:
        user = loaded.live
        if loaded.reference is not None:
            user = load_user_model(loaded.reference, weights="meta", specs=loaded.specs, training=True)
        return _of_user(loaded, user, batch, options.opset or DEFAULT_OPSET, modules=False).graph()
    except Exception:  # the shortcut is ours: a whole trace tells what is the model's
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class StepAtAnyBatch:
    """A step at any batch.

    ``prepared_graphs`` were traced, by batch; ``formula`` gives the step at every other one.
    """

    loaded: Loaded
    base: PreparedGraph
    prepared_graphs: Mapping[int, PreparedGraph]
    formula: AnyBatch

    def __call__(self, batch: int) -> PreparedGraph:
        """Return the step at a batch, counted."""
        if batch in self.prepared_graphs:
            return self.prepared_graphs[batch]
        return _prepared(self.loaded, self.base, self.formula.at(batch))

    def peak(self, batch: int) -> int | None:
        """Return the bytes alive at its peak, without counting the rest."""
        if batch in self.prepared_graphs:
            return self.prepared_graphs[batch].step_peak
        memory = memory_of(self.loaded, self.formula.at(batch))
        return memory.peak_bytes if memory is not None else None


def any_batch(graphs: dict[int, Graph], *, confirmed: bool = True) -> AnyBatch | None:
    """Return the step at every batch from the first graph and one like it.

    With ``confirmed`` a third must come out as it was traced even where all numbers are multiples.
    """
    first, *others = graphs
    for other in others:
        try:
            formula = bound(graphs[first], first, graphs[other], other)
            # What is a multiple of the batch at both is one at every batch: what grows with its square is not.
            if formula.proportional and not confirmed:
                return formula
            rest = [batch for batch in others if batch != other]
            for batch in rest:
                graph, traced = formula.at(batch), graphs[batch]
                if agree(graph, traced) and count(graph).costs == count(without_constants(traced)).costs:
                    return formula
        except DifferentError:
            continue
    return None


def _prepared(loaded: Loaded, prepared: PreparedGraph, graph: Graph) -> PreparedGraph:
    at_other = at_batch(prepared, graph)
    memory = memory_of(loaded, graph)
    return at_other if memory is None else replace(at_other, step_peak=memory.peak_bytes)


def exported_batches(
    loaded: Loaded, options: Options, progress: Progress
) -> tuple[dict[int, Loaded], dict[int, str]]:
    """Return the model at each batch that was asked for and is not in its export; a step is traced instead.

    Returns:
        The model by batch, and what forbids the others, in a sentence.
    """
    at: dict[int, Loaded] = {}
    why_not: dict[int, str] = {}
    opset = options.opset or DEFAULT_OPSET
    for batch in options.batches if loaded.step is None else ():
        if batch == loaded.batch or loaded.supports(batch):
            continue
        progress(f"exporting at batch {batch}", None)
        try:
            other: Loaded | None = None
            if loaded.exporter in ("onnx", "pt2"):
                pass  # its code is not there
            elif loaded.reference is not None:
                other = load(
                    loaded.reference, batch=batch, specs=options.inputs, opset=opset, use_cache=options.cache
                )
            else:
                from analyzer.loading.load import live_at

                other = live_at(loaded, batch, opset)
        except AnalyzerError as error:
            why_not[batch] = error.message
        else:
            if other is None or not other.supports(batch):
                why_not[batch] = "the file holds the model at one batch alone"
            else:
                at[batch] = replace(other, batch=batch, state=options.state)
    return at, why_not


def missing_note(
    loaded: Loaded, options: Options, analysed: Iterable[int], why_not: Mapping[int, str]
) -> tuple[str, ...]:
    """Return which of the batches that were asked for are not in the report, and why; empty where all are."""
    known = {*analysed, loaded.batch}
    by_reason: dict[str, list[int]] = {}
    for batch in options.batches:
        if batch not in known:
            reason = why_not.get(batch, "the model's code or its shapes forbid it")
            by_reason.setdefault(reason, []).append(batch)
    return tuple(
        f"Not analysed at batch {listed([str(batch) for batch in batches])}: {reason.rstrip('.')}."
        for reason, batches in by_reason.items()
    )
