"""Inputs from a file of NumPy: shapes, types and values, for ``--input-data``.

A stranger may have written the file: nothing is unpickled, and no array is allocated before the sizes that all
headers declare are those of the file and within the limit on memory.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from analyzer.errors import InputError, UsageError
from analyzer.graph import DTYPES
from analyzer.loading.python.input_spec import InputSpec, is_one_graph, positional_name
from analyzer.units import byte_count

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_ZIP, _NPY, _ENTRY = b"PK\x03\x04", b"\x93NUMPY", ".npy"
# How `numpy.savez` packs; others may take gigabytes for their dictionaries alone.
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Of CPython for a text, besides its characters.
_TEXT_BYTES = 64
# What `analyze apply` and our own runs add to a file: types that NumPy lacks.
_TYPES = "__types__"
_HINT = "Write it with numpy.savez('inputs.npz', x=array); no other format is read."


def read_input_data(path: Path, memory_bytes: int) -> tuple[InputSpec, ...]:
    """Return an input for each array of a .npz file, or the one of a .npy file, in the file's order.

    Those that have as many rows as the first follow the batch, as with ``example_inputs``.

    Raises:
        UsageError: The file is not there.
        InputError: It is no such file, is damaged, or holds what is no input.
    """
    where = f"--input-data {path}"
    try:
        with path.open("rb") as file:
            arrays = _arrays(file, where, memory_bytes)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror or error}.", hint="Name a .npz or .npy file.") from error
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{where}: the file is damaged: {error}.", hint=_HINT) from error
    rows = next((array.shape[0] for array in arrays.values() if array.ndim), None)
    if is_one_graph((name, array.shape, array.dtype.name) for name, array in arrays.items()):
        rows = None
    return tuple(_spec(name, array, rows, where) for name, array in arrays.items())


def _spec(name: str, array: Array, rows: int | None, where: str) -> InputSpec:
    import numpy as np

    shape: tuple[int | None, ...] = array.shape
    if shape and shape[0] == rows:
        shape = (None, *shape[1:])
    if array.dtype.kind in "SU":
        texts = array.astype(np.str_).astype(object)
        return InputSpec(name=name, shape=shape, dtype="string", array=texts, where=where)
    is_finite = np.isfinite(array)
    finite = array if is_finite.all() else array[is_finite]
    low, high = (finite.min().item(), finite.max().item()) if finite.size else (0, 0)
    kind = array.dtype
    values = (int(low), int(high)) if kind.kind == "b" else (low, high)
    return InputSpec(name=name, shape=shape, dtype=kind.name, values=values, array=array, where=where)


def _arrays(file: IO[bytes], where: str, memory_bytes: int) -> Mapping[str, Array]:
    """Return arrays by name; of a single one the name is its position."""
    import numpy as np

    start = file.read(len(_NPY))
    file.seek(0)
    if start == _NPY:
        size = file.seek(0, 2)
        file.seek(0)
        _require_memory(_checked_bytes(file, size, "the array", where), memory_bytes, where)
        file.seek(0)
        return {positional_name(0): _native(np.lib.format.read_array(file, allow_pickle=False))}
    if start[: len(_ZIP)] != _ZIP:
        raise InputError(f"{where}: it is no .npz and no .npy file.", hint=_HINT)
    with zipfile.ZipFile(file) as archive:
        entries = dict(_entries(archive, where))
        needed = 0
        for name, entry in entries.items():
            with archive.open(entry) as header:
                needed += _checked_bytes(header, entry.file_size, name, where)
        _require_memory(needed, memory_bytes, where)
        arrays = {}
        for name, entry in entries.items():
            with archive.open(entry) as content:
                arrays[name] = _native(np.lib.format.read_array(content, allow_pickle=False))
    return arrays


def _entries(archive: zipfile.ZipFile, where: str) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yield the entries of a .npz file by the names of their arrays."""
    names: set[str] = set()
    for entry in archive.infolist():
        name = entry.filename.removesuffix(_ENTRY)
        if name == entry.filename or name in names or entry.compress_type not in _PACKINGS:
            raise InputError(f"{where}: its entry {entry.filename!r} is none of numpy.savez.", hint=_HINT)
        names.add(name)
        if name != _TYPES:
            yield name, entry
    if not names - {_TYPES}:
        raise InputError(f"{where}: it holds no arrays.", hint=_HINT)


def _checked_bytes(file: IO[bytes], size: int, name: str, where: str) -> int:
    """Return the bytes of memory that an array takes, from its header alone.

    Raises:
        InputError: The type is none of an input, or the file is larger or smaller than its header says.
    """
    from numpy.lib import format as numpy_format

    version = numpy_format.read_magic(file)
    read = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of NumPy's format")
    shape, _, kind = read(file)
    is_text = kind.kind in "SU"
    if kind.hasobject:
        raise InputError(
            f"{where}: {name} holds Python objects, which are never unpickled.",
            hint="Save plain numbers: array.astype('float32').",
        )
    if not kind.itemsize or not (is_text or (kind.kind in "biuf" and kind.name in DTYPES)):
        raise InputError(
            f"{where}: {name} is of type {kind.name}, which no input from a file has.",
            hint="Save numbers, truth values or texts; give any other with --input NAME=SHAPE:DTYPE.",
        )
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * kind.itemsize != size - file.tell():
        raise ValueError(f"{name} is not as large as its header says")
    return count * (kind.itemsize + _TEXT_BYTES * is_text)


def _require_memory(needed: int, allowed: int, where: str) -> None:
    if needed > allowed:
        raise InputError(
            f"{where}: its arrays take {byte_count(needed)} of memory, and {byte_count(allowed)} are allowed.",
            hint="Raise the limit for a file that you trust: --limit memory=8GB.",
        )


def _native(array: Array) -> Array:
    """Return an array in this machine's order of bytes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
