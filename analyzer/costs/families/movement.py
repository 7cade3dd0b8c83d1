"""Count movement (0 FLOPs, and bytes), views (0 of both), sequences, optionals, maps and strings."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from analyzer.costs.cost import ZERO, Cost, cost, dims, elements, nbytes, out, reads
from analyzer.costs.families.per_element import CONTRIB, NCHWC, NHWC, moves
from analyzer.costs.registry import rule
from analyzer.graph import Node, Tensor
from analyzer.operators import CONTRIB_VIEWS, VIEWS, in_training

MOVES = {
    "Cast": "reads its input, writes its output, each in its own width",
    "CastLike": "reads its input, writes its output, each in its own width",
    "CenterCropPad": "reads what it keeps, writes its output",
    "Concat": "reads its inputs, writes its output",
    "ConstantOfShape": "writes its output",
    "Crop": "reads what it keeps, writes its output",
    "DepthToSpace": "reads and writes every element",
    "DynamicSlice": "reads its slice, writes its output",
    "Expand": "reads its input once, writes its output",
    "EyeLike": "writes its output",
    "Gather": "reads the rows that are gathered and the indices, writes its output",
    "GatherElements": "reads the elements that are gathered and the indices, writes its output",
    "GatherND": "reads the slices that are gathered and the indices, writes its output",
    "MemcpyFromHost": "reads and writes every element",
    "MemcpyToHost": "reads and writes every element",
    "OneHot": "reads the indices, writes its output",
    "Pad": "reads its input, writes its output",
    "Range": "writes its output",
    "ReverseSequence": "reads and writes every element",
    "Scatter": "reads data, indices and updates, writes its output in full",
    "Shape": "nothing: the shape is known without reading",
    "Size": "nothing: the size is known without reading",
    "Slice": "reads its slice, writes its output",
    "SpaceToDepth": "reads and writes every element",
    "Split": "reads and writes every element",
    "TensorScatter": "reads cache, update and indices, writes the cache in full",
    "Tile": "reads its input once, writes its output",
    "Transpose": "a real permutation reads and writes every element",
    "Trilu": "reads the triangle, writes its output",
    "Constant": "nothing: a literal is stored with the model",
}

moves({name: text for name, text in MOVES.items() if name != "Transpose"}, family=__name__)
moves(dict.fromkeys(sorted(VIEWS), "a view: no bytes move"), family=__name__)
moves(dict.fromkeys(sorted(CONTRIB_VIEWS), "a view: no bytes move"), family=__name__, domain=CONTRIB)
moves(
    {"Trilu": MOVES["Trilu"], "GatherND": MOVES["GatherND"], "Pad": MOVES["Pad"]},
    family=__name__,
    domain=CONTRIB,
)
moves(
    {
        "Range": MOVES["Range"],
        "UnfoldTensor": "reads its input once, writes every window",
        "RemovePadding": "reads the tokens that it keeps, writes them",
        "RestorePadding": "reads the tokens, writes them with padding",
    },
    family=__name__,
    domain=CONTRIB,
)
moves(
    dict.fromkeys(("ReorderInput", "ReorderOutput"), "reads and writes every element"),
    family=__name__,
    domain=NCHWC,
)
moves({name: MOVES[name] for name in ("DepthToSpace", "SpaceToDepth")}, family=__name__, domain=NHWC)


@rule("Transpose")
def transpose(node: Node) -> Cost:
    """0 FLOPs; reads and writes every element, or nothing where only axes of size 1 move."""
    shape = dims(node.inputs[0])
    perm = node.attributes.get("perm") or tuple(reversed(range(len(shape))))
    # Axes of size 1 may stand anywhere: what lies in memory stays as it is.
    order_of_long_axes = [axis for axis in perm if shape[axis] != 1]
    return ZERO if order_of_long_axes == sorted(order_of_long_axes) else cost(node, flops=0)


@rule("ScatterElements", "ScatterND")
def scatter(node: Node) -> Cost:
    """1 * updates where they are combined (reduction), else 0; data is read and the output written in full."""
    combines = node.attributes.get("reduction", "none") != "none"
    return cost(node, flops=elements(node.input(2)) if combines else 0)


@rule("Dropout")
def dropout(node: Node) -> Cost:
    """0 at inference, a view; 2 * outputs in training (mask and scale)."""
    return cost(node, flops=2 * out(node)) if in_training(node) else ZERO


@rule("BitmaskDropout", domain=CONTRIB)
def bitmask_dropout(node: Node) -> Cost:
    """0 at inference; 2 * outputs in training (mask and scale)."""
    return cost(node, flops=2 * out(node) if in_training(node) else 0)


def _width(tensor: Tensor | None) -> int:
    if tensor is None:
        return 0
    if tensor.dtype.bits is None:
        nbytes(tensor)  # for its error, which names the tensor
    return tensor.dtype.bits or 0


@reads("Gather")
def _gather(node: Node) -> Mapping[int, int]:
    """Return the rows asked for, at most all there are."""
    data, indices = node.inputs[0], node.inputs[1]
    shape = dims(data)
    axis = node.attributes.get("axis", 0)
    # Which rows the indices repeat is not known: an embedding of 1,000 tokens may read 1,000 rows or one.
    rows = min(elements(indices), shape[axis])
    row = prod(shape) // shape[axis] if shape[axis] else 0
    return {0: (rows * row * _width(data) + 7) // 8}


@reads("GatherND", "GatherElements", "Slice", "DynamicSlice", "CenterCropPad", "Crop", "Trilu")
@reads("GatherND", "RemovePadding", domain=CONTRIB)
def _at_most_output(node: Node) -> Mapping[int, int]:
    data = node.inputs[0]
    return {0: (min(elements(data), out(node)) * _width(data) + 7) // 8}


# Their input is a shape, or is asked for its shape alone; ONNX Runtime keeps shapes in host memory.
@reads("Shape", "Size", "ConstantOfShape", "EyeLike")
def _nothing(_: Node) -> Mapping[int, int]:
    return {0: 0}


# The second input gives its type alone.
@reads("CastLike")
def _first_alone(_: Node) -> Mapping[int, int]:
    return {1: 0}


moves(
    {
        "ConcatFromSequence": "reads every tensor of the sequence, writes its output",
        "Optional": "passes its input on",
        "OptionalGetElement": "passes its input on",
        "OptionalHasElement": "writes one truth value",
        "RegexFullMatch": "compares strings; their bytes have no fixed size",
        "SequenceAt": "reads and writes the tensor that is taken",
        "SequenceConstruct": "passes tensors on",
        "SequenceEmpty": "writes nothing",
        "SequenceErase": "passes tensors on",
        "SequenceInsert": "passes tensors on",
        "SequenceLength": "writes one number",
        "SplitToSequence": "reads its input, writes every part",
        "StringConcat": "reads and writes strings; their bytes have no fixed size",
        "StringNormalizer": "reads and writes strings; their bytes have no fixed size",
        "StringSplit": "reads and writes strings; their bytes have no fixed size",
        "TfIdfVectorizer": "looks up n-grams, reads its input, writes its output",
    },
    family=__name__,
)
moves(
    {"Tokenizer": "reads and writes strings; their bytes have no fixed size"}, family=__name__, domain=CONTRIB
)
