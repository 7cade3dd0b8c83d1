"""Inputs by the names of Hugging Face, in whatever model: its tokenizers and models share these."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.loading.python.layer_inputs import TOKENS, Taken

_ROWS = tuple((None, size) for size in TOKENS)
_IDS = Taken(dtype="int64", shapes=(*_ROWS, (None,)))
# A mask of ones leaves nothing out.
_MASK = Taken(dtype="int64", shapes=_ROWS, values=(1,) * len(_ROWS))

# https://huggingface.co/docs/transformers/glossary; as sure as a layer that reads them, no surer.
NAMED: Mapping[str, Taken] = {
    "input_ids": _IDS,
    "attention_mask": _MASK,
    # 0 is the first of two sentences, and the only one of models that know no second.
    "token_type_ids": Taken(dtype="int64", shapes=_ROWS, values=(0,) * len(_ROWS)),
    "position_ids": _IDS,
    "decoder_input_ids": _IDS,
    "decoder_attention_mask": _MASK,
    # A class for each row, or for each token.
    "labels": Taken(dtype="int64", shapes=((None,), *_ROWS)),
}
# Those that a model may take beside its tokens and need nonetheless.
MASKS = ("attention_mask", "token_type_ids")
