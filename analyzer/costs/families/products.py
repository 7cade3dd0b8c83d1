"""Counting matrix products: 2 FLOPs a multiply-accumulate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from analyzer.costs.cost import Cost, cost, dims, elements, out
from analyzer.costs.families.elementwise import GELU_TANH, activation
from analyzer.costs.families.per_element import CONTRIB
from analyzer.costs.registry import rule
from analyzer.graph import Node


def product(node: Node, macs: int, extra: int = 0, note: str = "") -> Cost:
    """Return a product of so many multiply-accumulates, and FLOPs beside it."""
    return cost(node, flops=2 * macs + extra, macs=macs, note=note)


def depth(node: Node, *, left: int = 0, transposed: bool = False) -> int:
    """Return the size that a product sums over: the last axis of the left operand, or its last but one."""
    shape = dims(node.input(left))
    return shape[-2] if transposed and len(shape) > 1 else shape[-1]


def agreed_depth(node: Node, *, left_turned: bool = False, right_turned: bool = False) -> int:
    """Return the same for two operands that must agree; an open size of one is told by the other.

    Raises:
        ValueError: They sum over different sizes, so that nothing can run this product.
    """
    left, right = _summed(node, 0, first=left_turned), _summed(node, 1, first=not right_turned)
    sizes = [size for size in (left, right) if size is not None]
    if not sizes:
        return depth(node, transposed=left_turned)
    # A 1 may be what stands for an open size, and is no contradiction.
    if min(sizes) > 1 and min(sizes) != max(sizes):
        raise ValueError(f"its operands sum over {left:,} and {right:,} elements")
    return max(sizes)


def _summed(node: Node, position: int, *, first: bool) -> int | None:
    """Return the size of the axis that is summed over, the last but one or the last; None where it is open."""
    tensor = node.input(position)
    if tensor is None or not tensor.shape:
        return None
    return tensor.shape[-2] if first and len(tensor.shape) > 1 else tensor.shape[-1]


@rule("MatMul")
def matmul(node: Node) -> Cost:
    """2 * outputs * K, K being the last axis of A; broadcast batches and 1-D operands included."""
    return product(node, out(node) * agreed_depth(node))


@rule("MatMulInteger")
@rule("MatMulInteger16", domain=CONTRIB)
def matmul_integer(node: Node) -> Cost:
    """2 * outputs * K: integer multiply-accumulates are 2 operations too."""
    return product(node, out(node) * depth(node))


@rule("Gemm")
def gemm(node: Node) -> Cost:
    """2 * M * N * K, and M * N for C; alpha and beta are not counted."""
    # PyTorch's counter leaves the scales out too (torch/utils/flop_counter.py, addmm_flop), and the bias: we
    # count it, and a comparison must take M * N off.
    outputs = out(node)
    turned = node.attributes
    macs = outputs * agreed_depth(
        node, left_turned=bool(turned.get("transA", 0)), right_turned=bool(turned.get("transB", 0))
    )
    return product(node, macs, outputs if node.input(2) is not None else 0)


@rule("FusedGemm", "GemmFloat8", domain=CONTRIB)
def fused_gemm(node: Node) -> Cost:
    """2 * M * N * K, M * N for C, and the activation's FLOPs an output."""
    outputs = out(node)
    macs = outputs * depth(node, transposed=bool(node.attributes.get("transA", 0)))
    each = (node.input(2) is not None) + activation(node.attributes.get("activation", ""))
    return product(node, macs, each * outputs)


@rule("FusedMatMul", "TransposeMatMul", "SparseToDenseMatMul", "FusedMatMulActivation", domain=CONTRIB)
def fused_matmul(node: Node) -> Cost:
    """2 * outputs * K, and the activation's FLOPs an output where there is one; alpha is not counted.

    A sparse operand is counted as if it were dense.
    """
    outputs = out(node)
    return product(
        node, outputs * _fused_depth(node), activation(node.attributes.get("activation", "")) * outputs
    )


def _fused_depth(node: Node) -> int:
    """K of a product with transposed operands; transBatchA moves A's first axis to the last but one."""
    attributes = node.attributes
    for position, side in ((0, "A"), (1, "B")):
        tensor = node.input(position)
        if tensor is None or tensor.shape is None:
            continue
        shape, turned = dims(tensor), bool(attributes.get(f"trans{side}", 0))
        if attributes.get(f"transBatch{side}", 0):
            shape = (*shape[1:-1], shape[0], shape[-1])
        if len(shape) == 1:
            return shape[0]
        return shape[-2] if turned == (side == "A") else shape[-1]
    return depth(node)


@rule("GemmFastGelu", domain=CONTRIB)
def gemm_fast_gelu(node: Node) -> Cost:
    """2 * outputs * K, outputs for a bias, and 8 * outputs for the tanh form of Gelu."""
    outputs = out(node)
    return product(node, outputs * depth(node), (GELU_TANH + (node.input(2) is not None)) * outputs)


@rule("Einsum")
def einsum(node: Node) -> Cost:
    """2 * (product of all index sizes of each pair, contracted from left to right); nothing is allocated.

    A pair that sums over no index is a product of 1 FLOP an element; a single operand costs 1 FLOP an element
    that is summed, and nothing where it is only permuted.
    """
    shapes = [dims(tensor) for tensor in node.present_inputs]
    flops, macs = contraction(node.attributes["equation"], shapes)
    return cost(node, flops=flops, macs=macs)


@rule("CDist", domain=CONTRIB)
def cdist(node: Node) -> Cost:
    """2 * M * N * K for the cross product, 4 * outputs for the norms' sum and root.

    2 * inputs for the norms.
    """
    extra = 4 * out(node) + 2 * (elements(node.input(0)) + elements(node.input(1)))
    return product(node, out(node) * depth(node), extra)


@rule("Det")
def det(node: Node) -> Cost:
    """2/3 * n^3 a matrix, by LU decomposition."""
    shape = dims(node.inputs[0])
    size = shape[-1]
    # The factorisation alone (LAPACK's getrf); n - 1 products along the diagonal vanish beside it.
    matrices = elements(node.inputs[0]) // (size * size) if size else 0
    return cost(node, flops=matrices * (2 * size**3 // 3))


@rule("Inverse", domain=CONTRIB)
def inverse(node: Node) -> Cost:
    """2 * n^3 a matrix, by LU decomposition."""
    # LAPACK's getrf takes 2/3 n^3, and getri, which makes the inverse of the factors, 4/3 n^3.
    shape = dims(node.inputs[0])
    return cost(node, flops=2 * elements(node.inputs[0]) * shape[-1])


# Counting Einsum: the cost of a contraction from its equation and the operands' shapes.
Labels = tuple[str, ...]


def contraction(equation: str, shapes: Sequence[Sequence[int]]) -> tuple[int, int]:
    """FLOPs and multiply-accumulates of an Einsum, operands contracted in pairs from left to right.

    An index that no later operand and not the result needs is summed as soon as it can be.

    Raises:
        ValueError: The equation does not fit the operands.
    """
    operands, result, sizes = _parsed(equation, shapes)
    flops = macs = 0
    current = operands[0]
    for position, other in enumerate(operands[1:], start=1):
        needed = set(result).union(*operands[position + 1 :])
        joined = tuple(dict.fromkeys((*current, *other)))
        remaining = tuple(label for label in joined if label in needed)
        size = prod(sizes[label] for label in joined)
        if len(remaining) < len(joined):
            macs += size
            flops += 2 * size
        else:
            flops += size
        current = remaining
    if len(operands) == 1 and set(current) != set(result):
        flops += prod(sizes[label] for label in set(current))
    return flops, macs


def _parsed(equation: str, shapes: Sequence[Sequence[int]]) -> tuple[list[Labels], Labels, dict[str, int]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"'{equation}' names {len(terms)} operands, there are {len(shapes)}")
    operands = [_labels(term, len(shape)) for term, shape in zip(terms, shapes, strict=True)]
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        if len(labels) != len(shape):
            raise ValueError(f"'{equation}' does not fit an operand of rank {len(shape)}")
        for label, size in zip(labels, shape, strict=True):
            # A 1 broadcasts against the other operand's size, as numpy.einsum has it under an ellipsis.
            sizes[label] = max(size, sizes.get(label, 1))
    batch = tuple(
        sorted((label for label in sizes if label.startswith(".")), key=lambda label: -int(label[1:]))
    )
    if arrow:
        result = tuple(label for part in _tokens(right) for label in (batch if part == "..." else (part,)))
    else:
        # Without an arrow: what stands once, in the order of ASCII (onnx/defs/math/defs.cc, Einsum).
        letters = left.replace(",", "").replace("...", "")
        result = batch + tuple(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return operands, result, sizes


def _tokens(term: str) -> list[str]:
    return re.findall(r"\.\.\.|.", term, re.DOTALL)


def _labels(term: str, rank: int) -> Labels:
    """Return index of each axis; those under an ellipsis are numbered from the right, as broadcasting does."""
    tokens = _tokens(term)
    spread = rank - sum(token != "..." for token in tokens)
    labels: list[str] = []
    for token in tokens:
        labels += [f".{spread - axis}" for axis in range(spread)] if token == "..." else [token]
    return tuple(labels)
