"""One ``--input``: name, shape, type and values, also inside dicts, lists and containers of one's own."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, UsageError
from analyzer.graph import DTYPES
from analyzer.loading.torch_private import known_containers, rebuilt, register_container, tree_leaves
from analyzer.text import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch.export import ExportedProgram
    from torch.nn import Module

    from analyzer.loading.torch_private import Tree, TreeSpec


def register_containers(arguments: Tree, keywords: Tree) -> None:
    """Have PyTorch look into every object among the inputs that holds tensors among its attributes.

    PyTorch knows the classes until the program ends.
    """
    # Again and again: a class that is registered shows its members, among which further ones can be.
    unknown = True
    while unknown:
        leaves = tree_leaves((arguments, keywords))
        classes = {type(leaf) for leaf in leaves if _holds_tensors(leaf)} - known_containers()
        for kind in classes:
            register_container(kind, _flatten_object, _unflatten_object, lambda rest: rest.names)
        unknown = bool(classes)


def marks_in_form(spec: TreeSpec, marks: Iterator[object]) -> Tree:
    """Mark for the leaves in the form in which ``torch.export`` takes them: an object's as a list."""
    if spec.is_leaf():
        return next(marks)
    return rebuilt(spec, [marks_in_form(child, marks) for child in spec.children()])


@dataclass(frozen=True, slots=True)
class _Remainder:
    """The rest of an object besides its tensors; the same for two objects with tensors of the same names."""

    kind: type
    names: tuple[str, ...]
    others: Mapping[str, object] = field(compare=False)


def _holds_tensors(value: object) -> bool:
    import torch

    if isinstance(value, (torch.Tensor, torch.nn.Module, type)):
        return False
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(tensors_in_containers(value)))


def _flatten_object(value: object) -> tuple[list[object], _Remainder]:
    import torch

    members = attributes(value)
    names = tuple(
        name for name, item in members.items() if isinstance(item, torch.Tensor) or _holds_tensors(item)
    )
    others = {name: item for name, item in members.items() if name not in names}
    return [members[name] for name in names], _Remainder(type(value), names, others)


def _unflatten_object(items: Iterable[object], remainder: _Remainder) -> object:
    # Without the class's __init__, whose arguments nobody knows.
    instance: object = object.__new__(remainder.kind)
    for name, item in (*remainder.others.items(), *zip(remainder.names, items, strict=True)):
        object.__setattr__(instance, name, item)  # frozen ones too
    return instance


def attributes(value: object) -> dict[str, object]:
    """Return the attributes of an object, with a dictionary or with slots."""
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


# Outputs of a type that PyTorch's tracer does not know, taken apart into dicts of tensors.
# What torch.export says of such an output.
UNKNOWN_OUTPUT = re.compile(r"Found <class .*> in output, which is not a known type")
_CONSTANTS = (str, int, float, bool)


def returns_constants(program: ExportedProgram) -> bool:
    """Return whether an exported program gives texts or numbers beside tensors, which ONNX cannot."""
    # A constant's argument has a value, a tensor's a name (torch/export/graph_signature.py).
    outputs = (getattr(item.arg, "value", None) for item in program.graph_signature.output_specs)
    return any(isinstance(value, _CONSTANTS) for value in outputs)


@contextmanager
def outputs_as_containers(model: Module) -> Iterator[None]:
    """Inside the block the model returns what ``tensors_in_containers`` makes of its outputs."""
    handle = model.register_forward_hook(lambda _module, _arguments, outputs: tensors_in_containers(outputs))
    try:
        yield
    finally:
        handle.remove()


def tensors_in_containers(value: object) -> Tree:
    """Dataclasses, records and dict subclasses as dicts, all that holds no tensor as None."""
    return _opened(value, ())


def _opened(value: object, holders: tuple[int, ...]) -> Tree:
    """``around`` holds the objects that hold ``value``: one that holds itself ends there."""
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (torch.nn.Module, type)) or id(value) in holders:
        return None
    holders = (*holders, id(value))
    # Named tuples stay what they are: the tracer knows them, and their constructor takes its fields one by one.
    if isinstance(value, tuple) and type(value) is not tuple and hasattr(value, "_fields"):
        return type(value)(*(_opened(item, holders) for item in value))
    if isinstance(value, (tuple, list)):
        return (list if isinstance(value, list) else tuple)(_opened(item, holders) for item in value)
    members: Mapping[Any, object] | None = value if isinstance(value, Mapping) else None
    if members is None and is_dataclass(value):
        members = {item.name: getattr(value, item.name) for item in fields(value)}
    elif members is None and hasattr(value, "__dict__"):
        members = vars(value)
    return None if members is None else {key: _opened(item, holders) for key, item in members.items()}


# Python reads no whole number of more than 4,300 digits.
_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_SPEC = re.compile(r"(?P<name>[^=]+)=(?P<shape>[^:=]*)(?::(?P<dtype>\w+))?(?:=(?P<values>.*))?")
_WHOLE = re.compile(r"[+-]?\d+")
_INTEGER = re.compile(r"(u?)int(\d+)")
# Largest finite value (IEEE 754; bfloat16 has the exponents of float32 and 7 bits of fraction).
_LARGEST_FLOAT = {
    "float16": 65504.0,
    "bfloat16": (2 - 2**-7) * 2.0**127,
    "float32": (2 - 2**-23) * 2.0**127,
    "float64": (2 - 2**-52) * 2.0**1023,
}
_FLOATS = ", ".join(_LARGEST_FLOAT)
_USUAL_TYPES = "float32, float16, bfloat16, float64, int64, int32, uint8, bool, string"
_HINT = (
    "Write NAME=SHAPE[:DTYPE][=VALUE or =LOW..HIGH], for example --input x=B,3,224,224:float32 or "
    "--input ids=B,128:int64=0..29999, with B for the batch."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One ``--input NAME=SHAPE[:DTYPE][=LOW..HIGH]``.

    Attributes:
        shape: Its sizes; None stands for the batch (``B``).
        dtype: ONNX's name of its type.
        values: Smallest and largest value, both possible; None where they are not said.
        word: Of strings, the text of all elements; None where it is not said.
        array: Its values from a file, of any number of rows; ``values`` are then their ends.
        where: The option that gave the array, for messages.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str = "float32"
    values: tuple[float, float] | None = None
    word: str | None = None
    array: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    where: str = "--input"

    @property
    def option(self) -> str:
        """The option that gave it and what it says, as messages name it."""
        return f"{self.where} {self.text}" if self.array is None else f"{self.where}: {self.text}"

    @property
    def key(self) -> str:
        """A text that differs where anything of it differs, values from a file too."""
        if self.array is None:
            return self.text
        content = repr(self.array.tolist()).encode() if self.dtype == "string" else self.array.tobytes()
        return f"{self.text}#{hashlib.sha256(content).hexdigest()}"

    def rows(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the values from the file at this shape: other sizes repeat or leave out rows."""
        import numpy as np

        assert self.array is not None
        result = self.array
        for axis, (size, wanted) in enumerate(zip(result.shape, shape, strict=True)):
            if size != wanted:
                result = result.take(np.arange(wanted) % max(size, 1), axis)
        return result

    def sizes(self, batch: int) -> tuple[int, ...]:
        """Return the shape at this batch."""
        return tuple(batch if size is None else size for size in self.shape)

    @property
    def text(self) -> str:
        """As the user would write it."""
        written = self.word if self.values is None or self.array is not None else self._values_text
        return f"{self.name}={self.sizes_text}:{self.dtype}" + ("" if written is None else f"={written}")

    @property
    def sizes_text(self) -> str:
        """The shape as the user would write it."""
        return ",".join("B" if size is None else str(size) for size in self.shape)

    @property
    def _values_text(self) -> str:
        assert self.values is not None
        low, high = self.values
        return str(low) if low == high else f"{low}..{high}"


def parse_input(text: str) -> InputSpec:
    """Read one ``--input``.

    Raises:
        UsageError: It is not NAME=SHAPE[:DTYPE][=VALUES], the type is no ONNX tensor type or cannot hold the
            values, or the largest value comes first.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--input {text}: not NAME=SHAPE[:DTYPE][=VALUES].", hint=_HINT)
    dtype = match["dtype"] or "float32"
    if dtype not in DTYPES or dtype == "undefined":
        hint = f"{did_you_mean(dtype, DTYPES)} Usual ones are {_USUAL_TYPES}.".lstrip()
        raise UsageError(f"--input {text}: no such type as {dtype}.", hint=hint)
    name = match["name"].strip()
    if re.search(r"[()\[\]]", match["shape"]):
        raise UsageError(
            f"--input {text}: sizes stand without brackets.",
            hint=f"Write --input {name}=B,128; of a tuple or list, each tensor by its position: "
            f"--input {name}.0=... --input {name}.1=...",
        )
    sizes: list[int | None] = []
    # "1,3,224,224" or "1x3x224x224"; nothing at all is a scalar.
    for part in filter(None, (item.strip() for item in re.split(r"[,x]", match["shape"]))):
        if part in ("B", "b"):
            sizes.append(None)
        elif part == "...":
            raise UsageError(
                f"--input {text}: `...` stands for sizes that you must fill in.",
                hint="Write each size of the input behind the batch: B,128,80 for 128 rows of 80 each.",
            )
        elif part.isdigit():  # 0 is a size: an empty cache
            sizes.append(int(part))
        else:
            raise UsageError(f"--input {text}: {part!r} is not a size.", hint=_HINT)
    if dtype == "string":
        return InputSpec(name=name, shape=tuple(sizes), dtype=dtype, word=match["values"])
    values = None if match["values"] is None else _parse_values(text, match["values"].strip(), dtype)
    return InputSpec(name=name, shape=tuple(sizes), dtype=dtype, values=values)


def _parse_values(text: str, written: str, dtype: str) -> tuple[float, float]:
    low_text, dots, high_text = written.partition("..")
    numbers: list[float] = []
    for part in (low_text, high_text if dots else low_text):
        if not _NUMBER.fullmatch(part.strip()):
            raise UsageError(f"--input {text}: {written!r} is no number and no range LOW..HIGH.", hint=_HINT)
        numbers.append(int(part) if _WHOLE.fullmatch(part.strip()) else float(part))
    low, high = numbers
    if low > high:
        raise UsageError(
            f"--input {text}: the range ends with {high_text}, below its start.",
            hint=f"Write the smaller value first: ={high_text}..{low_text}.",
        )
    problem = values_problem((low, high), dtype)
    if problem:
        raise UsageError(f"--input {text}: {problem[0]}", hint=problem[1])
    return low, high


def values_problem(values: tuple[float, float], dtype: str) -> tuple[str, str] | None:
    """Return why a type cannot hold these values, and a hint; None where it can."""
    if dtype == "string":
        return "numbers cannot be given for it.", "Write :string=TEXT."
    if dtype == "bool":
        lowest: float = 0
        highest: float = 1
    elif match := _INTEGER.fullmatch(dtype):
        unsigned, bits = bool(match[1]), int(match[2])
        lowest, highest = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    elif dtype in _LARGEST_FLOAT:
        highest = _LARGEST_FLOAT[dtype]
        lowest = -highest
    else:
        return f"values cannot be given for {dtype}.", f"Types with values: bool, integers, {_FLOATS}."
    whole = dtype not in _LARGEST_FLOAT
    for value in values:
        if whole and not isinstance(value, int):
            return f"{dtype} cannot hold {value}.", "Write whole numbers, or a float type: float32."
        if not lowest <= value <= highest:
            return f"{dtype} cannot hold {value}.", f"It holds {lowest} to {highest}."
    return None


def drawn_values(spec: InputSpec, shape: tuple[int, ...], *, whole: bool) -> NDArray[np.generic]:
    """Return the values of an input that says them: from its file, else evenly drawn from its range.

    They are the same wherever they are asked for.

    ``whole`` says that the type has whole numbers or truth values alone: int64 or uint64 then, else float64.
    """
    import numpy as np

    assert spec.values is not None
    low, high = spec.values
    if spec.array is not None:
        return spec.rows(shape)
    # By the name, so that one input's values do not change with the others, nor with the runtime that is fed.
    generator: Any = np.random.default_rng(zlib.crc32(spec.name.encode()))
    if whole:
        kind = np.uint64 if high >= 2**63 else np.int64
        return np.asarray(generator.integers(low, high, shape, dtype=kind, endpoint=True))
    part = generator.random(shape)
    return np.asarray(low * (1 - part) + high * part, dtype=np.float64)


def positional_name(position: int) -> str:
    """Return the name that ``numpy.savez`` gives an array without one."""
    return f"arr_{position}"


def named_by_position(specs: Iterable[InputSpec], names: Sequence[str]) -> tuple[InputSpec, ...]:
    """Return inputs with the model's names in place of those that ``numpy.savez`` gives arrays without one."""
    meant = {positional_name(position): name for position, name in enumerate(names)}
    return tuple(
        replace(spec, name=meant.get(spec.name, spec.name))
        if spec.array is not None and spec.name not in names
        else spec
        for spec in specs
    )


def own_batch(specs: Iterable[InputSpec]) -> int | None:
    """Return the rows of the inputs from a file that follow the batch; None without any."""
    return next(
        (len(spec.array) for spec in specs if spec.array is not None and spec.shape[:1] == (None,)), None
    )


_STEP = re.compile(r"[^.\[\]'\"]+")


def steps_of(name: str) -> tuple[str, ...]:
    """Return the parameter and the keys behind it: alike for ``batch.tags`` and ``batch['tags']``."""
    return tuple(_STEP.findall(name)) or (name,)


def parameter_of(name: str) -> str:
    """Return the parameter of ``forward`` to which an input belongs."""
    return steps_of(name)[0]


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """By parameter, what is given for it; dicts of what stands behind dots, lists where those are 0, 1 and on.

    Raises:
        InputError: Something is given as a tensor and by its parts.
    """
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *way, last = steps_of(name)
        place = tree
        for step in way:
            place = place.setdefault(step, _Parts())
            if not isinstance(place, _Parts):
                raise _twice(name, step)
        if last in place:
            raise _twice(name, last)
        place[last] = value
    return {name: _built(item) for name, item in tree.items()}


class _Parts(dict[str, Any]):
    """A dict of ours, told from one that is a value."""


def _built(item: Any) -> Any:
    if not isinstance(item, _Parts):
        return item
    if set(item) == {str(position) for position in range(len(item))}:
        return [_built(item[str(position)]) for position in range(len(item))]
    return {key: _built(value) for key, value in item.items()}


def _twice(name: str, part: str) -> InputError:
    return InputError(
        f"--input {name}=...: {part} is given twice, whole or by its parts.",
        hint="Give a tensor (--input x=...) or what a dict holds (--input x.key=...), not both.",
    )


def names_in_order(names: Iterable[str]) -> list[str]:
    """Return these names in the order of their values in the result of ``nested``."""

    def leaves(item: Any) -> list[str]:
        parts = item.values() if isinstance(item, dict) else item
        return [item] if isinstance(item, str) else [leaf for part in parts for leaf in leaves(part)]

    return leaves(nested({name: name for name in names}))


# PyTorch Geometric's name of the pairs of nodes that are joined.
GRAPH_EDGES = "edge_index"
_ENDS = 2
# Types that number nodes: PyTorch indexes with them.
_POSITIONS = ("int32", "int64")


def is_one_graph(inputs: Iterable[tuple[str, Sequence[int | None], str]]) -> bool:
    """Return whether inputs are the nodes and the edges of one graph: rows of floats, and two rows of numbers.

    Nodes are no batch: twice as many are another graph, not two (PyTorch Geometric's ``edge_index``).

    Args:
        inputs: Name, shape (None is an open size) and ONNX's name of the type of each.
    """
    every = tuple(inputs)
    edges = [
        (name, dtype)
        for name, shape, dtype in every
        if len(shape) == _ENDS
        and shape[0] == _ENDS != shape[1]
        and (name == GRAPH_EDGES or dtype in _POSITIONS)
    ]
    nodes = any("float" in dtype and len(shape) > 0 and shape[0] != _ENDS for _, shape, dtype in every)
    return bool(edges) and (nodes or any(name == GRAPH_EDGES for name, _ in edges))
