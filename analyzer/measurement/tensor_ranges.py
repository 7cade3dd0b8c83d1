"""A model that also tells how far its tensors reach, for types that end early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

_MARK = ".reaches."


def with_ranges(proto: onnx.ModelProto, tensors: Iterable[str]) -> onnx.ModelProto:
    """The model with the largest and least element of some of its tensors as its only outputs, in float32.

    ONNX Runtime's CPU provider computes float16 in float32 and drops the rounding between two such operators:
    what would be infinite on a GPU is finite there, and shows how far it is above what float16 holds.

    Args:
        proto: It is changed; weights may lie beside it.
        tensors: Floats that are not empty, of the main graph.
    """
    from onnx import TensorProto, helper

    del proto.graph.output[:]
    for tensor in tensors:
        for reduction in ("ReduceMax", "ReduceMin"):
            narrow, wide = (f"{tensor}{_MARK}{reduction}{end}" for end in (".narrow", ""))
            proto.graph.node.append(
                helper.make_node(reduction, [tensor], [narrow], name=f"{wide}.of", keepdims=0)
            )
            proto.graph.node.append(
                helper.make_node("Cast", [narrow], [wide], name=f"{wide}.wide", to=TensorProto.FLOAT)
            )
            proto.graph.output.append(helper.make_tensor_value_info(wide, TensorProto.FLOAT, []))
    return proto


def beyond(outputs: Mapping[str, Any], limit: float) -> dict[str, float]:
    """By tensor the magnitude that it reaches, where that is finite and above a limit.

    What is infinite is so on purpose, as a mask of an attention is: the model itself says it.

    Args:
        outputs: Of a model ``with_ranges``.
        limit: The largest magnitude of the type.
    """
    reached: dict[str, float] = {}
    for name, value in outputs.items():
        size = abs(float(value))
        if limit < size < float("inf"):
            tensor = name.rpartition(_MARK)[0]
            reached[tensor] = max(size, reached.get(tensor, 0.0))
    return reached
