"""Inputs of a class of one's own (a batch, a cache of keys and values): the tensors in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from analyzer.loading.python.output_containers import tensors_in_containers
from analyzer.loading.torch_private import known_containers, rebuilt, register_container, tree_leaves

if TYPE_CHECKING:
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
    """Marks for the leaves in the form in which ``torch.export`` takes them: an object's as a list.

    Args:
        spec: How the inputs are built.
        marks: One for each leaf.
    """
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
