"""Inputs by the names of Hugging Face, in whatever model: its tokenizers and models share these."""

from __future__ import annotations

import re
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
# (x0, y0, x1, y1) of each token on a grid of 0 to 1000; random ones would end before they begin. Elsewhere a
# bbox may be anything.
NAMED_IN_TRANSFORMERS: Mapping[str, Taken] = {
    **NAMED,
    "bbox": Taken(dtype="int64", shapes=tuple((*row, 4) for row in _ROWS), values=(0,) * len(_ROWS)),
}
# Steps of a diffusion, one for each example; the second are so called elsewhere too.
STEPS = Taken(dtype="int64", shapes=((None,),))
STEP_NAMES = ("timestep", "timesteps", "time_step", "time_steps")
SHORT_STEP_NAMES = ("t", "ts", "time", "step", "steps")
# Lengths of sequences, one for each example: lengths, input_lengths, seq_lens.
LENGTHS_NAME = re.compile(r"(^|_)(lengths|lens)$")
# Those that a model may take beside its tokens and need nonetheless.
MASKS = ("attention_mask", "token_type_ids")
