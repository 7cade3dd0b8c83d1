"""The recipe of a training step: loss, targets and optimizer, from the user's file or assumed."""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, ExportError, InputError, ModelError
from analyzer.loading.python.example_inputs import ExampleInputs
from analyzer.loading.python.source_lines import at_line, first_line, source_line
from analyzer.loading.python.user_model import UserModel, call_offered, user_failure
from analyzer.loading.torch_private import tree_leaves
from analyzer.training_operators import IMPLEMENTATION

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from analyzer.loading.torch_private import Tree

# By name, since a subclass may want others. Losses of torch.nn whose targets are class numbers, and those whose
# targets look like the outputs.
_CLASSES = ("CrossEntropyLoss", "NLLLoss")
_LIKE_OUTPUTS = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A loss as a function of outputs and targets, and example targets.

    Attributes:
        loss: ``loss(outputs, targets)``, a scalar.
        targets: What it is called with, None where the loss needs none.
        assumed: Sentences for the report; empty where the file says everything.
    """

    loss: Callable[[Tree, Tree], Tensor]
    targets: Tree
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The update of one parameter.

    Attributes:
        op_type: Compact operator (``Sgd``, ``Adam``), or the class's own name for an optimizer not known.
        states: Names of the tensors, like the parameter, that it keeps from step to step.
    """

    op_type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    states: tuple[str, ...] = ()


def find_recipe(user: UserModel, inputs: ExampleInputs, outputs: Tree) -> Recipe:
    """Return the loss and its targets.

    Raises:
        InputError: A loss without targets that anything tells.
    """
    # The same targets each time: two records of one input must agree.
    targets = call_offered(user, "example_targets", inputs.batch, seed=2)
    declared = _file_loss(user)
    if declared is None:
        return _assumed(user, inputs, outputs, targets)
    loss, name, takes = declared
    if targets is None and takes > 1:
        targets, assumption = _targets_for(user, name, outputs, inputs)
        return Recipe(loss=loss, targets=targets, assumed=(assumption,))
    if takes < 2:
        return Recipe(loss=lambda result, _targets: loss(result), targets=None)
    return Recipe(loss=loss, targets=targets)


def _file_loss(user: UserModel) -> tuple[Callable[..., Tensor], str, int] | None:
    import torch

    loss = getattr(user.module, "loss", None)
    if isinstance(loss, (torch.Tensor, int, float, list, dict)):
        loss = None  # what a loop of the file left in it
    if callable(loss) and not isinstance(loss, torch.nn.Module) and not inspect.isclass(loss):
        parameters = [p for p in inspect.signature(loss).parameters.values() if p.default is p.empty]
        return loss, "loss", min(2, len(parameters))
    name = "criterion" if loss is None else "loss"
    criterion = loss if loss is not None else getattr(user.module, name, None)
    if criterion is None:
        return None
    if inspect.isclass(criterion) or (
        inspect.isfunction(criterion) and not inspect.signature(criterion).parameters
    ):
        criterion = criterion()
    if not callable(criterion):
        raise ModelError(
            f"The variable {name} is a {type(criterion).__name__}, not a loss.",
            hint="Give a module such as nn.CrossEntropyLoss(), or a function loss(outputs, targets).",
        )
    return criterion, type(criterion).__name__, 2


def first_tensor(outputs: Tree) -> Tensor:
    """Return tensor that a loss is for: ``logits`` where there are any, else the first of floating point."""
    import torch

    logits = getattr(outputs, "logits", None)
    if logits is None and isinstance(outputs, Mapping):
        logits = outputs.get("logits")
    if isinstance(logits, torch.Tensor):
        return logits
    leaves = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
    floats = [leaf for leaf in leaves if leaf.is_floating_point()]
    if not floats:
        raise ModelError(
            "The model gives no tensor of floating point that a loss could be taken of.",
            hint="Define loss(outputs, targets) in the file.",
        )
    return floats[0]


def _tokens(user: UserModel, inputs: ExampleInputs, output: Tensor) -> Tensor | None:
    """Return token numbers that a language model read; None where no table is as long as outputs are wide."""
    import torch

    leaves = inputs.leaves
    modules = user.model.modules()
    tables = {module.num_embeddings for module in modules if isinstance(module, torch.nn.Embedding)}
    # Scores as wide as a table of embeddings is long are scores of its tokens.
    if output.dim() != 3 or output.shape[-1] not in tables:
        return None
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in (torch.int64, torch.int32):
            continue
        if tuple(leaf.shape) == tuple(output.shape[:2]) and output.shape[1] > 1:
            return leaf
    return None


def _assumed(user: UserModel, inputs: ExampleInputs, outputs: Tree, targets: Tree) -> Recipe:
    from torch.nn import functional

    output = first_tensor(outputs)
    tokens = _tokens(user, inputs, output)
    advice = "define loss(outputs, targets) or criterion in the file for another"
    made: Tensor
    loss: Callable[[Tree, Tree], Tensor]
    if tokens is not None:
        name, loss, made = "next-token cross-entropy", _next_token_loss, tokens
    elif output.dim() == 2 and output.shape[1] > 1:
        name, loss, made = "cross-entropy", _of_first(functional.cross_entropy), _class_targets(output)
    else:
        name, loss, made = "the mean square error", _of_first(functional.mse_loss), _like(output)
    return Recipe(
        loss=loss,
        targets=made if targets is None else targets,
        assumed=(f"The loss is assumed to be {name}; {advice}.",),
    )


def _of_first(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tree, Tree], Tensor]:
    return lambda outputs, targets: loss(first_tensor(outputs), targets)


def _next_token_loss(outputs: Tree, tokens: Tensor) -> Tensor:
    from torch.nn import functional

    # A position is asked for the token after it: the last has none, the first is nobody's answer.
    logits = first_tensor(outputs)
    classes = logits.shape[-1]
    return functional.cross_entropy(logits[:, :-1].reshape(-1, classes), tokens[:, 1:].reshape(-1).long())


def _targets_for(user: UserModel, name: str, outputs: Tree, inputs: ExampleInputs) -> tuple[Tensor, str]:
    output = first_tensor(outputs)
    tokens = _tokens(user, inputs, output)
    if name in _CLASSES and output.dim() >= 2:
        what, targets = "be class numbers", _class_targets(output)
    elif name in _LIKE_OUTPUTS:
        what, targets = "look like the outputs", _like(output)
    elif tokens is not None:
        what, targets = "be the tokens themselves", tokens
    elif name == "loss" and output.dim() == 2:
        what, targets = "be class numbers", _class_targets(output)
    else:
        raise InputError(
            f"What {name} is to be called with as targets cannot be inferred: "
            f"the outputs are {list(output.shape)}.",
            hint="Define example_targets(batch) in the file.",
        )
    return targets, f"Targets are assumed to {what}; define example_targets(batch)."


def _class_targets(output: Tensor) -> Tensor:
    import torch

    # torch.nn.CrossEntropyLoss: classes stand on axis 1, targets have all the others.
    shape = (output.shape[0], *output.shape[2:])
    generator = None if output.is_meta else torch.Generator().manual_seed(3)
    return torch.randint(0, output.shape[1], shape, device=output.device, generator=generator)


def _like(output: Tensor) -> Tensor:
    import torch

    generator = None if output.is_meta else torch.Generator().manual_seed(3)
    # From 0 to 1: binary cross-entropy takes nothing else, and the others take that too.
    return torch.rand(tuple(output.shape), dtype=output.dtype, device=output.device, generator=generator)


# What the tracer raises where a shape or a branch hangs on values, which a trace does not have: classes of
# torch/_subclasses/fake_tensor.py and torch/fx/experimental/symbolic_shapes.py.
_NEEDS_VALUES = ("DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode")


def needs_values(error: BaseException) -> bool:
    """Return whether a shape or a branch depends on values."""
    return type(error).__name__ in _NEEDS_VALUES


def untraceable(what: str, error: BaseException) -> AnalyzerError:
    """Return the error for what the tracer refuses: by its operator, and by the user's line."""
    line = at_line(source_line("".join(traceback.format_tb(error.__traceback__)), "", {}))
    if needs_values(error):
        name = str(error).strip().removeprefix("aten.").partition(".")[0] or "an operator"
        return ExportError(
            f"{what} cannot be traced: {name} gives shapes or branches that depend on values{line}.",
            hint="--training needs a graph of fixed shapes: choose values with torch.where(mask, x, 0) or the "
            "loss's ignore_index, branch on no value, and feed padded batches.",
        )
    return ExportError(
        f"{what} cannot be traced: {first_line(error)}{line}",
        hint="--training needs a gradient of each operator, and no control flow that depends on values.",
    )


def checked_loss(recipe: Recipe, outputs: Tree, targets: Tree) -> Tensor:
    """Call the loss.

    Raises:
        InputError: It fails, or broadcasts what does not fit, or is no scalar; with both shapes.
    """
    shapes = f"outputs are {_shapes(outputs)}, targets {_shapes(targets)}"
    hint = "Define loss(outputs, targets) and example_targets(batch) that fit each other."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = recipe.loss(outputs, targets)
        except Exception as error:
            if needs_values(error):
                raise untraceable("The loss", error) from error
            failure = user_failure(error, f"The loss does not fit: {shapes}", InputError)
            failure.hint = hint
            raise failure from error
    # What torch/nn/functional.py warns of where a loss broadcasts: hardly what anyone wants to train with.
    if any("different to the input size" in str(warning.message) for warning in caught):
        raise InputError(f"The loss does not fit: {shapes}.", hint=hint)
    if not hasattr(value, "dim") or value.numel() != 1:
        raise InputError(f"The loss is {_shapes(value)}, not one number: {shapes}.", hint=hint)
    return value


def _shapes(tensors: Tree) -> str:
    shapes = [str(list(leaf.shape)) for leaf in tree_leaves(tensors) if hasattr(leaf, "shape")]
    return ", ".join(shapes) or "no tensor"


def find_updates(
    user: UserModel, named: Sequence[tuple[str, Tensor]]
) -> tuple[dict[str, Update], tuple[str, ...]]:
    """Return how each parameter is updated, and what was assumed.

    Raises:
        ModelError: The file's ``optimizer`` cannot be built.
    """
    offered, assumed = _offered_optimizer(user)
    built = _built(offered, [parameter for _, parameter in named])
    names = {id(parameter): name for name, parameter in named}
    updates = {
        names[id(parameter)]: _update(type(built).__name__, group)
        for group in built.param_groups
        for parameter in group["params"]
        if id(parameter) in names
    }
    unknown = sorted({update.op_type for update in updates.values()} - set(_KNOWN_OPS))
    if unknown:
        assumed = (
            *assumed,
            f"How {unknown[0]} updates is not known here: its cost and its state are not counted, and "
            "it is not run.",
        )
    return updates, assumed


def _offered_optimizer(user: UserModel) -> tuple[Any, tuple[str, ...]]:
    """Return the file's optimizer, else Adam, and what the report should say of it."""
    import torch

    offered = getattr(user.module, "optimizer", None)
    if offered is not None:
        return offered, ()
    advice = "define optimizer in the file for another"
    by_kind = {(type(item), repr(item.defaults)): item for item in user.optimizers}
    if len(by_kind) == 1:
        (item,) = by_kind.values()
        return item, (f"The optimizer is the {type(item).__name__} that the file builds; {advice}.",)
    # Two states a parameter, as most training holds: the memory of a step is not underrated.
    several = f" (the file builds {len(by_kind)})" if by_kind else ""
    return torch.optim.Adam, (f"The optimizer is assumed to be Adam{several}; {advice}.",)


def _built(offered: Any, parameters: list[Tensor]) -> Optimizer:
    import torch

    if isinstance(
        offered, torch.optim.Optimizer
    ):  # built for the file's own model: the same class and defaults
        parameters_taken = inspect.signature(type(offered).__init__).parameters
        options = {key: value for key, value in offered.defaults.items() if key in parameters_taken}
        return type(offered)(parameters, **options)
    arguments: dict[str, Any] = {}
    if isinstance(offered, (tuple, list)) and len(offered) == 2 and isinstance(offered[1], Mapping):
        offered, arguments = offered[0], dict(offered[1])
    if not callable(offered):
        raise ModelError(
            f"optimizer is a {type(offered).__name__}, not an optimizer.",
            hint="Give a class such as torch.optim.SGD, (class, {arguments}) or a function of the parameters.",
        )
    try:
        optimizer = partial(offered, **arguments)(parameters)
    except Exception as error:
        raise user_failure(error, "optimizer cannot be built") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ModelError(f"optimizer gives a {type(optimizer).__name__}, not a torch.optim.Optimizer.")
    return optimizer


# Classes of torch.optim that training_operators/optimizer_steps.py defines: the compact operator, its states.
_OPTIMIZERS = {
    "SGD": ("Sgd", ("momentum",)),
    "Adam": ("Adam", ("exp_avg", "exp_avg_sq")),
    "AdamW": ("AdamW", ("exp_avg", "exp_avg_sq")),
    "Adamax": ("Adamax", ("exp_avg", "exp_inf")),
    "Adadelta": ("Adadelta", ("square_avg", "acc_delta")),
    "RMSprop": ("Rmsprop", ("square_avg", "momentum")),
    "Adagrad": ("Adagrad", ("sum",)),
}
_KNOWN_OPS = frozenset(op_type for op_type, _ in _OPTIMIZERS.values())


def _update(name: str, group: Mapping[str, Any]) -> Update:
    """Return what torch.optim's class does with the options of one group."""
    # Options that change the formula, not a number in it: an operator of their own, which nobody defines.
    unusual = [key for key in ("amsgrad", "maximize", "centered", "lr_decay") if group.get(key)]
    if unusual or name not in _OPTIMIZERS:
        return Update(op_type="_".join([name, *unusual[:1]]))
    # torch/optim/adamw.py is Adam with this option set.
    op_type, states = _OPTIMIZERS["AdamW" if group.get("decoupled_weight_decay") else name]
    options: dict[str, Any] = {
        key: float(group[key]) for key in ("lr", "weight_decay", "eps", "momentum") if group.get(key)
    }
    options |= {key: float(group[key]) for key in ("dampening", "alpha", "rho") if key in group}
    options |= {"nesterov": int(group["nesterov"])} if "nesterov" in group else {}
    if "betas" in group:
        beta1, beta2 = group["betas"]
        options |= {"beta1": float(beta1), "beta2": float(beta2), "eps": float(group["eps"])}
    fused, foreach = group.get("fused"), group.get("foreach")
    # Another implementation than foreach, if CUDA runs one; as torch/optim/adam.py chooses it.
    if not foreach and (fused is not None or foreach is not None):
        options[IMPLEMENTATION] = "fused" if fused else "for-loop"
    used = tuple(state for state in states if state != "momentum" or group["momentum"])
    return Update(op_type=op_type, options=options, states=used)
