"""Text for inputs of strings: what the graph itself compares it with, else a few short words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from analyzer.loading.from_onnx import sizes_as_written
from analyzer.text import first_few

if TYPE_CHECKING:
    from analyzer.graph import Graph, Tensor
    from analyzer.loading.loaded import Loaded

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
