"""Compare two runs of a model on the same input: a fast wrong answer is no answer. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from analyzer.measurement.tensor_files import onnx_type

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Value = Array | list[Array]

# What a deep network may lose to another order of summation, as a share of the output's largest magnitude:
# some hundred roundings of its type (2^-24 for float32, 2^-11 for TF32 and float16, 2^-8 for bfloat16).
TOLERANCES: Mapping[str, float] = MappingProxyType(
    {"float64": 1e-6, "float32": 1e-3, "tf32": 2e-2, "float16": 5e-2, "bfloat16": 0.2}
)
# float8 has 2 or 3 bits of mantissa; of noise that LEAST_SQNR_DB allows the peaks are about as high.
_EIGHT_BIT = 0.25
# Of a model in int8: noise of a tenth of the output by root mean squares (20 log10(10)). One rounding to 8 bits
# leaves some 50 dB over a full range (6.02 a bit); each layer adds noise, and outliers stretch the range.
LEAST_SQNR_DB = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAgreement:
    """The distance between two runs of one output.

    Attributes:
        max_absolute: Largest difference; None where shapes or types differ.
        max_relative: The same over the largest magnitude of the reference; None where that is 0 or not known.
        tolerance: What ``max_relative`` may be; for integers what ``max_absolute`` may be (1 with 8 bits,
            else 0).
        why: What is wrong, empty where nothing is.
        sqnr_db: Signal to noise in decibels, where that is what was asked; None too where there is no noise.
    """

    name: str
    dtype: str
    max_absolute: float | None
    max_relative: float | None
    tolerance: float
    agrees: bool
    why: str = ""
    sqnr_db: float | None = None


def agreement(
    reference: Mapping[str, Value],
    other: Mapping[str, Value],
    *,
    precision: str | None = None,
    in_noise: bool = False,
) -> tuple[OutputAgreement, ...]:
    """Compare outputs by name.

    The difference is taken relative to the reference's largest magnitude, not element by element, where a
    value near 0 makes any rounding look large. ``precision`` is ``tf32`` (or another key of ``TOLERANCES``)
    where arithmetic was coarser than the type.

    With ``in_noise`` the other model is a quantised one, judged by ``LEAST_SQNR_DB``. Rounding to 8 bits is
    noise on every element, whose largest says little: judged is its power over the whole output. Whole numbers
    and texts (a class, an index) follow from floats that are next to each other, and are not judged.
    """
    judged = []
    for name, expected in reference.items():
        got = other.get(name)
        if got is None:
            judged.append(_unlike(name, "", "it is missing"))
            continue
        several = isinstance(expected, list) or isinstance(got, list)
        left, right = (value if isinstance(value, list) else [value] for value in (expected, got))
        if len(left) != len(right):
            judged.append(_unlike(name, "sequence", f"{len(right)} elements where {len(left)} are right"))
            continue
        for number, (a, b) in enumerate(zip(left, right, strict=True)):
            numbered = f"{name}[{number}]" if several and not in_noise else name
            judged.append(_in_noise(name, a, b) if in_noise else _arrays(numbered, a, b, precision))
    return tuple(judged)


def _in_noise(name: str, expected: Array, got: Array) -> OutputAgreement:
    import numpy as np

    plain = _arrays(name, expected, got, None)
    if plain.max_absolute is None and plain.why.startswith("shape"):
        return plain
    if expected.dtype.kind in "OUSbiu":
        return replace(plain, agrees=True, why="")
    a, b = np.asarray(expected).astype(np.float64), np.asarray(got).astype(np.float64)
    if "not a number" in plain.why:
        return plain
    finite = np.isfinite(a) & np.isfinite(b)
    signal, noise = (float(np.sum(np.square(part), where=finite)) for part in (a, np.where(finite, a - b, 0.0)))
    ratio = 10 * math.log10(signal / noise) if signal and noise else None
    agrees = noise == 0 or (ratio is not None and ratio >= LEAST_SQNR_DB)
    why = "" if agrees else f"{ratio or 0:.1f} dB of signal over noise, {LEAST_SQNR_DB:g} dB are needed"
    return replace(plain, tolerance=LEAST_SQNR_DB, agrees=agrees, why=why, sqnr_db=ratio)


def _arrays(name: str, expected: Array, got: Array, precision: str | None) -> OutputAgreement:
    import numpy as np

    dtype = onnx_type(expected)
    if expected.shape != got.shape:
        return _unlike(name, dtype, f"shape {list(got.shape)} where {list(expected.shape)} is right")
    if expected.dtype.kind in "OUSbiu":
        return _exact(name, dtype, expected, got)
    # The coarser of both types, and of the arithmetic: a float16 result cannot agree better than float16 can
    # say.
    tolerance = max(allowed(dtype, precision).share, _tolerance(onnx_type(got)))
    a, b = (
        np.asarray(array).astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        for array in (expected, got)
    )
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    # Infinity equals infinity and NaN equals NaN here: a model may give them on purpose.
    broken = int(np.count_nonzero(~same & ~finite))
    with np.errstate(invalid="ignore"):  # infinity less itself, which ``where`` leaves out
        difference = float(np.max(np.abs(a - b), where=finite & ~same, initial=0.0))
    scale = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
    relative = difference / scale if scale > 0 else None
    why = ""
    if broken:
        why = f"{broken} elements are infinite or not a number on one side only"
    elif relative is None and difference > 0:
        why = f"all zeros are right, values up to {difference:.2e} came out"
    elif relative is not None and relative > tolerance:
        why = f"off by {relative:.1e} of the largest magnitude, {tolerance:g} is allowed for {dtype}"
    return OutputAgreement(
        name=name,
        dtype=dtype,
        max_absolute=difference,
        max_relative=relative,
        tolerance=tolerance,
        agrees=not why,
        why=why,
    )


def _exact(name: str, dtype: str, expected: Array, got: Array) -> OutputAgreement:
    import numpy as np

    different = int(np.count_nonzero(np.asarray(expected != got)))
    numeric = expected.dtype.kind in "biu" and got.dtype.kind in "biu"
    gap = None if different else 0.0
    if different and numeric:
        gap = float(np.max(np.abs(expected.astype(np.float64) - got.astype(np.float64))))
    most = allowed(dtype).least
    agrees = gap is not None and gap <= most
    return OutputAgreement(
        name=name,
        dtype=dtype,
        max_absolute=gap,
        max_relative=None,
        tolerance=most,
        agrees=agrees,
        why="" if agrees else f"{different} of {expected.size} elements differ",
    )


class Allowed(NamedTuple):
    """The allowed error of one output: a share of the largest right magnitude, and ``least`` besides."""

    share: float
    least: float


def allowed(dtype: str, precision: str | None = None) -> Allowed:
    """Return the allowed error of an output of ONNX's element type; ``precision`` is that of ``agreement``."""
    if dtype.startswith(("int", "uint", "bool", "string")):
        # A quantized value may fall on the other side of a rounding boundary.
        return Allowed(0.0, 1.0 if dtype in ("int8", "uint8") else 0.0)
    return Allowed(max(_tolerance(dtype), _tolerance(precision) if precision else 0.0), 0.0)


def _tolerance(dtype: str) -> float:
    return TOLERANCES.get(dtype, TOLERANCES["float64"] if "complex" in dtype else _EIGHT_BIT)


def _unlike(name: str, dtype: str, why: str) -> OutputAgreement:
    return OutputAgreement(
        name=name, dtype=dtype, max_absolute=None, max_relative=None, tolerance=0.0, agrees=False, why=why
    )
