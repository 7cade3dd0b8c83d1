"""What PyTorch's layers take, and a plain call of the user's model, which tells whether inputs fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple

from analyzer.errors import ExportError
from analyzer.loading.python.model_weights import built_with, fake_like, without_data
from analyzer.loading.python.user_module import user_failure
from analyzer.loading.torch_private import fake_tensor_mode, gradients_by, recurrences_by_one_step, tree_map

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.nn import Module

    from analyzer.loading.python.example_inputs import ExampleInputs
    from analyzer.loading.python.user_model import UserModel


TriedSizes = tuple[int | None, ...]


class OpenLength(int):
    """A usual length of a sequence, which no layer decides."""


class OpenSide(int):
    """A usual side of an image, which no layer decides."""


class OpenWidth(int):
    """A width to try of what is joined with others: the layer that reads all of it decides."""


# Sizes to try where the layers leave them open, most usual first.
IMAGE_SIDES = tuple(map(OpenSide, (224, 32, 28, 64, 96, 128, 256, 299, 16, 8)))
IMAGE_SIDE = IMAGE_SIDES[0]
_VOLUME_SIDES = tuple(map(OpenSide, (112, 64, 32)))
# The last is a second of sound.
_SIGNAL_LENGTHS = tuple(map(OpenLength, (128, 32, 16000)))
# Not 1: an axis of size 1 fits any other by broadcasting.
TOKENS = tuple(map(OpenLength, (128, 32)))
LENGTH, _SHORT_LENGTH = TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The requirements of an argument.

    Attributes:
        dtype: Its type.
        shapes: Those it may have, most usual first, None for the batch; empty where the reader leaves it open.
        values: By shape, the one value of all its elements; empty where any will do.
        strength: How sure the type is: 3 an index, 2 what a layer with weights or a mask takes, 1 arithmetic,
            0 what is cast before it is read.
        is_pair: Whether it is a tuple of two such tensors: the states of an LSTM.
    """

    dtype: str
    shapes: tuple[TriedSizes, ...] = ()
    values: tuple[int, ...] = ()
    strength: int = 2
    is_pair: bool = False


# Of padded sequences: each as long as the sequences tried.
LENGTHS = Taken(dtype="int64", shapes=((None,),) * len(TOKENS), values=TOKENS, strength=3)
_ROWS = tuple((None, size) for size in TOKENS)
# Of words, and of one word for each.
INDICES = Taken(dtype="int64", shapes=(*_ROWS, (None,)), strength=3)
INDEX = Taken(dtype="int64", strength=3)
# A mask of ones leaves nothing out.
_MASK = Taken(dtype="int64", shapes=_ROWS, values=(1,) * len(_ROWS))

# Inputs by the names of Hugging Face's tokenizers and schedulers, in whatever model
# (https://huggingface.co/docs/transformers/glossary); as sure as a layer that reads them, no surer.
NAMED: Mapping[str, Taken] = {
    "input_ids": INDICES,
    "attention_mask": _MASK,
    # 0 is the first of two sentences, and the only one of models that know no second.
    "token_type_ids": Taken(dtype="int64", shapes=_ROWS, values=(0,) * len(_ROWS)),
    "position_ids": INDICES,
    "decoder_input_ids": INDICES,
    "decoder_attention_mask": _MASK,
    # A class for each row, or for each token.
    "labels": Taken(dtype="int64", shapes=((None,), *_ROWS)),
    # Steps of a diffusion, one for each example.
    **dict.fromkeys(("timestep", "timesteps"), Taken(dtype="int64", shapes=((None,),))),
    **dict.fromkeys(("lengths", "input_lengths"), LENGTHS),
}
# (x0, y0, x1, y1) of each token on a grid of 0 to 1000; random ones would end before they begin. Elsewhere a
# bbox may be anything.
NAMED_IN_TRANSFORMERS: Mapping[str, Taken] = {
    **NAMED,
    "bbox": Taken(dtype="int64", shapes=tuple((*row, 4) for row in _ROWS), values=(0,) * len(_ROWS)),
}
# Those that a model may take in addition to its tokens and need nonetheless.
MASKS = ("attention_mask", "token_type_ids")


def images(channels: int, dimensions: int) -> tuple[TriedSizes, ...]:
    """Return the usual shapes of signals, images or volumes, of 1, 2 or 3 dimensions, of these channels."""
    if dimensions == 1:
        return tuple((None, channels, length) for length in _SIGNAL_LENGTHS)
    if dimensions == 2:
        return tuple((None, channels, side, side) for side in IMAGE_SIDES)
    return tuple((None, channels, 16, side, side) for side in _VOLUME_SIDES)


def vectors(width: int) -> tuple[TriedSizes, ...]:
    """Return the shapes of a vector of this width each, and of a sequence of them."""
    return (None, width), (None, LENGTH, width)


def _weights_type(layer: Module) -> str:
    """Type of a layer's own weights, empty where it has none."""
    names = ("weight", "weight_ih_l0", "weight_ih", "in_proj_weight", "q_proj_weight")
    weight = next((tensor for name in names if (tensor := getattr(layer, name, None)) is not None), None)
    dtype = getattr(weight, "dtype", None)  # of a quantised layer it is a method
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def arguments_taken_by(layer: Module) -> Mapping[str, Taken]:
    """Return what a layer of PyTorch takes, by the name of its argument; empty where it decides nothing."""
    from torch import nn
    from torch.nn.parameter import is_lazy

    if any(is_lazy(parameter) for parameter in layer.parameters(recurse=False)):
        return {}
    if isinstance(layer, nn.Embedding):
        return {"input": INDICES}
    if isinstance(layer, nn.EmbeddingBag):  # a bag is a row each; words of one row need offsets
        return {"input": replace(INDICES, shapes=_ROWS)}
    dtype = _weights_type(layer) or "float32"
    if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
        return _recurrent_arguments(layer, dtype)
    if isinstance(layer, nn.Bilinear):
        widths = {"input1": layer.in1_features, "input2": layer.in2_features}
        return {name: Taken(dtype=dtype, shapes=((None, width),)) for name, width in widths.items()}
    shapes = _shapes_taken_by(layer)
    if shapes or not (transformer := _transformer_arguments(layer)):
        return {"input": Taken(dtype=dtype, shapes=shapes)} if shapes or _weights_type(layer) else {}
    return transformer


def _shapes_taken_by(layer: Module) -> tuple[TriedSizes, ...]:
    from torch import nn

    match layer:
        case nn.Linear():
            return vectors(layer.in_features)
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return images(layer.in_channels, len(layer.kernel_size))
        case nn.ConvTranspose2d() if layer.stride == (1, 1) and layer.padding == (0, 0):
            return ((None, layer.in_channels, 1, 1),)  # what a picture is generated from
        case nn.LayerNorm() | nn.RMSNorm():
            return (None, *layer.normalized_shape), (None, LENGTH, *layer.normalized_shape)
        case nn.BatchNorm1d():
            return (None, layer.num_features), (None, layer.num_features, LENGTH)
        case nn.BatchNorm2d():
            return images(layer.num_features, 2)
        case nn.GroupNorm():
            return images(layer.num_channels, 2)
    return ()


def _recurrent_arguments(layer: nn.RNNBase | nn.RNNCellBase, dtype: str) -> Mapping[str, Taken]:
    from torch import nn

    states: tuple[TriedSizes, ...] = ((None, layer.hidden_size),)
    first: TriedSizes = (None, layer.input_size)
    if isinstance(layer, nn.RNNBase):
        first = _sequence(layer.input_size, batch_first=layer.batch_first, length=_SHORT_LENGTH)
        rows = layer.num_layers * (2 if layer.bidirectional else 1)
        # With a projection the two states of an LSTM differ.
        states = () if layer.proj_size else ((rows, None, layer.hidden_size),)
    is_pair = isinstance(layer, (nn.LSTM, nn.LSTMCell))
    state = Taken(dtype=dtype, shapes=states, is_pair=is_pair)
    return {"input": Taken(dtype=dtype, shapes=(first,)), "hx": state}


def sequence_layer(layer: Module) -> Module | None:
    """Return the layer that decides whether the batch comes before a sequence; None for other layers."""
    from torch import nn

    if isinstance(layer, nn.Transformer):
        layer = layer.encoder
    if isinstance(layer, (nn.TransformerEncoder, nn.TransformerDecoder)):
        layer = next(iter(layer.layers), layer)
    layer = getattr(layer, "self_attn", layer)
    return layer if isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)) else None


def _transformer_arguments(layer: Module) -> Mapping[str, Taken]:
    from torch import nn

    attention = sequence_layer(layer)
    if not isinstance(attention, nn.MultiheadAttention):
        return {}
    dtype = _weights_type(attention) or "float32"

    def sequence(width: int) -> Taken:
        return Taken(dtype=dtype, shapes=(_sequence(width, batch_first=attention.batch_first),))

    if layer is attention:
        widths = {"query": attention.embed_dim, "key": attention.kdim, "value": attention.vdim}
    else:
        widths = dict.fromkeys(("src", "tgt", "memory"), attention.embed_dim)
    # True is what is left out: a whole sequence of that would have no result.
    left_out = Taken(dtype="bool", shapes=((None, LENGTH),), values=(0,))
    of_pairs = Taken(dtype=dtype, shapes=((LENGTH, LENGTH),))
    names = [
        f"{part}{kind}" for part in ("", "src_", "tgt_", "memory_") for kind in ("key_padding_mask", "mask")
    ]
    masks = {name: left_out if "padding" in name else of_pairs for name in (*names, "attn_mask")}
    return {**{name: sequence(width) for name, width in widths.items()}, **masks}


def _sequence(width: int, *, batch_first: bool, length: int = LENGTH) -> TriedSizes:
    return (None, length, width) if batch_first else (length, None, width)


class Misfit(NamedTuple):
    """A layer that was given another width than it takes: its path, that width, a sentence without its end."""

    path: str
    taken: int
    text: str


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
    called = f"{path} ({type(layer).__name__})" if path else type(layer).__name__
    return Misfit(path, taken, f"{called} takes {taken} {axis_name} and gets {given}")


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
