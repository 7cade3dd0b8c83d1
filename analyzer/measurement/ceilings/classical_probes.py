"""Probes of ``ai.onnx.ml``, and of rows that are added to short rows; see ``probes``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.measurement.ceilings.probes import CLASSICAL, Probe, floats, vector

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

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
