"""Inputs that nobody gave: what they are filled with, and which of it decides how much is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError
from analyzer.graph import Graph
from analyzer.loading.from_onnx import sizes_as_written
from analyzer.loading.input_values import deciding_inputs, range_filled, whole_values
from analyzer.loading.loaded import Loaded
from analyzer.loading.python.input_spec import InputSpec, drawn_values, parse_input
from analyzer.text import first_few

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    from analyzer.graph import Graph, Tensor
    from analyzer.loading.loaded import Loaded


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
            feeds[tensor.name] = whole_values(graph, tensor, said.get(tensor.name))
    return feeds


def deciding_values(loaded: Loaded, graph: Graph) -> tuple[str, ...]:
    """What was put into inputs of whole numbers that decide how much is computed and that nobody gave."""
    if loaded.step is not None or (loaded.inputs_origin in ("file", "script") and loaded.exporter != "pt2"):
        return ()
    said = {spec.name for spec in loaded.specs if spec.values is not None}
    # A guess may say values, such as lengths as long as the sequences.
    guesses = [parse_input(text) for text in loaded.guessed]
    guessed = {spec.name: spec.values for spec in guesses}
    # A graph of one batch alone has forgotten which of its sizes that is.
    sizes = {spec.name: spec.sizes_text for spec in (*guesses, *loaded.specs)}
    notes = []
    for tensor in deciding_inputs(graph):
        whole = not tensor.dtype.is_float and tensor.dtype.bits is not None and tensor.dtype.name != "bool"
        if tensor.name in said or tensor.name in graph.carried or not whole:
            continue
        if any(tensor.name in origin.inputs for origin in graph.size_origins.values()):  # a note says so
            continue
        is_drawn_here = loaded.exporter in ("onnx", "pt2")  # see whole_values
        filled = range_filled(graph, tensor.name) if is_drawn_here else (0, 1)
        low, high = guessed.get(tensor.name) or filled
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


# Text for inputs of strings: what the graph itself compares it with, else a few short words.
# By operator of ai.onnx.ml and of ONNX, the attribute that holds the texts which it knows.
_KNOWN_TEXTS: Mapping[str, str] = {
    "CategoryMapper": "cats_strings",
    "LabelEncoder": "keys_strings",
    "OneHotEncoder": "cats_strings",
    "TfIdfVectorizer": "pool_strings",
}
# What hands texts on as they are, or as others of which a vocabulary was made.
_HANDED_ON = frozenset(
    (
        "ArrayFeatureExtractor",
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "StringNormalizer",
        "StringSplit",
        "Tokenizer",
        "Transpose",
        "Unsqueeze",
    )
)
_WORDS = ("a", "be", "sea", "door", "eight")
# A vocabulary has thousands; more of them make no other work.
_MOST = 64


def known_texts(graph: Graph, name: str) -> tuple[str, ...]:
    """The texts that the readers of an input know, in their order; empty where they know none."""
    return tuple(islice(dict.fromkeys(_read(graph, name)), _MOST))


def _read(graph: Graph, start: str) -> Iterator[str]:
    waiting, seen = [start], {start}
    while waiting:
        name = waiting.pop()
        for index in graph.consumers.get(name, ()):
            node = graph.nodes[index]
            texts = node.attributes.get(_KNOWN_TEXTS.get(node.op_type, ""), ())
            yield from (text for text in texts if isinstance(text, str))
            if node.op_type not in _HANDED_ON:
                continue
            for output in node.present_outputs:
                if output.dtype.name == "string" and output.name not in seen:
                    seen.add(output.name)
                    waiting.append(output.name)


def texts_for(graph: Graph, name: str) -> tuple[str, ...]:
    """What an input of strings is filled with where nobody says it; never empty."""
    return known_texts(graph, name) or _WORDS


def filled_with_text(loaded: Loaded, graph: Graph) -> tuple[str, ...]:
    """Which inputs were filled with texts that nobody gave, and with which, in a sentence or two."""
    said = {spec.name for spec in loaded.specs if spec.word is not None}
    made = [item for item in graph.inputs if item.dtype.name == "string" and item.name not in said]
    groups: dict[str, list[Tensor]] = {}
    for tensor in made:
        what = "texts that the model knows" if known_texts(graph, tensor.name) else "short words"
        groups.setdefault(what, []).append(tensor)
    return tuple(
        f"{'Input' if len(tensors) == 1 else 'Inputs'} {first_few([item.name for item in tensors])} of strings "
        f"{'was' if len(tensors) == 1 else 'were'} filled with {what} (--input {tensors[0].name}="
        f"{sizes_as_written(loaded.proto, loaded.symbol, tensors[0])}:string=TEXT says another)."
        for what, tensors in groups.items()
    )
