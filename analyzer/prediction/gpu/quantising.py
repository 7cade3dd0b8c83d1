"""Activations made 8-bit floats before a product, a scale for each row: two passes of ordinary cores.

``time = start + passes x bytes / bandwidth + elements x element / units + rows x row / units``. The cores' own
work is what takes the time: the largest of a row, a division, a rounding for every element, which cards with
three times the bandwidth do no quicker.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.arrays import Floats
from analyzer.prediction.gpu.tensor_products import TensorCores


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisingConstants:
    """How engines quantise a product's activations.

    Attributes:
        start_s: With next to nothing to do, beyond one launch: in some engines it is more than one kernel.
        passes: Bytes that pass memory for an element.
        element_s: Of one multiprocessor for an element.
        row_s: Of one multiprocessor for a row.
    """

    # Dynamic fp8 products of TensorRT-LLM, vLLM and SGLang on L40S, RTX PRO 6000, GB200 and B300
    # (data of ai-dynamo/aiconfigurator), fitted with ``TensorConstants.narrow``.
    start_s: float = 3.74e-6
    passes: float = 1.85
    element_s: float = 133e-12
    row_s: float = 150e-9


def quantising_times(rows: Floats, elements: Floats, at: TensorCores, constants: QuantisingConstants) -> Floats:
    """Seconds of each, without a launch.

    Args:
        rows: Of activations, each with a scale of its own.
        elements: Of all rows together.
        at: Where.
        constants: How.
    """
    c = constants
    working = (elements * c.element_s + rows * c.row_s) / at.units
    seconds: Floats = c.start_s + c.passes * elements / at.bandwidth + working
    return seconds
