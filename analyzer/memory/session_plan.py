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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from analyzer.graph import Graph
from analyzer.memory.blocked_buffers import blocked
from analyzer.memory.session_steps import Executed, ExecutedStep, Value, steps_of
from analyzer.ort.blocked_layout import BLOCK


def planned_peak_bytes(
    graph: Graph,
    groups: Sequence[Executed],
    *,
    provider: str = "cpu",
    inputs: bool = True,
    block: int = BLOCK,
) -> int | None:
    """The most bytes of activations that a session holds at once on one provider; weights are apart.

    What a kernel takes and gives back while it runs is not among them, nor is what an arena rounds up.

    Args:
        graph: The exported graph.
        groups: What the session executes.
        provider: Whose memory.
        inputs: Count the model's inputs as well: the caller holds them, or the device a copy.
        block: Channels of a block in the CPU's blocked layout.

    Returns:
        Bytes; None where the size of a tensor that is written is not known.
    """
    steps = executed_steps(graph, groups, block)
    given = [tensor.nbytes for tensor in graph.inputs] if inputs else []
    results = {tensor.name for tensor in graph.outputs}
    needed = results.union(*(step.reads for step in steps))
    values = [output.value for step in steps for output in step.outputs]
    if None in given or any(value.size is None and value.name in needed for value in values):
        return None
    plan = _Plan(steps, {tensor.name for tensor in graph.inputs}, results)
    return sum(size or 0 for size in given) + plan.most_held(provider)


def executed_steps(graph: Graph, groups: Sequence[Executed], block: int = BLOCK) -> list[ExecutedStep]:
    """What a session executes, copies between layouts included, in its order.

    Fusions make their nodes in the order in which they find them, and so do layouts.

    Args:
        graph: The exported graph.
        groups: What the session executes.
        block: Channels of a block in the blocked layout.
    """
    found = ordered(steps_of(graph, groups))
    made = [replace(step, rank=(1, at)) if step.rank[0] else step for at, step in enumerate(found)]
    return ordered(with_layouts(graph, ordered(made), block))


def with_layouts(graph: Graph, steps: Sequence[ExecutedStep], block: int = BLOCK) -> list[ExecutedStep]:
    """Steps in any order in which they can be executed, with blocked layouts and the copies between layouts."""
    given = [
        Value(name=tensor.name, shape=tensor.shape, bits=tensor.dtype.bits, provider="cpu")
        for tensor in graph.inputs
    ]
    return blocked(steps, given, {tensor.name for tensor in graph.outputs}, block)


def ordered(steps: Sequence[ExecutedStep]) -> list[ExecutedStep]:
    """The steps in the order in which ONNX Runtime executes them."""
    writer = {output.value.name: at for at, step in enumerate(steps) for output in step.outputs}
    sources = [
        sorted({writer[name] for name in step.reads if name in writer}, key=lambda at: _rank(steps[at], step))
        for step in steps
    ]
    read = {at for found in sources for at in found}
    stack = [(at, False) for at in sorted(range(len(steps)), key=lambda at: steps[at].rank) if at not in read]
    seen: set[int] = set()
    order: list[ExecutedStep] = []
    while stack:
        at, done = stack.pop()
        if done:
            order.append(steps[at])
        elif at not in seen:
            seen.add(at)
            stack.append((at, True))
            stack += [(source, False) for source in sources[at] if source not in seen]
    return order


def _rank(source: ExecutedStep, reader: ExecutedStep) -> tuple[int, int]:
    """Before layouts, what a convolution adds is read by an operator of its own beside the convolution."""
    added = reader.added
    if added is None or reader.rank[0] > 1 or any(output.value.name == added.name for output in source.outputs):
        return source.rank
    return (0, reader.node.index)


@dataclass
class _Plan:
    """The buffer that each value lies in, by the name of the value that it was made for."""

    steps: Sequence[ExecutedStep]
    fed: Iterable[str]
    results: set[str]
    buffer: dict[str, str] = field(default_factory=dict)
    made: dict[str, Value] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    free: dict[tuple[object, ...], list[str]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._count()
        for at, step in enumerate(self.steps):
            for output in step.outputs:
                name = output.value.name
                root = None if name in self.results else self._found(step, output.value, output.shows)
                if root is None:
                    self.buffer[name], self.made[name], self.first[name] = name, output.value, at
                else:
                    self.buffer[name] = root
                    self.uses[root] += self.uses[name]
            for name in (*step.reads, *(output.value.name for output in step.outputs)):
                self._drop(name, at)

    def _count(self) -> None:
        """Uses of each value: its making, its readers, and the caller's of inputs and results."""
        for name in self.fed:
            self.buffer[name], self.uses[name] = name, 1
        for step in self.steps:
            for output in step.outputs:
                self.uses[output.value.name] = 1 + (output.value.name in self.results)
        for step in self.steps:
            for name in step.reads:
                if name in self.uses:
                    self.uses[name] += 1

    def _found(self, step: ExecutedStep, value: Value, shows: str | None) -> str | None:
        """The buffer that an output can take; None where it needs one of its own."""
        if shows is not None:
            return self.buffer.get(shows)
        for source in step.overwrites:
            root = self.buffer.get(source.name)
            if root in self.made and self.uses[root] == 1 and source.kind == value.kind:
                return root
        free = self.free.get(value.kind)
        return free.pop() if free and value.shape else None

    def _drop(self, name: str, at: int) -> None:
        """One use less; a buffer without any may be taken over."""
        root = self.buffer.get(name)
        if root is None:
            return
        self.uses[root] -= 1
        self.last[root] = at
        if not self.uses[root] and root in self.made:
            self.free.setdefault(self.made[root].kind, []).append(root)

    def most_held(self, provider: str) -> int:
        """The most bytes held at once."""
        given: list[list[int]] = [[] for _ in self.steps]
        taken: list[list[int]] = [[] for _ in self.steps]
        for name, value in self.made.items():
            if value.provider == provider:
                given[self.first[name]].append(value.size or 0)
                if self.uses[name] == 0:
                    taken[self.last[name]].append(value.size or 0)
        held = peak = 0
        for more, less in zip(given, taken, strict=True):
            held += sum(more)
            peak = max(peak, held)
            held -= sum(less)
        return peak
