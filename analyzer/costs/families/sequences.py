"""Counting what handles sequences, optionals, maps and strings: no FLOPs; their bytes have no fixed size."""

from __future__ import annotations

from analyzer.costs.families.per_element import CONTRIB, moves

moves(
    {
        "ConcatFromSequence": "reads every tensor of the sequence, writes its output",
        "Optional": "passes its input on",
        "OptionalGetElement": "passes its input on",
        "OptionalHasElement": "writes one truth value",
        "RegexFullMatch": "compares strings; their bytes have no fixed size",
        "SequenceAt": "reads and writes the tensor that is taken",
        "SequenceConstruct": "passes tensors on",
        "SequenceEmpty": "writes nothing",
        "SequenceErase": "passes tensors on",
        "SequenceInsert": "passes tensors on",
        "SequenceLength": "writes one number",
        "SplitToSequence": "reads its input, writes every part",
        "StringConcat": "reads and writes strings; their bytes have no fixed size",
        "StringNormalizer": "reads and writes strings; their bytes have no fixed size",
        "StringSplit": "reads and writes strings; their bytes have no fixed size",
        "TfIdfVectorizer": "looks up n-grams, reads its input, writes its output",
    },
    family=__name__,
)
moves(
    {"Tokenizer": "reads and writes strings; their bytes have no fixed size"}, family=__name__, domain=CONTRIB
)
