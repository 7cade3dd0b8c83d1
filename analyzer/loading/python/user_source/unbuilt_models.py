"""A class whose arguments are not known -> the ``--input`` options that its ``forward`` wants.

An object stands in for the model: of the class, with the layers that the source of ``__init__`` names, built
without weights. Nothing of the user's is run. A size that follows from an unknown argument stays open.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.loading.python.forward_reads import ToldInput, is_graph
from analyzer.loading.python.graph_inputs import inputs_on_line, is_of_edges, needed
from analyzer.loading.python.layer_inputs import shapes_taken_by

if TYPE_CHECKING:
    from torch.nn import Module

_DEEPEST = 6
# In the place of a size that is not known: a multiple of 1 to 16, as heads and groups must divide it.
_UNKNOWN = 720_720
# What counts something and stands in no shape of an input.
_COUNTS = frozenset({"num_layers", "num_heads", "nhead", "num_groups", "kernel_size"})
# Of PyTorch's recurrent layers, whose signature does not say it.
_RECURRENT = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# Methods of a module that give the module back.
_SELF_GIVING = ("to", "cuda", "cpu", "eval", "train", "requires_grad_", "apply", "half", "float")


def inputs_to_give(
    builder: Callable[..., object], arguments: Mapping[str, str], given: Collection[str]
) -> list[str]:
    """What ``--input`` must say of a class's inputs; nothing where they will be inferred, or for a function.

    Args:
        builder: The class.
        arguments: What is known of its arguments, as Python writes it.
        given: Names of the inputs that are given already.
    """
    import torch

    if not (isinstance(builder, type) and issubclass(builder, torch.nn.Module)):
        return []
    try:
        taken = [item for item in _parameters(builder.forward)[1:] if item.kind not in _VARIADIC]
        model = _stand_in(builder, _literals(arguments))
        told = inputs_on_line(model, taken, given)
        first_layers = any(shapes_taken_by(layer)[0] for layer in model.modules())
    except Exception:  # a class that does what none does: its inputs are told once it is built
        return []
    one_and_told = len(needed(taken)) == 1 and first_layers
    if not (given or is_graph(told)) and (all(item.specs for item in told) or one_and_told):
        return []
    return [_text(item) for item in told]


def inputs_of_arguments(
    builder: Callable[..., object], arguments: Mapping[str, str], given: Collection[str]
) -> dict[str, str]:
    """By optional argument of a model of graphs, what ``--input`` says of the edges once that is given.

    Such as ``edge_dim=None``: without it the model takes features of edges and does not read them.

    Args:
        builder: The class.
        arguments: What is known of its arguments, as Python writes it.
        given: Names of the inputs that are given already.
    """
    import torch

    if given or not (isinstance(builder, type) and issubclass(builder, torch.nn.Module)):
        return {}
    found: dict[str, str] = {}
    with suppress(Exception):  # as above
        taken = [item for item in _parameters(builder.forward)[1:] if item.kind not in _VARIADIC]
        known = _literals(arguments)
        unread = [item.name for item in taken if item.default is not item.empty and is_of_edges(item.name)]
        there = {item.name for item in inputs_on_line(_stand_in(builder, known), taken)} if unread else set()
        for item in _parameters(builder.__init__)[1:] if unread else ():
            if item.name in known or "edge" not in item.name or item.default not in (None, 0):
                continue
            told = inputs_on_line(_stand_in(builder, {**known, item.name: _Nothing}), taken)
            new = [_text(one) for one in told if one.name in unread and one.name not in there]
            if new:
                found[item.name] = " --input ".join(new)
    return found


def _stand_in(kind: type[Module], values: Mapping[str, Any]) -> Module:
    """An object of the class, without weights."""
    import torch

    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _unbuilt(kind, values, 0)


def _text(told: ToldInput) -> str:
    """As ``--input`` takes it, with ``...`` for the sizes that are not known."""
    if told.specs and any(size and size % _UNKNOWN == 0 for size in told.specs[0].shape):
        return replace(told, specs=()).text
    return told.text


def _unbuilt(kind: type[Module], values: Mapping[str, Any], depth: int) -> Module:
    """An object of the class with the children that its ``__init__`` names."""
    import torch

    model: Module = kind.__new__(kind)
    torch.nn.Module.__init__(model)
    if depth >= _DEEPEST:
        return model
    initialiser = inspect.unwrap(kind.__init__)
    parameters = _parameters(initialiser)[1:]
    defaults = {item.name: item.default for item in parameters if item.default is not item.empty}
    definition = ast.parse(textwrap.dedent(inspect.getsource(initialiser))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    names = {**getattr(initialiser, "__globals__", {}), **{item.name: _Nothing for item in parameters}}
    _Initialiser(model, {**names, **defaults, **values}, depth).statements(definition.body)
    return model


class _Nothing:
    """In the place of a value that is not known."""


class _Initialiser:
    """Follows the statements of an ``__init__``.

    Args:
        model: Which gets the children.
        names: What is known by name.
        depth: In how many classes the class stands.
    """

    def __init__(self, model: Module, names: dict[str, Any], depth: int) -> None:
        self.model = model
        self.names = names
        self.depth = depth

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Reads them in order, both ways of an ``if`` and a loop once."""
        for node in body:
            match node:
                case ast.Assign(targets=[target, *_], value=value):
                    self.assign(target, self.value(value))
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self.assign(target, self.value(value))
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[item])):
                    self.append(self.value(owner), self.value(item))
                case ast.For(target=target, body=inner):
                    self.forget(target)
                    self.statements(inner)
                case ast.If(body=inner, orelse=other) | ast.While(body=inner, orelse=other):
                    self.statements([*inner, *other])
                case ast.With(body=inner):
                    self.statements(inner)

    def assign(self, target: ast.expr, value: Any) -> None:
        import torch

        match target:
            case ast.Name(id=name):
                self.names[name] = value
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                if isinstance(value, torch.nn.Module):
                    self.model.add_module(name, value)
                else:
                    self.names[f"self.{name}"] = value
            case ast.Tuple(elts=targets) if isinstance(value, list) and len(value) == len(targets):
                for one, part in zip(targets, value, strict=True):
                    self.assign(one, part)
            case ast.Tuple():
                self.forget(target)

    def append(self, owner: Any, item: Any) -> None:
        import torch

        if isinstance(owner, (torch.nn.ModuleList, list)) and isinstance(item, torch.nn.Module):
            owner.append(item)

    def forget(self, target: ast.expr) -> None:
        for item in ast.walk(target):
            if isinstance(item, ast.Name):
                self.names[item.id] = _Nothing

    def value(self, node: ast.expr) -> Any:
        """A literal, a name's value or a module; ``_Nothing`` for anything else."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.names.get(name, _Nothing)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                children = dict(self.model.named_children())
                return children.get(name, self.names.get(f"self.{name}", _Nothing))
            case ast.Attribute(value=owner, attr=name):
                held = self.value(owner)
                return getattr(held, name, _Nothing) if inspect.ismodule(held) else _Nothing
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return [self.value(item) for item in items]
            case (
                ast.ListComp(elt=item, generators=generators)
                | ast.GeneratorExp(elt=item, generators=generators)
            ):
                for generator in generators:
                    self.forget(generator.target)
                return [self.value(item)]
            case ast.Starred(value=inner):
                return self.value(inner)
            case ast.IfExp(body=body, orelse=other):
                value = self.value(body)
                return self.value(other) if value in (None, _Nothing) else value
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _SELF_GIVING:
                return self.value(owner)
            case ast.Call():
                return self.called(node)
        return _Nothing

    def called(self, node: ast.Call) -> Any:
        import torch
        from torch import nn

        kind = self.value(node.func)
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            return _Nothing
        if kind in (nn.Sequential, nn.ModuleList):
            values = [self.value(item) for item in node.args]
            flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
            modules = [item for item in flat if isinstance(item, torch.nn.Module)]
            return nn.Sequential(*modules) if kind is nn.Sequential else nn.ModuleList(modules)
        positions, needed = _signature(kind)
        named = {item.arg: self.value(item.value) for item in node.keywords if item.arg is not None}
        values_by_name = {**dict(zip(positions, map(self.value, node.args), strict=False)), **named}
        known = {name: value for name, value in values_by_name.items() if not _is_open(value)}
        if not kind.__module__.startswith("torch."):
            # What is passed and not known is not the default either.
            passed = {name: known.get(name, _Nothing) for name in values_by_name}
            with suppress(OSError, TypeError, SyntaxError, AssertionError):
                return _unbuilt(kind, passed, self.depth + 1)
            return _Nothing
        with suppress(Exception):
            return kind(**{name: 1 if name in _COUNTS else _UNKNOWN for name in needed} | known)
        return _Nothing


def _signature(kind: type[Module]) -> tuple[Sequence[str], Sequence[str]]:
    """The parameters of a class in order, and those without a default."""
    from torch import nn

    if kind.__init__ in (nn.LSTM.__init__, nn.GRU.__init__, nn.RNN.__init__):
        return _RECURRENT, _RECURRENT[:2]
    parameters = [item for item in _parameters(kind.__init__)[1:] if item.kind not in _VARIADIC]
    return [item.name for item in parameters], [item.name for item in parameters if item.default is item.empty]


def _is_open(value: Any) -> bool:
    return value is _Nothing or (isinstance(value, list) and any(map(_is_open, value)))


def _literals(arguments: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, text in arguments.items():
        with suppress(ValueError, SyntaxError):
            values[name] = ast.literal_eval(text)
    return values


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())
