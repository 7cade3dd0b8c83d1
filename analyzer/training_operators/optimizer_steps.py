"""Optimizer steps of one parameter, as the ``_single_tensor_...`` functions of torch/optim compute them.

Without the variants that the recipe of a step calls unusual (amsgrad, maximize, centered, lr_decay).
"""

from __future__ import annotations

from analyzer.graph import Node, Tensor
from analyzer.training_operators.definition import DefinitionBuilder


def _inputs(node: Node) -> list[Tensor]:
    return list(node.present_inputs)


def _decayed(b: DefinitionBuilder, gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient with the penalty on large weights."""
    decay = b.node.attributes.get("weight_decay", 0.0)
    if not decay:
        return gradient
    return b.op("Add", gradient, b.op("Mul", parameter, b.like(decay, parameter)))


def _mixed(b: DefinitionBuilder, state: Tensor, new: Tensor, keep: float, into: Tensor | None) -> Tensor:
    """``keep * state + (1 - keep) * new``."""
    weighted_state = b.op("Mul", state, b.like(keep, state))
    return b.op("Add", weighted_state, b.op("Mul", new, b.like(1 - keep, new)), into=into)


def sgd(b: DefinitionBuilder, node: Node) -> None:
    """Inputs: parameter, gradient, momentum (where there is one). Outputs: parameter, momentum."""
    parameter, gradient, *momenta = _inputs(node)
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


def adam(b: DefinitionBuilder, node: Node) -> None:
    """Inputs: parameter, gradient, both moments, step size, root of the second bias correction.

    Outputs: parameter, both moments.
    """
    parameter, gradient, first, second, step_size, root = _inputs(node)
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


def rmsprop(b: DefinitionBuilder, node: Node) -> None:
    """Inputs: parameter, gradient, mean square, momentum (if any). Outputs: all but the gradient."""
    parameter, gradient, square, *momenta = _inputs(node)
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    square = _mixed(b, square, b.op("Mul", gradient, gradient), options["alpha"], node.output(1))
    step = b.op("Div", gradient, b.op("Add", b.op("Sqrt", square), b.like(options["eps"], square)))
    if momenta:
        carried = b.op("Mul", momenta[0], b.like(options["momentum"], momenta[0]))
        step = b.op("Add", carried, step, into=node.output(2))
    b.op("Sub", parameter, b.op("Mul", step, b.like(options["lr"], step)), into=node.output(0))


def adagrad(b: DefinitionBuilder, node: Node) -> None:
    """Inputs: parameter, gradient, sum of squares. Outputs: parameter, sum of squares."""
    parameter, gradient, total = _inputs(node)
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    total = b.op("Add", total, b.op("Mul", gradient, gradient), into=node.output(1))
    # torch/optim/adagrad.py without lr_decay: the rate is the same at every step.
    scale = b.op("Add", b.op("Sqrt", total), b.like(options["eps"], total))
    step = b.op("Mul", b.op("Div", gradient, scale), b.like(options["lr"], gradient))
    b.op("Sub", parameter, step, into=node.output(0))


def adamax(b: DefinitionBuilder, node: Node) -> None:
    """Inputs as Adam's, the second moment an infinity norm. Outputs: parameter, both moments."""
    parameter, gradient, first, norm, step_size, _ = _inputs(node)
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    first = _mixed(b, first, gradient, options["beta1"], node.output(1))
    # torch/optim/adamax.py: eps is inside the maximum, so the norm is
    # never 0; it needs no correction of its own.
    size = b.op("Add", b.op("Abs", gradient), b.like(options["eps"], gradient))
    norm = b.op("Max", b.op("Mul", norm, b.like(options["beta2"], norm)), size, into=node.output(2))
    b.op("Sub", parameter, b.op("Mul", b.op("Div", first, norm), step_size), into=node.output(0))


def adadelta(b: DefinitionBuilder, node: Node) -> None:
    """Inputs: parameter, gradient, mean squares of gradients and of steps. Outputs: all but the gradient."""
    parameter, gradient, square, steps = _inputs(node)
    options = node.attributes
    gradient = _decayed(b, gradient, parameter)
    square = _mixed(b, square, b.op("Mul", gradient, gradient), options["rho"], node.output(1))
    eps = b.like(options["eps"], square)
    scale = b.op("Div", b.op("Sqrt", b.op("Add", steps, eps)), b.op("Sqrt", b.op("Add", square, eps)))
    # torch/optim/adadelta.py: by the steps so far, this one is averaged in afterwards.
    step = b.op("Mul", scale, gradient)
    _mixed(b, steps, b.op("Mul", step, step), options["rho"], node.output(2))
    b.op("Sub", parameter, b.op("Mul", step, b.like(options["lr"], step)), into=node.output(0))
