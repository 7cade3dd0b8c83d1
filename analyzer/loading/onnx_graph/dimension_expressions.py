"""Loading: sizes that a file writes as sums and products of names, such as ``12*batch + 1``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

# Characters of an expression.
_LONGEST = 1000


def is_symbol(name: str) -> bool:
    """Whether a name stands for itself, not for a sum or product."""
    return name.isidentifier() or not any(sign in name for sign in "+-*/() ")


def symbols(name: str) -> set[str]:
    """The names in an expression; none where it is no expression."""
    try:
        return {node.id for node in ast.walk(_parsed(name)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError):
        return set()


# PyTorch's exporter writes sizes that follow from a symbolic one in Python's syntax.
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def evaluate(expression: str, sizes: Mapping[str, int]) -> int | None:
    """The value of a size such as ``12*batch + 1``.

    None where a name in it is not bound or it is no sum or product.
    """
    try:
        value = _evaluated(_parsed(expression), sizes)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError):
        return None
    return value if value >= 0 else None


def _parsed(text: str) -> ast.expr:
    # Parsed, never executed: the text comes from a file that someone else wrote. Exporters write short ones;
    # a long one can be nested deeper than Python's own parser takes.
    if len(text) > _LONGEST:
        raise ValueError("too long for a size")
    return ast.parse(text, mode="eval").body


def _evaluated(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    # type() and not isinstance: True is an int too.
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        return _OPERATORS[type(tree.op)](_evaluated(tree.left, sizes), _evaluated(tree.right, sizes))
    raise ValueError(f"no sum or product: {ast.dump(tree)}")
