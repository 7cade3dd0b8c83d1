"""Loading: output types of ONNX Runtime's own operators, which ONNX's inference does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import Tensor
from analyzer.loading.values import Type

if TYPE_CHECKING:
    import onnx


def infer_contrib(
    proto: onnx.NodeProto, domain: str, inputs: Sequence[Tensor | None], attributes: Mapping[str, Any]
) -> Mapping[str, Type]:
    return {}
