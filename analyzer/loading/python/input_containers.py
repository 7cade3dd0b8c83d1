"""Inputs of a class of one's own (a batch, a cache of keys and values): the tensors in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_private import known_containers, rebuilt, register_container, tree_leaves

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

    from analyzer.loading.torch_private import Tree, TreeSpec


def register_containers(arguments: Tree, keywords: Tree) -> None:
    """Has PyTorch look into every object among the inputs that holds tensors among its attributes.

    PyTorch knows the classes until the program ends.
    """
    # Again and again: a class that is registered shows its members, among which further ones can be.
    unknown = True
    while unknown:
        leaves = tree_leaves((arguments, keywords))
        classes = {type(leaf) for leaf in leaves if _holds_tensors(leaf)} - known_containers()
        for kind in classes:
            register_container(kind, _flatten_object, _unflatten_object, lambda rest: rest.names)
        unknown = bool(classes)


def marks_in_form(spec: TreeSpec, marks: Iterator[object]) -> Tree:
    """Marks for the leaves in the form in which ``torch.export`` takes them: an object's as a list."""
    if spec.is_leaf():
        return next(marks)
    return rebuilt(spec, [marks_in_form(child, marks) for child in spec.children()])


class _Remainder:
    """What an object holds beside its tensors; the same for two objects whose tensors have the same names."""

    def __init__(self, kind: type, names: tuple[str, ...], others: dict[str, object]) -> None:
        self.kind, self.names, self.others = kind, names, others

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Remainder) and (self.kind, self.names) == (other.kind, other.names)

    def __hash__(self) -> int:
        return hash((self.kind, self.names))


def _holds_tensors(value: object) -> bool:
    import torch

    if isinstance(value, (torch.Tensor, torch.nn.Module, type)):
        return False
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(tensors_in_containers(value)))


def _flatten_object(value: object) -> tuple[list[object], _Remainder]:
    import torch

    members = attributes(value)
    names = tuple(
        name for name, item in members.items() if isinstance(item, torch.Tensor) or _holds_tensors(item)
    )
    others = {name: item for name, item in members.items() if name not in names}
    return [members[name] for name in names], _Remainder(type(value), names, others)


def _unflatten_object(items: Iterable[object], remainder: _Remainder) -> object:
    # Without the class's __init__, whose arguments nobody knows.
    instance: object = object.__new__(remainder.kind)
    for name, item in (*remainder.others.items(), *zip(remainder.names, items, strict=True)):
        object.__setattr__(instance, name, item)  # frozen ones too
    return instance


def attributes(value: object) -> dict[str, object]:
    """The attributes of an object, with a dictionary or with slots."""
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


# Outputs of a type that PyTorch's tracer does not know, taken apart into dicts of tensors.
# What torch.export says of such an output.
UNKNOWN_OUTPUT = re.compile(r"Found <class .*> in output, which is not a known type")
_CONSTANTS = (str, int, float, bool)


def returns_constants(program: ExportedProgram) -> bool:
    """Whether an exported program gives texts or numbers beside tensors, which ONNX cannot."""
    # A constant's argument has a value, a tensor's a name (torch/export/graph_signature.py).
    outputs = (getattr(item.arg, "value", None) for item in program.graph_signature.output_specs)
    return any(isinstance(value, _CONSTANTS) for value in outputs)


@contextmanager
def outputs_as_containers(model: Module) -> Iterator[None]:
    """Inside the block the model returns what ``tensors_in_containers`` makes of its outputs."""
    handle = model.register_forward_hook(lambda _module, _arguments, outputs: tensors_in_containers(outputs))
    try:
        yield
    finally:
        handle.remove()


def tensors_in_containers(value: object) -> Tree:
    """Dataclasses, records and dict subclasses as dicts, all that holds no tensor as None."""
    return _opened(value, ())


def _opened(value: object, holders: tuple[int, ...]) -> Tree:
    """``around`` holds the objects that hold ``value``: one that holds itself ends there."""
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (torch.nn.Module, type)) or id(value) in holders:
        return None
    holders = (*holders, id(value))
    # Named tuples stay what they are: the tracer knows them, and their constructor takes its fields one by one.
    if isinstance(value, tuple) and type(value) is not tuple and hasattr(value, "_fields"):
        return type(value)(*(_opened(item, holders) for item in value))
    if isinstance(value, (tuple, list)):
        return (list if isinstance(value, list) else tuple)(_opened(item, holders) for item in value)
    members: Mapping[Any, object] | None = value if isinstance(value, Mapping) else None
    if members is None and is_dataclass(value):
        members = {item.name: getattr(value, item.name) for item in fields(value)}
    elif members is None and hasattr(value, "__dict__"):
        members = vars(value)
    return None if members is None else {key: _opened(item, holders) for key, item in members.items()}
