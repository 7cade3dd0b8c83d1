"""Blocked layouts: on the CPU ONNX Runtime keeps images in blocks of channels from convolution to convolution.

``ort/blocked_layout.py`` says which nodes work on blocks; here they are put in blocks, with a step that copies
a tensor into that layout, or back, wherever another kernel gives or reads the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from analyzer.graph import Node, Shape
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

_SUFFIX = "\0blocked"  # no name in a file holds a null character


def blocked(
    steps: Sequence[ExecutedStep], inputs: Iterable[Value], output_names: Iterable[str], block: int = BLOCK
) -> list[ExecutedStep]:
    """The same steps with blocked layouts, and the copies from one layout to the other.

    Args:
        steps: In the order of execution.
        inputs: The model's inputs.
        output_names: Names of its outputs.
        block: Channels of a block.
    """
    if not any(step.op_type in CONVOLUTIONS or step.op_type in POOLS for step in steps):
        return list(steps)
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
        """Keeps a step as it is or puts the blocked one in its place."""
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
        """Puts the step that reads these inputs, and what it adds, in blocks."""
        added = step.added if step.op_type in CONVOLUTIONS else None
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
        """All steps with the copies back out of blocks behind what they copy."""
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
    if shape is None or len(shape) < 2:
        return shape
    channels = None if shape[1] is None else -(-shape[1] // block) * block
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
