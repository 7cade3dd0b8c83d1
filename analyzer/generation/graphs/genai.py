"""A folder of ONNX Runtime GenAI: what its ``genai_config.json`` says of the decoder's graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.errors import UsageError
from analyzer.loading.configuration_file import GENAI_NAME, read_config

_WHAT_IT_IS = "onnxruntime_genai.models.builder writes the folder: give it whole."
# Names of inputs and outputs, a number of a layer in them (onnxruntime-genai, src/config.h).
_PATTERNS = (
    ("past_key_names", "present_key_names", "past_key_values.%d.key", "present.%d.key"),
    ("past_value_names", "present_value_names", "past_key_values.%d.value", "present.%d.value"),
)
_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GenaiDecoder:
    """A decoder's file and what is said of it.

    Attributes:
        path: The ``.onnx`` file.
        pairs: Of caches, past and present.
        shared: Whether past and present are one buffer.
        positions: Tokens of a sequence at most; None where nothing tells.
    """

    path: Path
    pairs: tuple[tuple[str, str], ...]
    shared: bool
    positions: int | None


def genai_decoder(folder: Path) -> GenaiDecoder:
    """What a folder of ONNX Runtime GenAI says of its decoder.

    Raises:
        UsageError: The file is damaged, or its model is none with one decoder.
    """
    file = folder / GENAI_NAME
    config = read_config(file)
    model = _part(config, "model", file)
    decoder = _part(model, "decoder", file)
    name = decoder.get("filename")
    # A folder may be a stranger's: nothing outside of it is read.
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise _wrong(file, "model.decoder.filename", "names no file beside it")
    path = folder / name
    if not path.is_file():
        raise UsageError(f"{file} names {name}, which is not beside it.", hint=_WHAT_IT_IS)
    search = config.get("search")
    shared = search.get("past_present_share_buffer", True) if isinstance(search, Mapping) else True
    return GenaiDecoder(
        path=path,
        pairs=_pairs(decoder, file),
        shared=bool(shared),
        positions=_count(model.get("context_length"), file, "model.context_length"),
    )


def _part(values: Mapping[str, Any], key: str, file: Path) -> Mapping[str, Any]:
    part = values.get(key)
    if not isinstance(part, Mapping):
        raise _wrong(file, key, "is no object")
    return part


def _count(value: object, file: Path, key: str) -> int | None:
    if value is None:
        return None
    # A bool is an int in Python.
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise _wrong(file, key, "is no whole number above zero")
    return value


def _pairs(decoder: Mapping[str, Any], file: Path) -> tuple[tuple[str, str], ...]:
    layers = _count(decoder.get("num_hidden_layers"), file, "model.decoder.num_hidden_layers") or 0
    if layers > _MOST_LAYERS:
        raise _wrong(file, "model.decoder.num_hidden_layers", f"is more than {_MOST_LAYERS:,}")
    parts = (decoder.get(key) for key in ("inputs", "outputs"))
    inputs, outputs = (part if isinstance(part, Mapping) else {} for part in parts)
    found = []
    for past, present, usual_past, usual_present in _PATTERNS:
        before, after = inputs.get(past, usual_past), outputs.get(present, usual_present)
        for name in (before, after):
            if not isinstance(name, str) or name.count("%d") != 1:
                raise _wrong(file, f"model.decoder's {past}", "is no name with one %d")
        found += [
            (before.replace("%d", str(layer)), after.replace("%d", str(layer))) for layer in range(layers)
        ]
    return tuple(found)


def _wrong(file: Path, key: str, what: str) -> UsageError:
    return UsageError(f"{file}: {key} {what}.", hint=_WHAT_IT_IS)
