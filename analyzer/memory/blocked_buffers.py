"""Blocked layouts: on the CPU ONNX Runtime keeps images in blocks of channels from convolution to convolution.

Its ``nchwc_transformer`` gives convolutions, poolings and what lies between them kernels for that layout, and
puts a node that copies a tensor into it, or back, wherever another kernel gives or reads the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analyzer.graph import Node
from analyzer.memory.session_steps import Output, Step, Value

BLOCK = 16
"""Channels of a block with AVX-512; without, 8."""

_ALIGNED = 4  # channels that a blocked kernel reads come in so many
_POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
_CONVS = frozenset({"Conv", "FusedConv"})
_FOLLOWS = frozenset(
    {
        "Relu",
        "Sigmoid",
        "Tanh",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Clip",
        "BatchNormalization",
        "Resize",
        "Upsample",
    }
)
_ARITHMETIC = frozenset({"Add", "Sum", "Mul"})
_SUFFIX = "\0blocked"


def blocked(steps: Sequence[Step], results: Iterable[str]) -> list[Step]:
    """The same steps with blocked layouts, and the copies from one layout to the other."""
    if not any(_convolves(step) for step in steps):
        return list(steps)
    layout = _Layout(steps, set(results))
    for step in steps:
        layout.take(step)
    return layout.finished()


class _Layout:
    def __init__(self, steps: Sequence[Step], results: set[str]) -> None:
        self.values = {output.value.name: output.value for step in steps for output in step.outputs}
        self.results = results
        self.done: list[Step] = []
        self.inside: set[str] = set()  # values there are in blocks
        self.copied: set[str] = set()  # values copied into blocks
        self.wanted: set[str] = set()  # values in blocks that are read as they were

    def take(self, step: Step) -> None:
        """Keeps a step as it is or puts the blocked one in its place."""
        data = step.reads[0] if step.reads else ""
        if _convolves(step) and (_reads_plain(step) or self._known(data)):
            self._block(step, () if _reads_plain(step) else (data,))
        elif step.op_type in _POOLS and _is_image(step) and self._known(data):
            self._block(step, (data,))
        elif self._goes_along(step):
            self._block(step, step.reads)
        else:
            self.wanted.update(name for name in step.reads if name in self.inside)
            self.done.append(step)

    def _known(self, name: str) -> bool:
        return name in self.values and _channels(self.values[name]) % _ALIGNED == 0

    def _goes_along(self, step: Step) -> bool:
        """Whether a step between convolutions works on blocks because all that it reads lies in them."""
        if not step.reads or not _is_image(step) or not self.inside.issuperset(step.reads):
            return False
        if step.op_type == "Concat":
            whole = all(_channels(self.values[name]) % BLOCK == 0 for name in step.reads)
            return whole and step.node.attributes.get("axis") == 1
        if step.op_type in _ARITHMETIC:
            return len({self.values[name].shape for name in step.reads}) == 1
        return step.op_type in _FOLLOWS

    def _block(self, step: Step, data: Sequence[str]) -> None:
        """Puts the step that reads these inputs, and what it adds, in blocks."""
        added = step.added if _convolves(step) else None
        names = set(data) | ({added.name} if added is not None else set())
        for name in names - self.inside - self.copied:
            self.copied.add(name)
            value = self.values[name]
            self.done.append(_copy(step.node, value, _in_blocks(value), rank=(2, len(self.done))))
        outputs = tuple(Output(value=_in_blocks(output.value)) for output in step.outputs)
        self.inside.update(output.value.name for output in step.outputs)
        over = tuple(_in_blocks(value) for value in (added,) if value is not None)
        self.done.append(
            replace(
                step,
                reads=tuple(name + _SUFFIX if name in names else name for name in step.reads),
                outputs=outputs,
                overwrites=over or tuple(_in_blocks(value) for value in step.overwrites),
                rank=(2, len(self.done)),
            )
        )

    def finished(self) -> list[Step]:
        """All steps with the copies back out of blocks behind what they copy."""
        back = self.wanted | (self.inside & self.results)
        found: list[Step] = []
        for step in self.done:
            found.append(step)
            for output in step.outputs:
                name = output.value.name.removesuffix(_SUFFIX)
                if name in back and name != output.value.name and name not in self.copied:
                    value = self.values[name]
                    found.append(_copy(step.node, output.value, value, rank=(3, len(found))))
        return found


def _copy(node: Node, source: Value, target: Value, rank: tuple[int, int]) -> Step:
    return Step(op_type="Reorder", node=node, reads=(source.name,), outputs=(Output(value=target),), rank=rank)


def _in_blocks(value: Value) -> Value:
    shape = value.shape or ()
    channels = -(-_channels(value) // BLOCK) * BLOCK
    return replace(value, name=value.name + _SUFFIX, shape=(*shape[:1], channels, *shape[2:]))


def _channels(value: Value) -> int:
    return (value.shape[1] or 0) if value.shape is not None and len(value.shape) > 1 else 0


def _is_image(step: Step) -> bool:
    value = step.outputs[0].value
    return (
        len(step.outputs) == 1 and value.provider == "cpu" and value.bits == 32 and len(value.shape or ()) == 4
    )


def _convolves(step: Step) -> bool:
    """Whether there is a blocked kernel for a convolution."""
    if step.op_type not in _CONVS or not _is_image(step):
        return False
    weight = step.node.input(1)
    if weight is None or not weight.constant or weight.shape is None or None in weight.shape:
        return False
    out, each = weight.shape[0] or 0, weight.shape[1] or 0
    group = step.node.attributes.get("group", 1)
    if group == 1:
        return each < BLOCK or each % _ALIGNED == 0
    if each == 1 and out == group:
        return out % BLOCK == 0
    return each % BLOCK == 0 and out % group == 0 and (out // group) % BLOCK == 0


def _reads_plain(step: Step) -> bool:
    """Whether a convolution reads its few channels as they are."""
    weight = step.node.input(1)
    few = weight is not None and weight.shape is not None and (weight.shape[1] or 0) < BLOCK
    return few and step.node.attributes.get("group", 1) == 1
