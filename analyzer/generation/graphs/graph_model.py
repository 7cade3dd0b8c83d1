"""A generating model that is a graph: each of its steps is the graph, bound to the step's sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, cast

from analyzer.costs.table import parameters
from analyzer.devices.device import Device, DeviceKind
from analyzer.errors import GraphError, UsageError
from analyzer.generation.graphs.axes import OWN_NAMES, Axes, GivenInput, axes_of, named_axes, without_partner
from analyzer.generation.memory import Footprint, activation_bytes
from analyzer.generation.request import (
    DEFAULT_PROMPT,
    NO_LONGEST,
    Request,
    Setting,
    StepSizes,
    StepTypes,
    float_precision,
)
from analyzer.generation.steps.decoder_graph import StepGraph
from analyzer.generation.steps.step_times import GenerationStep, prepared_step, step_groups
from analyzer.graph import DTYPES_BY_NUMBER, Graph, Node, Tensor
from analyzer.loading.from_onnx import fed_inputs
from analyzer.loading.loaded import Loaded
from analyzer.options import Cache, Weights
from analyzer.ort.execution import Group

if TYPE_CHECKING:
    import onnx

_FLOATS: Mapping[str, Weights] = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8e4m3fn": "fp8",
    "float8e5m2": "fp8",
}
_CACHES: Mapping[str, Cache] = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8e4m3fn": "fp8",
    "int8": "int8",
    "uint8": "int8",
}
_BY_BITS: Mapping[int, Weights] = {4: "int4", 8: "int8"}
_NARROWEST = 4
_BYTE = 8
# Sizes by which past, present and new tokens are told apart: no two are alike, nor their sums.
_PROBE = StepSizes(batch=2, tokens=3, context=10)
_WIDE = frozenset({"fp16", "bf16"})


# No slots: cached_property writes into the instance's __dict__.
@dataclass(frozen=True, kw_only=True, eq=False)
class GraphModel:
    """A decoder as a graph whose sizes are symbolic.

    ``positions`` are the tokens that it was made for; None where nothing tells.
    """

    loaded: Loaded
    axes: Axes
    name: str
    positions: int | None = None
    # A graph leaves nothing open, its operators are those that it has, and one device runs it.
    unsure: ClassVar[float] = 1.0
    runs_as_stored: ClassVar[bool] = True
    widths: ClassVar[tuple[int, ...]] = (1,)
    exchange: ClassVar[None] = None
    usual_prompt: ClassVar[int] = DEFAULT_PROMPT
    _graphs: dict[tuple[int, int, int], Graph] = field(default_factory=dict)
    _steps: dict[tuple[StepSizes, bool], GenerationStep] = field(default_factory=dict)
    _groups: dict[tuple[bool, bool, bool, int], tuple[Group, ...]] = field(default_factory=dict)
    _footprints: dict[tuple[StepTypes, int], Footprint] = field(default_factory=dict)

    @property
    def exporter(self) -> str:
        """Return who wrote the graph."""
        return self.loaded.exporter

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of loading, and axes that nothing explains."""
        unknown = self.axes.unknown
        assumed = (f"Nothing tells how large {', '.join(unknown)} is: 1 is assumed.",) if unknown else ()
        return (*self.loaded.notes, *assumed)

    @cached_property
    def parameters(self) -> int:
        """Elements of all weights."""
        return self.loaded.parameters or parameters(self.probed)

    @cached_property
    def own_weights(self) -> Weights:
        """The type that most elements of its products' weights have."""
        result: dict[Weights, int] = {}
        for node in self.probed.nodes:
            for kind, elements in _weights_of(node):
                result[kind] = result.get(kind, 0) + elements
        return max(result, key=lambda kind: result[kind], default="fp32")

    @cached_property
    def own_cache(self) -> Cache:
        """The type of its caches."""
        kinds = {tensor.name: tensor.dtype.name for tensor in self.probed.inputs}
        return _CACHES.get(kinds[self.axes.caches[0].name], "fp32")

    @cached_property
    def _floats(self) -> Weights:
        """The type that most of what its operators write has."""
        result: dict[Weights, int] = {}
        for node in self.probed.nodes:
            for tensor in node.present_outputs:
                kind = _FLOATS.get(tensor.dtype.name)
                if kind is not None and not tensor.constant:
                    result[kind] = result.get(kind, 0) + (tensor.elements or 0)
        return max(result, key=lambda kind: result[kind], default="fp32")

    @property
    def longest(self) -> int:
        """Tokens that a sequence may have."""
        return self.positions or NO_LONGEST

    @property
    def has_state_alone(self) -> bool:
        """Return whether no cache grows."""
        return all(cache.axis is None for cache in self.axes.caches)

    def decoder_prompt(self, prompt: int) -> int:
        """Return all tokens."""
        return prompt

    def source_of(self, prompt: int) -> int:
        """None: no encoder is known."""
        del prompt
        return 0

    def check(self, width: int) -> None:
        """Refuse more than one device."""
        if width != 1:
            raise UsageError(
                f"--gpus {width}: {self.name} is a graph, which one device runs.",
                hint="Give the folder with the model's config.json: its layers can be divided.",
            )

    def stored_in(self, weights: Weights | None, cache: Cache | None) -> tuple[Weights, Cache]:
        """Its own types."""
        requested = (
            ("--weights", weights, self.own_weights, "weights"),
            ("--kv", cache, self.own_cache, "a cache"),
        )
        for option, wanted, own, what in requested:
            if wanted not in (None, own):
                raise UsageError(
                    f"{option} {wanted}: {self.name} is a graph with {what} of {own}.",
                    hint="Convert the graph first (ONNX Runtime's quantisers, ONNX Runtime GenAI's builder), "
                    "or give the folder with the model's config.json.",
                )
        return self.own_weights, self.own_cache

    def floats_of(self, weights: Weights) -> str:
        """Those of its operators."""
        del weights
        return self._floats

    def types_on(self, device: Device, setting: Setting) -> StepTypes | None:
        """Its own types; a CPU computes in 32 bits."""
        if (setting.weights, setting.cache) != (self.own_weights, self.own_cache):
            return None
        wide = device.kind == "cpu"
        weights = "fp32" if wide and self.own_weights in _WIDE else self.own_weights
        floats = "fp32" if wide or self._floats == "fp32" else "fp16"
        return StepTypes(weights=weights, cache=self.own_cache, floats=cast(Any, floats))

    def precision_on(self, device: Device, setting: Setting) -> str:
        """Return the precision of the floats on a device, as predictions take it."""
        del setting
        return float_precision(device, self._floats)

    def step(self, sizes: StepSizes, types: StepTypes, kind: DeviceKind) -> GenerationStep:
        """Return a step, ready to be timed on any device of a kind."""
        key = (sizes, kind == "gpu")
        if key not in self._steps:
            graph = self.whole_step(sizes, types)
            made = StepGraph(graph=graph, copies=(1,) * len(graph.nodes))
            # What a session executes is the same at all sizes, but that an axis of 1 may be no axis.
            names = tuple((node.name, node.op_type) for node in graph.nodes)
            alike = (sizes.tokens == 1, sizes.batch == 1, kind == "gpu", hash(names))
            if alike not in self._groups:
                self._groups[alike] = step_groups(made, cuda=kind == "gpu")
            self._steps[key] = prepared_step(made, sizes, cuda=kind == "gpu", groups=self._groups[alike])
        return self._steps[key]

    def whole_step(self, sizes: StepSizes, types: StepTypes) -> Graph:
        """Return the graph at these sizes."""
        del types
        key = (sizes.batch, sizes.tokens, sizes.context)
        if key not in self._graphs:
            self._graphs[key] = self.loaded.graph_at(self.axes.sizes(sizes))
        return self._graphs[key]

    @cached_property
    def probed(self) -> Graph:
        """The graph at sizes that are told apart."""
        return self.loaded.graph_at(self.axes.sizes(_PROBE))

    def footprint(self, request: Request, types: StepTypes, width: int, kind: DeviceKind) -> Footprint:
        """Return bytes on the device; activations grow with tokens, from one size of each phase."""
        del width, kind
        key = (types, request.context)
        if key not in self._footprints:
            tokens = min(512, self.longest)
            prefill = self.whole_step(StepSizes(batch=1, tokens=tokens, context=tokens), types)
            decode = self.whole_step(StepSizes(batch=1, tokens=1, context=request.context), types)
            # On a CPU weights of 16 bits become as wide as what is computed.
            widened = 2 if types.weights == "fp32" and self.own_weights in _WIDE else 1
            tensors = {tensor.name: tensor for tensor in self.probed.inputs}

            def cache_bytes(length: int) -> int:
                """Return the bytes that one sequence of so many tokens keeps."""
                result = 0
                for cache in self.axes.caches:
                    tensor = tensors[cache.name]
                    shape = [int(size or 0) for size in tensor.shape or ()]
                    if cache.axis is not None:
                        shape[cache.axis] = length
                    result += prod(shape) // _PROBE.batch * (tensor.dtype.bits or 0) // _BYTE
                return result

            self._footprints[key] = Footprint(
                weights=decode.parameter_bytes * widened,
                tables=0,
                prefill_row=activation_bytes(prefill) / tokens,
                decode_row=activation_bytes(decode),
                cache=cache_bytes,
                width=1,
                grows=self.axes.grows,
            )
        return self._footprints[key]


def graph_model(
    loaded: Loaded, *, name: str, shared: bool | None = None, positions: int | None = None
) -> GraphModel:
    """Return the generating model that a graph is.

    ``shared`` says whether past and present of a cache are one buffer; where it is None, those of
    GroupQueryAttention are, for that is how ONNX Runtime runs it fastest. ``positions`` are the tokens that it
    was made for.

    Raises:
        UsageError: It has no cache, one that is not fed back, or axes that cannot be told.
    """
    loaded = replace(loaded, executable=False)
    if shared is None:
        shared = any(node.op_type == "GroupQueryAttention" for node in loaded.proto.graph.node)
    inputs = [_given(value) for value in fed_inputs(loaded.proto)]
    axes = axes_of(inputs, name=name, shared=shared)
    model = GraphModel(loaded=loaded, axes=axes, name=name, positions=positions)
    try:
        graph = model.probed
    except GraphError as error:
        raise UsageError(
            f"{name}: a step of {_PROBE.batch} sequences with {_PROBE.tokens} new tokens behind "
            f"{_PROBE.context - _PROBE.tokens} is no graph: {error.message}",
            hint="Its axes may be named otherwise than they are; give the folder with its config.json.",
        ) from error
    without_partner([cache.name for cache in axes.caches], graph.carried, name=name)
    return model if positions else GraphModel(loaded=loaded, axes=axes, name=name, positions=_rows(graph))


def exported_model(loaded: Loaded, *, name: str) -> GraphModel:
    """Return the generating model that a module is, exported with named sizes."""
    loaded = replace(loaded, executable=False)
    inputs = [_given(value) for value in fed_inputs(loaded.proto)]
    graph = loaded.graph_at(Axes(roles=OWN_NAMES, caches=()).sizes(_PROBE))
    axes = named_axes(inputs, graph.carried, name=name)
    without_partner([cache.name for cache in axes.caches], graph.carried, name=name)
    return GraphModel(loaded=loaded, axes=axes, name=name, positions=_rows(graph))


def _given(value: onnx.ValueInfoProto) -> GivenInput:
    kind = value.type.tensor_type
    dtype = DTYPES_BY_NUMBER.get(kind.elem_type)
    return GivenInput(
        name=value.name,
        shape=tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}[{axis}]"
            for axis, dim in enumerate(kind.shape.dim)
        ),
        is_integer=dtype is not None and not dtype.is_float,
    )


def _rows(graph: Graph) -> int | None:
    """Return rows of tables of positions and rotations, which limit the tokens of a sequence."""
    rows = []
    for node in graph.nodes:
        table = None
        if node.op_type == "GroupQueryAttention":
            # onnxruntime/core/graph/contrib_ops/bert_defs.cc: cos_cache is input 7.
            table = node.input(7)
        elif node.op_type == "Gather" and _is_place(graph, node.input(1)):
            table = node.input(0)
        if table is None or not table.initializer or not table.dtype.is_float:
            continue
        count = (table.shape or (None,))[0]
        if count and (node.op_type != "Gather" or count >= _LEAST_POSITIONS):
            rows.append(count)
    return min(rows, default=None)


# Of T5's relative positions there are 32 to 128 kinds, whatever the length.
_LEAST_POSITIONS = 256
_SAME_NUMBERS = frozenset({"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Add"})
_FARTHEST = 8


def _is_place(graph: Graph, index: Tensor | None) -> bool:
    """Return whether a table is read by places: a given one, or what sizes alone decide."""
    for _ in range(_FARTHEST):
        if index is None or index.constant:
            return index is not None
        made = graph.producer.get(index.name)
        if made is None:
            return "position" in index.name.lower()
        node = graph.nodes[made]
        if node.op_type not in _SAME_NUMBERS:
            return False
        index = node.input(0)
    return False


def _weights_of(node: Node) -> list[tuple[Weights, int]]:
    """Return types and elements of a product's stored weights."""
    if node.op_type in ("MatMulNBits", "GatherBlockQuantized"):
        bits = int(node.attributes.get("bits", _NARROWEST))
        stored = [tensor for tensor in node.present_inputs if tensor.initializer]
        elements = max((tensor.nbytes or 0 for tensor in stored), default=0) * _BYTE // max(1, bits)
        return [(_BY_BITS.get(bits, "int8"), elements)]
    if node.op_type == "Gather":  # an embedding may be kept wide beside narrow products
        return []
    result: list[tuple[Weights, int]] = []
    for tensor in node.present_inputs:
        bits = tensor.dtype.bits or 0
        if not tensor.initializer or len(tensor.shape or ()) < 2:
            continue
        kind = _FLOATS.get(tensor.dtype.name)
        if kind is None and ("int4" in tensor.dtype.name or "int8" in tensor.dtype.name):
            kind = _BY_BITS.get(bits)
        if kind is not None:
            result.append((kind, tensor.elements or 0))
    return result
