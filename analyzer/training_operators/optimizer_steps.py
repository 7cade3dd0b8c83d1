"""Optimizer steps of one parameter, and the passes over memory in which PyTorch launches them on a GPU.

Steps are those of the ``_single_tensor_...`` functions of torch/optim, without the variants that the recipe of
a step calls unusual (amsgrad, maximize, centered, lr_decay).

PyTorch's optimizers have up to three implementations. ``foreach`` is what runs on CUDA where nothing else is
asked for: each of some ten functions (``torch._foreach_...``) goes over the tensors of all parameters in as few
kernels as hold them. ``fused`` is one such pass in all. ``for-loop`` is the same as foreach, for each parameter
by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from analyzer.graph import Node, Tensor
from analyzer.training_operators.definition import DOMAIN, Definition


def _decayed(b: Definition, gradient: Tensor, parameter: Tensor) -> Tensor:
    """Return the gradient with the penalty on large weights."""
    decay = b.node.attributes.get("weight_decay", 0.0)
    if not decay:
        return gradient
    return b.op("Add", gradient, b.op("Mul", parameter, b.like(decay, parameter)))


def _mixed(b: Definition, state: Tensor, new: Tensor, keep: float, into: Tensor | None) -> Tensor:
    """``keep * state + (1 - keep) * new``."""
    weighted_state = b.op("Mul", state, b.like(keep, state))
    return b.op("Add", weighted_state, b.op("Mul", new, b.like(1 - keep, new)), into=into)


def sgd(b: Definition, node: Node) -> None:
    """Inputs: parameter, gradient, momentum (where there is one). Outputs: parameter, momentum."""
    parameter, gradient, *momenta = node.present_inputs
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    if momenta:
        # As from the second step on: the first takes the gradient undamped, whatever the dampening.
        pushed = b.op("Mul", gradient, b.like(1 - options.get("dampening", 0.0), gradient))
        carried = b.op("Mul", momenta[0], b.like(options["momentum"], momenta[0]))
        momentum = b.op("Add", carried, pushed, into=node.output(1))
        gradient = (
            b.op("Add", gradient, b.op("Mul", momentum, b.like(options["momentum"], momentum)))
            if options.get("nesterov")
            else momentum
        )
    b.op("Sub", parameter, b.op("Mul", gradient, b.like(options["lr"], gradient)), into=node.output(0))


def adam(b: Definition, node: Node) -> None:
    """Inputs: parameter, gradient, both moments, step size, root of the second bias correction.

    Outputs: parameter, both moments.
    """
    parameter, gradient, first, second, step_size, root = node.present_inputs
    options = node.attributes
    # torch/optim/adam.py: Adam adds the decay to the gradient, AdamW takes it off the parameter beforehand.
    if node.op_type == "Adam":
        gradient = _decayed(b, gradient, parameter)
    elif options.get("weight_decay"):
        parameter = b.op("Mul", parameter, b.like(1 - options["lr"] * options["weight_decay"], parameter))
    first = _mixed(b, first, gradient, options["beta1"], node.output(1))
    second = _mixed(b, second, b.op("Mul", gradient, gradient), options["beta2"], node.output(2))
    # The root is corrected before eps is added, as torch/optim/adam.py
    # does; the paper's short form does it after.
    scale = b.op("Add", b.op("Div", b.op("Sqrt", second), root), b.like(options["eps"], second))
    b.op("Sub", parameter, b.op("Mul", b.op("Div", first, scale), step_size), into=node.output(0))


def rmsprop(b: Definition, node: Node) -> None:
    """Inputs: parameter, gradient, mean square, momentum (if any). Outputs: all but the gradient."""
    parameter, gradient, square, *momenta = node.present_inputs
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    square = _mixed(b, square, b.op("Mul", gradient, gradient), options["alpha"], node.output(1))
    step = b.op("Div", gradient, b.op("Add", b.op("Sqrt", square), b.like(options["eps"], square)))
    if momenta:
        carried = b.op("Mul", momenta[0], b.like(options["momentum"], momenta[0]))
        step = b.op("Add", carried, step, into=node.output(2))
    b.op("Sub", parameter, b.op("Mul", step, b.like(options["lr"], step)), into=node.output(0))


def adagrad(b: Definition, node: Node) -> None:
    """Inputs: parameter, gradient, sum of squares. Outputs: parameter, sum of squares."""
    parameter, gradient, total = node.present_inputs
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    total = b.op("Add", total, b.op("Mul", gradient, gradient), into=node.output(1))
    # torch/optim/adagrad.py without lr_decay: the rate is the same at every step.
    scale = b.op("Add", b.op("Sqrt", total), b.like(options["eps"], total))
    step = b.op("Mul", b.op("Div", gradient, scale), b.like(options["lr"], gradient))
    b.op("Sub", parameter, step, into=node.output(0))


def adamax(b: Definition, node: Node) -> None:
    """Inputs as Adam's, the second moment an infinity norm. Outputs: parameter, both moments."""
    parameter, gradient, first, norm, step_size, _ = node.present_inputs
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    first = _mixed(b, first, gradient, options["beta1"], node.output(1))
    # torch/optim/adamax.py: eps is inside the maximum, so the norm is
    # never 0; it needs no correction of its own.
    size = b.op("Add", b.op("Abs", gradient), b.like(options["eps"], gradient))
    norm = b.op("Max", b.op("Mul", norm, b.like(options["beta2"], norm)), size, into=node.output(2))
    b.op("Sub", parameter, b.op("Mul", b.op("Div", first, norm), step_size), into=node.output(0))


def adadelta(b: Definition, node: Node) -> None:
    """Inputs: parameter, gradient, mean squares of gradients and of steps. Outputs: all but the gradient."""
    parameter, gradient, square, steps = node.present_inputs
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    square = _mixed(b, square, b.op("Mul", gradient, gradient), options["rho"], node.output(1))
    eps = b.like(options["eps"], square)
    scale = b.op("Div", b.op("Sqrt", b.op("Add", steps, eps)), b.op("Sqrt", b.op("Add", square, eps)))
    # torch/optim/adadelta.py: by the steps so far, this one is averaged in afterwards.
    step = b.op("Mul", scale, gradient)
    _mixed(b, steps, b.op("Mul", step, step), options["rho"], node.output(2))
    b.op("Sub", parameter, b.op("Mul", step, b.like(options["lr"], step)), into=node.output(0))


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
    """Return whether this is an optimizer's step of one parameter, and its passes are known."""
    return node.domain == DOMAIN and node.op_type in _FOREACH


def implementation_of(node: Node) -> Implementation:
    """Return which of PyTorch's implementations updates the parameter."""
    named: Implementation = node.attributes.get(IMPLEMENTATION, "foreach")
    return named


def passes_of(node: Node) -> tuple[Pass, ...]:
    """Return the passes of an optimizer's step over its parameter, in their order."""
    if implementation_of(node) == "fused":
        # The parameter and its states, which are written anew, and the gradient, which is not.
        written = len(list(node.present_outputs))
        return (Pass(lists=min(written + 1, len(_TENSORS)), reads=written + 1, writes=written),)
    return tuple(_FOREACH[node.op_type](node))
