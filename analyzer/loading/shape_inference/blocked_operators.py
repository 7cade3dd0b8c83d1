"""Loading: output types of the operators on blocks of channels (NCHWc) in models that ONNX Runtime saved.

Mirrors ``onnxruntime/core/graph/contrib_ops/nchwc_schema_defs.cc`` of onnxruntime 1.31.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.loading.shape_inference.common_operators import common_output_types
from analyzer.operators import NCHWC_DOMAIN

if TYPE_CHECKING:
    from analyzer.graph import Tensor
    from analyzer.loading.shape_inference.protobuf_values import Type

DOMAIN = NCHWC_DOMAIN
# Their schemas call the inference functions of ONNX's own operators (convPoolShapeInference and
# globalPoolTypeShapeInference of onnx/defs/nn/defs.cc). Upsample, the one that is missing, is left open.
_AS_STANDARD = frozenset({"Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"})


def nchwc_types(op_type: str, inputs: Sequence[Tensor | None], attributes: Mapping[str, Any]) -> Sequence[Type]:
    """The type of the only output; empty where it is not known.

    Blocks change the order of the elements, not the sizes that a shape tells; channels may have been padded to
    whole blocks, which the weights' shapes show.
    """
    first = inputs[0] if inputs else None
    if first is None or first.shape is None or None in first.shape:
        return ()
    if op_type in _AS_STANDARD:
        # A fourth input of a convolution is added to what it gives.
        return common_output_types(op_type, inputs, attributes, 1) or ()
    shape = tuple(first.shape)
    # The schema rounds the channels up to whole blocks of the processor that runs it (MlasNchwcGetBlockSize: 8
    # or 16). The file does not say which that will be: the channels stand here as they are.
    if op_type == "ReorderInput":
        last = bool(attributes.get("channels_last", 0))
        return ((first.dtype, (shape[0], shape[-1], *shape[1:-1]) if last else shape),)
    if op_type == "ReorderOutput":
        batch, _, *sizes = shape
        channels = attributes["channels"]
        last = bool(attributes.get("channels_last", 0))
        return ((first.dtype, (batch, *sizes, channels) if last else (batch, channels, *sizes)),)
    return ()
