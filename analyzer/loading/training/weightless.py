"""A model's parameters and buffers without data, for as long as its training step is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_private import held_tensors

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from analyzer.loading.torch_private import FakeTensorMode


@contextmanager
def without_data(model: Module, mode: FakeTensorMode) -> Iterator[None]:
    """Puts fake tensors in the place of all parameters and buffers, tied ones once; puts them back after.

    PyTorch gives no gradients for tensors on the meta device, and fake ones need no memory either.
    """
    import torch

    made: dict[int, Tensor] = {}
    before: list[tuple[dict[str, Any], str, object]] = []
    for module in model.modules():
        for held in held_tensors(module):
            for name, tensor in list(held.items()):
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    made[id(tensor)] = fake_like(tensor, mode)
                before.append((held, name, tensor))
                held[name] = made[id(tensor)]
        computed = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        before += [(vars(module), name, value) for name, value in computed.items()]  # by a hook, at each call
    try:
        yield
    finally:
        for held, name, tensor in before:
            held[name] = tensor


def fake_like(value: Any, mode: FakeTensorMode) -> Any:
    """A tensor's twin without data; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    with mode:
        made = torch.empty(tuple(value.shape), dtype=value.dtype, device="cpu")
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=value.requires_grad)
    return made
