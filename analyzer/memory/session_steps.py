"""The nodes that a session executes, as the plan of its buffers sees them: what each reads, gives and shows.

On the CPU ONNX Runtime keeps images in blocks of channels from convolution to convolution.
``ort/blocked_layout.py`` says which nodes work on blocks; here they are put in blocks, with a step that copies
a tensor into that layout, or back, wherever another kernel gives or reads the tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import prod
from typing import Protocol

from analyzer.graph import Graph, Node, Shape, Tensor, packed_bytes
from analyzer.operators import IN_PLACE, IN_PLACE_ON_CUDA, is_view
from analyzer.ort.blocked_layout import (
    BLOCK,
    inputs_in_blocks,
    to_channels_last,
)


class Executed(Protocol):
    """A node that a session executes."""

    @property
    def op_type(self) -> str:
        """Its type."""

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of the operators that it stands for."""

    @property
    def provider(self) -> str:
        """Return where it runs."""


# These three are not frozen, though nobody changes one: a frozen one takes three times as long to make, and a
# plan of a large graph makes a million.
@dataclass(slots=True, kw_only=True)
class Value:
    """A tensor where it lies.

    Attributes:
        name: Unique among the values of a session.
        tensor: Name of the graph's tensor whose elements it has.
        shape: As its kernel has it.
        bits: Of an element.
        provider: Where it lies.
        forms: What made ``shape`` from the tensor's own, one after the other.
    """

    name: str
    tensor: str
    shape: Shape
    bits: int | None
    provider: str
    forms: tuple[Callable[[Shape], Shape], ...] = ()

    @property
    def size(self) -> int | None:
        """Bytes, None where not known."""
        return packed_bytes(self.shape, self.bits)

    @property
    def kind(self) -> tuple[object, ...]:
        """Values of one kind may lie in each other's buffers."""
        # Equal bytes are not enough: allocation_planner.cc compares shapes and the width of an element
        # (SameSize).
        return (self.shape, self.bits, self.provider)


@dataclass(slots=True, kw_only=True)
class Output:
    """An output of a step; ``alias_of`` names the value whose memory it shows, None for its own."""

    value: Value
    alias_of: str | None = None


@dataclass(slots=True, kw_only=True)
class ExecutedStep:
    """A node that is executed.

    Attributes:
        op_type: Its type.
        node: The operator of the file that it mainly stands for.
        reads: Names of values, once for each use; constants are not among them.
        outputs: What it gives.
        overwrites: Inputs that its kernel may write over.
        added: What a convolution adds to its result, None for nothing.
        rank: When ONNX Runtime made it: nodes of the file, then those of fusions, then those of layouts.
    """

    op_type: str
    node: Node
    reads: tuple[str, ...]
    outputs: tuple[Output, ...]
    overwrites: tuple[Value, ...] = ()
    added: Value | None = None
    rank: tuple[int, int] = (0, 0)


def steps_of(
    graph: Graph, groups: Sequence[Executed], wanted: Container[int] | None = None
) -> list[ExecutedStep]:
    """Return the executed nodes, in the order of the groups.

    Args:
        graph: The model.
        groups: What the session executes.
        wanted: Indices of the groups whose nodes are wanted; None is all.
    """
    constants = {tensor.name for tensor in graph.initializers}
    output_names = {tensor.name for tensor in graph.outputs}
    # In no group, or constant: neither runs, and what it gives is a weight.
    folded = set(range(len(graph.nodes))).difference(*(group.members for group in groups))
    for node in graph.nodes:
        constants.update(tensor.name for tensor in node.present_outputs if tensor.constant)
        if constants.issuperset(tensor.name for tensor in node.present_outputs):
            folded.add(node.index)
    steps = []
    for position, group in enumerate(groups):
        if wanted is not None and position not in wanted:
            continue
        part = _GroupReader(graph, group, constants, folded)
        outputs = tuple(part.outputs(output_names))
        if outputs:
            steps += _transposed_behind_split(part.step(outputs))
    return steps


def _value(tensor: Tensor, group: Executed, *, computed: bool = False) -> Value:
    """Return a tensor as a group reads it, or as it computes it."""
    # A product of more than two axes runs as a Gemm between Reshapes (core/optimizer/matmul_add_fusion.cc),
    # and a buffer is taken over only where the shapes are equal.
    forms = (_as_rows,) if computed and group.op_type == "Gemm" else ()
    return Value(
        name=tensor.name,
        tensor=tensor.name,
        shape=_as_rows(tensor.shape) if forms else tensor.shape,
        bits=tensor.dtype.bits,
        provider=group.provider,
        forms=forms,
    )


def _as_rows(shape: Shape) -> Shape:
    if not shape or None in shape:
        return shape
    return (prod(size or 0 for size in shape[:-1]), shape[-1])


def _transposed_behind_split(step: ExecutedStep) -> list[ExecutedStep]:
    """Push a Transpose behind the Split that reads it: each part is transposed by itself."""
    # HandleSplit in onnxruntime/core/optimizer/transpose_optimization/onnx_transpose_optimization.cc.
    order = step.node.attributes.get("perm", ())
    transposed = bool(order) and (step.op_type, step.node.op_type) == ("Split", "Transpose")
    if not transposed or any(output.alias_of is not None for output in step.outputs):
        return [step]
    parts = [_before_transpose(output.value, order) for output in step.outputs]
    split = replace(step, outputs=tuple(Output(value=part) for part in parts))
    return [
        split,
        *(
            replace(step, op_type="Transpose", reads=(part.name,), outputs=(output,))
            for part, output in zip(parts, step.outputs, strict=True)
        ),
    ]


def _before_transpose(value: Value, order: Sequence[int]) -> Value:
    form = partial(_transposed_back, order=tuple(order))
    return replace(value, name=value.name + "\0part", shape=form(value.shape), forms=(*value.forms, form))


def _transposed_back(shape: Shape, order: Sequence[int]) -> Shape:
    if shape is None or len(shape) != len(order):
        return shape
    before = list(shape)
    for axis, size in zip(order, shape, strict=True):
        before[axis] = size
    return tuple(before)


def sizes_in(graph: Graph, values: Iterable[Value]) -> dict[str, int | None] | None:
    """Return bytes of a session's values, by name, in another graph with the same operators.

    Args:
        graph: The model at another batch.
        values: Of the session at one batch.

    Returns:
        None where values that are of one kind in one of the graphs are of several in the other: what a session
        does with them may differ then.
    """
    tensors = graph.tensors
    kinds: dict[tuple[object, ...], tuple[object, ...]] = {}
    sizes: dict[str, int | None] = {}
    for value in values:
        tensor = tensors[value.tensor]
        shape, bits = tensor.shape, tensor.dtype.bits
        if value.forms:
            shape = reduce(lambda before, form: form(before), value.forms, shape)
        kind = (shape, bits, value.provider)
        # A scalar takes over no buffer.
        if kinds.setdefault(value.kind, kind) != kind or bool(shape) != bool(value.shape):
            return None
        sizes[value.name] = packed_bytes(shape, bits)
    return sizes if len(set(kinds.values())) == len(kinds) else None


class _GroupReader:
    """A group while its members are read."""

    def __init__(self, graph: Graph, group: Executed, constants: set[str], folded: set[int]) -> None:
        self.graph = graph
        self.group = group
        self.members = frozenset(group.members)
        self.folded = folded
        self.nodes = [graph.nodes[index] for index in group.members if index not in folded]
        self.executing: list[Node] = []
        self.computed: dict[str, Tensor] = {}
        self.alias_of_name: dict[str, str] = {}
        self.reads: list[str] = []
        types = Counter(node.op_type for node in self.nodes)
        first_of_kind: dict[tuple[object, ...], Node] = {}
        for node in self.nodes:
            names = [self.alias_of_name.get(name, name) for name in graph.names_read[node.index]]
            self.reads += [name for name in names if name not in self.computed and name not in constants]
            # Equal nodes run once (onnxruntime/core/optimizer/common_subexpression_elimination.cc).
            original = node
            if types[node.op_type] > 1:  # the key is long: only where there can be an equal one
                key = (node.op_type, repr(dict(node.attributes)), *self._operands_key(node))
                original = first_of_kind.setdefault(key, node)
            if original is not node:
                pairs = zip(node.present_outputs, original.present_outputs, strict=False)
                self.alias_of_name.update(
                    (tensor.name, self.alias_of_name.get(same.name, same.name)) for tensor, same in pairs
                )
            elif is_view(node) and node.outputs[0] is not None and names:
                self.alias_of_name[node.outputs[0].name] = names[0]
            else:
                self.executing.append(node)
                self.computed.update((tensor.name, tensor) for tensor in node.present_outputs)

    def _operands_key(self, node: Node) -> Iterator[object]:
        """Yield operands of a node: small constants by value, anything else by name."""
        for tensor in node.inputs:
            if tensor is None or tensor.value is None:
                yield None if tensor is None else self.alias_of_name.get(tensor.name, tensor.name)
            else:
                yield tensor.dtype.name, tensor.shape, repr(tensor.value.tolist())

    def outputs(self, output_names: set[str]) -> Iterator[Output]:
        """Yield outputs of the group; a view of an inner tensor brings that with it."""
        yielded: set[str] = set()
        for node in self.nodes:
            for tensor in node.present_outputs:
                readers = self.graph.consumers.get(tensor.name, ())
                if tensor.name not in output_names and readers and all(map(self._is_internal, readers)):
                    continue
                source = self.alias_of_name.get(tensor.name)
                inner = self.computed.get(source or "")
                if inner is not None and inner.name not in yielded:
                    yielded.add(inner.name)
                    if tensor.name in output_names and self._is_removed(node):
                        # What computes it writes under the name of the graph output.
                        yielded.add(tensor.name)
                        yield Output(value=replace(self._value(inner), name=tensor.name, tensor=tensor.name))
                        continue
                    yield Output(value=self._value(inner))
                if tensor.name not in yielded:
                    yielded.add(tensor.name)
                    yield Output(value=self._value(tensor), alias_of=source)

    def _is_removed(self, node: Node) -> bool:
        """Return whether it is an Identity that no session executes: the only reader of what it passes on."""
        source = node.inputs[0]
        alone = source is not None and self.graph.consumers.get(source.name, ()) == (node.index,)
        return node.op_type == "Identity" and alone

    def _is_internal(self, reader: int) -> bool:
        return reader in self.members or reader in self.folded

    def _value(self, tensor: Tensor) -> Value:
        return _value(tensor, self.group, computed=tensor.name in self.computed)

    def step(self, outputs: tuple[Output, ...]) -> ExecutedStep:
        main = self.executing[0] if self.executing else self.nodes[0]
        added = next(iter(self._added()), None)
        fused = main.op_type != self.group.op_type and added is None
        return ExecutedStep(
            op_type=self.group.op_type,
            node=main,
            reads=tuple(self.reads),
            outputs=outputs,
            overwrites=self._overwritten(main),
            added=added,
            rank=(int(fused), max(node.index for node in self.executing or self.nodes)),
        )

    def _overwritten(self, node: Node) -> tuple[Value, ...]:
        overwriting_types = IN_PLACE if self.group.provider == "cpu" else IN_PLACE_ON_CUDA
        alone = len(self.executing) == 1 and node.op_type == self.group.op_type
        return self._values(node.inputs[:1]) if alone and node.op_type in overwriting_types else ()

    def _added(self) -> tuple[Value, ...]:
        for node in self.executing[1:]:
            if node.op_type in ("Add", "Sum"):
                return tuple(value for value in self._values(node.inputs) if value.name in self.reads)
        return ()

    def _values(self, tensors: Sequence[Tensor | None]) -> tuple[Value, ...]:
        """Return the values read, under the names by which they enter the group."""
        values = [self._value(tensor) for tensor in tensors if tensor is not None]
        return tuple(
            replace(value, name=self.alias_of_name[value.name]) if value.name in self.alias_of_name else value
            for value in values
        )


REORDER = "Reorder"
"""The type of a step that copies a tensor from one layout to the other."""

_SUFFIX = "\0blocked"  # no name in a file holds a null character


def blocked(
    steps: Sequence[ExecutedStep], inputs: Iterable[Value], output_names: Iterable[str], block: int = BLOCK
) -> list[ExecutedStep]:
    """Return the same steps with blocked layouts, and the copies from one layout to the other.

    Args:
        steps: In the order of execution.
        inputs: The model's inputs.
        output_names: Names of its outputs.
        block: Channels of a block.
    """
    layout = _Layout(steps, inputs, set(output_names), block)
    for step in steps:
        layout.add(step)
    return layout.with_copies_back_out()


class _Layout:
    def __init__(
        self, steps: Sequence[ExecutedStep], inputs: Iterable[Value], output_names: set[str], block: int
    ) -> None:
        self.values = {value.name: value for value in inputs}
        self.values |= {output.value.name: output.value for step in steps for output in step.outputs}
        self.shapes = {name: value.shape for name, value in self.values.items()}
        self.output_names = output_names
        self.block = block
        self.steps_so_far: list[ExecutedStep] = []
        self.in_blocks: set[str] = set()  # values that exist in blocks
        self.copied: set[str] = set()  # values copied into blocks
        self.read_plain: set[str] = set()  # values in blocks that are read as they were

    def add(self, step: ExecutedStep) -> None:
        """Append a step as it is, or the blocked one in its place."""
        image = _is_image(step)
        read = inputs_in_blocks(step, self.shapes, self.in_blocks, self.block) if image else None
        if read is not None:
            self._add_blocked(step, read)
        elif image and to_channels_last(step) and self.in_blocks.issuperset(step.reads):
            self.steps_so_far.append(replace(step, reads=tuple(name + _SUFFIX for name in step.reads)))
        else:
            self.read_plain.update(name for name in step.reads if name in self.in_blocks)
            self.steps_so_far.append(step)

    def _add_blocked(self, step: ExecutedStep, image_inputs: Sequence[str]) -> None:
        """Put the step that reads these inputs, and what it adds, in blocks."""
        added = step.added
        names = set(image_inputs) | ({added.name} if added is not None else set())
        for name in (*image_inputs, *sorted(names.difference(image_inputs))):
            # One copy into blocks serves all that read the tensor there.
            if name not in self.in_blocks and name not in self.copied:
                self.copied.add(name)
                value = self.values[name]
                rank = (2, len(self.steps_so_far))
                self.steps_so_far.append(_reorder(step.node, value, self._blocked_value(value), rank))
        outputs = tuple(Output(value=self._blocked_value(output.value)) for output in step.outputs)
        self.in_blocks.update(output.value.name for output in step.outputs)
        # A convolution that adds another image writes its result over it (the Sum input of
        # com.microsoft.nchwc::Conv).
        overwritten = tuple(self._blocked_value(value) for value in (added,) if value is not None)
        self.steps_so_far.append(
            replace(
                step,
                reads=tuple(name + _SUFFIX if name in names else name for name in step.reads),
                outputs=outputs,
                overwrites=overwritten or tuple(self._blocked_value(value) for value in step.overwrites),
                rank=(2, len(self.steps_so_far)),
            )
        )

    def with_copies_back_out(self) -> list[ExecutedStep]:
        """Return all steps with the copies back out of blocks behind what they copy."""
        read_as_plain = self.read_plain | (self.in_blocks & self.output_names)
        with_copies_back: list[ExecutedStep] = []
        for step in self.steps_so_far:
            with_copies_back.append(step)
            for output in step.outputs:
                name = output.value.name.removesuffix(_SUFFIX)
                if name in read_as_plain and name != output.value.name and name not in self.copied:
                    value = self.values[name]
                    # Rank 3: NchwcTransformerImpl::Finalize makes them when all blocked nodes are there.
                    with_copies_back.append(
                        _reorder(step.node, output.value, value, (3, len(with_copies_back)))
                    )
        return with_copies_back

    def _blocked_value(self, value: Value) -> Value:
        form = partial(_in_blocks, block=self.block)
        return replace(value, name=value.name + _SUFFIX, shape=form(value.shape), forms=(*value.forms, form))


def _in_blocks(shape: Shape, block: int) -> Shape:
    # Channels are filled up to whole blocks, so that the buffer is larger than the tensor
    # (nchwc_output_channels in onnxruntime/core/optimizer/nchwc_transformer.cc).
    if not shape:
        return shape
    channels = shape[1] and -(-shape[1] // block) * block
    return (shape[0], channels, *shape[2:])


def _reorder(node: Node, source: Value, target: Value, rank: tuple[int, int]) -> ExecutedStep:
    return ExecutedStep(
        op_type=REORDER, node=node, reads=(source.name,), outputs=(Output(value=target),), rank=rank
    )


def _is_image(step: ExecutedStep) -> bool:
    value = step.outputs[0].value
    # The blocked kernels are float32 alone, and for images of two spatial axes.
    return (
        len(step.outputs) == 1 and value.provider == "cpu" and value.bits == 32 and len(value.shape or ()) == 4
    )
