"""Inputs of PyTorch's layers: the type of each argument, and its shape where the layer decides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from torch.nn import Module

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
