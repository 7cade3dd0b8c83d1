"""Loaded: a model as a weight-free ONNX graph, what every way of loading ends in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from analyzer.errors import ModelError, UsageError
from analyzer.graph import Graph
from analyzer.loading import cache as export_cache
from analyzer.loading import reader
from analyzer.loading.dependencies import Dependencies
from analyzer.loading.input_values import with_given_sizes, with_steps
from analyzer.loading.model_reference import Reference
from analyzer.loading.onnx_graph.construction import from_message
from analyzer.loading.python.input_spec import InputSpec, named_by_position, parse_input
from analyzer.loading.state_pairs import corrected
from analyzer.quantities import Count
from analyzer.reading import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import onnx

# torch.onnx.export's own (torch/onnx/_constants.py of 2.13). ONNX Runtime 1.31's CUDA provider has no kernels
# for some newer schemas (MaxPool and Dropout of opset 22): a newer export would put them on the CPU.
DEFAULT_OPSET = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFacts:
    """Facts of an export about its graph.

    Attributes:
        static_batch: The batch that the graph is fixed to, None where it is symbolic.
        batch_range: Smallest and largest batch (None: no limit) for which the graph is right.
        exporter: ``torch.export``, ``torchscript``, ``pt2`` or ``onnx``.
        notes: What the report should say.
        parameters, parameter_bytes: Of the module, tied ones once; None where only a graph is known.
    """

    static_batch: Count | None = None
    batch_range: tuple[Count, Count | None] = (1, None)
    exporter: str = "onnx"
    notes: tuple[str, ...] = ()
    parameters: Count | None = None
    parameter_bytes: Count | None = None

    def facts(self) -> dict[str, Any]:
        """Return these facts by name."""
        return {each.name: getattr(self, each.name) for each in fields(ExportFacts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts(ExportFacts):
    """Facts of a model besides its graph, stored with it in the cache.

    Attributes:
        name: A short name for reports.
        source: The file's path as shown, or a description.
        symbol: Name of the batch's dimension, empty where nothing is symbolic.
        inputs_origin: ``given``, ``file``, ``script``, ``inferred`` or ``model``.
        guessed: The inputs that were inferred, as ``--input`` takes them.
    """

    name: str
    source: str
    symbol: str
    inputs_origin: str = "model"
    guessed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(ModelFacts):
    """A model as a weight-free ONNX graph, ready to be bound to a batch.

    Attributes:
        reference: What the user named; None for an object given to the Python interface.
        proto: The model; the batch is the symbolic dimension ``symbol``.
        batch: The batch asked for, or the inputs' own.
        live: The model object, where the Python interface gave one.
        bindings: Sizes of symbolic dimensions that ``--input`` gave.
        assumed: Sizes of those that nothing binds, 1 where they are not named here.
        problems: Why ONNX Runtime refuses what the file declares, as sentences.
        compared: Whether a run's gradients are compared with PyTorch's.
        state: Pairs of an input and the output that is its next value, given beside those that are
            found; None where nothing counts as state.
        number: By which the reading process knows the model.
        pairs: The state, once it is known: at every batch the same.
        executable: Whether sizes at which no run executes the model are an error. The contexts of steps that
            generate may exceed a table of positions.
        step: What the inputs and outputs of a training step are; None for a model of inference.
    """

    reference: Reference | None
    proto: onnx.ModelProto
    batch: int | None
    cached: bool = False
    specs: tuple[InputSpec, ...] = ()
    live: Any = None
    bindings: Mapping[str, int] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    empty_inputs: tuple[str, ...] = ()
    compared: bool = True
    limits: Limits = DEFAULT_LIMITS
    state: tuple[tuple[str, str], ...] | None = ()
    executable: bool = True
    number: int = field(init=False)
    pairs: list[Mapping[str, str]] = field(init=False, repr=False, compare=False, default_factory=list)
    step: Step | None = field(init=False)

    def __post_init__(self) -> None:
        # Read once, from the model itself: so it is there for one from the cache of exports too, and cannot
        # differ.
        step = None if self.exporter == "onnx" else step_of(self.proto)  # a stranger's file holds no step
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "number", next(reader.MODEL_NUMBERS))

    def supports(self, batch: int) -> bool:
        """Return whether the graph is right for this batch without another export."""
        if not self.symbol:
            return batch == (self.static_batch or self.batch)
        low, high = self.batch_range
        return batch >= low and (high is None or batch <= high)

    def bound_to(self, batch: int | None) -> dict[str, int]:
        """Return the sizes of symbolic dimensions at this batch."""
        sizes = dict(self.bindings)
        if self.symbol and batch is not None:
            sizes[self.symbol] = batch
        return sizes

    def graph(self, batch: int | None = None) -> Graph:
        """Return the graph at this batch, the loaded one by default."""
        return self.graph_at(self.bound_to(batch or self.batch))

    def graph_at(self, sizes: Mapping[str, int]) -> Graph:
        """Return the graph with these sizes of its symbolic dimensions."""
        if self.cached or self.exporter == "onnx":  # a stranger may have written it
            options = {"assumed": dict(self.assumed), "executable": self.executable, "pruned": self._is_pruned}
            subject, limits = f"'{self.source}'", self.limits
            graph = from_message(
                reader.graph_message(self.number, self.proto, sizes, subject=subject, limits=limits, **options)
            )
        else:
            from analyzer.loading.onnx_graph.build import prune, to_graph

            graph = to_graph(self.proto, bindings=sizes, executable=self.executable)
            graph = prune(graph) if self._is_pruned else graph
        if self.step is None:
            graph = with_steps(graph, (*self.specs, *map(parse_input, self.guessed)))
            graph = with_given_sizes(graph, self.specs)
        carried = {} if self.step is None else self.step.carried
        if self.step is None and self.state is not None:
            # Of the first graph alone: at another batch two sizes may be equal by chance.
            if not self.pairs:
                self.pairs.append(corrected(graph, self.state))
            carried = self.pairs[0]
        return replace(
            graph,
            carried=carried or graph.carried,
            problems=(*self.problems, *graph.problems),
            empty_inputs=self.empty_inputs,
        )

    @property
    def _is_pruned(self) -> bool:
        # Our exports leave constants and dead nodes standing; a user's own file is shown as it is.
        return self.exporter != "onnx"


def keep_export(key: str, loaded: Loaded, dependencies: Dependencies, default_batch: int | None = None) -> None:
    """Store an export for later runs, with the inputs' own batch where none was requested."""
    facts = {each.name: getattr(loaded, each.name) for each in fields(ModelFacts)}
    entry = export_cache.CacheEntry(
        proto=loaded.proto.SerializeToString(deterministic=True),  # maps have no order else
        facts={**facts, "default_batch": default_batch},
        dependencies=dependencies,
    )
    export_cache.keep(key, entry)


def cached_export(
    key: str, reference: Reference, limits: Limits, specs: tuple[InputSpec, ...] = (), batch: int | None = None
) -> Loaded | None:
    """Return an export of an earlier run, None without one or where what it depends on has changed."""
    import msgspec

    entry = export_cache.find(key)
    if entry is None:
        return None
    try:
        stored = msgspec.convert(entry.facts, ModelFacts)
        own_batch = msgspec.convert(entry.facts["default_batch"], Count | None)
        # An entry's digest finds damage and proves no author: it is read as any file is.
        proto, _ = reader.parsed(entry.proto, subject=f"'{reference.text}'", opset=None, limits=limits)
        # Bytes that protobuf reads as a model may still hold none.
        if not proto.HasField("graph") or not proto.opset_import:
            return None
        return Loaded(
            **{each.name: getattr(stored, each.name) for each in fields(ModelFacts)},
            reference=reference,
            proto=proto,
            batch=own_batch if batch is None else batch,
            cached=True,
            specs=named_by_position(specs, [value.name for value in proto.graph.input]),
            limits=limits,
        )
    except (ModelError, ValueError, KeyError):  # msgspec's error is a ValueError
        return None  # exported afresh


def check_opset(opset: int) -> None:
    """Refuse an opset that the installed onnx does not know."""
    from onnx.defs import onnx_opset_version

    newest = onnx_opset_version()
    # PyTorch's translations are written for opset 18 (TORCHLIB_OPSET in
    # torch/onnx/_internal/exporter/_constants.py).
    if not 18 <= opset <= newest:
        raise UsageError(
            f"--opset {opset}: PyTorch exports opsets 18 to {newest} with the installed onnx.",
            hint="20 is the default; 21 suits convolutional networks on CUDA, 23 transformers.",
        )


# In the model's own properties, so that it lives as long as the model: in the cache of exports too.
STEP_KEY = "analyzer.step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The meaning of a step's inputs and outputs.

    Attributes:
        carried: By input that lives from step to step, the output that is its next value; a frozen parameter
            is its own.
        weights: Inputs that are parameters or buffers.
        states: Inputs that are the optimizer's.
        gradients: By trained parameter, its gradient's tensor.
        fed: What each step is given anew, inputs then targets.
    """

    carried: Mapping[str, str]
    weights: tuple[str, ...]
    states: tuple[str, ...]
    gradients: Mapping[str, str]
    fed: tuple[str, ...]
    random: bool
    optimizer: str
    options: Mapping[str, Any] = field(default_factory=dict)


def step_of(proto: onnx.ModelProto) -> Step | None:
    """Return the description that a training step's model carries; None for any other model.

    Raises:
        ValueError: It says what is no step, as a forged entry of the cache may.
    """
    import msgspec

    text = next((entry.value for entry in proto.metadata_props if entry.key == STEP_KEY), None)
    if text is None:
        return None
    try:
        return msgspec.convert(json.loads(text), Step)
    except RecursionError as error:
        raise ValueError("the step is nested too deeply") from error
