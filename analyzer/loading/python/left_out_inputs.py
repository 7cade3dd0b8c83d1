"""Inputs of a user's model that nobody gives, so that ``forward`` takes another way than with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from analyzer.loading.dependencies import is_library
from analyzer.loading.python.example_inputs import ExampleInputs, forward_parameters
from analyzer.loading.python.forward_reads import definition_of
from analyzer.loading.python.user_model import UserModel
from analyzer.record.analysis import LEFT_OUT
from analyzer.text import listed

if TYPE_CHECKING:
    import inspect

    from torch.nn import Module

# Annotations, as written or evaluated, of what is fed: none at all, or a tensor among others.
_TENSOR = "Tensor"
_TUPLE = re.compile(r"\b[Tt]uple\[([^\[\]]*)\]")


def left_out(user: UserModel, inputs: ExampleInputs) -> tuple[str, ...]:
    """A note on the arguments of the user's own ``forward`` that stay None and could be tensors.

    A library's models have a dozen of them, most of which are of no use together.
    """
    code = getattr(user.model.forward, "__code__", None)
    if code is None or is_library(code.co_filename):
        return ()
    items = [
        item
        for item in forward_parameters(user)[len(inputs.arguments) :]
        if item.default is None
        and item.name not in inputs.keywords
        and (item.annotation is item.empty or _TENSOR in str(item.annotation))
    ]
    if not items:
        return ()
    names = [item.name for item in items]
    given = " ".join(
        f"--input {name}=..." for name in chain.from_iterable(_tensors_of(user.model, item) for item in items)
    )
    verb, it = ("was", "gives it") if len(names) == 1 else ("were", "gives them")
    return (f"{listed(names)} {verb} {LEFT_OUT}; {given} {it}.",)


def _tensors_of(model: Module, item: inspect.Parameter) -> Iterable[str]:
    """The names by which ``--input`` gives an argument: those of its parts where it is a tuple of tensors."""
    annotated = _TUPLE.search(str(item.annotation))
    parts = annotated[1].split(",") if annotated else []
    count = len(parts) if parts and all(_TENSOR in part for part in parts) else _parts_read(model, item.name)
    return (f"{item.name}.{position}" for position in range(count)) if count else (item.name,)


def _parts_read(model: Module, name: str) -> int:
    """How many parts ``forward`` takes an argument for, as its source shows; 0 where it does not show any."""
    definition = definition_of(model.forward)
    if definition is None:
        return 0
    own, nodes = definition.args.args[0].arg if definition.args.args else "", ast.walk(definition)
    read = [node for node in nodes if isinstance(node, (ast.Assign, ast.Call))]
    # In the order of execution: what is called in an assignment ends no later than that.
    for node in sorted(
        read, key=lambda node: (node.end_lineno, node.end_col_offset, isinstance(node, ast.Assign))
    ):
        if isinstance(node, ast.Call):
            if _is_state_of_lstm(model, own, node, name):
                return 2
        elif _is(node.value, name) and isinstance(target := node.targets[0], (ast.Tuple, ast.List)):
            return 0 if any(isinstance(part, ast.Starred) for part in target.elts) else len(target.elts)
        elif {name} & _names(*node.targets) and {name} & _names(node.value):
            return 0  # another value from here on
    return 0


def _is_state_of_lstm(model: Module, own: str, call: ast.Call, name: str) -> bool:
    """Whether this calls an LSTM of the model with that argument as its pair of states."""
    from torch import nn

    state = call.args[1:2] or [item.value for item in call.keywords if item.arg == "hx"]
    if not state or not _is(state[0], name):
        return False
    path = ast.unparse(call.func).removeprefix(f"{own}.")
    return isinstance(dict(nn.Module.named_modules(model)).get(path), (nn.LSTM, nn.LSTMCell))


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _names(*nodes: ast.expr) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}
