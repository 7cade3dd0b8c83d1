"""One-operator models beyond those that a calibration probes: other shapes, axes, ranks, attributes, signs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """An operator with its inputs.

    Attributes:
        name: As the table shows it.
        op: Operator type.
        fed, stored: Inputs in order: those that are fed, then those that are stored (None: absent).
        outputs: How many it has.
        attributes: Of the node.
        opset: Version of the operators.
        domain: Of the operator; empty for ONNX's own.
    """

    name: str
    op: str
    fed: tuple[Array, ...]
    stored: tuple[Array | None, ...] = ()
    outputs: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 20
    domain: str = ""


def floats(*shape: int) -> Array:
    """Of either sign."""
    return np.asarray(_RANDOM.standard_normal(shape), np.float32)


def below(limit: int, *shape: int) -> Array:
    """Whole numbers from 0."""
    return _RANDOM.integers(0, limit, shape)


def whole(*values: int) -> Array:
    """A list of whole numbers, as axes and sizes are given."""
    return np.array(values, np.int64)


def number(value: float) -> Array:
    """A scalar float."""
    return np.array(value, np.float32)


def cases() -> Iterator[Case]:
    """All of them; time is of one call each, some 0.1 to 15 ms."""
    yield from _indexed()
    yield from _convolutions()
    yield from _pools_and_images()
    yield from _moved()
    yield from _reduced()
    yield from _elementwise()
    yield from _rare()


def _indexed() -> Iterator[Case]:
    table, rows, updates = floats(5000, 64), below(5000, 40000, 1), floats(40000, 64)
    square, places = floats(512, 512), below(512, 512, 512)
    yield Case("Gather rows", "Gather", (table, rows[:, 0]))
    yield Case("GatherND rows", "GatherND", (table, rows))
    yield Case("GatherND elements", "GatherND", (square, below(512, 20000, 2)))
    yield Case("GatherElements last", "GatherElements", (square, places), attributes={"axis": 1})
    yield Case("GatherElements first", "GatherElements", (square, places), attributes={"axis": 0})
    yield Case("ScatterND adds", "ScatterND", (table, rows, updates), attributes={"reduction": "add"})
    yield Case("ScatterND", "ScatterND", (table, rows[:4000], updates[:4000]))
    columns = below(5000, 10000, 64)
    added = (table, columns, floats(10000, 64))
    for reduction in ("none", "add"):
        attributes = {"axis": 0, "reduction": reduction}
        yield Case(f"ScatterElements first, {reduction}", "ScatterElements", added, attributes=attributes)
    yield Case("ScatterElements last, max", "ScatterElements", (square, places, floats(512, 512)),
               attributes={"axis": 1, "reduction": "max"})  # fmt: skip
    yield Case("OneHot", "OneHot", (below(1000, 4096),), (np.array(1000), np.array([0, 1], np.float32)))
    yield Case("NonZero", "NonZero", (square > 0,))
    yield Case("Unique", "Unique", (below(1000, 20000),))


def _convolutions() -> Iterator[Case]:
    def one(name: str, source: Array, filters: Array, **attributes: Any) -> Case:
        op = "ConvTranspose" if name.startswith("transposed") else "Conv"
        return Case(
            name, op, (source,), (filters,), attributes={"kernel_shape": filters.shape[2:], **attributes}
        )

    yield one("depthwise, sequence, 31", floats(1, 256, 400), floats(256, 1, 31), group=256, pads=[15, 15])
    yield one("depthwise, sequence, 15", floats(1, 512, 200), floats(512, 1, 15), group=512, pads=[7, 7])
    yield one("depthwise, sequence, 3", floats(1, 256, 400), floats(256, 1, 3), group=256, pads=[1, 1])
    yield one("sequence, 3", floats(1, 128, 1000), floats(128, 128, 3), pads=[1, 1])
    yield one("sequence, 80 channels", floats(1, 80, 3000), floats(384, 80, 3), pads=[1, 1])
    yield one("sequence, 1", floats(1, 256, 400), floats(512, 256, 1))
    yield one("sequence, 16 groups", floats(1, 768, 50), floats(768, 48, 128), group=16, pads=[64, 64])
    yield one("sequence, one channel", floats(1, 1, 16000), floats(512, 1, 10), strides=[5])
    yield one("volume", floats(1, 32, 8, 28, 28), floats(64, 32, 3, 3, 3), pads=[1] * 6)
    yield one("volume, 3 channels", floats(1, 3, 16, 56, 56), floats(32, 3, 3, 3, 3), pads=[1] * 6)
    yield one("depthwise, volume, 3", floats(1, 64, 8, 14, 14), floats(64, 1, 3, 3, 3), group=64, pads=[1] * 6)
    yield one("depthwise, volume, 5", floats(1, 64, 8, 14, 14), floats(64, 1, 5, 5, 5), group=64, pads=[2] * 6)
    yield one("depthwise, image, 7", floats(1, 96, 56, 56), floats(96, 1, 7, 7), group=96, pads=[3] * 4)
    yield one("image, 3", floats(1, 64, 56, 56), floats(64, 64, 3, 3), pads=[1] * 4)
    yield one("image, dilated", floats(1, 64, 56, 56), floats(64, 64, 3, 3), pads=[2] * 4, dilations=[2, 2])
    yield one("transposed, image", floats(1, 128, 32, 32), floats(128, 64, 4, 4), pads=[1] * 4, strides=[2, 2])
    yield one("transposed, sequence", floats(1, 256, 200), floats(256, 128, 16), pads=[4, 4], strides=[8])


def _pools_and_images() -> Iterator[Case]:
    sources = {1: floats(1, 64, 8000), 2: floats(1, 64, 112, 112), 3: floats(1, 32, 16, 56, 56)}
    for op in ("MaxPool", "AveragePool"):
        for rank, source in sources.items():
            for size in (2, 3):
                attributes = {"kernel_shape": [size] * rank, "strides": [2] * rank}
                yield Case(f"{op}, {rank} axes, {size}", op, (source,), attributes=attributes)
    roi, scales = np.array([], np.float32), np.array([1, 1, 2, 2], np.float32)
    for mode in ("linear", "nearest"):
        yield Case(
            f"Resize {mode}", "Resize", (floats(1, 16, 64, 64),), (roi, scales), attributes={"mode": mode}
        )
    yield Case("GridSample", "GridSample", (floats(1, 16, 64, 64), floats(1, 64, 64, 2) / 2))
    corners = np.cumsum(np.abs(floats(50, 4)) * 5, axis=1, dtype=np.float32)
    yield Case("RoiAlign", "RoiAlign", (floats(1, 64, 50, 50), corners, below(1, 50)),
               attributes={"output_height": 7, "output_width": 7})  # fmt: skip
    yield Case("DepthToSpace CRD", "DepthToSpace", (floats(1, 12, 128, 128),),
               attributes={"blocksize": 2, "mode": "CRD"})  # fmt: skip
    yield Case("SpaceToDepth", "SpaceToDepth", (floats(1, 3, 256, 256),), attributes={"blocksize": 2})


def _moved() -> Iterator[Case]:
    for name, source, order in (
        ("windows' heads", floats(128, 49, 3, 3, 32), [2, 0, 3, 1, 4]),
        ("windows", floats(2, 8, 7, 8, 7, 96), [0, 1, 3, 2, 4, 5]),
        ("heads", floats(8, 128, 12, 64), [0, 2, 1, 3]),
        ("matrices", floats(8, 196, 256), [0, 2, 1]),
        ("one sequence's heads", floats(1, 400, 1, 3, 256), [3, 0, 2, 1, 4]),
        ("channels last", floats(1, 64, 56, 56), [0, 2, 3, 1]),
        ("pixels apart", floats(8, 6, 2, 40, 2, 56), [0, 1, 3, 5, 2, 4]),
    ):
        yield Case(f"Transpose {name}", "Transpose", (source,), attributes={"perm": order})
    wide = floats(256, 4096)
    yield Case("Slice", "Slice", (wide,), (whole(100), whole(3000), whole(1)))
    yield Case("Slice with steps", "Slice", (wide,), (whole(0), whole(4096), whole(1), whole(2)))
    yield Case("Pad", "Pad", (floats(1, 64, 56, 56),), (whole(0, 0, 1, 1, 0, 0, 1, 1),))
    yield Case("Tile", "Tile", (floats(64, 256),), (whole(16, 1),))
    yield Case("Expand", "Expand", (floats(64, 1, 256),), (whole(64, 64, 256),))
    yield Case("Concat", "Concat", (floats(256, 512), floats(256, 512)), attributes={"axis": 1})
    yield Case("Trilu", "Trilu", (floats(16, 256, 256),))
    yield Case("Where", "Where", (floats(256, 1024) > 0, floats(256, 1024), floats(256, 1024)))
    yield Case("Einsum, products", "Einsum", (floats(64, 32, 32), floats(64, 32, 32)),
               attributes={"equation": "bij,bkj->bik"})  # fmt: skip


def _reduced() -> Iterator[Case]:
    yield Case("ReduceMean, last three", "ReduceMean", (floats(1, 64, 8, 28, 28),), (whole(2, 3, 4),))
    yield Case("ReduceMean, middle", "ReduceMean", (floats(16, 128, 256),), (whole(1),))
    yield Case("ReduceSum, first", "ReduceSum", (floats(512, 1024),), (whole(0),))
    yield Case("ReduceL2", "ReduceL2", (floats(1024, 128),), (whole(1),))
    yield Case("ArgMax", "ArgMax", (floats(256, 8000),), attributes={"axis": 1})
    yield Case("CumSum", "CumSum", (floats(64, 1024),), (np.array(1),))
    yield Case("TopK, 5 of 2,000", "TopK", (floats(64, 2000),), (whole(5),), outputs=2)
    yield Case("TopK, 1,000 of 20,000", "TopK", (floats(4, 20000),), (whole(1000),), outputs=2)
    yield Case("TopK, all", "TopK", (floats(64, 1024),), (whole(1024),), outputs=2)
    image, channels = floats(1, 64, 64, 64), (floats(64), floats(64))
    yield Case("InstanceNormalization", "InstanceNormalization", (image,), channels)
    yield Case("GroupNormalization", "GroupNormalization", (image,), channels, attributes={"num_groups": 16},
               opset=21)  # fmt: skip
    yield Case("LRN", "LRN", (floats(1, 64, 28, 28),), attributes={"size": 5})
    yield Case("LogSoftmax", "LogSoftmax", (floats(256, 1000),))
    yield Case("Hardmax", "Hardmax", (floats(256, 1000),))


_UNARY = (
    *("Erf", "Gelu", "Sin", "Exp", "Tanh", "Softplus", "Mish", "HardSwish", "LeakyRelu", "Elu", "Celu", "Sign"),
    *("Round", "Sinh", "Tan", "Asinh", "Atan", "Shrink", "RandomNormalLike", "IsInf"),
)


def _elementwise() -> Iterator[Case]:
    x, y = floats(256, 1024), floats(256, 1024)
    image, numbers = floats(1, 64, 64, 64), below(1000, 256, 1024)
    for op in _UNARY:
        yield Case(op, op, (x,))
    for exponent in (0.5, 2.0, 2.5):
        yield Case(f"Pow {exponent}", "Pow", (np.abs(x),), (number(exponent),))
    yield Case("PRelu, by channel", "PRelu", (image,), (floats(64, 1, 1),))
    yield Case("Add, by channel", "Add", (image,), (floats(64, 1, 1),))
    yield Case("Mul, by row", "Mul", (x, floats(256, 1)))
    yield Case("Clip", "Clip", (x,), (number(0), number(6)))
    yield Case("Mod, whole numbers", "Mod", (numbers,), (np.array(7),))
    yield Case("Mod, floats", "Mod", (x,), (number(0.7),), attributes={"fmod": 1})
    yield Case("Equal, whole numbers", "Equal", (numbers, below(1000, 256, 1024)))
    yield Case("BitwiseAnd", "BitwiseAnd", (numbers, below(1000, 256, 1024)))
    yield Case("Max", "Max", (x, y))
    yield Case("Sum of three", "Sum", (x, y, floats(256, 1024)))
    yield Case("Cast to 64 bits", "Cast", (x,), attributes={"to": 7})
    yield Case("Cast from 32 bits", "Cast", (numbers.astype(np.int32),), attributes={"to": 1})


def _rare() -> Iterator[Case]:
    for length in (512, 400):
        yield Case(f"DFT of {length}", "DFT", (floats(16, length, 1),), (np.array(length), np.array(1)))
        window = np.hanning(length).astype(np.float32)
        yield Case(f"STFT of {length}", "STFT", (floats(1, 16000),), (np.array(160), window))
    for size in (3, 8):
        yield Case(f"Det {size} x {size}", "Det", (floats(1000, size, size),))
    limits = (np.array(50), number(0.5), number(0.1))
    yield Case(
        "NonMaxSuppression", "NonMaxSuppression", (np.abs(floats(1, 1000, 4)), floats(1, 10, 1000)), limits
    )
