"""Operators on texts (StringNormalizer, Tokenizer, TfIdfVectorizer): loops over bytes and tokens."""

from __future__ import annotations

import math
from dataclasses import replace

from analyzer.costs.cost import Cost
from analyzer.graph import Node
from analyzer.prediction.work_item import Kind, Piece

ON_TEXTS = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "Tokenizer")
"""Operators that go through the bytes of their texts."""
TEXT = "Text"
"""A text that an operator goes through, its bytes apart."""
# Bytes of a word with the blank behind it.
_WORD = 6.0


def text_pieces(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Each text, and each of its bytes as often as the operator goes through them.

    Of ``node.text_bytes`` the expected length is the geometric mean: each end is then as far away.
    """
    source = node.input(0)
    count = (source.elements if source is not None else 0) or 0
    if node.text_bytes is None or not count:
        return [base]
    few, many = (float(max(1, end)) for end in node.text_bytes)
    length = math.sqrt(few * many)
    each = Piece(kind=Kind.VECTOR, op=TEXT, elements=float(count))
    # A text that does not match is left where that shows.
    least = 0.0 if node.op_type == "RegexFullMatch" else few / length
    passes = [
        Piece(kind=Kind.VECTOR, op=op, elements=times * count * length, least=least, most=many / length)
        for op, times in _passes(node)
    ]
    return [each, *passes]


_LOOPS = (
    "TextLowered",
    "TextCompared",
    "TextCopied",
    "TextMatched",
    "TextSplit",
    "TokensByExpression",
    "TokensBySeparator",
    "TokensByCharacter",
    "GramsOfText",
    "GramsOfNumbers",
)
TEXT_WORK = frozenset({TEXT, *_LOOPS})
"""A text, and what is done to each byte of one, to each token of a row."""


def _passes(node: Node) -> list[tuple[str, float]]:
    """The loops over a text's bytes, and how often each is done."""
    attributes = node.attributes
    if node.op_type == "StringNormalizer":
        changed = attributes.get("case_change_action", "NONE") != "NONE"
        # Texts are turned to another case to be compared with the words that are left out.
        compared = bool(attributes.get("stopwords")) and not attributes.get("is_case_sensitive", 0)
        passes = [("TextLowered", float(changed)), ("TextCompared", float(compared)), ("TextCopied", 1.0)]
        return [(op, times) for op, times in passes if times]
    if node.op_type == "Tokenizer":
        separators = attributes.get("separators", ())
        if attributes.get("tokenexp"):
            return [("TokensByExpression", 1.0)]
        if len(separators) == 1 and not separators[0]:
            return [("TokensByCharacter", 1.0)]
        return [("TokensBySeparator", 1.0 + _ONE_MORE_SEPARATOR * (len(separators) - 1))]
    return [
        ({"RegexFullMatch": "TextMatched", "StringSplit": "TextSplit"}.get(node.op_type, "TextCopied"), 1.0)
    ]


# Of the first (1,024 texts of 164 bytes: 2.9 ms with one separator, 5.4 ms with three).
_ONE_MORE_SEPARATOR = 0.4


def gram_pieces(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Each run of tokens is looked up; what is not found is a row of zeros, which is written all the same."""
    source, attributes = node.input(0), node.attributes
    if source is None or not source.shape:
        return [base]
    texts, tokens = source.dtype.name == "string", source.elements
    few = many = expected = float(tokens or 0)
    if tokens is None:
        rows = source.shape[0] if len(source.shape) > 1 else 1
        if node.text_bytes is None or not rows:
            return [base]
        few, many = (rows * max(1.0, end / _WORD) for end in node.text_bytes)
        expected = math.sqrt(few * many)
    longest = int(attributes.get("max_gram_length", 1))
    runs = longest * (1 + int(attributes.get("max_skip_count", 0)) * (longest > 1))
    known = len(attributes.get("pool_strings", ())) or len(attributes.get("pool_int64s", ()))
    far = 1.0 + _FAR_GRAM * math.log2(max(1.0, known / _NEAR_GRAMS))
    looked_up = Piece(
        kind=Kind.VECTOR,
        op="GramsOfText" if texts else "GramsOfNumbers",
        elements=expected * runs * far,
        least=few / expected if expected else 1.0,
        most=many / expected if expected else 1.0,
    )
    return [replace(base, kind=Kind.VECTOR), looked_up]


# A vocabulary of so many tokens stays in the near caches; each doubling makes a look-up so much dearer (30 to
# 20,000 words, 1 to 100 of them a row).
_NEAR_GRAMS, _FAR_GRAM = 850.0, 1.1
