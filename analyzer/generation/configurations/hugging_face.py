"""A published model's ``config.json`` as an `Architecture`; nothing that it names is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analyzer.generation.architecture import Architecture
from analyzer.generation.configurations.built_model import (
    builds_generator,
    built_model,
    defaults_of,
    tied_around,
)
from analyzer.generation.configurations.families import FAMILIES, TEXT_PARTS, Family
from analyzer.generation.configurations.values import Values, refusal
from analyzer.loading.model_reference import (
    CONFIG_NAME,
    PIP_LINE,
    class_of,
    names_generation,
)
from analyzer.text import listed, printable

_DTYPES = ("bfloat16", "float16", "float32")


def architecture_of(config: Mapping[str, Any], *, name: str) -> Architecture:
    """Return the shape of a configuration's model; of one that sees or hears as well, its text part.

    Sizes that the configuration leaves to its class's defaults are asked of transformers, where that is
    installed; it is imported for nothing else.

    Raises:
        UsageError: Its family is not known, a size is missing, or a value cannot be.
    """
    kind, part, notes = _text_part(config)
    family = FAMILIES.get(kind)
    if family is None:  # one of which transformers alone knows how it is built
        own = config["model_type"]
        architecture, text = built_model(config, own), config.get("text_config")
        alone = () if architecture.family == own else (_TEXT_ALONE.format(printable(own)),)
        dtype = _dtype(text if isinstance(text, Mapping) else config, config, "bfloat16")
        return replace(architecture, name=name, dtype=dtype, notes=alone)
    values = Values(given=_complete(part, kind, family), names=family.names)
    further = values.count_or_none("num_nextn_predict_layers")
    if further:
        notes = (*notes, "Layers that predict further tokens (num_nextn_predict_layers) are left out.")
    return replace(
        family.build(values), name=name, family=kind, dtype=_dtype(part, config, family.dtype), notes=notes
    )


def generates(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration's model generates: by the class that it names, else by its family."""
    name = class_of(config)
    if name is not None and not name.endswith("Model"):
        return names_generation(config)
    kind = config.get("model_type")
    return not isinstance(kind, str) or _text_part(config)[0] in FAMILIES or builds_generator(kind)


def _text_part(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], tuple[str, ...]]:
    """Return the family, its part of the configuration, and what is to be said of the rest."""
    kind, part = config.get("model_type"), config.get("text_config")
    if not isinstance(kind, str):
        raise refusal(
            "the configuration names no `model_type`",
            hint=f"a language model's {CONFIG_NAME} names its family: {', '.join(sorted(FAMILIES)[:4])}, ...",
        )
    if kind in FAMILIES or not isinstance(part, Mapping):
        return kind, config, ()
    own = part.get("model_type", TEXT_PARTS.get(kind))
    if not isinstance(own, str):
        return kind, config, ()
    # The model around the text part has the head: the file says whether it is the embedding, else its class.
    tied = config.get("tie_word_embeddings")
    tied = tied_around(config, kind) if tied is None else tied
    if tied is not None:
        part = {**part, "tie_word_embeddings": tied}
    return own, part, (_TEXT_ALONE.format(printable(kind)),)


_TEXT_ALONE = "The text part of {} alone: what it sees or hears with is left out."


def _complete(part: Mapping[str, Any], kind: str, family: Family) -> Mapping[str, Any]:
    """Return the values under the family's own keys, with the class's defaults where a size is missing."""
    usual = {family.aliases.get(key, key): value for key, value in part.items()}
    # A key under its usual name counts where both are there.
    usual |= {key: value for key, value in part.items() if key not in family.aliases}

    def missing_in(values: Mapping[str, Any]) -> list[str]:
        return [key for key in family.names.values() if values.get(key) is None]

    missing = missing_in(usual)
    if not missing:
        return usual
    left_out = f"the configuration of a {kind} model leaves out {{}}"
    # The class makes a list as long as there are layers of whatever number stands there.
    there = Values(given=usual, names=family.names)
    for key in set(family.names.values()).difference(missing):
        there.count(key)
    defaults = defaults_of(usual, family.defaults_of)
    if defaults is None:
        raise refusal(
            left_out.format(listed(f"`{key}`" for key in missing)),
            hint=f"transformers knows what stands in for them: {PIP_LINE}",
        )
    known = {family.aliases.get(key, key): value for key, value in defaults.items()}
    filled = known | {key: value for key, value in usual.items() if value is not None}
    missing = missing_in(filled)
    if missing:
        raise refusal(
            left_out.format(listed(f"`{key}`" for key in missing)),
            hint="compare it with the config.json that the model was published with",
        )
    return filled


def _dtype(part: Mapping[str, Any], config: Mapping[str, Any], default: str) -> str:
    # `torch_dtype` until release 4.55 of transformers, `dtype` since.
    for values in (part, config):
        for key in ("dtype", "torch_dtype"):
            declared = values.get(key)
            if declared is None or declared == "auto":
                continue
            word = str(declared).removeprefix("torch.")
            if word not in _DTYPES:
                raise refusal(
                    f"`{key}` of the configuration is {printable(word)}, in which no weights are counted",
                    hint=f"known are {listed(_DTYPES)}",
                )
            return word
    return default
