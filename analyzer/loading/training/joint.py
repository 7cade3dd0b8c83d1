"""A model, its loss and example inputs -> one graph of forward and backward, with phases and origins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.errors import AnalyzerError, ExportError, ModelError
from analyzer.loading.export import explain_failure, quiet_exporter
from analyzer.loading.inputs import ExampleInputs, flatten
from analyzer.loading.origin import line_text, shown_path, source_line
from analyzer.loading.python_file import UserModel
from analyzer.loading.training import interfaces
from analyzer.loading.training.fake import fake_like, without_data
from analyzer.loading.training.interfaces import Slot
from analyzer.loading.training.recipe import Recipe, Update, checked_loss, find_recipe, find_updates
from analyzer.loading.training.translations import own_names

_PREFIX = "model."
_NO_DERIVATIVE = re.compile(r"derivative for '?(?:aten::)?(?P<op>\w+)'? is not implemented")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node of the graph comes from.

    Attributes:
        phase: ``forward`` or ``backward``.
        module: Dotted path in the user's model.
        kind: Class of that module.
        trace: Stack trace of the forward call.
    """

    phase: str
    module: str
    kind: str
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Forward and backward in one fx graph.

    Attributes:
        module: The graph module.
        inputs: By placeholder name, what it is.
        outputs: What each output is, in order.
        places: By node name.
        updates: How each trained parameter is updated.
        trained: The trained parameters' names; tied ones once.
        names: Names of the step's own inputs, by position.
        notes: What was assumed.
        random: Whether the step draws random numbers (dropout).
    """

    module: Any
    inputs: Mapping[str, Slot]
    outputs: tuple[Slot, ...]
    places: Mapping[str, Place]
    updates: Mapping[str, Update]
    trained: tuple[str, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]
    random: bool


def with_loss(model: Any, recipe: Recipe) -> Any:
    """A module that takes inputs and targets and gives the loss."""
    from torch import nn

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, arguments: Any, keywords: Any, targets: Any) -> Any:
            return recipe.loss(self.model(*arguments, **keywords), targets).reshape(())

    return WithLoss()


def trace_step(user: UserModel, inputs: ExampleInputs) -> Joint:
    """Traces loss and gradients without any data.

    Raises:
        ModelError: Nothing can be trained, or an operator has no gradient.
        InputError: The inputs or the targets do not fit.
        ExportError: PyTorch cannot trace the step.
    """
    from torch.utils import _pytree

    _check_parameters(user)
    was_training = user.model.training
    with (
        quiet_exporter(),
        interfaces.fake_tensors() as mode,
        interfaces.plain_kernels(),
        without_data(user.model, mode),
    ):
        arguments, keywords = _pytree.tree_map(
            lambda leaf: fake_like(leaf, mode), (inputs.arguments, dict(inputs.keywords))
        )
        user.model.train()
        try:
            return _traced(user, inputs, mode, arguments, keywords)
        finally:
            user.model.train(was_training)


def _check_parameters(user: UserModel) -> None:
    parameters = list(user.model.parameters())
    if not parameters:
        raise ModelError(
            f"{user.name} has no parameters: there is nothing to train.", hint="Leave --training out."
        )
    if not any(parameter.requires_grad for parameter in parameters):
        raise ModelError(
            f"No parameter of {user.name} requires a gradient: there is nothing to train.",
            hint="Leave --training out, or set requires_grad.",
        )


def _traced(user: UserModel, inputs: ExampleInputs, mode: Any, arguments: Any, keywords: Any) -> Joint:
    from torch.utils import _pytree

    with mode:
        try:
            outputs = user.model(*arguments, **keywords)
        except Exception as error:
            raise explain_failure(user, inputs, error) from error
        faked = ExampleInputs(
            arguments=arguments, keywords=keywords, batch=inputs.batch, batch_axes={}, origin=inputs.origin
        )
        recipe = find_recipe(user, faked, outputs)
        targets = _pytree.tree_map(lambda leaf: fake_like(leaf, mode), recipe.targets)
        value = checked_loss(recipe, outputs, targets)
    program = _program(user, recipe, (arguments, keywords, targets))
    if not value.requires_grad:
        with mode:
            raise _without_gradient(user, program, (arguments, keywords, targets))
    trained = [(name, item) for name, item in user.model.named_parameters() if item.requires_grad]
    updates, assumed = find_updates(user, trained)
    try:
        module = interfaces.joint_graph(program, (arguments, keywords, targets), own_names())
    except AnalyzerError:
        raise
    except Exception as error:
        raise _told(user, program, error) from error
    return _described(
        module,
        first=_first_names(user.model),
        updates=updates,
        names=_input_names(user, arguments, keywords, targets),
        notes=(*recipe.assumed, *assumed),
    )


def _program(user: UserModel, recipe: Recipe, call: tuple[Any, ...]) -> Any:
    import torch

    try:
        return torch.export.export(with_loss(user.model, recipe), call, strict=False)
    except Exception as error:
        raise _told(user, None, error) from error


def _told(user: UserModel, program: Any, error: Exception) -> AnalyzerError:
    """An error of the tracer: an operator without a gradient by its name and line, else as it is."""
    match = _NO_DERIVATIVE.search(str(error))
    if match is not None:
        where = _line_of(program, match["op"])
        return ModelError(
            f"{match['op']} has no gradient in PyTorch{where}: {user.name} cannot be trained through it.",
            hint="Use an operation that has one, or detach what needs none.",
        )
    said = str(error).strip().splitlines()
    return ExportError(
        f"PyTorch cannot trace the training step of {user.name}: {said[0] if said else type(error).__name__}",
        hint="Control flow that depends on tensor values cannot be traced; --training needs a graph.",
    )


def _without_gradient(user: UserModel, program: Any, call: tuple[Any, ...]) -> AnalyzerError:
    """The loss depends on no parameter through operators with gradients: the last that breaks the chain."""
    found = _break(program, call)
    what = f"{_short(found)} has no gradient{_line(found)}" if found is not None else "no parameter leads to it"
    return ModelError(
        f"The loss of {user.name} has no gradient: {what}.",
        hint="Every operator between a parameter and the loss needs a gradient.",
    )


def _break(program: Any, call: tuple[Any, ...]) -> Any:
    """The last operator that reads what has a gradient and gives what has none."""
    import torch
    from torch import fx
    from torch.utils import _pytree

    broken: list[Any] = []

    class Watch(fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            given = [self.env[source] for source in n.all_input_nodes if source in self.env]
            reads = any(isinstance(item, torch.Tensor) and item.requires_grad for item in given)
            gives = any(
                isinstance(item, torch.Tensor) and item.requires_grad for item in _pytree.tree_leaves(result)
            )
            if n.op == "call_function" and reads and not gives and isinstance(result, torch.Tensor):
                broken.append(n)
            return result

    try:
        Watch(program.module(check_guards=False), garbage_collect_values=False).run(*_pytree.tree_leaves(call))
    except Exception:  # only to name the operator; the error stands without it
        return broken[-1] if broken else None
    return broken[-1] if broken else None


def _short(node: Any) -> str:
    return str(getattr(node.target, "_opname", node.target))


def _line_of(program: Any, op: str) -> str:
    nodes = program.graph.nodes if program is not None else ()
    found = next((node for node in nodes if _short(node).strip("_") == op.strip("_")), None)
    return _line(found) if found is not None else ""


def _line(node: Any) -> str:
    place = source_line(node.meta.get("stack_trace") or "", "", {})
    return f" ({shown_path(place[0])}:{place[1]}: {line_text(*place)})" if place else ""


def _input_names(user: UserModel, arguments: Any, keywords: Any, targets: Any) -> tuple[str, ...]:
    import inspect

    from torch.utils import _pytree

    parameters = list(inspect.signature(user.model.forward).parameters)
    single = len(flatten(arguments, {})) == len(arguments)
    count = len(flatten(arguments, {}))
    first = parameters[:count] if single and len(parameters) >= count else [f"input_{i}" for i in range(count)]
    named = list(keywords) if len(flatten((), keywords)) == len(keywords) else []
    named = named or [f"keyword_{i}" for i in range(len(flatten((), keywords)))]
    wanted = len(_pytree.tree_leaves(targets))
    last = ["targets"] if wanted == 1 else [f"targets_{i}" for i in range(wanted)]
    return (*first, *named, *last)


def _first_names(model: Any) -> dict[str, str]:
    """By each name of a parameter or buffer, the first name of the same tensor: tied ones have several."""
    names: dict[int, str] = {}
    held = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: names.setdefault(id(tensor), name) for name, tensor in held}


def _described(
    module: Any,
    *,
    first: Mapping[str, str],
    updates: Mapping[str, Update],
    names: tuple[str, ...],
    notes: tuple[str, ...],
) -> Joint:
    graph = module.graph
    inputs, outputs = interfaces.slots(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    by_name = {node.name: _user_slot(slot, first) for node, slot in zip(placeholders, inputs, strict=True)}
    _start_of_backward(graph, [node for node in placeholders if by_name[node.name].kind == "tangent"])
    kept = _outputs(graph, [_user_slot(slot, first) for slot in outputs])
    _merge_tied(graph, by_name)
    _drop_aliases(graph)
    graph.eliminate_dead_code()
    return Joint(
        module=module,
        inputs={name: slot for name, slot in by_name.items() if slot.kind != "tangent"},
        outputs=kept,
        places={node.name: _place(node) for node in graph.nodes if node.op == "call_function"},
        updates=updates,
        trained=tuple(slot.name for slot in kept if slot.kind == "gradient"),
        names=names,
        notes=notes,
        random=any(_draws(node) for node in graph.nodes),
    )


def _merge_tied(graph: Any, by_name: dict[str, Slot]) -> None:
    """One input for a parameter that several modules hold."""
    seen: dict[str, Any] = {}
    for node in [node for node in graph.nodes if node.op == "placeholder"]:
        slot = by_name[node.name]
        if slot.kind != "state":
            continue
        if slot.name in seen:
            node.replace_all_uses_with(seen[slot.name])
            graph.erase_node(node)
            del by_name[node.name]
        else:
            seen[slot.name] = node


def _summed(graph: Any, output: Any, pairs: list[tuple[Any, Slot]]) -> list[tuple[Any, Slot]]:
    """One gradient for each parameter: the sum over all places that hold it."""
    import torch

    found: list[tuple[Any, Slot]] = []
    places: dict[str, int] = {}
    for node, slot in pairs:
        if slot.kind != "gradient" or slot.name not in places:
            if slot.kind == "gradient":
                places[slot.name] = len(found)
            found.append((node, slot))
            continue
        before, _ = found[places[slot.name]]
        with graph.inserting_before(output):
            both = graph.call_function(torch.ops.aten.add.Tensor, (before, node))
        both.meta = {"val": before.meta["val"], "partitioner_tag": "is_backward"}
        found[places[slot.name]] = (both, slot)
    return found


def _draws(node: Any) -> bool:
    return node.op == "call_function" and bool(
        re.search(r"dropout|bernoulli|rand|multinomial", str(node.target))
    )


def _user_slot(slot: Slot, first: Mapping[str, str]) -> Slot:
    name = slot.name.removeprefix(_PREFIX)
    return Slot(kind=slot.kind, name=first.get(name, name), position=slot.position)


def _start_of_backward(graph: Any, tangents: list[Any]) -> None:
    """The gradient of the loss by itself is 1."""
    import torch

    for node in tangents:
        value = node.meta["val"]
        with graph.inserting_after(node):
            one = graph.call_function(
                torch.ops.aten.full.default, (list(value.shape), 1.0), {"dtype": value.dtype}
            )
        one.meta = {"val": value, "partitioner_tag": "is_backward"}
        node.replace_all_uses_with(one)
        graph.erase_node(node)
    first = next(node for node in graph.nodes if node.op == "call_function")
    for node in [node for node in graph.nodes if node.op == "placeholder"]:
        first.prepend(node)


def _outputs(graph: Any, slots: list[Slot]) -> tuple[Slot, ...]:
    """Keeps the outputs that are there, and no parameter's unchanged value."""
    output = next(node for node in graph.nodes if node.op == "output")
    pairs = [
        (node, slot)
        for node, slot in zip(output.args[0], slots, strict=True)
        if node is not None and slot.kind != "none"
    ]
    pairs = _summed(graph, output, pairs)
    output.args = (tuple(node for node, _ in pairs),)
    return tuple(slot for _, slot in pairs)


def _drop_aliases(graph: Any) -> None:
    import torch

    aten = torch.ops.aten
    aliases = {aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in aliases:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _place(node: Any) -> Place:
    meta = node.meta
    backward = meta.get("partitioner_tag") == "is_backward"
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    scopes = [(str(path), kind) for path, kind in stack.values() if str(path).startswith(_PREFIX.rstrip("."))]
    path, kind = scopes[-1] if scopes else ("", "")
    return Place(
        phase="backward" if backward else "forward",
        module=path.removeprefix(_PREFIX.rstrip(".")).removeprefix("."),
        kind=getattr(kind, "__name__", str(kind).rpartition(".")[2]),
        trace=meta.get("stack_trace") or meta.get("fwd_stack_trace") or "",
    )
