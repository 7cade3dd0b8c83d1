"""Probes of kernels on integers: products, convolutions and elementwise operators of quantised models.

See ``probes``. What a session makes of a quantised model is in ``ort/quantized_groups.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.measurement.ceilings.probes import (
    CLASSICAL,
    COLUMNS,
    CONV_CLASSES,
    MICROSOFT,
    ROWS,
    ConvClass,
    Probe,
    floats,
    vector,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    import numpy as np


# M, N, K. One row reads all weights for one token; of many rows each weight is used often.
_SHAPES = ((1, 1024, 1024), (4, 1024, 1024), (16, 1024, 1024), (128, 1024, 1024))
_FROM_MEMORY = (1, 4096, 4096)  # weights that no near cache keeps
_SMALL = (1, 512, 512)  # of a small decoder: what handing it to threads takes counts
_COPIES = 4
_UNPACKED = (1, 2048, 2048)  # floats of the weights fill more than near caches
_SINCE_BLOCKS = 21  # opset
_BLOCK = 32  # weights that share a scale, as quantisers write them


def products() -> Iterator[Probe]:
    """Products with weights of 8 bits, static and dynamic, and with weights packed in blocks."""
    for m, n, k in (*_SHAPES, _FROM_MEMORY):
        yield _static("u8s8", m, n, k)
        yield _dynamic(m, n, k)
        yield _packed(4, 4, m, n, k)
    small = (_static("u8s8", *_SMALL), _dynamic(*_SMALL), _packed(4, 4, *_SMALL), _packed(8, 4, *_SMALL))
    for probe in small:
        # One after the other, as in a decoder: between calls of one alone threads are already waiting for it.
        yield probe.repeated(_COPIES, fresh_constants=True)
    for m, n, k in _SHAPES:
        yield _static("u8u8", m, n, k)
        yield _packed(8, 4, m, n, k)
    for bits in (4, 8):
        for m, n, k in (*_SHAPES, _UNPACKED):
            yield _packed(bits, 0, m, n, k)


def _key(family: str, m: int, n: int, k: int) -> str:
    return f"gemm.{family}.t{{T}}.m{m}.n{n}.k{k}"


def _integers(kind: str, *shape: int) -> Array:
    import numpy as np

    # Below 64, so that no sum of two products leaves 16 bits: some kernels are slower where it would.
    random = np.random.default_rng(1)
    low, high = (0, 64) if kind.startswith("u") else (-32, 32)
    return random.integers(low, high, shape).astype(kind)


def _scale() -> Array:
    import numpy as np

    return np.array(0.02, np.float32)


def _zero(kind: str, value: int = 0) -> Array:
    import numpy as np

    return np.array(value, kind)


def _static(types: str, m: int, n: int, k: int) -> Probe:
    weights = "int8" if types == "u8s8" else "uint8"
    return Probe(
        key=_key(types, m, n, k),
        amount=2.0 * m * n * k,
        per="rate",
        op_type="QLinearMatMul",
        inputs=(
            *(_integers("uint8", m, k), _scale(), _zero("uint8", 10)),
            *(_integers(weights, k, n), _scale(), _zero(weights)),
            *(_scale(), _zero("uint8", 10)),
        ),
        constants=frozenset(range(1, 8)),
    )


def _dynamic(m: int, n: int, k: int) -> Probe:
    return Probe(
        key=_key("dynamic", m, n, k),
        amount=2.0 * m * n * k,
        per="rate",
        op_type="DynamicQuantizeMatMul",
        domain=MICROSOFT,
        inputs=(floats(m, k), _integers("int8", k, n), _scale(), _zero("int8")),
        constants=frozenset({1, 2, 3}),
    )


def _packed(bits: int, accuracy: int, m: int, n: int, k: int) -> Probe:
    """``accuracy`` 4 multiplies int8 by int8, 0 dequantises the weights to floats."""
    blocks = k // _BLOCK
    return Probe(
        key=_key(f"nbits{bits}a{accuracy}", m, n, k),
        amount=2.0 * m * n * k,
        per="rate",
        op_type="MatMulNBits",
        domain=MICROSOFT,
        inputs=(
            floats(m, k),
            _integers("uint8", n, blocks, _BLOCK * bits // 8),
            floats(n, blocks),
        ),
        constants=frozenset({1, 2}),
        attributes={"K": k, "N": n, "bits": bits, "block_size": _BLOCK, "accuracy_level": accuracy},
    )


_CLASSES = (
    *("stem7x7s2", "stem3x3s2", "3x3", "3x3small", "3x3s2", "1x1", "1x1small", "5x5", "group32"),
    *("depthwise3x3", "depthwise3x3s2", "depthwise5x5", "3x3few"),
)
_UNSIGNED = ("3x3", "3x3small", "1x1", "depthwise3x3")


def convolutions() -> Iterator[Probe]:
    """QLinearConv by class, channels last where this build has such a kernel: sessions prefer it."""
    for name in _CLASSES:
        yield _convolution(name, CONV_CLASSES[name])
    for name in _UNSIGNED:
        yield _convolution(name, CONV_CLASSES[name], weights="uint8")


def _convolution(name: str, kind: ConvClass, weights: str = "int8") -> Probe:
    import numpy as np

    pad = kind.kernel // 2
    size = (kind.size + 2 * pad - kind.kernel) // kind.stride + 1
    each = kind.channels // kind.group * kind.kernel**2
    zero = 0 if weights == "int8" else 32
    return Probe(
        key=f"conv.u8{'s' if weights == 'int8' else 'u'}8.t{{T}}.{name}",
        amount=2.0 * kind.filters * size**2 * each,
        per="rate",
        op_type="QLinearConv",
        domain=MICROSOFT,
        inputs=(
            *(_integers("uint8", 1, kind.size, kind.size, kind.channels), _scale(), _zero("uint8", 10)),
            _integers(weights, kind.filters, kind.channels // kind.group, kind.kernel, kind.kernel),
            # Weights without a sign have a zero point in the middle, which costs sums of the data.
            *(np.full(kind.filters, 0.02, np.float32), np.full(kind.filters, zero, weights)),
            *(_scale(), _zero("uint8", 10), np.zeros(kind.filters, np.int32)),
        ),
        constants=frozenset(range(1, 9)),
        attributes={
            "kernel_shape": (kind.kernel, kind.kernel),
            "strides": (kind.stride, kind.stride),
            "pads": (pad,) * 4,
            "group": kind.group,
            "channels_last": 1,
        },
    )


def elementwise() -> Iterator[Probe]:
    """Time per element of what stands between quantised products."""
    yield from _arithmetic()
    yield from _pools()
    yield from _movements()
    yield from _dequantized()


def _arithmetic() -> Iterator[Probe]:
    import numpy as np

    x = _integers("uint8", ROWS, COLUMNS)
    parameters = (_scale(), _zero("uint8", 10))
    for op in ("QLinearAdd", "QLinearMul"):
        yield vector(
            op, x, *parameters, x, *parameters, *parameters, domain=MICROSOFT, constants=(1, 2, 4, 5, 6, 7)
        )
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        yield vector(op, x, *parameters, *parameters, domain=MICROSOFT, constants=(1, 2, 3, 4))
    yield vector(
        "QLinearSoftmax",
        x,
        *parameters,
        *parameters,
        domain=MICROSOFT,
        constants=(1, 2, 3, 4),
        attributes={"axis": -1, "opset": 13},
    )
    yield vector(
        "QLinearConcat",
        # Of another scale than the result: a table turns each element; of the same, they are copied.
        *(np.array(0.03, np.float32), _zero("uint8", 10), x, *parameters, x, *parameters),
        domain=MICROSOFT,
        constants=(0, 1, 3, 4, 6, 7),
        attributes={"axis": 1},
        elements=2.0 * x.size,
    )
    yield vector(
        "QLinearWhere",
        *(x > 8, x, *parameters, x, *parameters, *parameters),
        domain=MICROSOFT,
        constants=(2, 3, 5, 6, 7, 8),
    )


def _pools() -> Iterator[Probe]:
    image = _integers("uint8", 1, 64, 64, 64)
    parameters = (_scale(), _zero("uint8", 10))
    yield vector(
        "QLinearGlobalAveragePool",
        image,
        *parameters,
        *parameters,
        domain=MICROSOFT,
        constants=(1, 2, 3, 4),
        attributes={"channels_last": 1},
    )
    yield vector(
        "QLinearAveragePool",
        image,
        *parameters,
        *parameters,
        domain=MICROSOFT,
        constants=(1, 2, 3, 4),
        attributes={"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "channels_last": 1},
        elements=9.0 * image.size,
    )
    yield vector(
        "NhwcMaxPool",
        image,
        domain=MICROSOFT,
        attributes={"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
        elements=9.0 * image.size,
    )


def _movements() -> Iterator[Probe]:
    import numpy as np

    plane = _integers("uint8", 1, 32, 32, 64)  # channels last, as between convolutions
    yield vector(
        "Resize",
        plane,
        None,
        np.array([1, 2, 2, 1], np.float32),
        key="ResizeBytes",
        constants=(2,),
        attributes={
            "mode": "nearest",
            "nearest_mode": "floor",
            "coordinate_transformation_mode": "asymmetric",
        },
        elements=4.0 * plane.size,
    )
    for perm, key in (((0, 2, 3, 1), "TransposeBytesLast"), ((0, 3, 1, 2), "TransposeBytesFirst")):
        yield vector("Transpose", _integers("uint8", 1, 64, 64, 64), key=key, attributes={"perm": perm})


def _dequantized() -> Iterator[Probe]:
    import ml_dtypes
    import numpy as np

    yield vector(
        "DequantizeLinear",
        _integers("int8", ROWS, COLUMNS),
        np.full(COLUMNS, 0.02, np.float32),
        np.zeros(COLUMNS, np.int8),
        key="DequantizeAxis",
        constants=(1, 2),
        attributes={"axis": 1},
    )
    yield vector(
        "DequantizeLinear",
        _integers("int8", ROWS, COLUMNS),
        np.full((ROWS // _BLOCK, COLUMNS), 0.02, np.float32),
        key="DequantizeBlocks",
        constants=(1,),
        attributes={"axis": 0, "block_size": _BLOCK},
        opset=_SINCE_BLOCKS,
    )
    yield vector(
        "DequantizeLinear",
        _integers("int8", ROWS, COLUMNS).astype(ml_dtypes.int4),
        np.full((ROWS // _BLOCK, COLUMNS), 0.02, np.float32),
        key="DequantizePacked",
        constants=(0, 1),
        attributes={"axis": 0, "block_size": _BLOCK},
        opset=_SINCE_BLOCKS,
    )
    # Each row once: the kernel keeps what it has dequantised, and repeated rows cost a twentieth.
    yield vector(
        "GatherBlockQuantized",
        _integers("int8", ROWS, COLUMNS).astype(ml_dtypes.int4),
        np.arange(ROWS),
        np.full((ROWS, COLUMNS // _BLOCK), 0.02, np.float32),
        constants=(0, 2),
        attributes={"gather_axis": 0, "quantize_axis": 1, "block_size": _BLOCK},
        domain=MICROSOFT,
        opset=_SINCE_BLOCKS,
    )


# Probes of ``ai.onnx.ml``, and of rows that are added to short rows; see ``probes``.
_ROWS, _FEATURES, _VECTORS = 512, 32, 512
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def classical() -> Iterator[Probe]:
    """Time per element, per kernel value of support vectors, per row of a broadcast."""
    x = floats(_ROWS, _FEATURES)
    yield from map(_support_vectors, _KERNELS)
    yield _ml("Scaler", x, offset=[0.5] * _FEATURES, scale=[2.0] * _FEATURES)
    yield _ml("Imputer", x, imputed_value_floats=[0.5] * _FEATURES, replaced_value_float=float("nan"))
    for norm in ("MAX", "L1", "L2"):
        # Of either sign: by the second norm each element takes a branch on it (normalizer.cc), and of few
        # elements the processor learns the branches by heart.
        yield _ml("Normalizer", floats(4 * _ROWS, _FEATURES) - 1.0, key=f"Normalizer{norm}", norm=norm)
    yield _ml("Binarizer", x, threshold=0.5)
    yield from _encoders()
    yield from _linear(x)


def _ml(op: str, *inputs: Array, key: str | None = None, outputs: int = 1, **attributes: Any) -> Probe:
    return vector(op, *inputs, key=key, attributes=attributes, domain=CLASSICAL, outputs=outputs)


def _support_vectors(kernel: str) -> Probe:
    probe = _ml(
        "SVMRegressor",
        floats(_ROWS, _FEATURES),
        kernel_type=kernel,
        kernel_params=[0.1, 0.0, 3.0],
        n_supports=_VECTORS,
        coefficients=[0.1] * _VECTORS,
        support_vectors=floats(_VECTORS, _FEATURES).reshape(-1).tolist(),
        rho=[0.0],
    )
    return replace(probe, key=f"elementwise.SVM{kernel}.t{{T}}", amount=float(_ROWS * _VECTORS))


def _encoders() -> Iterator[Probe]:
    import numpy as np

    numbers = np.arange(_ROWS, dtype=np.int64).reshape(-1, 1) % 8
    keys, values = list(range(8)), list(range(8))
    # Each is as short as a call.
    yield _ml("OneHotEncoder", numbers, cats_int64s=keys).repeated(8)
    yield _ml("LabelEncoder", numbers, keys_int64s=keys, values_int64s=values).repeated(8)


def _linear(x: Array) -> Iterator[Probe]:
    # Few scores a row: what is done for each row outweighs the products.
    probe = _ml(
        "LinearClassifier",
        x,
        coefficients=[0.1] * (3 * _FEATURES),
        intercepts=[0.1] * 3,
        classlabels_ints=[0, 1, 2],
        post_transform="SOFTMAX",
        outputs=2,
    )
    yield replace(probe, key="elementwise.LinearClassifier.t{T}", amount=float(3 * _ROWS))
    short = floats(_FEATURES)
    # One row after the other: so much for each row besides its elements.
    added = vector("Add", floats(64 * _ROWS, _FEATURES), short, key="AddShortRows", constants=(1,))
    yield replace(added, amount=64.0 * _ROWS)
