"""Operators of an analysis by the tensors between them, and paired with those of another analysis."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

from analyzer.record.analysis import Analysis, GroupResult, OperatorResult, TensorInfo

Key = Callable[[OperatorResult], Hashable]


@dataclass(frozen=True, kw_only=True)
class Dataflow:
    """The writer and the readers of each tensor of an analysis, and the executed node of each operator."""

    analysis: Analysis

    @cached_property
    def makers(self) -> dict[str, OperatorResult]:
        """The operator that writes each tensor."""
        return {tensor.name: op for op in self.analysis.operators for tensor in op.outputs}

    @cached_property
    def readers(self) -> dict[str, tuple[OperatorResult, ...]]:
        """The operators that read each tensor, each once."""
        readers_by_tensor: dict[str, dict[int, OperatorResult]] = {}
        for op in self.analysis.operators:
            for tensor in op.inputs:
                readers_by_tensor.setdefault(tensor.name, {})[op.index] = op
        return {name: tuple(ops.values()) for name, ops in readers_by_tensor.items()}

    @cached_property
    def groups(self) -> dict[int, GroupResult]:
        """The executed group of each operator: in the CUDA session where there is one, else in the CPU's."""
        sessions = {group.session for group in self.analysis.groups}
        session = "cuda" if "cuda" in sessions else "cpu"
        return {
            index: group
            for group in self.analysis.groups
            if group.session == session
            for index in group.members
        }

    def maker(self, tensor: TensorInfo) -> OperatorResult | None:
        """Return the operator that writes a tensor."""
        return self.makers.get(tensor.name)

    def only_reader(self, operator: OperatorResult) -> OperatorResult | None:
        """Return the one operator that reads an operator's one output, None where there are several."""
        readers = [op for tensor in operator.outputs for op in self.readers.get(tensor.name, ())]
        return readers[0] if len(readers) == 1 else None

    def fused_as(self, operator: OperatorResult, *words: str) -> bool:
        """Return whether it is executed within a type that holds one of these words, or not at all."""
        group = self.groups.get(operator.index)
        # In no group: folded away, so that nothing is executed apart. Types vary (Gelu, BiasGelu, FastGelu):
        # a word of them is looked for.
        return group is None or any(word in group.op_type for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Operators of a base and a new analysis: pairs in the new one's order, the others each in its own."""

    pairs: tuple[tuple[OperatorResult, OperatorResult], ...]
    gone: tuple[OperatorResult, ...]
    new: tuple[OperatorResult, ...]


def match(base: Analysis, new: Analysis) -> Match:
    """Pair operators by ever weaker keys; what is left pairs with nothing.

    Module path and type always agree. Within them first the name and shapes decide, then the source line's
    text, then shapes, then the order. Where a model has no module paths (an ``.onnx`` file), the name has to
    agree, or else type and output shapes, in order.
    """
    left, right = list(base.operators), list(new.operators)
    pairs: list[tuple[OperatorResult, OperatorResult]] = []
    for key in _KEYS:
        pairs_by_key = _pair(left, right, key)
        taken_left = {old.index for old, _ in pairs_by_key}
        taken_right = {now.index for _, now in pairs_by_key}
        left = [op for op in left if op.index not in taken_left]
        right = [op for op in right if op.index not in taken_right]
        pairs.extend(pairs_by_key)
    pairs.sort(key=lambda pair: pair[1].index)
    return Match(pairs=tuple(pairs), gone=tuple(left), new=tuple(right))


def _pair(
    left: Iterable[OperatorResult], right: Iterable[OperatorResult], key: Key
) -> list[tuple[OperatorResult, OperatorResult]]:
    """Pair the k-th of each key on one side with the k-th on the other."""
    waiting: dict[Hashable, list[OperatorResult]] = {}
    for operator in left:
        if key(operator) is not None:
            waiting.setdefault(key(operator), []).append(operator)
    for queue in waiting.values():
        queue.reverse()  # popped from the end: first in, first out
    pairs = []
    for operator in right:
        queue = waiting.get(key(operator), [])
        if queue:
            pairs.append((queue.pop(), operator))
    return pairs


def _place(operator: OperatorResult) -> tuple[str, ...]:
    return (operator.phase or "", operator.module, operator.domain, operator.op_type)


def _shapes(operator: OperatorResult) -> tuple[Hashable, ...]:
    return tuple(tensor.shape for tensor in operator.outputs)


# Strongest first: a rename must not take the partner of an operator that kept its name.
_KEYS: tuple[Key, ...] = (
    lambda op: (*_place(op), op.name, _shapes(op)),
    # An exporter numbers names anew at each change (add_17, add_18): alongside a module path a name is no key.
    lambda op: None if op.module else (*_place(op), op.name),
    # The line's text, not its number: a comment above it moves every line below.
    lambda op: (
        (*_place(op), op.source.code, _shapes(op)) if op.module and op.source and op.source.code else None
    ),
    lambda op: (*_place(op), _shapes(op)),
    lambda op: _place(op) if op.module else None,
)
