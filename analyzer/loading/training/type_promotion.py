"""Explicit casts where PyTorch mixes element types by itself, which ONNX's operators do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.loading.torch_private import operator, operator_name

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx


# Operators whose operands ONNX wants of one type (its type constraint T). What PyTorch gives is known from the
# trace, so its rules (torch/_prims_common/__init__.py, elementwise_dtypes) need not be repeated here.
_ARITHMETIC = (
    "add sub mul div pow remainder fmod maximum minimum where atan2 lerp addcmul addcdiv rsub hypot xlogy"
)
_COMPARISONS = "eq ne lt le gt ge"
_REDUCTIONS = "sum prod cumsum mean"


def promote(graph: fx.Graph) -> None:
    """Casts the operands of element-wise operators and reductions to the type that PyTorch computes in."""
    for node in list(graph.nodes):
        packet = operator_name(node.target)
        if node.op != "call_function" or packet not in _KINDS:
            continue
        dtype = _KINDS[packet](node)
        if dtype is not None:
            condition = packet == "where"
            for position, argument in enumerate(node.args):
                value = _tensor(argument)
                if value is None or value.dtype == dtype or (condition and position == 0):
                    continue  # the condition of Where is of truth values, whatever it chooses between
                with graph.inserting_before(node):
                    cast = graph.call_function(operator("_to_copy"), (argument,), {"dtype": dtype})
                cast.meta = {**node.meta, "val": value.to(dtype)}
                node.update_arg(position, cast)


def _result(node: fx.Node) -> torch.dtype | None:
    """The type of what comes out; a power or quotient of whole numbers is real already."""
    value = node.meta.get("val")
    return getattr(value, "dtype", None)


def _common(node: fx.Node) -> torch.dtype | None:
    """The type in which two tensors are compared; numbers among the operands do not change it."""
    import torch

    tensors = [value for argument in node.args[:2] if (value := _tensor(argument)) is not None]
    return torch.result_type(*tensors) if len(tensors) == 2 else None


_KINDS = {
    **dict.fromkeys(_ARITHMETIC.split(), _result),
    **dict.fromkeys(_REDUCTIONS.split(), _result),
    **dict.fromkeys(_COMPARISONS.split(), _common),
}


def _tensor(argument: object) -> Tensor | None:
    value = getattr(argument, "meta", {}).get("val")
    return value if hasattr(value, "dtype") and hasattr(value, "shape") else None
