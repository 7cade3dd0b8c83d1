"""A model's parameters and buffers without data, for as long as its training step is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_private import held_tensors

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from analyzer.loading.torch_private import FakeTensorMode, Tree


@contextmanager
def without_data(model: Module, mode: FakeTensorMode) -> Iterator[None]:
    """Puts fake tensors in the place of all parameters and buffers, tied ones once; puts them back after.

    PyTorch gives no gradients for tensors on the meta device, and fake ones need no memory either.
    """
    import torch

    fakes: dict[int, Tensor] = {}
    originals: list[tuple[dict[str, Any], str, object]] = []
    for module in model.modules():
        for table in held_tensors(module):
            for name, tensor in list(table.items()):
                if tensor is None:
                    continue
                # Tied tensors stay tied: two fakes would be two parameters, each with half a gradient.
                if id(tensor) not in fakes:
                    fakes[id(tensor)] = fake_like(tensor, mode)
                originals.append((table, name, tensor))
                table[name] = fakes[id(tensor)]
        attributes = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        originals += [
            (vars(module), name, value) for name, value in attributes.items()
        ]  # by a hook, at each call
    try:
        yield
    finally:
        for table, name, tensor in originals:
            table[name] = tensor


def fake_like(value: Tree, mode: FakeTensorMode) -> Tree:
    """A tensor's twin without data; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    with mode:  # on the CPU: joint graphs of tensors on the meta device have no gradients
        fake = torch.empty(tuple(value.shape), dtype=value.dtype, device="cpu")
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(fake, requires_grad=value.requires_grad)
    return fake
