"""Kernels of quantised operators: which measured family each belongs to, by its types and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.graph import Node, Tensor

FAMILIES = ("u8s8", "u8u8", "dynamic", "nbits4a4", "nbits4a0", "nbits8a4", "nbits8a0")
"""Products that ``calibrate`` measures: 8 bits with weights of either sign, dynamic, packed."""

UNPACKED = ("nbits4a0", "nbits8a0")
"""Those that make floats of packed weights in each run."""

ROW_UNPACKED = "nbits4a0"
"""The one of them that has a kernel of its own for one row (onnxruntime/core/mlas/lib/qnbitgemm.cpp)."""

# ``qdq_matmulnbits_accuracy_level`` of a session: what DequantizeLinear and MatMul become.
_OF_SESSIONS = 4
_FEW_BITS = 4
_QUANTISES = frozenset({"DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention"})


def family_of(op_type: str, node: Node) -> str:
    """The family of an integer product that is one operator of the model."""
    if op_type == "MatMulNBits":
        bits = int(node.attributes.get("bits", _FEW_BITS))
        return _packed(bits, int(node.attributes.get("accuracy_level", 0)))
    if op_type in _QUANTISES:
        return _dynamic(list(node.present_inputs)[1:])
    known = [tensor for tensor in node.present_inputs if tensor.constant]
    second = node.input(1)
    return _eight_bits(known or ([second] if second is not None else []))


def family_of_group(op_type: str, nodes: Sequence[Node], stored: Sequence[Tensor]) -> str:
    """The family of an integer product that a session made of several operators, which read these constants."""
    if op_type == "MatMulNBits":
        # One that took up a bias is what it was: its weights are bytes, whatever they hold.
        own = next((node for node in nodes if node.op_type == op_type), None)
        if own is not None:
            return family_of(op_type, own)
        weights = max(stored, key=lambda tensor: tensor.elements or 0, default=None)
        return _packed(weights.dtype.bits or _FEW_BITS if weights is not None else _FEW_BITS, _OF_SESSIONS)
    return _dynamic(stored) if op_type in _QUANTISES else _eight_bits(stored)


def _dynamic(stored: Sequence[Tensor]) -> str:
    """The probe has signed weights, for which alone a processor may have instructions (AMX)."""
    return "u8u8" if stored and _eight_bits(stored) == "u8u8" else "dynamic"


def _packed(bits: int, accuracy: int) -> str:
    # By any other level than 4 floats are multiplied by dequantised weights.
    return f"nbits{8 if bits > _FEW_BITS else 4}a{4 if accuracy == _OF_SESSIONS else 0}"


def _eight_bits(stored: Sequence[Tensor]) -> str:
    weights = max(stored, key=lambda tensor: tensor.elements or 0, default=None)
    return "u8u8" if weights is None or weights.dtype.name == "uint8" else "u8s8"


PROBED_CONVOLUTIONS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "stem7x7s2": (147, 64, 49),
        "stem3x3s2": (27, 32, 9),
        "3x3": (576, 64, 9),
        "3x3small": (4608, 512, 9),
        "3x3s2": (1152, 128, 9),
        "1x1": (64, 256, 1),
        "1x1small": (512, 2048, 1),
        "5x5": (800, 32, 25),
        "3x3few": (144, 16, 9),
    }
)
"""Of the probe of each class of ungrouped convolutions: products of a result, filters, taps."""

# Filters whose weights are packed beside each other (onnxruntime/core/mlas/lib/qgemm.h: 16 columns a panel).
_PANEL = 16.0


class IntegerShapes:
    """What convolutions on integers take besides their products, from probes that have more and less of it.

    A result is turned back into a byte, however few products it has; taps are gathered into a row at each
    position, however few filters read it; and filters fill whole panels. Fitted to nothing: each cost is the
    difference of two probes, whose operations per second ``rate_of`` gives by class; None where not measured.
    """

    def __init__(self, rate_of: Callable[[str], float | None]) -> None:
        self._rate_of = rate_of
        deep, shallow = self._position_s("1x1small"), self._position_s("1x1")
        self._product_s = self._result_s = 0.0
        if deep is not None and shallow is not None:
            many, filters, _ = PROBED_CONVOLUTIONS["1x1small"]
            few, beside, _ = PROBED_CONVOLUTIONS["1x1"]
            # Two probes, two unknowns.
            self._product_s = max(0.0, deep / filters - shallow / beside) / (many - few)
            self._result_s = max(0.0, shallow / beside - few * self._product_s)
        self._tap_s = {name: self._gathered_s(name) for name in ("stem3x3s2", "3x3few")}

    def factors(self, names: npt.NDArray[np.str_], filters: Floats, products: Floats, taps: Floats) -> Floats:
        """Time of an operation over what it is at the probe of its class; 1 for those that are grouped.

        ``filters`` are results at a position, ``products`` those of a result, ``taps`` the window's positions.
        """
        factors = np.ones(len(names))
        if not self._product_s:
            return factors
        for name in np.unique(names).tolist():
            if name in PROBED_CONVOLUTIONS:
                mine = names == name
                each = self._operation_s(name, products[mine], filters[mine], taps[mine])
                known = (np.full(1, float(size)) for size in PROBED_CONVOLUTIONS[name])
                factors[mine] = each / self._operation_s(name, *known)
        return factors

    def _operation_s(self, name: str, products: Floats, filters: Floats, taps: Floats) -> Floats:
        filled = np.ceil(np.maximum(filters, 1.0) / _PANEL) * _PANEL
        tap_s = self._tap_s["stem3x3s2" if name.startswith("stem") else "3x3few"]
        gathered = np.where(taps > 1, taps * tap_s, 0.0)
        seconds = filled * products * self._product_s + filters * self._result_s + gathered
        return seconds / np.maximum(filters * products, 1.0)

    def _position_s(self, name: str) -> float | None:
        """Seconds for all filters at one position of a probe."""
        products, filters, _ = PROBED_CONVOLUTIONS[name]
        rate = self._rate_of(name)
        return 2.0 * products * filters / rate if rate else None

    def _gathered_s(self, name: str) -> float:
        seconds = self._position_s(name)
        products, filters, taps = PROBED_CONVOLUTIONS[name]
        if seconds is None:
            return 0.0
        return max(0.0, seconds - filters * (products * self._product_s + self._result_s)) / taps
