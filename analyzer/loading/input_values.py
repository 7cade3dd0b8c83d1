"""Values of inputs: of a file of NumPy (``--input-data``), and the sizes and steps that follow from whole ones.

A stranger may have written the file: nothing is unpickled, and no array is allocated before the sizes that all
headers declare are those of the file and within the limit on memory.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from analyzer.errors import InputError, UsageError
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.loading.onnx_graph.build import open_tensors, with_known_sizes
from analyzer.loading.onnx_graph.evaluation import Evaluation
from analyzer.loading.python.input_spec import InputSpec, drawn_values, is_one_graph, positional_name, steps_of
from analyzer.operators import RECURRENT
from analyzer.record.batch_ranges import WHOLE_SEQUENCES
from analyzer.units import byte_count

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


# Larger inputs decide sizes too, but nobody waits for what they hold at each of many batches.
_MOST_ELEMENTS = 2**20


def by_graph_name(specs: Iterable[InputSpec]) -> dict[str, InputSpec]:
    """Return specs by the name of an input in the graph: what stands in a dict has its way, batch_lengths."""
    result: dict[str, InputSpec] = {}
    for spec in specs:
        result |= dict.fromkeys((spec.name, "_".join(steps_of(spec.name))), spec)
    return result


def whole_values(graph: Graph, tensor: Tensor, spec: InputSpec | None) -> Array:
    """Return what an input of whole numbers or truth values is filled with, the same in every run."""
    import numpy as np

    shape = tuple(size or 0 for size in tensor.shape or ())
    if spec is None or spec.values is None:
        if tensor.dtype.name == "bool":
            return np.ones(shape, dtype=bool)
        name = tensor.name if spec is None else spec.name
        values = range_filled(graph, tensor.name)
        spec = InputSpec(name=name, shape=shape, dtype=tensor.dtype.name, values=values)
    return drawn_values(spec, shape, whole=True).astype(tensor.dtype.name)


def range_filled(graph: Graph, name: str) -> tuple[int, int]:
    """Return the whole numbers that an input is filled with: valid rows of what it indexes, and an int8.

    Sequences are whole, as they are predicted; what indexes a table says no length.
    """
    rows = rows_indexed(graph, name)
    whole = whole_sequences(graph, name) if rows <= _NO_TABLE else None
    return (0, max(min(rows, 127), 1) - 1) if whole is None else (whole, whole)


# Rows of a table that none is.
_NO_TABLE = 2


def rows_indexed(graph: Graph, name: str) -> int:
    """Return the rows of the smallest table that a tensor indexes through Gather, 2 where it indexes none."""
    rows = []
    for index in graph.consumers.get(name, ()):
        node = graph.nodes[index]
        table, indices, output = node.input(0), node.input(1), node.output(0)
        if node.op_type == "Gather" and indices and indices.name == name and table and table.shape:
            rows.append(table.shape[node.attributes.get("axis", 0)] or 2)
        elif node.op_type in ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze") and output:
            rows.append(rows_indexed(graph, output.name))
    return min(rows, default=_NO_TABLE)


def with_given_sizes(graph: Graph, specs: Iterable[InputSpec]) -> Graph:
    """Return the graph with the sizes that follow from the values which ``--input`` gives."""
    if not open_tensors(graph):
        return graph
    given = by_graph_name(spec for spec in specs if spec.values is not None)
    values = {
        tensor.name: whole_values(graph, tensor, given[tensor.name])
        for tensor in graph.inputs
        if tensor.name in given and tensor.name not in graph.carried and _is_whole(tensor)
    }
    return with_known_sizes(graph, values) if values else graph


def _is_whole(tensor: Tensor) -> bool:
    """Return whether an input's numbers are whole, few enough, and of a type that NumPy has."""
    dtype = tensor.dtype
    known = (
        not dtype.is_float and dtype.bits is not None and "int4" not in dtype.name and "int2" not in dtype.name
    )
    return known and tensor.elements is not None and tensor.elements <= _MOST_ELEMENTS


# By operator, the operand that holds the lengths; what is computed on the way to them.
_LENGTHS, _MOST_ROWS, _MOST_OPERATORS = 4, 2**16, 512


def with_steps(graph: Graph, specs: Iterable[InputSpec]) -> Graph:
    """Return the graph whose recurrences know the steps that values of inputs tell, and notes that say so."""
    recurrences = [node for node in graph.nodes if node.op_type in RECURRENT]
    if not recurrences:
        return graph
    given = by_graph_name(spec for spec in specs if spec.values is not None)
    nodes, notes = list(graph.nodes), dict[str, None]()
    for node in recurrences:
        lengths, whole = node.input(_LENGTHS), _steps(node)
        if lengths is None or not whole:
            continue
        result = _bounds(graph, lengths, given)
        fewest, most = (1, whole) if result is None else (min(max(end, 1), whole) for end in result)
        if (fewest, most) == (whole, whole):
            continue
        nodes[node.index] = replace(node, steps=(fewest, most))
        if result is None:
            note = (
                f"The lengths that {node.op_type} reads are not known: {WHOLE_SEQUENCES}, {whole} steps, "
                " and may be as low as those of one step (--input NAME=B:int64=LENGTH says how long)."
            )
        else:
            taken = f"{most}" if fewest == most else f"{fewest} to {most}"
            note = (
                f"The times of {node.op_type} are those of sequences of {taken} of {whole} steps, as --input "
                "says; its FLOPs and bytes are counted for whole sequences."
            )
        notes[note] = None
    return replace(graph, nodes=tuple(nodes), notes=(*graph.notes, *notes)) if notes else graph


def whole_sequences(graph: Graph, name: str) -> int | None:
    """Return what fills an input so that recurrences take all their steps: lengths of them, a mask of ones.

    What is predicted of unknown lengths are whole sequences: what is run must be no shorter.

    Returns:
        None where no length follows from it, or not from it alone.
    """
    bits = next((tensor.dtype.bits for tensor in graph.inputs if tensor.name == name), None)
    for node in graph.nodes if bits else ():
        lengths, whole = node.input(_LENGTHS) if node.op_type in RECURRENT else None, _steps(node)
        if lengths is None or not whole or lengths.constant:
            continue
        for value in (whole, 1):
            # What its type cannot hold is no length.
            spec = InputSpec(name=name, shape=(), values=(value, value))
            if value < 2 ** ((bits or 0) - 1) and _bounds(graph, lengths, {name: spec}) == (whole, whole):
                return value
    return None


def _steps(node: Node) -> int:
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    if not shape or len(shape) != 3:
        return 0
    return shape[1 if node.attributes.get("layout") == 1 else 0] or 0


def _bounds(graph: Graph, lengths: Tensor, given: Mapping[str, InputSpec]) -> tuple[int, int] | None:
    """Return the smallest and the largest of some lengths; None where they do not follow from the inputs.

    They are computed from the values of a file, else from the least, the middle and the largest values of all
    inputs that are given.
    """
    import numpy as np
    import onnx

    inputs = {tensor.name: tensor for tensor in graph.inputs}
    ranges = {name: spec.values for name, spec in given.items() if spec.values is not None}
    if lengths.name in inputs and lengths.name in ranges:
        low, high = ranges[lengths.name]
        return int(low), int(high)
    ends: list[int] = []
    varies = any(low < high and given[name].array is None for name, (low, high) in ranges.items())
    for share in (0.0, 0.5, 1.0) if varies else (0.0,):
        known: dict[str, Array | None] = {}
        for name, (low, high) in ranges.items():
            tensor, spec = inputs.get(name), given[name]
            if tensor is None or not tensor.dtype.onnx or tensor.dtype.name == "string":
                continue
            if tensor.elements is not None and tensor.elements <= _MOST_ROWS:
                kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.dtype.onnx)
                shape = tuple(size or 0 for size in tensor.shape or ())
                filled = (
                    np.full(shape, low * (1 - share) + high * share) if spec.array is None else spec.rows(shape)
                )
                known[name] = filled.astype(kind)
        evaluation = Evaluation.of(graph, known, most=_MOST_ROWS, left=_MOST_OPERATORS, by_reference=True)
        array = evaluation.value(lengths)
        if array is None or not array.size or array.dtype.kind not in "iu":
            return None
        ends += [int(array.min()), int(array.max())]
    return min(ends), max(ends)


# By operator, the operands whose values decide how large its results are or how often its body runs.
_DECIDING: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("ConstantOfShape", "If", "NonZero", "Unique"), (0,)),
    **dict.fromkeys(("Compress", "Expand", "Pad", "Reshape", "Split", "Tile", "TopK"), (1,)),
    **dict.fromkeys(RECURRENT, (_LENGTHS,)),
    "Loop": (0, 1),
    "Range": (0, 1, 2),
    "Resize": (3,),
    "Slice": (1, 2, 3, 4),
}


def deciding_inputs(graph: Graph, names: Iterable[str] | None = None) -> tuple[Tensor, ...]:
    """Return the inputs whose values decide sizes or trips, in the model's order.

    With ``names`` only the sizes of these tensors count; else all do, as far as floats do not decide them.
    """
    sized = None if names is None else set(names)
    waiting: list[str] = []
    for node in graph.nodes:
        positions: Iterable[int] = _DECIDING.get(node.op_type, ())
        if sized is not None:
            if sized.isdisjoint(tensor.name for tensor in node.present_outputs):
                continue
            if any(tensor.name in sized for tensor in node.present_inputs):
                continue  # it takes its size from what it reads
            positions = positions or range(len(node.inputs))
        operands = [node.input(position) for position in positions]
        waiting += [operand.name for operand in operands if operand is not None]
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        producer = graph.producer.get(name)
        # Of any values the shape is the same.
        if producer is None or graph.nodes[producer].op_type in ("Shape", "Size"):
            continue
        if sized is None and graph.tensors[name].dtype.is_float:
            continue
        more = {tensor.name for tensor in graph.nodes[producer].present_inputs} - seen
        seen |= more
        waiting += more
    return tuple(tensor for tensor in graph.inputs if tensor.name in seen)


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
    """Return the bytes of memory that an array takes, from its header alone."""
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
