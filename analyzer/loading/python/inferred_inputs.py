"""Inputs that nobody gives: by the layers that read them, and by the standard names of Hugging Face."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from analyzer.loading.python.input_spec import GRAPH_EDGES, InputSpec
from analyzer.loading.python.layer_inputs import (
    IMAGE_SIDE,
    NAMED,
    OpenLength,
    OpenSide,
    OpenWidth,
)
from analyzer.loading.python.traced_inputs import InputTrace, traced
from analyzer.text import listed

if TYPE_CHECKING:
    from torch.nn import Module

# Of a usual graph.
_NODES, _EDGES = 100, 400
# What models call the side of the images that they are built for.
_SIDES = ("img_size", "image_size", "input_size", "resolution", "input_resolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredInput:
    """What is known of one input.

    Attributes:
        dtype: Its type; ``float32`` where nothing decides it.
        specs: What to try, most usual first; empty where no layer decides the shape.
        is_flag: Whether it is a condition, which is no batch.
        value: Of all its elements, where its reader says it of a mask whose shape that leaves open.
        rows: How many nodes or edges it is of; None in a model of no graph.
    """

    name: str
    dtype: str = "float32"
    specs: tuple[InputSpec, ...] = ()
    is_flag: bool = False
    value: int | None = None
    rows: int | None = None

    @property
    def is_sized(self) -> bool:
        """Whether layers, or what is usual where they leave it open, give its shape."""
        widths = [size for spec in self.specs for size in spec.shape if isinstance(size, OpenWidth)]
        return self.is_flag or bool(self.specs and not widths)

    @property
    def text(self) -> str:
        """As ``--input`` takes it, with ``...`` for sizes that are not known."""
        if self.is_flag:
            return f"{self.name}=:bool=0"
        return self.specs[0].text if self.is_sized else f"{self.name}={self.rows or 'B'},...:{self.dtype}"


def options_to_give(inferred: Sequence[InferredInput]) -> str:
    """Return the ``--input`` options of these inputs, and which sizes the user must fill in."""
    line = " ".join(f"--input {item.text}" for item in inferred)
    unsized = [item for item in inferred if not item.is_sized]
    if not unsized:
        return line
    rows = ["edges" if item.rows == _EDGES else "nodes" if item.rows else "batch" for item in unsized]
    behind = listed(list(dict.fromkeys(rows)))
    names = listed([item.name for item in unsized])
    return f"{line}, with the sizes of {names} behind the {behind} in place of `...`"


def options_to_complete(inferred: Sequence[InferredInput]) -> str:
    """Return the ``--input`` options of inputs that do not fit, ``...`` for sizes that no layer decides."""
    texts = []
    for item in inferred:
        spec = item.specs[0]
        sizes = [
            "B" if size is None else "..." if isinstance(size, (OpenLength, OpenSide, OpenWidth)) else str(size)
            for size in spec.shape
        ]
        texts.append(f"--input {spec.name}={','.join(sizes)}:{spec.dtype}")
    line = " ".join(texts)
    return f"{line}, with the right sizes in place of `...`" if "..." in line else line


def infer_inputs(model: Module, names: Iterable[str]) -> tuple[InferredInput, ...]:
    """Return what is known of these inputs of a model's ``forward``; of a dict or a tuple, of each member."""
    requested = list(names)
    with traced(model, requested) as trace:
        members = [
            member
            for name in requested
            for member in [item for item in trace.roots if item.split(".")[0] == name] or [name]
        ]
        inferred = [_of_readings(name, trace) for name in members]
        if GRAPH_EDGES in inspect.signature(model.forward).parameters:
            return tuple(_of_graph(item) for item in inferred)
        inferred = _with_masks(inferred)
        # The table of positions first: the axis of the batch shows only where its sizes fit.
        for _ in range(2):
            known = {item.name: item.specs[0] for item in inferred if item.specs and item.name in trace.roots}
            if not any(isinstance(size, OpenLength) for spec in known.values() for size in spec.shape):
                break
            length, before_batch = trace.sequences(known)
            if length is None and not before_batch:
                break
            inferred = [_settled(item, length, before_batch) for item in inferred]
    side = _image_side(model)
    return tuple(replace(item, specs=_with_side(item.specs, side)) for item in inferred)


def _of_readings(name: str, trace: InputTrace) -> InferredInput:
    last = name.rpartition(".")[2]
    read = trace.readings(name) if name in trace.roots else []
    if name in trace.flags:
        return InferredInput(name=name, dtype="bool", is_flag=True)
    named = [NAMED[last]] if last in NAMED else []
    if not (read or named):
        return InferredInput(name=name)
    # Of two that are as sure, the reader goes before the name; of those that agree on the type, the first that
    # decides a shape.
    surest = max((*read, *named), key=lambda taken: taken.strength)
    shown = next((item for item in (*named, *read) if item.shapes and item.dtype == surest.dtype), surest)
    values = [(value, value) for value in shown.values]
    specs = tuple(
        InputSpec(name=name, shape=shape, dtype=surest.dtype, values=value)
        for shape, value in zip_longest(shown.shapes, values[: len(shown.shapes)])
    )
    value = next(iter(shown.values), None) if not specs else None
    return InferredInput(name=name, dtype=surest.dtype, specs=specs, value=value)


def _with_masks(inferred: Sequence[InferredInput]) -> list[InferredInput]:
    """Return these inputs with masks and lengths as long as the first sequence among them."""
    rows = [
        [size for size in spec.shape if isinstance(size, OpenLength)][:1]
        for item in inferred
        for spec in item.specs
    ]
    lengths = list(dict.fromkeys(size for row in rows for size in row))
    result = []
    for item in inferred:
        is_lengths = any(spec.values and isinstance(spec.values[0], OpenLength) for spec in item.specs)
        is_mask = not item.specs and "mask" in item.name
        dtype = "bool" if item.dtype == "bool" else "int64"
        value = (1, 1) if item.value is None else (item.value, item.value)
        if lengths and (is_lengths or is_mask):
            item = replace(
                item,
                dtype="int64" if is_lengths else dtype,
                specs=tuple(
                    InputSpec(name=item.name, shape=(None,), dtype="int64", values=(length, length))
                    if is_lengths
                    else InputSpec(name=item.name, shape=(None, length), dtype=dtype, values=value)
                    for length in lengths
                ),
            )
        result.append(item)
    return result


def _settled(item: InferredInput, length: int | None, before_batch: bool) -> InferredInput:
    """Return an input with the length of a table of positions, or with its sequence before the batch."""

    def sized(spec: InputSpec) -> InputSpec:
        shape = tuple(length if length and isinstance(size, OpenLength) else size for size in spec.shape)
        values = spec.values
        if length and values and isinstance(values[0], OpenLength):
            values = (length, length)
        if before_batch and shape[:1] == (None,) and len(shape) > 1 and "mask" not in spec.name:
            shape = (shape[1], None, *shape[2:])
        return replace(spec, shape=shape, values=values)

    return replace(item, specs=tuple(dict.fromkeys(map(sized, item.specs))))


def _of_graph(item: InferredInput) -> InferredInput:
    """Return an input of a model of one graph, of usual size: no axis is a batch."""
    if item.name == GRAPH_EDGES:
        spec = InputSpec(name=item.name, shape=(2, _EDGES), dtype="int64", values=(0, _NODES - 1))
        return replace(item, dtype="int64", specs=(spec,))
    rows = _EDGES if "edge" in item.name else _NODES
    # Of a kind for each node one number, which an embedding reads.
    shape = min((spec.shape for spec in item.specs), key=len, default=None)
    specs = () if shape is None else (InputSpec(name=item.name, shape=(rows, *shape[1:]), dtype=item.dtype),)
    return replace(item, rows=rows, specs=specs)


def _image_side(model: Module) -> int | None:
    """Return the side of its images that a model has as an attribute."""
    for name in _SIDES:
        side = vars(model).get(name)
        side = side[0] if isinstance(side, (tuple, list)) and len(side) == 2 and side[0] == side[1] else side
        if isinstance(side, int) and not isinstance(side, bool) and 8 <= side <= 4096:
            return side
    return None


def _with_side(specs: tuple[InputSpec, ...], side: int | None) -> tuple[InputSpec, ...]:
    """Return these inputs, an image of this side first."""
    if side is None or not specs or specs[0].shape.count(IMAGE_SIDE) != 2:
        return specs
    shape = tuple(side if isinstance(size, OpenSide) else size for size in specs[0].shape)
    first = replace(specs[0], shape=shape)
    return (first, *(spec for spec in specs if spec != first))
