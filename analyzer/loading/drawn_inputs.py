"""Inputs that nobody gave: what they are filled with, and which of it decides how much is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError
from analyzer.graph import Graph
from analyzer.loading.from_onnx import sizes_as_written
from analyzer.loading.input_values.filled_values import decides, range_filled, whole_values
from analyzer.loading.loaded import Loaded
from analyzer.loading.python.input_spec import InputSpec, drawn_values, parse_input
from analyzer.loading.text_values import texts_for

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def random_feeds(graph: Graph, specs: Iterable[InputSpec] = ()) -> dict[str, Array]:
    """Random inputs: normal floats, true booleans, integers valid in every table, texts that the graph knows.

    Args:
        graph: Whose inputs are wanted.
        specs: ``--input`` options; what says values is filled with those.

    Raises:
        InputError: An input is no tensor of numbers or texts, or has an open shape.
    """
    import numpy as np

    generator = np.random.default_rng(0)  # the same inputs in every run
    specs = tuple(specs)
    said = {spec.name: spec for spec in specs if spec.values is not None}
    words = {spec.name: (spec.word,) for spec in specs if spec.word is not None}
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        if tensor.dtype.name == "string" and tensor.elements is not None:
            texts = np.array(words.get(tensor.name) or texts_for(graph, tensor.name), dtype=object)
            feeds[tensor.name] = texts[
                generator.integers(0, len(texts), [size or 0 for size in tensor.shape or ()])
            ]
            continue
        if tensor.elements is None or tensor.dtype.bits is None:
            raise InputError(f"No values can be made for the input {tensor.name} ({tensor.dtype.name}).")
        shape = tuple(size or 0 for size in tensor.shape or ())  # whole, since the elements are known
        if tensor.dtype.is_float:
            width = {64: np.float64, 32: np.float32, 16: np.float16}.get(tensor.dtype.bits)
            if width is None:
                raise InputError(f"No values can be made for the input {tensor.name} ({tensor.dtype.name}).")
            spec = said.get(tensor.name)
            values = (
                generator.standard_normal(shape) if spec is None else drawn_values(spec, shape, whole=False)
            )
            if tensor.dtype.name == "bfloat16":  # the upper half of a float32
                feeds[tensor.name] = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            else:
                feeds[tensor.name] = values.astype(width)
        else:
            feeds[tensor.name] = whole_values(graph, tensor, said.get(tensor.name), of_file=True)
    return feeds


def deciding_values(loaded: Loaded, graph: Graph) -> tuple[str, ...]:
    """What was put into inputs of whole numbers that decide how much is computed and that nobody gave."""
    if loaded.step is not None or (loaded.inputs_origin == "file" and loaded.exporter != "pt2"):
        return ()
    said = {spec.name for spec in loaded.specs if spec.values is not None}
    # A guess may say values, such as lengths as long as the sequences.
    guesses = [parse_input(text) for text in loaded.guessed]
    guessed = {spec.name: spec.values for spec in guesses}
    # A graph of one batch alone has forgotten which of its sizes that is.
    sizes = {spec.name: spec.sizes_text for spec in (*guesses, *loaded.specs)}
    notes = []
    for tensor in graph.inputs:
        whole = not tensor.dtype.is_float and tensor.dtype.bits is not None and tensor.dtype.name != "bool"
        if tensor.name in said or tensor.name in graph.carried or not whole or not decides(graph, tensor):
            continue
        if any(tensor.name in origin.inputs for origin in graph.size_origins.values()):  # a note says so
            continue
        low, high = guessed.get(tensor.name) or _range_made(loaded, graph, tensor.name)
        joint = "or" if high - low == 1 else "to"
        values = f"{low}" if low == high else f"{low} {joint} {high}"
        written = (
            f"{tensor.name}={sizes.get(tensor.name) or sizes_as_written(loaded.proto, loaded.symbol, tensor)}"
        )
        notes.append(
            f"Input {tensor.name} decides sizes or steps, and was filled with {values} "
            f"(--input {written}:{tensor.dtype.name}=LOW..HIGH says others)."
        )
    return tuple(notes)


def _range_made(loaded: Loaded, graph: Graph, name: str) -> tuple[int, int]:
    """The whole numbers that an input is filled with of which nothing says what it holds."""
    is_drawn_here = loaded.exporter in ("onnx", "pt2")  # see whole_values
    return range_filled(graph, name) if is_drawn_here else (0, 1)
