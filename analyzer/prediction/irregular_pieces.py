"""Operators whose time follows neither bytes nor writes, and the measured families of quantised kernels.

Indexed moves, searches, transforms, determinants, and boxes.

Each function makes the piece of one operator, whose ``elements`` are units that ``cpu.vectors`` has a time for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.costs.cost import Cost
from analyzer.graph import Node, Tensor
from analyzer.prediction.work_item import Kind, Piece


def indexed(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """GatherND copies a run for each index; scatters copy the data and then write the updates."""
    run = base.elements
    if node.op_type == "GatherND":
        indices = node.input(1)
        width = _last(indices)
        many = elements_of(indices) / width if width else 0.0
    else:
        updates = node.input(2)
        run = elements_of(updates)
        width = _last(node.input(1)) if node.op_type == "ScatterND" else 0
        many = elements_of(node.input(1)) / width if width else 1.0
    many = max(1.0, many)
    return [replace(base, kind=Kind.MOVE, elements=run, rows=many, row=run / many)]


def transforms(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """DFT and STFT: butterflies, of each frame ``n log2 n``."""
    source = node.input(0)
    if source is None or not source.shape or source.elements is None:
        return [base]
    sizes = tuple(size or 0 for size in source.shape)
    if node.op_type == "STFT":
        window = value_of(node.input(3)) or elements_of(node.input(2))
        written = node.output(0)
        frames = float(sizes[0] * (written.shape[1] or 0)) if written is not None and written.shape else 0.0
    else:
        axis = int(
            node.attributes.get("axis", 1) if node.version < _AXIS_IS_INPUT else value_of(node.input(2), -2)
        )
        if not -len(sizes) <= axis < len(sizes) or not sizes[axis]:
            return [base]
        window = value_of(node.input(1)) or float(sizes[axis])
        frames = math.prod(sizes[:-1]) / sizes[axis]
    return [replace(base, kind=Kind.VECTOR, op=BUTTERFLIES, elements=frames * _butterflies(int(window)))]


BUTTERFLIES = "FourierButterflies"
_AXIS_IS_INPUT = 20


def _butterflies(length: int) -> float:
    """Of one transform; of a length that is no power of two those of longer ones (Bluestein)."""
    if length < 2:
        return float(length)
    if length & (length - 1) == 0:
        return length * math.log2(length)
    # The next power of two from twice the length; two of its transforms took as long (400: 64 to 97 us).
    longer = 1 << (2 * length - 1).bit_length()
    return _OF_OTHER_LENGTHS * longer * math.log2(longer)


_OF_OTHER_LENGTHS = 2.0


def determinants(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Det: each matrix is eliminated, rows by rows; of 3, 8, 16 and 64 rows in 0.15, 0.65, 1.4 and 25 us."""
    size = _last(node.input(0))
    return [
        replace(base, kind=Kind.VECTOR, elements=base.elements * (_OF_A_MATRIX + _OF_A_ROW * float(size) ** 2))
    ]


_OF_A_MATRIX, _OF_A_ROW = 130.0, 5.5


def boxes(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """NonMaxSuppression: scores are compared and sorted, however few boxes are kept."""
    return [replace(base, kind=Kind.VECTOR, elements=elements_of(node.input(1)))]


def elements_of(tensor: Tensor | None) -> float:
    """Return how many elements a tensor has; 0 where that is not known."""
    return float((tensor.elements if tensor is not None else 0) or 0)


def value_of(tensor: Tensor | None, default: int = 0) -> int:
    """Return the first element of a tensor whose value is known."""
    if tensor is None or tensor.value is None or not tensor.value.size:
        return default
    return int(tensor.value.reshape(-1)[0])


def _last(tensor: Tensor | None) -> int:
    return int((tensor.shape[-1] if tensor is not None and tensor.shape else 0) or 0)


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
    """Return the family of an integer product that is one operator of the model."""
    if op_type == "MatMulNBits":
        bits = int(node.attributes.get("bits", _FEW_BITS))
        return _packed(bits, int(node.attributes.get("accuracy_level", 0)))
    if op_type in _QUANTISES:
        return _dynamic(list(node.present_inputs)[1:])
    known = [tensor for tensor in node.present_inputs if tensor.constant]
    second = node.input(1)
    return _eight_bits(known or ([second] if second is not None else []))


def family_of_group(op_type: str, nodes: Sequence[Node], stored: Sequence[Tensor]) -> str:
    """Return the family of an integer product fused from several operators, which read these constants."""
    if op_type == "MatMulNBits":
        # One that took up a bias is what it was: its weights are bytes, whatever they hold.
        own = next((node for node in nodes if node.op_type == op_type), None)
        if own is not None:
            return family_of(op_type, own)
        weights = max(stored, key=lambda tensor: tensor.elements or 0, default=None)
        return _packed(weights.dtype.bits or _FEW_BITS if weights is not None else _FEW_BITS, _OF_SESSIONS)
    return _dynamic(stored) if op_type in _QUANTISES else _eight_bits(stored)


def _dynamic(stored: Sequence[Tensor]) -> str:
    """Return the probe has signed weights, for which alone a processor may have instructions (AMX)."""
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
    """The time of integer convolutions besides their products, from probes with more and less of it.

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
            few, others, _ = PROBED_CONVOLUTIONS["1x1"]
            # Two probes, two unknowns.
            self._product_s = max(0.0, deep / filters - shallow / others) / (many - few)
            self._result_s = max(0.0, shallow / others - few * self._product_s)
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
        """Return seconds for all filters at one position of a probe."""
        products, filters, _ = PROBED_CONVOLUTIONS[name]
        rate = self._rate_of(name)
        return 2.0 * products * filters / rate if rate else None

    def _gathered_s(self, name: str) -> float:
        seconds = self._position_s(name)
        products, filters, taps = PROBED_CONVOLUTIONS[name]
        if seconds is None:
            return 0.0
        return max(0.0, seconds - filters * (products * self._product_s + self._result_s)) / taps
