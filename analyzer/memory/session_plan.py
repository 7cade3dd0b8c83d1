"""The most memory that a session's buffers take: ONNX Runtime's plan of them, worked out for what it executes.

ONNX Runtime plans all buffers before the first run (``allocation_planner.cc`` of 1.31.1), node by node:

- A node whose kernel may write over an input does so where nothing else needs that input; a view shows its
  source's memory; a result of the model has memory of its own.
- Any other output takes over a buffer that nothing needs any more, of the same shape and width of elements: the
  one that came free last. Such a buffer is held from its first use to its last, in between as well: more is
  held than is needed at any moment.
- A buffer that nothing takes over goes back to the arena.

The order is ONNX Runtime's own as well: depth first from the results, of a node's sources the one that was made
last first; nodes that a fusion makes come after those of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzer.graph import Graph
from analyzer.memory.session_steps import Executed, ExecutedStep, Value, blocked, sizes_in, steps_of
from analyzer.ort.blocked_layout import BLOCK


def executed_steps(graph: Graph, groups: Sequence[Executed], block: int = BLOCK) -> list[ExecutedStep]:
    """Return the executed steps in order, copies between layouts included.

    Fusions make their nodes in the order in which they find them, and so do layouts.

    Args:
        graph: The exported graph.
        groups: What the session executes.
        block: Channels of a block in the blocked layout.
    """
    steps = ordered(steps_of(graph, groups))
    # What a fusion made is numbered by the order in which it was found, not by the operators that it replaced.
    numbered = [
        replace(step, rank=(1, position)) if step.rank[0] else step for position, step in enumerate(steps)
    ]
    made = [step.rank for step in steps if step.rank[0]]
    # To order a large graph takes long, and mostly the order there is is found again.
    # Nothing but their ranks orders the steps: no two of one rank, none ranked by its reader.
    by_ranks = len({step.rank for step in steps}) == len(steps) and all(step.added is None for step in steps)
    if not by_ranks or made != sorted(made):
        numbered = ordered(numbered)
    laid_out = with_layouts(graph, numbered, block)
    in_blocks = any(step.rank[0] > 1 for step in laid_out)
    return ordered(laid_out) if in_blocks or not by_ranks else laid_out


def with_layouts(graph: Graph, steps: Sequence[ExecutedStep], block: int = BLOCK) -> list[ExecutedStep]:
    """Return steps in an executable order, with blocked layouts and the copies between layouts."""
    inputs = [
        Value(name=tensor.name, tensor=tensor.name, shape=tensor.shape, bits=tensor.dtype.bits, provider="cpu")
        for tensor in graph.inputs
    ]
    return blocked(steps, inputs, {tensor.name for tensor in graph.outputs}, block)


def ordered(steps: Sequence[ExecutedStep]) -> list[ExecutedStep]:
    """Return the steps in the order in which ONNX Runtime executes them."""
    writer = {output.value.name: position for position, step in enumerate(steps) for output in step.outputs}
    sources = [
        sorted({writer[name] for name in step.reads if name in writer}, key=lambda p: _rank(steps[p], step))
        for step in steps
    ]
    read_by_others = {position for sources_of_step in sources for position in sources_of_step}
    by_rank = sorted(range(len(steps)), key=lambda position: steps[position].rank)
    # From the leaves backwards, nodes by index, the last first: onnxruntime/core/graph/graph_viewer.cc, its
    # GraphViewer with ReverseDFSFrom and NodeCompare. The sources come off the stack last made first.
    stack = [(position, False) for position in by_rank if position not in read_by_others]
    seen: set[int] = set()
    order: list[ExecutedStep] = []
    while stack:
        position, sources_visited = stack.pop()
        if sources_visited:
            order.append(steps[position])
        elif position not in seen:
            seen.add(position)
            stack.append((position, True))
            stack += [(source, False) for source in sources[position] if source not in seen]
    return order


def _rank(source: ExecutedStep, reader: ExecutedStep) -> tuple[int, int]:
    """Before layouts, what a convolution adds is read by an operator of its own beside the convolution."""
    added = reader.added
    if added is None or reader.rank[0] > 1 or any(output.value.name == added.name for output in source.outputs):
        return source.rank
    return (0, reader.node.index)


class SessionPlan:
    """The executed steps of a session, and the buffers of its tensors.

    Args:
        graph: The model at one batch.
        steps: What the session executes, in its order.
        sizes: Bytes of each value by name.
        buffers: Who lies in which buffer, where that is known already.
    """

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[ExecutedStep],
        sizes: Mapping[str, int | None],
        buffers: _BufferPlan | None = None,
    ) -> None:
        self._graph = graph
        self._steps = steps
        self._sizes = sizes
        self._buffers = buffers or _BufferPlan(
            steps, {tensor.name for tensor in graph.inputs}, {tensor.name for tensor in graph.outputs}
        )

    @classmethod
    def of(cls, graph: Graph, groups: Sequence[Executed], *, block: int = BLOCK) -> SessionPlan:
        """Return the plan of a session that executes these groups.

        Args:
            graph: The exported graph.
            groups: What the session executes.
            block: Channels of a block in the CPU's blocked layout.
        """
        steps = executed_steps(graph, groups, block)
        sizes = {output.value.name: output.value.size for step in steps for output in step.outputs}
        return cls(graph, steps, sizes)

    @property
    def _sizes_of_own(self) -> Mapping[str, int | None]:
        """Sizes, none for results that lie in the buffer of an input: the caller holds that one."""
        shared = self._graph.shared_outputs
        return (
            {name: 0 if name in shared else size for name, size in self._sizes.items()}
            if shared
            else self._sizes
        )

    def at(self, graph: Graph) -> SessionPlan | None:
        """Return the plan of the same session for the model at another batch, whose operators are the same.

        None where it may be another: tensors of one shape may share a buffer, and at another batch others are
        of one shape.
        """
        values = [output.value for step in self._steps for output in step.outputs]
        overwritten = [value for step in self._steps for value in step.overwrites]
        sizes = sizes_in(graph, [*overwritten, *values])
        if sizes is None:
            return None
        return SessionPlan(
            graph, self._steps, {value.name: sizes[value.name] for value in values}, self._buffers
        )

    def peak_bytes(self, provider: str, *, inputs: bool = True) -> int | None:
        """Return the most bytes of activations that are held at once on one provider; weights are apart.

        What a kernel takes and gives back while it runs is not among them, nor is what an arena rounds up.

        Args:
            provider: Whose memory.
            inputs: Count the model's inputs as well: the caller holds them, or the device a copy.

        Returns:
            Bytes; None where the size of a tensor that is written is not known.
        """
        input_sizes = [tensor.nbytes for tensor in self._graph.inputs] if inputs else []
        needed = {tensor.name for tensor in self._graph.outputs}.union(*(step.reads for step in self._steps))
        if None in input_sizes or any(size is None and name in needed for name, size in self._sizes.items()):
            return None
        sizes = self._sizes_of_own if inputs else self._sizes
        return sum(filter(None, input_sizes)) + self._buffers.most_held(provider, sizes)


@dataclass
class _BufferPlan:
    """The buffer that each value lies in, by the name of the value that it was made for."""

    steps: Sequence[ExecutedStep]
    input_names: Iterable[str]
    output_names: set[str]
    buffer: dict[str, str] = field(default_factory=dict)
    allocated: dict[str, Value] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    free: dict[tuple[object, ...], list[str]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._count_uses()
        for position, step in enumerate(self.steps):
            for output in step.outputs:
                name = output.value.name
                root = (
                    None
                    if name in self.output_names
                    else self._shared_buffer(step, output.value, output.alias_of)
                )
                if root is None:
                    self.buffer[name], self.allocated[name], self.first[name] = name, output.value, position
                else:
                    self.buffer[name] = root
                    # Whoever uses the guest keeps the host's buffer (Reuse in allocation_planner.cc).
                    self.uses[root] += self.uses[name]
            for name in (*step.reads, *(output.value.name for output in step.outputs)):
                self._release(name, position)

    def _count_uses(self) -> None:
        """Count uses as ComputeReuseCount does: a value's making, its readers, and the caller's of a result."""
        self.buffer.update((name, name) for name in self.input_names)  # the caller's, never taken over
        self.uses.update(self.output_names)
        for step in self.steps:
            self.uses.update((*step.reads, *(output.value.name for output in step.outputs)))

    def _shared_buffer(self, step: ExecutedStep, value: Value, alias_of: str | None) -> str | None:
        """Return the buffer that an output can take; None where it needs one of its own."""
        if alias_of is not None:
            return self.buffer.get(alias_of)
        # Only where nothing else uses the buffer, views of it included: FindReusableInput asks for the use
        # count of the original buffer.
        for source in step.overwrites:
            root = self.buffer.get(source.name)
            if root in self.allocated and self.uses[root] == 1 and source.kind == value.kind:
                return root
        # The buffer that came free last stands first in the planner's list; scalars (rank 0) never take one
        # (FindReusableTensor).
        free = self.free.get(value.kind)
        return free.pop() if free and value.shape else None

    def _release(self, name: str, position: int) -> None:
        """One use less; a buffer without any may be taken over."""
        root = self.buffer.get(name)
        if root is None:
            return
        self.uses[root] -= 1
        self.last[root] = position
        if not self.uses[root] and root in self.allocated:
            self.free.setdefault(self.allocated[root].kind, []).append(root)

    def most_held(self, provider: str, sizes: Mapping[str, int | None]) -> int:
        """Return the most bytes held at once, of values with these sizes."""
        allocated_at: list[list[int]] = [[] for _ in self.steps]
        freed_at: list[list[int]] = [[] for _ in self.steps]
        for name, value in self.allocated.items():
            if value.provider == provider:
                size = sizes[name] or 0
                allocated_at[self.first[name]].append(size)
                if self.uses[name] == 0:  # results stay with the caller
                    freed_at[self.last[name]].append(size)
        held = peak = 0
        for allocations, frees in zip(allocated_at, freed_at, strict=True):
            held += sum(allocations)
            # A step's outputs are there before its inputs go: both count at once.
            peak = max(peak, held)
            held -= sum(frees)
        return peak
