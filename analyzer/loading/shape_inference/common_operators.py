"""Loading: the output types of the commonest operators, without a call into ONNX's own inference.

Calling it for a whole model means writing the model out, reading it in and reading the types back, which takes
longer than all else about a small graph. Each rule here is for inputs whose sizes are all known, of opset 7 or
later, and gives the types of a node's outputs, or nothing where a node is not of the ordinary kind: ONNX's own
inference is then asked. Both give the same for every node of ONNX's backend suite, which a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

from analyzer.graph import Tensor
from analyzer.loading.shape_inference import arithmetic, movement
from analyzer.loading.shape_inference.protobuf_values import LARGEST, Type
from analyzer.loading.shape_inference.rules import RULES, KnownInput

# Imported for their rules, which register themselves; named here so that no tool takes the imports for unused.
__all__ = ["OLDEST_OPSET", "arithmetic", "common_output_types", "has_rule", "movement"]

OLDEST_OPSET = 7
"""Before this opset, operators of two inputs broadcast by attributes (``onnx/defs/math/old.cc``)."""


def common_output_types(
    op_type: str, inputs: Sequence[Tensor | None], attributes: Mapping[str, Any], outputs: int
) -> Sequence[Type] | None:
    """The types of an operator's outputs, all of them; None where ONNX's own inference is to tell.

    Args:
        op_type: Of the default domain, at opset 7 or later.
        inputs: With sizes that are all known.
        attributes: The node's.
        outputs: How many it has.
    """
    rule = RULES.get(op_type)
    if rule is None:
        return None
    try:
        kinds = rule(
            cast("Sequence[KnownInput]", inputs), attributes, outputs
        )  # one that lacks an input raises
        if kinds is None or len(kinds) < outputs:
            return None
        for dtype, shape in kinds:
            if not dtype.onnx or prod(shape) > LARGEST:  # type: ignore[arg-type]  # open sizes raise
                return None
    except Exception:  # what does not fit together: ONNX's inference, asked next, words the reason
        return None
    return kinds


def has_rule(op_type: str) -> bool:
    """Whether there is a rule."""
    return op_type in RULES
