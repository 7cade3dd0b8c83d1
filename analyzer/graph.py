"""The graph that every stage reads: immutable, in execution order, shapes known where they can be.

ONNX's own vocabulary. ``ai.onnx`` is the default domain's name everywhere (ONNX also writes it as the
empty string). Objects compare by identity: a tensor is one object for its producer and all consumers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    import numpy as np

# ONNX Runtime writes it as the empty string inside and takes this one as its alias (kOnnxDomainAlias in
# onnxruntime/core/graph/constants.h).
DEFAULT_DOMAIN = "ai.onnx"

Dim = int | None
Shape = tuple[Dim, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """An element type.

    Attributes:
        name: ONNX's name in lower case (``float32``), or its type string for what is no tensor
            (``seq(tensor(float))``).
        bits: Width of one element in bits; None where it has no fixed width (strings, sequences).
        onnx: ``TensorProto.DataType``'s number; 0 for what is no tensor.
    """

    name: str
    bits: int | None
    onnx: int = 0

    @property
    def is_float(self) -> bool:
        """Return whether elements are floating point of any width."""
        return "float" in self.name and "(" not in self.name  # seq(tensor(float)) is no float

    @property
    def is_packed(self) -> bool:
        """Return whether elements keep their width in every precision: integers, and floats up to 8 bits."""
        return not self.is_float or (self.bits is not None and self.bits <= 8)


# TensorProto.DataType of ONNX 1.23 (onnx.proto), with the width of an element in bits.
_TENSOR_TYPES = (
    (0, "undefined", None),
    (1, "float32", 32),
    (2, "uint8", 8),
    (3, "int8", 8),
    (4, "uint16", 16),
    (5, "int16", 16),
    (6, "int32", 32),
    (7, "int64", 64),
    (8, "string", None),
    (9, "bool", 8),
    (10, "float16", 16),
    (11, "float64", 64),
    (12, "uint32", 32),
    (13, "uint64", 64),
    (14, "complex64", 64),
    (15, "complex128", 128),
    (16, "bfloat16", 16),
    (17, "float8e4m3fn", 8),
    (18, "float8e4m3fnuz", 8),
    (19, "float8e5m2", 8),
    (20, "float8e5m2fnuz", 8),
    (21, "uint4", 4),
    (22, "int4", 4),
    (23, "float4e2m1", 4),
    (24, "float8e8m0", 8),
    (25, "uint2", 2),
    (26, "int2", 2),
    (27, "float6e2m3", 6),
    (28, "float6e3m2", 6),
)
DTYPES_BY_NUMBER: Mapping[int, DType] = MappingProxyType(
    {number: DType(name=name, bits=bits, onnx=number) for number, name, bits in _TENSOR_TYPES}
)
DTYPES: Mapping[str, DType] = MappingProxyType({dtype.name: dtype for dtype in DTYPES_BY_NUMBER.values()})
UNDEFINED = DTYPES["undefined"]


def packed_bytes(shape: Shape, bits: int | None) -> int | None:
    """Return bytes of elements of this width one after another, the last byte filled up.

    ONNX packs types of less than a byte over the whole tensor, not row by row (``onnx.proto``, ``raw_data``).
    None while a size is open, or where elements have no fixed width (strings, sequences).
    """
    if bits is None or shape is None or None in shape:
        return None
    return (prod(shape) * bits + 7) // 8  # type: ignore[arg-type]  # no None is left, mypy cannot see it


_Size = TypeVar("_Size", int, int | None)


def broadcast(shapes: Iterable[Sequence[_Size]]) -> tuple[_Size, ...]:
    """Return the common shape of several operands, aligned at the last axis.

    A 1 takes the other's size, 0 too; an open size takes a known one over 1, and stays open beside a 1, for it
    may turn out to be any.

    Raises:
        ValueError: There is none.
    """
    result: tuple[_Size, ...] = ()
    for shape in shapes:
        other = tuple(shape)
        if other != result:  # most operands are of one shape
            result = _common_shape(result, other)
    return result


def _common_shape(one: tuple[_Size, ...], two: tuple[_Size, ...]) -> tuple[_Size, ...]:
    longer, shorter = (one, two) if len(one) >= len(two) else (two, one)
    ahead = len(longer) - len(shorter)
    common = list(longer)
    for axis, size in enumerate(shorter, ahead):
        if common[axis] == 1 or (common[axis] is None and size != 1):
            common[axis] = size
        elif size not in (1, None, common[axis]):  # an open size may turn out to fit
            raise ValueError(f"{one} and {two} do not broadcast")
    return tuple(common)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """A value that flows along the graph.

    Attributes:
        name: Unique in its graph.
        shape: Sizes by axis; None in place of a size that stays open; None altogether where the rank
            is not known or there is none (sequences, optionals, maps).
        dtype: Element type, ``UNDEFINED`` where nothing tells it.
        constant: Known before the model runs: an initializer, or computed from initializers and shapes alone.
        initializer: Stored with the model (a weight or a literal); implies ``constant``.
        value: The elements where they are few and known (shapes, axes, scalars), else None.
    """

    name: str
    shape: Shape
    dtype: DType
    constant: bool = False
    initializer: bool = False
    value: np.ndarray[Any, Any] | None = None

    @property
    def elements(self) -> int | None:
        """Number of elements, None while any dimension is open."""
        if self.shape is None or None in self.shape:
            return None
        return prod(self.shape)  # type: ignore[arg-type]  # no None is left, mypy cannot see it

    @property
    def nbytes(self) -> int | None:
        """Bytes in memory, sub-byte types rounded up per tensor; None while shape or width is not known."""
        return packed_bytes(self.shape, self.dtype.bits)

    @property
    def rank(self) -> int | None:
        """Number of axes."""
        return None if self.shape is None else len(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A line of the user's own code.

    Attributes:
        file: Path relative to the repository that holds the model, else to the working folder.
        line: Line number, from 1.
        code: The line's text without its indentation.
    """

    file: str
    line: int
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trips:
    """The number of a loop's passes.

    Attributes:
        count: Each time that the loop is run; of a loop inside of another the mean over all of them.
        exact: Whether it is so often; else at most so often, since a condition may end it sooner.
    """

    count: float
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOrigin:
    """The origin of a size that the data decide.

    Attributes:
        kind: ``given``, by values that the user said; ``measured``, as a run had it.
        inputs: Whose values decide it; empty where that is not known.
    """

    kind: Literal["given", "measured"]
    inputs: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In a few words: ``by the values given for batch``."""
        if self.kind == "measured":
            return "as measured, for the data of that run alone"
        return f"by the values given for {', '.join(self.inputs)}"


NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One operator.

    Attributes:
        index: Position in execution order, from 0.
        name: Unique in its graph.
        op_type: ONNX operator name.
        domain: Operator domain; ``ai.onnx`` for the default one.
        version: Opset version that the graph imports for this domain.
        inputs: Tensors read; None for an optional input that is absent.
        outputs: Tensors written; None for an optional output that is absent.
        attributes: Plain Python values (int, float, str, tuples of them, small numpy arrays);
            subgraphs are in ``graphs``.
        graphs: Subgraphs by attribute name (``then_branch``, ``body``).
        module: Dotted path of the ``nn.Module`` that holds it (``layer1.0.conv1``), empty where unknown.
        module_class: That module's class name, empty where unknown.
        source: The user's own line, None where unknown.
        phase: ``forward``, ``backward`` or ``optimizer`` in a training step, else None.
        steps: Of a recurrence that reads the lengths of its sequences, the fewest and the most steps that the
            longest of them may have; None where all are whole.
        trips: Of a Loop, how often it runs its body; None where that is not known before the run.
    """

    index: int
    name: str
    op_type: str
    domain: str = DEFAULT_DOMAIN
    version: int = 0
    inputs: tuple[Tensor | None, ...] = ()
    outputs: tuple[Tensor | None, ...] = ()
    # A factory, as dataclasses take a mapping for a mutable default; all nodes share the one that is empty.
    attributes: Mapping[str, Any] = field(default_factory=lambda: NO_ATTRIBUTES)
    graphs: Mapping[str, Graph] = field(default_factory=lambda: NO_ATTRIBUTES)
    module: str = ""
    module_class: str = ""
    source: Source | None = None
    phase: str | None = None
    steps: tuple[int, int] | None = None
    trips: Trips | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """The operator's identity: ``(domain, op_type)``."""
        return (self.domain, self.op_type)

    def input(self, position: int) -> Tensor | None:
        """Return the input at this position, None where it is absent or left out at the end."""
        return self.inputs[position] if position < len(self.inputs) else None

    def output(self, position: int) -> Tensor | None:
        """Return the output at this position, None where it is absent or left out at the end."""
        return self.outputs[position] if position < len(self.outputs) else None

    @property
    def present_inputs(self) -> Iterator[Tensor]:
        """The inputs that are there."""
        return iter([tensor for tensor in self.inputs if tensor is not None])

    @property
    def present_outputs(self) -> Iterator[Tensor]:
        """The outputs that are there."""
        return iter([tensor for tensor in self.outputs if tensor is not None])


# Without slots, which leave cached_property no place to keep its value.
@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """A model in execution order.

    Attributes:
        name: The graph's own name.
        nodes: Operators in execution order; ``nodes[i].index == i``. ``Constant`` nodes are not among
            them: their values are initializers.
        inputs: What the caller feeds; initializers are not among them.
        outputs: What the caller gets.
        initializers: Weights and literals in the order of the file.
        opsets: Opset version by domain.
        ir_version: ONNX IR version, 0 where there is none.
        open_dimensions: Names of symbolic dimensions that nothing bound, with the value assumed for each.
        expected_shapes: Whole shapes to count with, by name of a tensor with a size that only the data decide.
        size_origins: How the sizes are known that the data decide, by name of a tensor with such a size.
        notes: What the loader had to assume or repair, in plain sentences for the report.
        problems: Why ONNX Runtime does not load the model, a sentence each.
        empty_inputs: Which inputs the file declares without any element, and how to size them, a sentence each:
            other sizes stand in their place, and nothing is decided.
        carried: By input that lives on from run to run, the output that is its next value (itself where it
            never changes): in a training step weights and optimizer state, in a model that generates its past
            (a key-value cache, a recurrent state). They stay where they are used.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    initializers: tuple[Tensor, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)
    ir_version: int = 0
    open_dimensions: Mapping[str, int] = field(default_factory=dict)
    expected_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    size_origins: Mapping[str, SizeOrigin] = field(default_factory=lambda: NO_ATTRIBUTES)
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    empty_inputs: tuple[str, ...] = ()
    carried: Mapping[str, str] = field(default_factory=lambda: NO_ATTRIBUTES)

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Inputs and all that operators write, by name."""
        written = [tensor for node in self.nodes for tensor in node.present_outputs]
        return {tensor.name: tensor for tensor in (*self.inputs, *written)}

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """Index of the node that writes each tensor, by tensor name."""
        return {tensor.name: node.index for node in self.nodes for tensor in node.present_outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the nodes that read each tensor, by tensor name, each node once, subgraphs included."""
        readers: dict[str, list[int]] = {}
        for index, names in enumerate(self.names_read):
            # A node that reads a tensor twice, as Mul(x, x) does, is one reader.
            for name in dict.fromkeys(names):
                readers.setdefault(name, []).append(index)
        return {name: tuple(indices) for name, indices in readers.items()}

    @cached_property
    def names_read(self) -> tuple[tuple[str, ...], ...]:
        """Names of all tensors that each node reads, as ``names_read`` gives them."""
        return tuple([tuple(names_read(node)) for node in self.nodes])

    @cached_property
    def _wiring(self) -> tuple[object, ...]:
        names = [
            [tensor.name for tensor in tensors] for tensors in (self.inputs, self.outputs, self.initializers)
        ]
        constant = {name for name, tensor in self.tensors.items() if tensor.constant}
        kinds = [(node.op_type, node.domain, len(node.outputs)) for node in self.nodes]
        return names, kinds, self.names_read, self.producer, constant, dict(self.carried)

    def wired_like(self, other: Graph) -> bool:
        """Return whether another graph has the same operators, tensors between them, and constants.

        So are a model's graphs at two batches, unless one of them folds more; sizes may differ.
        """
        return self is other or self._wiring == other._wiring

    @cached_property
    def is_training_step(self) -> bool:
        """Return whether it is a training step, whose weights are fed to it; other carried state is a past."""
        return bool(self.carried) and any(node.phase is not None for node in self.nodes)

    @cached_property
    def shared_outputs(self) -> frozenset[str]:
        """Outputs that a program may let lie in the buffer of the past that they take the place of.

        A cache of a fixed size, a recurrent state; one that grows needs a buffer of its own for a moment.
        """
        if not self.carried or self.is_training_step:
            return frozenset()
        shapes = {tensor.name: (tensor.shape, tensor.dtype) for tensor in (*self.inputs, *self.outputs)}
        return frozenset(
            new for past, new in self.carried.items() if past != new and shapes.get(past) == shapes.get(new)
        )

    @cached_property
    def written_bytes(self) -> Mapping[str, int]:
        """Bytes of all that operators write, by type."""
        written: dict[str, int] = {}
        for node in self.nodes:
            for tensor in node.present_outputs:
                written[tensor.dtype.name] = written.get(tensor.dtype.name, 0) + (tensor.nbytes or 0)
        return written

    @cached_property
    def with_bodies(self) -> tuple[Graph, ...]:
        """This graph and the bodies of its operators, those of their operators too."""
        bodies = [body for node in self.nodes for body in node.graphs.values()]
        return (self, *(graph for body in bodies for graph in body.with_bodies))

    @cached_property
    def initializer_bytes(self) -> Mapping[str, int]:
        """Bytes of all initializers, by type; a session holds those of every body."""
        sizes: dict[str, int] = {}
        for graph in self.with_bodies:
            for tensor in graph.initializers:
                sizes[tensor.dtype.name] = sizes.get(tensor.dtype.name, 0) + (tensor.nbytes or 0)
        return sizes

    @cached_property
    def parameter_bytes(self) -> int:
        """Bytes of all initializers, those of bodies too."""
        return sum(self.initializer_bytes.values())


def names_read(node: Node) -> list[str]:
    """Return names of all tensors that a node reads, those that its subgraphs take from outside included."""
    names = [tensor.name for tensor in node.inputs if tensor is not None]
    for graph in node.graphs.values():
        # What a subgraph computes or is handed is its own; anything else it reads from the graph around it
        # (ONNX, docs/IR.md).
        inner = {tensor.name for tensor in (*graph.inputs, *graph.initializers)}
        inner.update(tensor.name for child in graph.nodes for tensor in child.present_outputs)
        for child in graph.nodes:
            names += [name for name in names_read(child) if name not in inner]
        names += [tensor.name for tensor in graph.outputs if tensor.name not in inner]
    return names
