"""How long the texts are that operators on them read: from ``--input``, else one word to twenty-five."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analyzer.graph import Graph, Node, Tensor
from analyzer.loading.python.input_spec import InputSpec
from analyzer.text import first_few

# What takes longer the longer its texts are; of the rest a text is copied or compared, whatever its length.
_BY_LENGTH = frozenset(
    {"RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Tokenizer"}
)
# Bytes of one English word of mean length (5.1 letters, with the blank 6) and of 25 of them: a title, a
# question, a short message.
_WORD_TO_MESSAGE = (5, 155)

Lengths = tuple[int, int]


def with_text_lengths(graph: Graph, specs: Iterable[InputSpec]) -> Graph:
    """The graph whose operators on texts know how long these are, and a note where that is assumed.

    Args:
        graph: The model at one batch.
        specs: ``--input`` options; those with a text tell.
    """
    given = {spec.name: len(spec.word.encode()) for spec in specs if spec.word is not None}
    nodes = list(graph.nodes)
    lengths: dict[str, Lengths] = {}
    assumed: dict[str, None] = {}
    for tensor in graph.inputs:
        if _is_text(tensor):
            known = given.get(tensor.name)
            lengths[tensor.name] = _WORD_TO_MESSAGE if known is None else (known, known)
    if not lengths:
        return graph
    sources = {name: frozenset({name}) for name in lengths}
    for node in graph.nodes:
        read = [tensor.name for tensor in node.present_inputs if tensor.name in lengths]
        if not read:
            continue
        found = _joined(node, [lengths[name] for name in read])
        origins = frozenset[str]().union(*[sources[name] for name in read])
        if node.op_type in _BY_LENGTH:
            nodes[node.index] = replace(node, text_bytes=found)
            assumed.update(dict.fromkeys(name for name in _in_order(graph, origins) if name not in given))
        for tensor in node.present_outputs:
            if _is_text(tensor):
                lengths[tensor.name], sources[tensor.name] = found, origins
    if all(node.text_bytes is None for node in nodes):
        return graph
    notes = (*graph.notes, _note(tuple(assumed))) if assumed else graph.notes
    return replace(graph, nodes=tuple(nodes), notes=notes)


def _in_order(graph: Graph, names: frozenset[str]) -> Iterable[str]:
    """These inputs in the model's order."""
    return [tensor.name for tensor in graph.inputs if tensor.name in names]


def _is_text(tensor: Tensor) -> bool:
    return tensor.dtype.name == "string"


def _joined(node: Node, found: list[Lengths]) -> Lengths:
    """Bounds of what it reads; tokens count as the text that they were cut from."""
    if node.op_type == "StringConcat":
        return sum(low for low, _ in found), sum(high for _, high in found)
    return min(low for low, _ in found), max(high for _, high in found)


def _note(names: tuple[str, ...]) -> str:
    low, high = _WORD_TO_MESSAGE
    return (
        f"How long the texts in {first_few(names)} are is not known: times of operators on them hold 1 to 25 "
        f"words, {low} to {high} bytes, and longer texts take longer (--input NAME=B:string=TEXT says which)."
    )
