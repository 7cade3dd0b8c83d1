"""What PyTorch's own layers take: the type of each argument, and its shape where the layer tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.nn import Module

TriedSizes = tuple[int | None, ...]


class OpenLength(int):
    """The length of a sequence that is but usual: one that the user's file names goes before it."""


class OpenSide(int):
    """The side of an image that is but usual, likewise."""


# Image sizes and sequence lengths to try where the layers leave them open, most usual first.
_IMAGE_SIZES = tuple(map(OpenSide, (224, 32, 28, 64, 96, 128, 256, 299, 16, 8)))
IMAGE_SIDE = _IMAGE_SIZES[0]
_SEQUENCE_LENGTHS = tuple(map(OpenLength, (128, 32, 16000)))
TOKENS = tuple(map(OpenLength, (128, 32, 1)))
_LENGTH, _SHORT_LENGTH = TOKENS[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What an argument must be.

    Attributes:
        dtype: Its type.
        shapes: Those it may have, most usual first, None for the batch; empty where the reader leaves it open.
        values: By shape, the one value of all its elements; empty where any will do.
        rows: The first and the last row of the table that it indexes, where there is one.
        strength: How sure the type is: 3 an index, 2 what a layer with weights or a mask takes, 1 arithmetic,
            0 what is cast before it is read.
    """

    dtype: str
    shapes: tuple[TriedSizes, ...] = ()
    values: tuple[int, ...] = ()
    rows: tuple[int, int] | None = None
    strength: int = 2


# Of padded sequences: each as long as the sequences tried.
LENGTHS = Taken(dtype="int64", shapes=((None,),) * len(TOKENS), values=TOKENS, strength=3)
# Of words, and of one word for each.
INDICES = Taken(dtype="int64", shapes=(*((None, size) for size in TOKENS), (None,)), strength=3)


def with_side(shapes: Sequence[TriedSizes], side: int | None) -> tuple[TriedSizes, ...]:
    """These shapes of images, those of this side first."""
    if side is None or not shapes or shapes[0].count(IMAGE_SIDE) != 2:
        return tuple(shapes)
    first = tuple(side if size == IMAGE_SIDE else size for size in shapes[0])
    return (first, *(shape for shape in shapes if shape != first))


def shapes_taken_by(layer: Module) -> tuple[list[TriedSizes], str]:
    """Shapes of the first argument that a layer would take, most usual first, and its type; none if open."""
    from torch import nn

    dtype = _weights_type(layer) or "float32"
    if isinstance(layer, nn.MultiheadAttention):
        return [_sequence(layer.embed_dim, batch_first=layer.batch_first)], dtype
    if isinstance(layer, nn.Linear):
        # A vector each, or a sequence of them.
        return [(None, layer.in_features), (None, _LENGTH, layer.in_features)], dtype
    if isinstance(layer, nn.Conv2d):
        return [(None, layer.in_channels, size, size) for size in _IMAGE_SIZES], dtype
    if isinstance(layer, nn.ConvTranspose2d) and layer.stride == (1, 1) and layer.padding == (0, 0):
        return [(None, layer.in_channels, 1, 1)], dtype  # what a picture is generated from
    if isinstance(layer, nn.Conv1d):
        return [(None, layer.in_channels, size) for size in _SEQUENCE_LENGTHS], dtype
    if isinstance(layer, nn.Conv3d):
        return [(None, layer.in_channels, 16, size, size) for size in map(OpenSide, (112, 64, 32))], dtype
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        return [(None, size) for size in TOKENS], "int64"
    if isinstance(layer, (nn.LSTM, nn.GRU, nn.RNN)):
        return [_sequence(layer.input_size, batch_first=layer.batch_first, length=_SHORT_LENGTH)], dtype
    if isinstance(layer, nn.BatchNorm2d):
        return [(None, layer.num_features, size, size) for size in _IMAGE_SIZES], dtype
    return [], dtype


def _weights_type(layer: Module) -> str:
    """Type of a layer's own weights, empty where it has none."""
    names = ("weight", "weight_ih_l0", "weight_ih", "in_proj_weight", "q_proj_weight")
    weight = next((tensor for name in names if (tensor := getattr(layer, name, None)) is not None), None)
    dtype = getattr(weight, "dtype", None)  # of a quantised layer it is a method
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def arguments_taken_by(layer: Module) -> Mapping[str, Taken]:
    """What a layer of PyTorch takes by the name of its argument, in order; empty where it says nothing."""
    from torch import nn

    dtype = _weights_type(layer) or "float32"

    def floats(*shapes: TriedSizes) -> Taken:
        return Taken(dtype=dtype, shapes=shapes)

    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        # The row of the padding stands for nothing where it is the first.
        rows = (int(layer.padding_idx == 0 and layer.num_embeddings > 1), layer.num_embeddings - 1)
        # A bag is a row each; words of one row need offsets.
        is_bag = isinstance(layer, nn.EmbeddingBag)
        taken = INDICES.shapes[: len(TOKENS)] if is_bag else INDICES.shapes
        return {"input": replace(INDICES, shapes=taken, rows=rows)}
    if isinstance(layer, (nn.LSTM, nn.GRU, nn.RNN)):
        states = layer.num_layers * (2 if layer.bidirectional else 1)
        return {
            "input": floats(_sequence(layer.input_size, batch_first=layer.batch_first)),
            # With a projection the two states of an LSTM differ.
            "hx": floats() if layer.proj_size else floats((states, None, layer.hidden_size)),
        }
    if isinstance(layer, (nn.LSTMCell, nn.GRUCell, nn.RNNCell)):
        return {"input": floats((None, layer.input_size)), "hx": floats((None, layer.hidden_size))}
    if isinstance(layer, nn.Bilinear):
        return {"input1": floats((None, layer.in1_features)), "input2": floats((None, layer.in2_features))}
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        width = layer.normalized_shape
        return {"input": floats((None, *width), (None, _LENGTH, *width))}
    if isinstance(layer, nn.BatchNorm1d):
        return {"input": floats((None, layer.num_features), (None, layer.num_features, _LENGTH))}
    if isinstance(layer, nn.GroupNorm):
        return {"input": floats(*((None, layer.num_channels, size, size) for size in _IMAGE_SIZES))}
    transformer = _transformer_arguments(layer)
    if transformer:
        return transformer
    shapes, _ = shapes_taken_by(layer)
    if shapes or _weights_type(layer):
        return {"input": floats(*shapes)}
    return {}


def _transformer_arguments(layer: Module) -> Mapping[str, Taken]:
    from torch import nn

    first: Module = layer
    if isinstance(layer, nn.Transformer):
        first = layer.encoder
    if isinstance(first, (nn.TransformerEncoder, nn.TransformerDecoder)):
        first = next(iter(first.layers), layer)
    attention = getattr(first, "self_attn", first)
    if not isinstance(attention, nn.MultiheadAttention):
        return {}
    dtype = _weights_type(attention) or "float32"

    def sequence(width: int) -> Taken:
        return Taken(dtype=dtype, shapes=(_sequence(width, batch_first=attention.batch_first),))

    # True is what is left out: a whole sequence of that would have no result.
    left_out = Taken(dtype="bool", shapes=((None, _LENGTH),), values=(0,))
    width = attention.embed_dim
    if first is attention:
        keys = {"key": sequence(attention.kdim), "value": sequence(attention.vdim)}
        return {"query": sequence(width), **keys, "key_padding_mask": left_out}
    if isinstance(layer, nn.Transformer):
        return {"src": sequence(width), "tgt": sequence(width)}
    if isinstance(first, nn.TransformerEncoderLayer):
        return {"src": sequence(width), "mask": Taken(dtype=dtype), "src_key_padding_mask": left_out}
    return {"tgt": sequence(width), "memory": sequence(width)}


def _sequence(width: int, *, batch_first: bool, length: int = _LENGTH) -> TriedSizes:
    return (None, length, width) if batch_first else (length, None, width)
