"""Executed nodes that work in ONNX Runtime's blocked layout (NCHWc) on the CPU.

Convolutions and poolings have kernels that keep an image in blocks of channels; what lies between them carries
the blocks on, and a node that copies the tensor stands wherever the layout changes.

Mirrors ``onnxruntime/core/optimizer/nchwc_transformer.cc``; its ``Transform...`` function stands at each rule.
Where the source that was at hand is older than 1.31.1 (alignment to 4 channels, Gelu, a Mul by one number a
channel, Resize with sizes, global poolings alone), the rule is what 1.31.1 writes as its optimised model, which
the tests ask for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from analyzer.graph import Node, Shape, Tensor

# MlasNchwcGetBlockSize (core/mlas/lib/snchwc.cpp): 16 channels with AVX-512, 8 with AVX2. Whoever plans does
# not know the processor: AVX-512 is assumed.
BLOCK = 16
_ALIGNED = 4  # channels that a blocked kernel reads come in so many

CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
SUMS = frozenset({"Add", "Sum"})

# TransformActivation: they work on blocks as on any other array. A HardSwish is a HardSigmoid and a Mul there,
# a QuickGelu (x * sigmoid(x)) one kernel. LeakyRelu, Clip and Elu are not among them.
ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "QuickGelu"})

CONVOLUTION_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
"""What any convolution takes up (``core/optimizer/conv_activation_fusion.cc``), in blocks or not."""

BLOCKED_CONVOLUTION_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish")
"""What a convolution in blocks takes up besides, also behind a sum (``TransformActivation``)."""

# coordinate_transformation_mode of a linear Resize (``TransformResize``).
_LINEAR = frozenset({"half_pixel", "asymmetric", "align_corners"})


class LayoutKernel(Protocol):
    """A node that a CPU session executes, before layouts."""

    @property
    def op_type(self) -> str:
        """Its type."""

    @property
    def node(self) -> Node:
        """The operator that it mainly stands for: its attributes and constants."""

    @property
    def reads(self) -> Sequence[str]:
        """Names of the tensors that it reads, constants apart."""


def inputs_in_blocks(
    kernel: LayoutKernel, shapes: Mapping[str, Shape], inside: frozenset[str] | set[str], block: int = BLOCK
) -> tuple[str, ...] | None:
    """Return the inputs that an executed node reads in blocks; None where it works on none.

    ``kernel`` gives one float32 image, on the CPU; ``inside`` are the tensors that kernels before it have
    written in blocks, of ``block`` channels.
    """
    if kernel.op_type in CONVOLUTIONS:
        if not convolves_in_blocks(kernel.node, block):
            return None
        return () if _reads_plain(kernel.node, block) else tuple(kernel.reads[:1])
    if kernel.op_type in POOLS:
        return tuple(kernel.reads[:1]) if _aligned(shapes, kernel.reads) else None
    # What lies between works on blocks only where all that it reads lies in blocks already: no copy is made for
    # it.
    rule = _CARRIES.get(kernel.op_type)
    if rule is None or not kernel.reads or not inside.issuperset(kernel.reads):
        return None
    return tuple(kernel.reads) if rule(kernel, shapes, block) else None


def convolves_in_blocks(node: Node, block: int = BLOCK) -> bool:
    """Return whether there is a blocked kernel for a convolution (``TransformConv``)."""
    weight, bias = node.input(1), node.input(2)
    shape = weight.shape if weight is not None and weight.constant else None
    if shape is None or len(shape) != 4 or None in shape or (bias is not None and not bias.constant):
        return False
    out, each = shape[0] or 0, shape[1] or 0
    group = node.attributes.get("group", 1)
    # Depthwise kernels read whole blocks, as many channels as they write; grouped ones whole blocks in each
    # group.
    if group == 1:
        return each < block or each % _ALIGNED == 0
    if each == 1 and out == group:
        return out % block == 0
    return each % block == 0 and out % group == 0 and (out // group) % block == 0


def to_channels_last(kernel: LayoutKernel) -> bool:
    """Return whether the copy out of blocks already does an image's Transpose (``TransformTranspose``)."""
    return kernel.op_type == "Transpose" and tuple(kernel.node.attributes.get("perm", ())) == (0, 2, 3, 1)


def _reads_plain(node: Node, block: int) -> bool:
    """Return whether a convolution reads its few channels as they are."""
    weight = node.input(1)
    few = weight is not None and weight.shape is not None and (weight.shape[1] or 0) < block
    return few and node.attributes.get("group", 1) == 1


def _aligned(shapes: Mapping[str, Shape], reads: Sequence[str]) -> bool:
    channels = _channels(shapes.get(reads[0])) if reads else 0
    return channels > 0 and channels % _ALIGNED == 0


def _channels(shape: Shape) -> int:
    return (shape[1] or 0) if shape is not None and len(shape) == 4 else 0


def _sum(kernel: LayoutKernel, shapes: Mapping[str, Shape], _block: int) -> bool:
    """TransformBinary: of as many channels each; where sizes differ, Reshapes stand around it."""
    alike = len({_channels(shapes.get(name)) for name in kernel.reads}) == 1
    return alike and not any(map(_is_constant, kernel.node.present_inputs))


def _product(kernel: LayoutKernel, shapes: Mapping[str, Shape], _block: int) -> bool:
    """Of one shape; or by a constant for each channel, which is a convolution of depth 1."""
    constants = [tensor for tensor in kernel.node.present_inputs if _is_constant(tensor)]
    if not constants:
        return len({shapes.get(name) for name in kernel.reads}) == 1
    wanted = (_channels(shapes.get(kernel.reads[0])), 1, 1)
    return len(constants) == 1 and constants[0].shape in (wanted, (1, *wanted))


def _concatenation(kernel: LayoutKernel, shapes: Mapping[str, Shape], block: int) -> bool:
    """TransformConcat: whole blocks along the channels, which must be called axis 1."""
    whole = all(_channels(shapes.get(name)) % block == 0 for name in kernel.reads)
    variable = not any(map(_is_constant, kernel.node.present_inputs))
    return whole and variable and kernel.node.attributes.get("axis") == 1


def _normalization(kernel: LayoutKernel, _shapes: Mapping[str, Shape], _block: int) -> bool:
    """TransformBatchNormalization: it becomes a convolution of depth 1."""
    return all(map(_is_constant, kernel.node.inputs[1:5])) and len(list(kernel.node.present_outputs)) == 1


def _resize(kernel: LayoutKernel, shapes: Mapping[str, Shape], _block: int) -> bool:
    """TransformResize: whole factors, and a rule for coordinates that its kernel knows."""
    # ``TransformResize``: a factor is a whole number, batch and channels keep their size.
    attributes, after = kernel.node.attributes, kernel.node.output(0)
    coordinates = attributes.get("coordinate_transformation_mode", "half_pixel")
    if attributes.get("mode", "nearest") == "nearest":
        floor = attributes.get("nearest_mode", "round_prefer_floor") == "floor"
        known = kernel.op_type == "Upsample" or (coordinates == "asymmetric" and floor)
    else:
        known = attributes.get("mode") == "linear" and coordinates in _LINEAR
    before = shapes.get(kernel.reads[0])
    if not known or before is None or after is None or after.shape is None or None in (*before, *after.shape):
        return False
    sizes = zip(after.shape, before, strict=True)
    return all(size and old and size % old == 0 for size, old in sizes) and after.shape[:2] == before[:2]


def _is_constant(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.constant


_CARRIES: dict[str, Callable[[LayoutKernel, Mapping[str, Shape], int], bool]] = {
    **dict.fromkeys(ACTIVATIONS, lambda *_: True),
    **dict.fromkeys(SUMS, _sum),
    "Mul": _product,
    "Concat": _concatenation,
    "BatchNormalization": _normalization,
    "Resize": _resize,
    "Upsample": _resize,
}
CARRIERS = frozenset(_CARRIES)
"""What works on blocks where all that it reads lies in blocks already."""
