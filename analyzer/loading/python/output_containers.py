"""Outputs of a type that PyTorch's tracer does not know, taken apart into dicts of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

    from analyzer.loading.torch_private import Tree


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
    members = _members(value)
    return None if members is None else {key: _opened(item, holders) for key, item in members.items()}


def _members(value: object) -> Mapping[Any, object] | None:
    """What an object holds by name; None for one that holds nothing."""
    if isinstance(value, Mapping):
        return value
    if is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    return vars(value) if hasattr(value, "__dict__") else None
