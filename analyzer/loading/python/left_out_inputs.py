"""Inputs of a user's model that nobody gives, so that ``forward`` takes another way than with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from analyzer.loading.dependencies import is_library
from analyzer.loading.python.example_inputs import (
    ExampleInputs,
    as_long_as_given,
    flatten,
    forward_parameters,
    tensor_names,
)
from analyzer.loading.python.forward_reads import ToldInput, definition_of, told_inputs
from analyzer.loading.python.graph_inputs import counts
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.layer_inputs import TOKENS
from analyzer.loading.python.model_weights import unchanged
from analyzer.loading.python.plain_call import call
from analyzer.loading.python.user_model import UserModel
from analyzer.loading.torch_private import tree_map
from analyzer.record.analysis import LEFT_OUT
from analyzer.text import listed

if TYPE_CHECKING:
    import inspect

    from torch.nn import Module

# Annotations, as written or evaluated, of what is fed: none at all, or a tensor among others.
_TENSOR = "Tensor"
_TUPLE = re.compile(r"\b[Tt]uple\[([^\[\]]*)\]")
# Types of a mask: of truth values, or a tokenizer's ones and zeros.
_MASK_TYPES = ("bool", "int64")
# Calls to try for an input; batches to try it at: one that no other size is, as else it may fit by chance.
_MOST_TRIALS = 6
_BATCHES = (3, 5, 7, 11, 13, 17)


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
    given = " ".join(f"--input {text}" for item in items for text in _texts(user, inputs, item))
    verb, it = ("was", "gives it") if len(names) == 1 else ("were", "gives them")
    return (f"{listed(names)} {verb} {LEFT_OUT}; {given} {it}.",)


def _texts(user: UserModel, inputs: ExampleInputs, item: inspect.Parameter) -> list[str]:
    """What ``--input`` says of one of them, of each of its parts where it is a tuple of tensors."""
    parts = list(_tensors_of(user.model, item))
    return [_text(user, inputs, item.name)] if parts == [item.name] else [f"{part}=..." for part in parts]


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


def _text(user: UserModel, inputs: ExampleInputs, name: str) -> str:
    """What ``--input`` says of one of them, with ``...`` for what a call does not bear out."""
    told = told_inputs(user.model, [name])
    if len(told) != 1 or told[0].name != name:  # a dict, of which members are read
        return f"{name}=..."
    given = _given(user, inputs)
    if told[0].of_graph:
        sized = as_long_as_given(told[0], given)
        return sized.text if counts(sized) else f"{name}=..."
    tried = islice(_candidates(told[0], given), _MOST_TRIALS)
    fitting = (spec for spec in tried if _fits(user, inputs, spec))
    spec = next(fitting, None)
    return f"{name}=..." if spec is None else spec.text


def _given(user: UserModel, inputs: ExampleInputs) -> list[InputSpec]:
    """The tensors that the model is called with, None for their batch."""
    leaves = flatten(inputs.arguments, inputs.keywords)
    tensors = [(place, leaf) for place, leaf in enumerate(leaves) if hasattr(leaf, "shape")]
    return [
        InputSpec(
            name=name,
            shape=tuple(
                None if axis in inputs.batch_axes.get(place, ()) else size
                for axis, size in enumerate(tensor.shape)
            ),
            dtype=str(tensor.dtype).removeprefix("torch."),
        )
        for name, (place, tensor) in zip(tensor_names(user, inputs), tensors, strict=True)
    ]


def _candidates(told: ToldInput, given: Sequence[InputSpec]) -> Iterator[InputSpec]:
    """What such an input may be: a sequence as long as one of those that are given."""
    # A row of words, or of vectors; an image has no length.
    lengths = [spec.shape[1] for spec in given if len(spec.shape) in (2, 3) and spec.shape[0] is None]
    lengths = list(dict.fromkeys(size for size in lengths if size is not None))
    for spec in told.specs:
        if len(spec.shape) > 1 and spec.shape[1] in TOKENS:
            yield from (replace(spec, shape=(spec.shape[0], size, *spec.shape[2:])) for size in lengths)
        else:
            yield spec
    is_mask = told.dtype == "bool" or (told.dtype in _MASK_TYPES and "mask" in told.name)
    if not told.specs and told.is_read and is_mask:
        value = 1 if told.value is None else told.value
        for size in lengths:
            yield InputSpec(name=told.name, shape=(None, size), dtype=told.dtype, values=(value, value))


def _fits(user: UserModel, inputs: ExampleInputs, spec: InputSpec) -> bool:
    """Whether the model takes this input beside the others, by a call with shapes and no data."""
    import torch

    if not any(0 in axes for axes in inputs.batch_axes.values()):
        return False
    sizes = {size for item in (*_given(user, inputs), spec) for size in item.shape}
    batch = next((size for size in _BATCHES if size not in sizes), None)
    if batch is None:
        return False
    places = iter(range(len(flatten(inputs.arguments, inputs.keywords))))

    def at_batch(leaf: Any) -> Any:
        axes = inputs.batch_axes.get(next(places), ())
        if not isinstance(leaf, torch.Tensor):
            return leaf
        shape = [batch if axis in axes else size for axis, size in enumerate(leaf.shape)]
        return torch.empty(shape, dtype=leaf.dtype, device="meta")

    arguments, keywords = tree_map(at_batch, (inputs.arguments, dict(inputs.keywords)))
    further = torch.empty(spec.sizes(batch), dtype=getattr(torch, spec.dtype), device="meta")
    try:
        with unchanged(user.model):
            called = replace(inputs, arguments=arguments, keywords={**keywords, spec.name: further})
            call(user, called, on_values=False)
    except Exception:  # whatever a forward raises; what needs data is not told either
        return False
    return True
