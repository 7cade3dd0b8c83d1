"""Counting Einsum: the cost of a contraction from its equation and the operands' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
        kept = tuple(label for label in joined if label in needed)
        size = prod(sizes[label] for label in joined)
        if len(kept) < len(joined):
            macs += size
            flops += 2 * size
        else:
            flops += size
        current = kept
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
    tokens = []
    while term:
        token = "..." if term.startswith("...") else term[0]
        tokens.append(token)
        term = term[len(token) :]
    return tokens


def _labels(term: str, rank: int) -> Labels:
    """The index of each axis; those under an ellipsis are numbered from the right, as broadcasting does."""
    tokens = _tokens(term)
    spread = rank - sum(token != "..." for token in tokens)
    labels: list[str] = []
    for token in tokens:
        labels += [f".{spread - axis}" for axis in range(spread)] if token == "..." else [token]
    return tuple(labels)
