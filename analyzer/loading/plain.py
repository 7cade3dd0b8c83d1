"""Outputs of a type that PyTorch's tracer does not know, taken apart into dicts of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

# What torch.export says of such an output.
UNKNOWN_OUTPUT = re.compile(r"Found <class .*> in output, which is not a known type")
_CONSTANTS = (str, int, float, bool)


def returns_constants(program: Any) -> bool:
    """Whether an exported program gives texts or numbers beside tensors, which ONNX cannot."""
    outputs = (getattr(item.arg, "value", None) for item in program.graph_signature.output_specs)
    return any(isinstance(value, _CONSTANTS) for value in outputs)


@contextmanager
def plain_outputs(model: Any) -> Iterator[None]:
    """Inside the block the model returns what ``plain`` makes of its outputs."""
    handle = model.register_forward_hook(lambda _module, _arguments, outputs: plain(outputs))
    try:
        yield
    finally:
        handle.remove()


def plain(value: Any) -> Any:
    """Dataclasses, records and dict subclasses as dicts, constants as None, so that tensors are left."""
    import torch

    if isinstance(value, (torch.Tensor, type)):
        return value
    if isinstance(value, _CONSTANTS):
        return None
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(plain(item) for item in value)
    if is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if hasattr(value, "__dict__") and not isinstance(value, tuple):
        return {key: plain(item) for key, item in vars(value).items()}
    return value
