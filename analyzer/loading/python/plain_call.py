"""A plain call of the user's model, which tells whether inputs fit, and the layer that takes others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from analyzer.errors import ExportError
from analyzer.loading.python.model_weights import built_with, fake_like, without_data
from analyzer.loading.python.user_module import user_failure
from analyzer.loading.torch_private import fake_tensor_mode, gradients_by, recurrences_by_one_step, tree_map

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from analyzer.loading.python.example_inputs import ExampleInputs
    from analyzer.loading.python.user_model import UserModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A layer that was given another width than it takes.

    Attributes:
        path: Of the layer in the model.
        kind: Its class.
        taken, given: How many features, or channels, it takes and was given.
        axis_name: What is counted.
    """

    path: str
    kind: str
    taken: int
    given: int
    axis_name: str

    @property
    def text(self) -> str:
        """As a sentence without its end."""
        called = f"{self.path} ({self.kind})" if self.path else self.kind
        return f"{called} takes {self.taken} {self.axis_name} and gets {self.given}"


def call(user: UserModel, inputs: ExampleInputs, *, on_values: bool = True) -> None:
    """Call the model without values, or, where that fails for one that has all of them, on two rows.

    Raises:
        ExportError: The model takes a gradient.
        MemoryForeseenError: The call on values takes more memory than it may.
        Exception: Whatever the model raises, or PyTorch's own error where its layers would read beyond weights.
    """
    import torch

    model = user.model
    with torch.no_grad(), _widths_checked(model), recurrences_by_one_step(), gradients_by(_refuse_gradient):
        try:
            if user.meta:
                model(*inputs.arguments, **inputs.keywords)
            else:
                mode = fake_tensor_mode()
                arguments, keywords = tree_map(lambda leaf: fake_like(leaf, mode), inputs.tree)
                with without_data(model, mode), mode:
                    model(*arguments, **keywords)
        except _GradientError as error:
            raised = user_failure(error, f"{user.name} takes a gradient in forward", ExportError)
            raised.message = raised.message.removesuffix(f": {_GradientError.__name__}") + "."
            raised.hint = "No exporter traces gradients: return what the gradient is of, and analyse that."
            raise raised from error
        except Exception:  # control flow may depend on values, and arithmetic leave PyTorch
            if user.weights != "real" or not on_values:
                raise
        else:
            return
        arguments, keywords = first_rows(inputs)
        with built_with("real", user.memory_bytes):
            model(*arguments, **keywords)


class _GradientError(Exception):
    """Ends a call where the model takes a gradient."""


def _refuse_gradient(*_: object, **__: object) -> None:
    raise _GradientError


def first_rows(inputs: ExampleInputs) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the inputs at a batch of at most two, where their axes that follow the batch are known."""
    places = iter(range(len(inputs.leaves)))

    def cut(leaf: Any) -> Any:
        for axis in inputs.batch_axes.get(next(places), ()):
            leaf = leaf.narrow(axis, 0, min(2, leaf.shape[axis]))
        return leaf

    arguments, keywords = tree_map(cut, inputs.tree)
    return arguments, keywords


def misfit(model: Module, error: BaseException) -> Misfit | None:
    """Return the layer in which a call failed, where its width is what it fails for."""
    from torch import nn

    inner: tuple[nn.Module, Sequence[Any]] | None = None
    for frame, _ in walk_tb(error.__traceback__):
        layer, arguments = frame.f_locals.get("self"), frame.f_locals.get("args")
        if isinstance(layer, nn.Module) and isinstance(arguments, tuple):
            inner = layer, arguments
    if inner is None:
        return None
    layer, arguments = inner
    width, first = _width_of(layer), _first_tensor(arguments)
    if width is None or first is None:
        return None
    taken, axis, axis_name = width
    given = _size(first, axis)
    if given is None or given == taken or not taken:  # a lazy layer has no width yet
        return None
    path = next((name for name, item in model.named_modules() if item is layer), "")
    return Misfit(path=path, kind=type(layer).__name__, taken=taken, given=given, axis_name=axis_name)


def beyond_table(error: BaseException) -> str:
    """Of a call that failed in a table: its rows and what was looked up in it, as a sentence; else empty."""
    from torch import nn

    problem = ""
    for frame, _ in walk_tb(error.__traceback__):
        layer, arguments = frame.f_locals.get("self"), frame.f_locals.get("args")
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and isinstance(arguments, tuple):
            rows = _first_tensor(arguments)
            if rows is not None and rows.numel() and not rows.is_meta:
                low, high = int(rows.min()), int(rows.max())
                if low < 0 or high >= layer.num_embeddings:
                    problem = (
                        f"A table of {layer.num_embeddings:,} rows was indexed with rows {low:,} to {high:,}."
                    )
    return problem


def given_width(user: UserModel, path: str, inputs: ExampleInputs) -> int | None:
    """Return the width that a layer is given with these inputs; None where the call ends before it."""
    layer = user.model.get_submodule(path)
    width = _width_of(layer)
    result: list[int | None] = []

    def note(_layer: Module, given: Sequence[Any]) -> None:
        first = _first_tensor(given)
        result.append(None if width is None or first is None else _size(first, width[1]))
        raise _ReachedError

    handle = layer.register_forward_pre_hook(note, prepend=True)
    try:
        with suppress(Exception):
            call(user, inputs)
    finally:
        handle.remove()
    return result[0] if result else None


class _ReachedError(Exception):
    """Ends a call at a layer."""


@contextmanager
def _widths_checked(model: Module) -> Iterator[None]:
    """Inside the block layers check the widths that they do not check themselves.

    LSTMs check that of packed sequences, as GRUs do: torch/nn/modules/rnn.py checks it for padded ones alone,
    and oneDNN's kernel then reads beyond the weights, so that inputs that the layer cannot take give numbers.
    Transposed convolutions check channels, as they do not without values.
    """
    from torch import nn
    from torch.nn.utils.rnn import PackedSequence

    def check(layer: Module, given: Sequence[Any]) -> None:
        if isinstance(layer, nn.LSTM):
            if given and isinstance(given[0], PackedSequence):
                layer.check_input(given[0].data, given[0].batch_sizes)
            return
        width, first = _width_of(layer), _first_tensor(given)
        if width is None or first is None:
            return
        taken, axis, axis_name = width
        if taken and _size(first, axis) != taken:  # a lazy layer has no width yet
            raise RuntimeError(f"expected {taken} {axis_name}, got {list(first.shape)}")

    kinds = (nn.LSTM, nn.ConvTranspose1d, nn.ConvTranspose2d)
    handles = [item.register_forward_pre_hook(check) for item in model.modules() if isinstance(item, kinds)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _first_tensor(arguments: Sequence[Any]) -> Tensor | None:
    import torch
    from torch.nn.utils.rnn import PackedSequence

    first = arguments[0] if arguments else None
    if isinstance(first, PackedSequence):
        first = first.data
    return first if isinstance(first, torch.Tensor) else None


def _width_of(layer: Module) -> tuple[int, int, str] | None:
    """Return the width that a layer of PyTorch takes, on that axis of its input and what it is called there."""
    from torch import nn

    if isinstance(layer, nn.Linear):
        return layer.in_features, -1, "features"
    if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
        return layer.input_size, -1, "features"
    if isinstance(layer, nn.LayerNorm):
        return int(layer.normalized_shape[-1]), -1, "features"
    # Counted from the end: a convolution takes one example without a batch too.
    for axes, kinds in enumerate(((nn.Conv1d, nn.ConvTranspose1d), (nn.Conv2d, nn.ConvTranspose2d)), start=1):
        if isinstance(layer, kinds):
            return layer.in_channels, -axes - 1, "channels"
    if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
        return layer.num_features, 1, "channels"
    if isinstance(layer, nn.GroupNorm):
        return layer.num_channels, 1, "channels"
    return None


def _size(tensor: Tensor, axis: int) -> int | None:
    return int(tensor.shape[axis]) if -tensor.dim() <= axis < tensor.dim() else None
