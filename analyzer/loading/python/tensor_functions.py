"""Functions and methods of PyTorch by name: what they take of their operands, and what becomes of those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from analyzer.loading.python.layer_inputs import INDICES, LENGTHS, Taken

INDEX = Taken(dtype="int64", strength=3)
# True is what is kept; of what is filled it is what is left out, and all of that has no result.
MASK = Taken(dtype="bool", values=(1,))
FILLED = Taken(dtype="bool", values=(0,))
# Of the mask of a tokenizer; what is compared may have any type.
COMPARED = Taken(dtype="int64", strength=0)
ARITHMETIC = Taken(dtype="float32", strength=1)

# By function, the operand that must be whole numbers, and its keyword; a method's first operand is its tensor.
INDEXED: Mapping[str, tuple[int, str, Taken]] = {
    "embedding": (0, "input", INDICES),
    "embedding_bag": (0, "input", INDICES),
    "one_hot": (0, "tensor", INDICES),
    "gather": (2, "index", INDEX),
    "index_select": (2, "index", INDEX),
    "index_add": (2, "index", INDEX),
    "scatter": (2, "index", INDEX),
    "scatter_add": (2, "index", INDEX),
    "take": (1, "index", INDEX),
    "take_along_dim": (1, "indices", INDEX),
    "cross_entropy": (1, "target", INDEX),
    "nll_loss": (1, "target", INDEX),
    "pack_padded_sequence": (1, "lengths", LENGTHS),
}
MASKED: Mapping[str, tuple[int, str]] = {
    "masked_fill": (1, "mask"),
    "masked_fill_": (1, "mask"),
    "masked_select": (1, "mask"),
    "masked_scatter": (1, "mask"),
}
# Element by element: the result has the type and shape of what is read.
FLOAT_ELEMENTS = frozenset(
    (
        "cos",
        "dropout",
        "exp",
        "gelu",
        "leaky_relu",
        "log",
        "normalize",
        "relu",
        "sigmoid",
        "silu",
        "sin",
        "softmax",
        "log_softmax",
        "sqrt",
        "tanh",
    )
)
FLOAT_FUNCTIONS = frozenset(
    (
        "adaptive_avg_pool2d",
        "addmm",
        "avg_pool2d",
        "baddbmm",
        "bmm",
        "cdist",
        "conv1d",
        "conv2d",
        "conv3d",
        "cosine_similarity",
        "einsum",
        "grid_sample",
        "interpolate",
        "layer_norm",
        "linear",
        "matmul",
        "max_pool2d",
        "mean",
        "mm",
        "mse_loss",
        "scaled_dot_product_attention",
        "std",
        "var",
    )
)
ELEMENTS = frozenset(
    (
        "abs",
        "add",
        "clamp",
        "div",
        "masked_fill",
        "mul",
        "neg",
        "sub",
    )
)
SAME = frozenset(
    (
        "clone",
        "contiguous",
        "cpu",
        "cuda",
        "detach",
        "flatten",
        "pack_padded_sequence",
        "requires_grad_",
        "reshape",
        "to",
        "view",
    )
)
CONCATENATIONS = frozenset(("cat", "concat", "concatenate"))
# Made like their operand: its shape and, unless told, its type.
LIKE = frozenset(
    (
        "empty_like",
        "full_like",
        "ones_like",
        "zeros_like",
    )
)
CASTS = frozenset(
    (
        "bool",
        "double",
        "float",
        "half",
        "int",
        "long",
        "type",
        "type_as",
    )
)
MOVED = frozenset(
    (
        "broadcast_to",
        "chunk",
        "expand",
        "expand_as",
        "flip",
        "movedim",
        "narrow",
        "pad",
        "permute",
        "repeat",
        "repeat_interleave",
        "roll",
        "select",
        "split",
        "squeeze",
        "stack",
        "swapaxes",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
    )
)
# How axes are moved, and by how many numbers that is said; 0 for one for each axis.
AXIS_MOVES: Mapping[str, tuple[Literal["swap", "order", "insert", "remove"], int]] = {
    "permute": ("order", 0),
    "squeeze": ("remove", 1),
    "swapaxes": ("swap", 2),
    "transpose": ("swap", 2),
    "unsqueeze": ("insert", 1),
}
