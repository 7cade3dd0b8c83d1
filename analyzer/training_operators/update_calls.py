"""What PyTorch launches on a GPU to update parameters: the passes over memory, and in how many kernels.

PyTorch's optimizers have up to three implementations. ``foreach`` is what runs on CUDA where nothing else is
asked for: each of some ten functions (``torch._foreach_...``) goes over the tensors of all parameters in as few
kernels as hold them. ``fused`` is one such pass in all. ``for-loop`` is the same as foreach, for each parameter
by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from analyzer.graph import Node
from analyzer.training_operators.definition import DOMAIN

Implementation = Literal["foreach", "fused", "for-loop"]
# Attribute of an optimizer step that names another implementation than foreach.
IMPLEMENTATION = "implementation"
# aten/src/ATen/native/cuda/MultiTensorApply.cuh, built with CUDA 13 as PyTorch's own wheels since 2.11 are: the
# most that one launch holds, by the number of tensor lists that it goes over.
_TENSORS = (770, 448, 336, 252, 210)
_CHUNKS = 2240
_CHUNK_ELEMENTS = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over all elements.

    Attributes:
        lists: Tensor lists that the function is given, the one that it makes included.
        reads: Tensors of the parameter's size that are read.
        writes: Tensors of that size that are written.
    """

    lists: int
    reads: int
    writes: int

    def launches(self, sizes: Sequence[int]) -> int:
        """Kernels for parameters of these numbers of elements."""
        chunks = sum(-(-size // _CHUNK_ELEMENTS) for size in sizes)
        return max(-(-len(sizes) // _TENSORS[self.lists - 1]), -(-chunks // _CHUNKS))


# x *= number, x += number, x = sqrt(x)
_IN_PLACE = Pass(lists=1, reads=1, writes=1)
# y = sqrt(x)
_MADE = Pass(lists=2, reads=1, writes=1)
# x += number * y, x = lerp(x, y), x *= y
_JOINED = Pass(lists=2, reads=2, writes=1)
# z = x + number * y
_SUMMED = Pass(lists=3, reads=2, writes=1)
# x += number * y * y: the second reading of y is from the cache
_SQUARED = Pass(lists=3, reads=2, writes=1)
# x += number * y / z
_QUOTIENT = Pass(lists=3, reads=3, writes=1)


def _adam(node: Node) -> list[Pass]:
    decay = [_IN_PLACE] if node.op_type == "AdamW" else [_SUMMED]
    moments = [_JOINED, _IN_PLACE, _SQUARED]
    return [*_if_decayed(node, decay), *moments, _MADE, _IN_PLACE, _IN_PLACE, _QUOTIENT]


def _sgd(node: Node) -> list[Pass]:
    momentum = [_IN_PLACE, _JOINED] if node.attributes.get("momentum") else []
    nesterov = [_JOINED] if momentum and node.attributes.get("nesterov") else []
    return [*_if_decayed(node, [_SUMMED]), *momentum, *nesterov, _JOINED]


def _rmsprop(node: Node) -> list[Pass]:
    step = [_IN_PLACE, _QUOTIENT, _JOINED] if node.attributes.get("momentum") else [_QUOTIENT]
    return [*_if_decayed(node, [_SUMMED]), _IN_PLACE, _SQUARED, _MADE, _IN_PLACE, *step]


def _adagrad(node: Node) -> list[Pass]:
    decay = _if_decayed(node, [_SUMMED])
    # With a decay the gradients are a copy already, which is scaled in its place.
    return [*decay, _SQUARED, _MADE, _IN_PLACE, _IN_PLACE if decay else _MADE, _QUOTIENT]


def _adamax(node: Node) -> list[Pass]:
    decay = _if_decayed(node, [_SUMMED])
    size = [_IN_PLACE if decay else _MADE, _IN_PLACE]
    return [*decay, _JOINED, _IN_PLACE, *size, _JOINED, _QUOTIENT]


def _adadelta(node: Node) -> list[Pass]:
    roots = [_MADE, _IN_PLACE, _MADE, _IN_PLACE]
    means = [_IN_PLACE, _SQUARED]
    return [*_if_decayed(node, [_SUMMED]), *means, *roots, _JOINED, _JOINED, *means, _JOINED]


def _if_decayed(node: Node, passes: list[Pass]) -> list[Pass]:
    return passes if node.attributes.get("weight_decay") else []


# The ``_multi_tensor_...`` functions of torch/optim (2.13), the step counters left out: they are on the CPU.
_FOREACH = {
    "Adam": _adam, "AdamW": _adam, "Sgd": _sgd, "Rmsprop": _rmsprop, "Adagrad": _adagrad, "Adamax": _adamax,
    "Adadelta": _adadelta,
}  # fmt: skip


def is_update(node: Node) -> bool:
    """Whether this is an optimizer's step of one parameter, and its passes are known."""
    return node.domain == DOMAIN and node.op_type in _FOREACH


def implementation_of(node: Node) -> Implementation:
    """Which of PyTorch's implementations updates the parameter."""
    named: Implementation = node.attributes.get(IMPLEMENTATION, "foreach")
    return named


def passes_of(node: Node) -> tuple[Pass, ...]:
    """The passes of an optimizer's step over its parameter, in their order."""
    if implementation_of(node) == "fused":
        # The parameter and its states, which are written anew, and the gradient, which is not.
        written = len(list(node.present_outputs))
        return (Pass(lists=min(written + 1, len(_TENSORS)), reads=written + 1, writes=written),)
    return tuple(_FOREACH[node.op_type](node))
