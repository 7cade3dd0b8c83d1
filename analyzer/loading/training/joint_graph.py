"""A model, its loss and example inputs -> one graph of forward and backward, with phases and origins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analyzer.errors import AnalyzerError, ModelError
from analyzer.loading.python.example_inputs import ExampleInputs
from analyzer.loading.python.model_weights import fake_like, without_data
from analyzer.loading.python.user_model import UserModel, in_mode
from analyzer.loading.torch_export.failures import explain_failure
from analyzer.loading.torch_export.tracing import quiet_exporter
from analyzer.loading.torch_private import Slot, fake_tensor_mode, tree_leaves, tree_map
from analyzer.loading.training import torch_interfaces
from analyzer.loading.training.recipe import (
    Recipe,
    Update,
    checked_loss,
    find_recipe,
    find_updates,
    needs_values,
    untraceable,
)
from analyzer.loading.training.translations import OWN

if TYPE_CHECKING:
    from torch import Tensor, fx
    from torch.export import ExportedProgram
    from torch.nn import Module

    from analyzer.loading.torch_private import Tree


_PREFIX = "model."  # the user's model inside the module of ``with_loss``


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOrigin:
    """The origin of a node of the graph.

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
        inputs: By placeholder name, what it is.
        outputs: What each output is, in order.
        places: By node name.
        updates: How each trained parameter is updated.
        trained: The trained parameters' names; tied ones once.
        names: Names of the step's own inputs, by position.
        notes: What was assumed.
    """

    module: fx.GraphModule
    inputs: Mapping[str, Slot]
    outputs: tuple[Slot, ...]
    places: Mapping[str, TracedOrigin]
    updates: Mapping[str, Update]
    trained: tuple[str, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]
    random: bool


def with_loss(model: Module, recipe: Recipe) -> Module:
    """Return a module that takes inputs and targets and gives the loss."""
    from torch import nn

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, arguments: Tree, keywords: Tree, targets: Tree) -> Tensor:
            loss: Tensor = recipe.loss(self.model(*arguments, **keywords), targets)
            return loss.reshape(())  # a joint graph wants a scalar, and losses of one element pass too

    return WithLoss()


def trace_step(user: UserModel, inputs: ExampleInputs, *, modules: bool = True) -> Joint:
    """Traces loss and gradients without any data.

    ``modules`` says whether to learn which module each operator is of, which takes a third longer.

    Raises:
        ModelError: Nothing can be trained, or an operator has no gradient.
        InputError: The inputs or the targets do not fit.
        ExportError: PyTorch cannot trace the step.
    """
    _check_parameters(user)
    mode = fake_tensor_mode()
    with (
        quiet_exporter(),
        torch_interfaces.plain_kernels(),
        without_data(user.model, mode),
        in_mode(user.model, training=True),
    ):
        arguments, keywords = tree_map(lambda leaf: fake_like(leaf, mode), inputs.tree)
        with mode, torch_interfaces.own_functions() as functions:
            # One call before the trace: the loss and its targets follow from the shapes of the outputs.
            try:
                outputs = user.model(*arguments, **keywords)
            except Exception as error:
                if needs_values(error):
                    raise untraceable(user.name, error) from error
                raise explain_failure(user, inputs, error) from error
            fake_inputs = ExampleInputs(
                arguments=arguments, keywords=keywords, batch=inputs.batch, batch_axes={}, origin=inputs.origin
            )
            recipe = find_recipe(user, fake_inputs, outputs)
            targets = tree_map(lambda leaf: fake_like(leaf, mode), recipe.targets)
            value = checked_loss(recipe, outputs, targets)
        if not value.requires_grad:
            raise ModelError(
                f"The loss of {user.name} has no gradient: an operator between it and the parameters has none.",
                hint="Numbers of places (argmax), rounding, detach() and no_grad() end a gradient.",
            )
        # An exported program knows the module of each operator, and the joint graph carries that on.
        program = _program(user, recipe, (arguments, keywords, targets)) if modules else None
        trained = [
            (name, parameter) for name, parameter in user.model.named_parameters() if parameter.requires_grad
        ]
        updates, assumed = find_updates(user, trained)
        try:
            # An exported program has what a function of the user's computes, not the gradient it defines.
            exported = None if functions else program
            traced = with_loss(user.model, recipe) if exported is None else exported.module(check_guards=False)
            module = torch_interfaces.joint_graph(traced, (arguments, keywords, targets), OWN)
        except AnalyzerError:
            raise
        except Exception as error:
            raise untraceable(f"The training step of {user.name}", error) from error
        names = _input_names(user, arguments, keywords, targets)
        notes = (*recipe.assumed, *assumed, *map(_WITHOUT_MODULES.format, functions[:1]))
        return _described(module, _first_names(user.model), updates, names, notes)


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


_WITHOUT_MODULES = "{} defines its own gradient: it is followed, and operators are not told by module."


def _program(user: UserModel, recipe: Recipe, call: tuple[Tree, ...]) -> ExportedProgram:
    import torch

    try:
        return torch.export.export(with_loss(user.model, recipe), call, strict=False)
    except Exception as error:
        raise untraceable(f"The training step of {user.name}", error) from error


def _input_names(user: UserModel, arguments: Tree, keywords: Tree, targets: Tree) -> tuple[str, ...]:
    import inspect

    parameters = list(inspect.signature(user.model.forward).parameters)
    count = len(tree_leaves(arguments))
    is_flat = count == len(arguments) <= len(parameters)
    argument_names = parameters[:count] if is_flat else [f"input_{i}" for i in range(count)]
    count = len(tree_leaves(keywords))
    keyword_names = list(keywords) if count == len(keywords) else [f"keyword_{i}" for i in range(count)]
    target_count = len(tree_leaves(targets))
    target_names = ["targets"] if target_count == 1 else [f"targets_{i}" for i in range(target_count)]
    return (*argument_names, *keyword_names, *target_names)


def _first_names(model: Module) -> dict[str, str]:
    """By each name of a parameter or buffer, the first name of the same tensor: tied ones have several."""
    names: dict[int, str] = {}
    named_tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    return {name: names.setdefault(id(tensor), name) for name, tensor in named_tensors}


def _described(
    module: fx.GraphModule, first_names: Mapping[str, str], updates: Mapping[str, Update],
    names: tuple[str, ...], notes: tuple[str, ...],
) -> Joint:  # fmt: skip
    graph = module.graph
    inputs, outputs = torch_interfaces.slots(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    by_name = {
        node.name: _user_slot(slot, first_names) for node, slot in zip(placeholders, inputs, strict=True)
    }
    tangents = [node for node in placeholders if by_name[node.name].kind in _TANGENTS]
    _start_of_backward(graph, [(node, _TANGENTS[by_name[node.name].kind]) for node in tangents])
    described = _outputs(graph, [_user_slot(slot, first_names) for slot in outputs], list(updates))
    _merge_tied(graph, by_name)
    _drop_aliases(graph)
    graph.eliminate_dead_code()
    return Joint(
        module=module,
        inputs={name: slot for name, slot in by_name.items() if slot.kind not in _TANGENTS},
        outputs=described,
        places=_places(graph),
        updates=updates,
        trained=tuple(slot.name for slot in described if slot.kind == "gradient"),
        names=names,
        notes=notes,
        random=any(_draws(node) for node in graph.nodes),
    )


def _merge_tied(graph: fx.Graph, by_name: dict[str, Slot]) -> None:
    """One input for a parameter that several modules hold."""
    seen: dict[str, fx.Node] = {}
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


def _summed(graph: fx.Graph, output: fx.Node, pairs: list[tuple[fx.Node, Slot]]) -> list[tuple[fx.Node, Slot]]:
    """One gradient for each parameter: the sum over all places that hold it."""
    import torch

    summed: list[tuple[fx.Node, Slot]] = []
    places: dict[str, int] = {}
    for node, slot in pairs:
        if slot.kind != "gradient" or slot.name not in places:
            if slot.kind == "gradient":
                places[slot.name] = len(summed)
            summed.append((node, slot))
            continue
        earlier, _ = summed[places[slot.name]]
        with graph.inserting_before(output):
            total = graph.call_function(torch.ops.aten.add.Tensor, (earlier, node))
        total.meta = {"val": earlier.meta["val"], "partitioner_tag": "is_backward"}
        summed[places[slot.name]] = (total, slot)
    return summed


def _draws(node: fx.Node) -> bool:
    return node.op == "call_function" and bool(
        re.search(r"dropout|bernoulli|rand|multinomial", str(node.target))
    )


def _user_slot(slot: Slot, first_names: Mapping[str, str]) -> Slot:
    name = slot.name.removeprefix(_PREFIX)
    return Slot(kind=slot.kind, name=first_names.get(name, name), position=slot.position)


# The gradient of the loss by itself is 1; by a parameter that the forward pass changes it is counted elsewhere.
_TANGENTS = {"tangent": 1.0, "no tangent": 0.0}


def _start_of_backward(graph: fx.Graph, tangents: list[tuple[fx.Node, float]]) -> None:
    """Constants in the place of the gradients that the backward pass starts from."""
    import torch

    for node, start in tangents:
        value = node.meta["val"]
        with graph.inserting_after(node):
            constant = graph.call_function(
                torch.ops.aten.full.default, (list(value.shape), start), {"dtype": value.dtype}
            )
        constant.meta = {"val": value, "partitioner_tag": "is_backward"}
        node.replace_all_uses_with(constant)
        graph.erase_node(node)
    # Constants were put where inputs stood; an input may not come after what is computed.
    first_call = next(node for node in graph.nodes if node.op == "call_function")
    for node in [node for node in graph.nodes if node.op == "placeholder"]:
        first_call.prepend(node)


def _outputs(graph: fx.Graph, slots: list[Slot], parameters: list[str]) -> tuple[Slot, ...]:
    """Keep the outputs that are there, and no parameter's unchanged value; gradients last, in its order.

    Of a tied parameter the tracer may give either gradient first.
    """
    output = next(node for node in graph.nodes if node.op == "output")
    pairs = [
        (node, slot)
        for node, slot in zip(output.args[0], slots, strict=True)
        if node is not None and slot.kind != "none"
    ]
    placed = {node: index for index, node in enumerate(graph.nodes)}
    order = {name: index for index, name in enumerate(parameters)}
    pairs.sort(
        key=lambda pair: (order[pair[1].name], placed[pair[0]]) if pair[1].kind == "gradient" else (-1, 0)
    )
    pairs = _summed(graph, output, pairs)
    output.args = (tuple(node for node, _ in pairs),)
    return tuple(slot for _, slot in pairs)


def _drop_aliases(graph: fx.Graph) -> None:
    import torch

    # Each is one tensor under another name; left in, each would be an Identity that is placed and timed.
    aten = torch.ops.aten
    aliases = {aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in aliases:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _places(graph: fx.Graph) -> dict[str, TracedOrigin]:
    """Return place of every node; a backward one without its own has that of the forward one it belongs to."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    places = {node.name: _place(node) for node in calls}
    # One number for an operator and its gradient: torch/fx/traceback.py preserves autograd's sequence numbers.
    forward = {
        node.meta["seq_nr"]: places[node.name]
        for node in calls
        if "seq_nr" in node.meta and places[node.name].phase == "forward" and places[node.name].module
    }
    for node in calls:
        origin, sequence = places[node.name], node.meta.get("seq_nr", -2)
        twin = forward.get(sequence) or forward.get(sequence + 1)  # one more where the forward one was in place
        if origin.phase == "backward" and not origin.module and twin is not None:
            places[node.name] = replace(
                origin, module=twin.module, kind=twin.kind, trace=origin.trace or twin.trace
            )
    return places


def _place(node: fx.Node) -> TracedOrigin:
    meta = node.meta
    backward = meta.get("partitioner_tag") == "is_backward"  # as torch/_functorch/partitioners.py asks
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    scopes = [(str(path), kind) for path, kind in stack.values() if str(path).startswith(_PREFIX.rstrip("."))]
    path, kind = scopes[-1] if scopes else ("", "")
    return TracedOrigin(
        phase="backward" if backward else "forward",
        module=path.removeprefix(_PREFIX.rstrip(".")).removeprefix("."),
        kind=getattr(kind, "__name__", str(kind).rpartition(".")[2]),
        trace=meta.get("stack_trace") or meta.get("fwd_stack_trace") or "",
    )
