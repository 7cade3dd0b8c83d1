"""Blocked layouts: on the CPU ONNX Runtime keeps images in blocks of channels from convolution to convolution.

``ort/blocked_layout.py`` says which nodes work on blocks; here they are put in blocks, with a step that copies
a tensor into that layout, or back, wherever another kernel gives or reads the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analyzer.graph import Node
from analyzer.memory.session_steps import ExecutedStep, Output, Value
from analyzer.ort.blocked_layout import (
    BLOCK,
    CONVOLUTIONS,
    POOLS,
    inputs_in_blocks,
    to_channels_last,
)

REORDER = "Reorder"
"""The type of a step that copies a tensor from one layout to the other."""

_SUFFIX = "\0blocked"


def blocked(
    steps: Sequence[ExecutedStep], given: Iterable[Value], results: Iterable[str], block: int = BLOCK
) -> list[ExecutedStep]:
    """The same steps with blocked layouts, and the copies from one layout to the other.

    Args:
        steps: In the order of execution.
        given: The model's inputs.
        results: Names of its outputs.
        block: Channels of a block.
    """
    if not any(step.op_type in CONVOLUTIONS or step.op_type in POOLS for step in steps):
        return list(steps)
    layout = _Layout(steps, given, set(results), block)
    for step in steps:
        layout.take(step)
    return layout.finished()


class _Layout:
    def __init__(
        self, steps: Sequence[ExecutedStep], given: Iterable[Value], results: set[str], block: int
    ) -> None:
        self.values = {value.name: value for value in given}
        self.values |= {output.value.name: output.value for step in steps for output in step.outputs}
        self.shapes = {name: value.shape for name, value in self.values.items()}
        self.results = results
        self.block = block
        self.done: list[ExecutedStep] = []
        self.inside: set[str] = set()  # values there are in blocks
        self.copied: set[str] = set()  # values copied into blocks
        self.wanted: set[str] = set()  # values in blocks that are read as they were

    def take(self, step: ExecutedStep) -> None:
        """Keeps a step as it is or puts the blocked one in its place."""
        image = _is_image(step)
        read = inputs_in_blocks(step, self.shapes, self.inside, self.block) if image else None
        if read is not None:
            self._block(step, read)
        elif image and to_channels_last(step) and self.inside.issuperset(step.reads):
            self.done.append(replace(step, reads=tuple(name + _SUFFIX for name in step.reads)))
        else:
            self.wanted.update(name for name in step.reads if name in self.inside)
            self.done.append(step)

    def _block(self, step: ExecutedStep, data: Sequence[str]) -> None:
        """Puts the step that reads these inputs, and what it adds, in blocks."""
        added = step.added if step.op_type in CONVOLUTIONS else None
        names = set(data) | ({added.name} if added is not None else set())
        for name in (*data, *sorted(names.difference(data))):
            if name not in self.inside and name not in self.copied:
                self.copied.add(name)
                value = self.values[name]
                self.done.append(_copy(step.node, value, self._in_blocks(value), rank=(2, len(self.done))))
        outputs = tuple(Output(value=self._in_blocks(output.value)) for output in step.outputs)
        self.inside.update(output.value.name for output in step.outputs)
        over = tuple(self._in_blocks(value) for value in (added,) if value is not None)
        self.done.append(
            replace(
                step,
                reads=tuple(name + _SUFFIX if name in names else name for name in step.reads),
                outputs=outputs,
                overwrites=over or tuple(self._in_blocks(value) for value in step.overwrites),
                rank=(2, len(self.done)),
            )
        )

    def finished(self) -> list[ExecutedStep]:
        """All steps with the copies back out of blocks behind what they copy."""
        back = self.wanted | (self.inside & self.results)
        found: list[ExecutedStep] = []
        for step in self.done:
            found.append(step)
            for output in step.outputs:
                name = output.value.name.removesuffix(_SUFFIX)
                if name in back and name != output.value.name and name not in self.copied:
                    value = self.values[name]
                    found.append(_copy(step.node, output.value, value, rank=(3, len(found))))
        return found

    def _in_blocks(self, value: Value) -> Value:
        shape = value.shape
        if shape is not None and len(shape) >= 2:
            channels = None if shape[1] is None else -(-shape[1] // self.block) * self.block
            shape = (shape[0], channels, *shape[2:])
        return Value(name=value.name + _SUFFIX, shape=shape, bits=value.bits, provider=value.provider)


def _copy(node: Node, source: Value, target: Value, rank: tuple[int, int]) -> ExecutedStep:
    return ExecutedStep(
        op_type=REORDER, node=node, reads=(source.name,), outputs=(Output(value=target),), rank=rank
    )


def _is_image(step: ExecutedStep) -> bool:
    value = step.outputs[0].value
    return (
        len(step.outputs) == 1 and value.provider == "cpu" and value.bits == 32 and len(value.shape or ()) == 4
    )
