"""Tensors on disk and in ONNX Runtime, of every element type, and varied inputs of a model.

The file is an ordinary ``.npz``. An array of a type that NumPy lacks (bfloat16, the float8 and int4 families)
is stored as unsigned integers of its width, and the entry ``__types__`` (JSON) says which tensor is what. A
sequence is stored as ``name[0]``, ``name[1]``, ..., its length is in ``__types__`` as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError
from analyzer.graph import DTYPES, DTYPES_BY_NUMBER

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Value = Array | list[Array]

_TYPES = "__types__"
# ONNX's names of types that NumPy lacks, with the name under which ml_dtypes has them.
_EXTENDED = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
    "uint4": "uint4",
    "int4": "int4",
    "uint2": "uint2",
    "int2": "int2",
}


def save_tensors(path: Path, tensors: Mapping[str, Value], *, types: Mapping[str, str] | None = None) -> None:
    """Write tensors, lists of them for sequences, so that ``load_tensors`` gives them back with their types.

    ``types`` are ONNX's of arrays that hold raw bits (``{"x": "bfloat16"}`` for an array of uint16).
    """
    import zipfile

    import numpy as np

    arrays: dict[str, Array] = {}
    notes: dict[str, Any] = {}
    for name, value in tensors.items():
        if isinstance(value, list):
            notes[name] = len(value)
            parts = {f"{name}[{index}]": element for index, element in enumerate(value)}
        else:
            parts = {name: value}
        for key, array in parts.items():
            arrays[key], kind = _to_bits(array)
            kind = (types or {}).get(key) or kind
            if kind is not None:
                notes[key] = kind
    arrays[_TYPES] = np.array(json.dumps(notes))
    with zipfile.ZipFile(path, "w") as archive:  # numpy.savez would refuse a tensor called "file"
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def load_tensors(path: Path) -> dict[str, Value]:
    """Return tensors by name, as written by ``save_tensors`` or by ``numpy.savez``.

    Raises:
        InputError: The file is missing or damaged.
    """
    import zipfile

    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        message = f"the tensors in {path} cannot be read: {error}"
        raise InputError(message, hint="write them again with numpy.savez") from None
    notes = json.loads(str(arrays.pop(_TYPES))) if _TYPES in arrays else {}
    typed: dict[str, Any] = {name: _from_bits(array, notes.get(name)) for name, array in arrays.items()}
    for name, length in notes.items():
        if isinstance(length, int):
            typed[name] = [typed.pop(f"{name}[{index}]") for index in range(length)]
    return typed


def _to_bits(array: Array) -> tuple[Array, str | None]:
    import numpy as np

    name = onnx_type(array)
    if name in _EXTENDED:
        # NumPy stores no type that it does not know itself: its bits do as well.
        return np.asarray(array, order="C").view(f"u{array.dtype.itemsize}"), name
    if array.dtype == object:
        return array.astype(np.str_), "string"  # objects would need pickle, which executes what it reads
    return array, None


def _from_bits(array: Array, kind: object) -> Array:
    import ml_dtypes
    import numpy as np

    if isinstance(kind, str) and kind in _EXTENDED and array.dtype.kind == "u":
        return array.view(np.dtype(getattr(ml_dtypes, _EXTENDED[kind])))
    return array.astype(object) if array.dtype.kind in "US" else array


def onnx_type(array: Array) -> str:
    """ONNX's name of an array's element type."""
    if array.dtype.kind in "OUS":
        return "string"
    name = array.dtype.name
    return next((onnx for onnx, extended in _EXTENDED.items() if extended == name), name)


def to_ortvalue(array: Array, device: str = "cpu", device_id: int = 0) -> Any:
    """Return an array as an ``OrtValue`` in the memory of ``cpu`` or ``cuda``.

    Raises:
        InputError: A type of less than 8 bits, or text on a GPU.
    """
    import numpy as np
    import onnxruntime as ort

    name = onnx_type(array)
    if name == "string" or (DTYPES[name].bits or 8) < 8:
        raise InputError(f"inputs of type {name} cannot be bound", hint="feed another type")
    array = np.asarray(array, order="C")  # ascontiguousarray would give a scalar an axis
    if name not in _EXTENDED:
        return ort.OrtValue.ortvalue_from_numpy(array, device, device_id)
    bits = array.view(f"u{array.dtype.itemsize}")
    if device == "cpu":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, DTYPES[name].onnx)
    # On a GPU there is no constructor from raw bits: an empty value is filled.
    value = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, DTYPES[name].onnx, device, device_id)
    value.update_inplace(bits)
    return value


def as_arrays(name: str, kind: str, value: Any) -> dict[str, Value]:
    """Return the arrays of a session's output: of maps their keys, their values and their lengths.

    ``kind`` is ONNX Runtime's name of its type, ``value`` what ``session.run`` gives for it, or an
    ``OrtValue``; an empty optional holds no array, and of an ``OrtValue`` only a tensor can be read.
    """
    # Python crashes where it asks the OrtValue of an empty optional for more than this.
    if hasattr(value, "has_value"):
        return {name: from_ortvalue(value)} if value.has_value() and value.is_tensor() else {}
    if "map(" in kind and value is not None:
        return _of_maps(name, kind, [value] if isinstance(value, dict) else value)
    return {} if value is None else {name: value}


def _of_maps(name: str, kind: str, maps: Sequence[Mapping[Any, Any]]) -> dict[str, Value]:
    import numpy as np

    keys = [key for element in maps for key in element]
    values = [entry for element in maps for entry in element.values()]
    # Python knows one type of floats; the map's own says how far two runs may be apart.
    wide = np.float32 if "tensor(float)" in kind else None
    return {
        f"{name}.lengths": np.array([len(element) for element in maps], dtype=np.int64),
        f"{name}.keys": np.array(keys, dtype=object if "map(string" in kind else np.int64),
        f"{name}.values": np.array(values, dtype=object if "tensor(string)" in kind else wide),
    }


def from_ortvalue(value: Any) -> Array:
    """Return a copy of a tensor's ``OrtValue`` in the host's memory."""
    import ctypes

    import ml_dtypes
    import numpy as np

    name = DTYPES_BY_NUMBER[value.element_type()].name
    if name not in _EXTENDED:
        return np.array(value.numpy())
    # ``numpy()`` refuses these types; the memory is the value's, so it is copied before the value goes.
    raw = (ctypes.c_char * value.tensor_size_in_bytes()).from_address(value.data_ptr())
    kind = np.dtype(getattr(ml_dtypes, _EXTENDED[name]))
    stored = np.frombuffer(bytes(raw), dtype=np.uint8)
    bits = DTYPES[name].bits or 8
    if bits < 8:  # several to a byte there, the first in the lowest bits; one to a byte here
        parts = stored[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & 2**bits - 1
        stored = parts.reshape(-1)[: math.prod(value.shape())]
    values: Array = stored.view(kind).reshape(value.shape())
    return values


def is_plain(array: object) -> bool:
    """Return whether NumPy itself knows the type, so that ``session.run`` takes it."""
    import numpy as np

    return isinstance(array, np.ndarray) and onnx_type(array) not in _EXTENDED


def make_feeds(inputs: Sequence[Any], *, seed: int = 0) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return inputs for ``session.get_inputs()``: normal floats, integers 0 and 1, open dimensions 1.

    Returns:
        The arrays by name, and what had to be assumed.

    Raises:
        InputError: An input is no tensor.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    assumed: list[str] = []
    for graph_input in inputs:
        if not graph_input.type.startswith("tensor("):
            message = f"input {graph_input.name} is {graph_input.type}: only tensors can be made up"
            raise InputError(message, hint="give an example with --input or example_inputs(batch)")
        shape = tuple(size if isinstance(size, int) else 1 for size in graph_input.shape)
        assumed += [
            f"dimension {size!r} of input {graph_input.name} taken as 1"
            for size in graph_input.shape
            if isinstance(size, str)
        ]
        feeds[graph_input.name] = random_tensor(graph_input.type[7:-1], shape, generator)
    return feeds, tuple(assumed)


def random_tensor(kind: str, shape: tuple[int, ...], generator: Any) -> Array:
    """Return an array of ONNX Runtime's type name (``float``, ``float16``, ``int64``, ...)."""
    import ml_dtypes
    import numpy as np

    kind = {"float": "float32", "double": "float64"}.get(kind, kind)
    if kind == "string":
        return np.full(shape, "a", dtype=object)
    if kind == "bool":
        return np.ones(shape, dtype=bool)
    dtype = np.dtype(getattr(ml_dtypes, _EXTENDED[kind])) if kind in _EXTENDED else np.dtype(kind)
    if dtype.kind in "iu":
        # 0 and 1 are indices of nearly every table.
        return np.asarray(generator.integers(0, 2, size=shape).astype(dtype))
    return np.asarray(generator.standard_normal(shape).astype(dtype))


def varied(given: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Other inputs that are as good: floats drawn anew as wide as they were, all else in another order.

    Each ``seed`` gives others, the same in every run.
    """
    import numpy as np

    generator = np.random.default_rng(seed)

    def drawn(value: Any) -> Any:
        if isinstance(value, list):
            return [drawn(element) for element in value]
        if value.dtype.kind == "f" and value.size:
            finite = value[np.isfinite(value)].astype(np.float64)
            if finite.size:
                floats = generator.normal(finite.mean(), finite.std(), value.shape)
                return np.clip(floats, finite.min(), finite.max()).astype(value.dtype)
        # Indices and masks stay valid where only their order changes.
        return generator.permuted(value.reshape(-1)).reshape(value.shape)

    return {name: drawn(value) for name, value in given.items()}


def later_changed(given: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """Return inputs that differ in their last token (second axis) alone; empty where none has so many."""
    import numpy as np

    changed = dict(given)
    result = False
    for name, value in given.items():
        # Tokens are numbers, [batch, tokens], or embedded, with a third axis; a cache has four.
        if isinstance(value, list) or value.ndim not in (2, 3) or value.shape[1] != tokens:
            continue
        if value.dtype.kind not in "fiu":
            continue
        other = value.copy()
        last = value[:, -1]
        low, high = value.min(), value.max()
        # What a value was allowed to be it still is: between the least and the largest. Where all are one value
        # nothing says what else is allowed; 0 and 1 of a mask change places.
        if value.dtype.kind == "f":
            other[:, -1] = low + high - last if low < high else 1 - last
        else:
            first, final = (int(low), int(high)) if low < high else (0, max(1, int(high)))
            other[:, -1] = first + (last.astype(np.int64) - first + 1) % (final - first + 1)
        changed[name] = other
        result = True
    return changed if result else {}
