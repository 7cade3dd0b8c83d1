"""MODEL of ``analyze generate`` -> the model, whatever it was kept as."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.errors import UsageError
from analyzer.generation.configurations.hugging_face import architecture_of, generates
from analyzer.generation.configurations.quantisation import Quantisation, quantisation_of, stored
from analyzer.generation.configured_model import ConfiguredModel
from analyzer.generation.graphs.graph_model import GraphModel, exported_model, graph_model
from analyzer.generation.memory import known_by_size
from analyzer.generation.times import GeneratingModel
from analyzer.loading.decoder_export import (
    cached_decoder,
    configuration_of,
    has_step_inputs,
    keep_decoder,
    load_decoder,
    python_model,
)
from analyzer.loading.load import building, load
from analyzer.loading.model_reference import (
    CONFIG_NAME,
    GENAI_NAME,
    Reference,
    is_genai,
    names_python,
    parse_reference,
    read_config,
)
from analyzer.loading.python.user_model import UserModel, live_model
from analyzer.options import Weights
from analyzer.progress import StageProgress
from analyzer.reading import DEFAULT_LIMITS, Limits

_WEIGHTS_OF: Mapping[str, Weights] = {"float32": "fp16", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A model that generates, and what reports call it.

    ``cached`` says whether an earlier export was used.
    """

    model: GeneratingModel
    name: str
    notes: tuple[str, ...] = ()
    cached: bool = False


def is_configuration(text: str) -> bool:
    """Return whether MODEL is a folder, or a ``config.json``."""
    return os.path.isdir(text) or os.path.basename(text) == CONFIG_NAME


def is_generating(text: str) -> bool:
    """Return whether MODEL can only generate: such a configuration of Hugging Face, or one of GenAI."""
    if is_genai(text):
        return True
    if not is_configuration(text):
        return False
    try:
        return generates(read_config(text))
    except UsageError:  # said where it is read for good
        return True


def is_python(text: str) -> bool:
    """Return whether MODEL is model.py, model.py:Name or package.module:Name."""
    return (text.endswith(".py") or not os.path.exists(text)) and names_python(text)


def from_genai(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> OpenedModel:
    """Return the decoder of a folder of ONNX Runtime GenAI; its weights are never read."""
    folder = Path(path) if os.path.isdir(path) else Path(path).parent
    file, title = folder / GENAI_NAME, folder.resolve().name or "model"
    config = read_config(file)
    genai = _part(config, "model", file)
    decoder, search = _part(genai, "decoder", file), config.get("search")
    name, pairs = decoder.get("filename"), _pairs(decoder, file)
    positions = _count(genai.get("context_length"), file, "model.context_length")
    # A folder may be a stranger's: nothing outside of it is read.
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise _wrong(file, "model.decoder.filename", "names no file next to it")
    if not (folder / name).is_file():
        raise UsageError(f"{file} names {name}, which is not next to it.", hint=_WHAT_IT_IS)
    loaded = load(parse_reference(str(folder / name)), limits=limits)
    known = {value.name for value in loaded.proto.graph.input}
    model = graph_model(
        replace(loaded, state=tuple(pair for pair in pairs if pair[0] in known)),
        name=title,
        # Whether past and present are one buffer.
        shared=bool(search.get("past_present_share_buffer", True)) if isinstance(search, Mapping) else True,
        positions=positions,
    )
    return OpenedModel(model=model, name=title)


def from_graph(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> OpenedModel:
    """Return the decoder of an ``.onnx`` file, with its cache as inputs and outputs; weights are not read."""
    loaded = load(parse_reference(os.fspath(path)), limits=limits)
    return OpenedModel(model=graph_model(loaded, name=loaded.name), name=loaded.name)


def from_configuration(path: str | os.PathLike[str]) -> OpenedModel:
    """Return the model that a folder's ``config.json`` describes; its weights are never read.

    Raises:
        UsageError: There is none, or it describes no model that is known.
    """
    folder = Path(path) if os.path.isdir(path) else Path(path).parent
    return from_values(read_config(path), name=folder.resolve().name or "model")


def from_values(config: Mapping[str, Any], *, name: str) -> OpenedModel:
    """Return the model that a configuration describes."""
    # Refused before a model is built for what the configuration leaves out.
    quantisation = quantisation_of(config)
    architecture = architecture_of(config, name=name)
    model, storage = stored(architecture, quantisation or Quantisation(default=None))
    by_size = known_by_size(architecture)
    notes = []
    if by_size > _SMALL:
        notes.append(
            f"Of the weights that a token reads, {by_size:.0%} stand in parts of {architecture.family} of "
            "which only the sizes are known here: the intervals of times are widened."
        )
    if storage is not None and not storage.is_usual:
        notes.append(
            f"ONNX Runtime has no kernel for most of its weights, of {storage.bits:.3g} bits: times are "
            "those of a fused one, and their intervals are widened."
        )
    if storage is None and architecture.dtype == "float32":
        notes.append("Its weights are stored in 32 bits; a GPU is taken to load them in 16 (`--weights`).")
    unread = quantisation is not None and bool(quantisation.unknown)
    unsure = _UNSURE if unread or not (storage is None or storage.is_usual) else 1.0
    return OpenedModel(
        model=ConfiguredModel(
            architecture=model,
            own_weights=storage.weights if storage else _WEIGHTS_OF[architecture.dtype],
            storage=storage,
            unsure=unsure * (1.0 + by_size if by_size > _SMALL else 1.0),
        ),
        name=name,
        notes=tuple(notes),
    )


# What a key that is not understood may do: leave a third of the weights in 16 bits, or pack them tighter.
_UNSURE = 1.5
# Parts that are known by their sizes alone may take twice their time; of a share below this nothing is said.
_SMALL = 0.02


def from_python(
    reference: Reference,
    progress: StageProgress = lambda _: None,
    *,
    use_cache: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> OpenedModel:
    """Return the decoder of a Python file or module; its weights are never needed."""
    name = reference.stem
    known = cached_decoder(reference, limits) if use_cache else None
    if known is not None:
        return OpenedModel(model=exported_model(known, name=name), name=name, cached=True)
    with building(reference, progress) as recorded:
        opened = _of_user(python_model(reference), reference, progress)
    if use_cache and isinstance(opened.model, GraphModel):
        keep_decoder(reference, opened.model.loaded, recorded[0])
    return opened


def from_module(model: Any, inputs: Any = None, progress: StageProgress = lambda _: None) -> OpenedModel:
    """Return the decoder that a module in memory is.

    ``inputs`` is a function of batch, tokens and past that gives a step's inputs; None where the module has a
    configuration.
    """
    return _of_user(live_model(model, inputs), None, progress)


def _of_user(user: UserModel, reference: Reference | None, progress: StageProgress) -> OpenedModel:
    name = reference.stem if reference else user.name
    config = configuration_of(user)
    # Who writes the inputs of a step means the module as it is.
    if config is not None and not has_step_inputs(user):
        return from_values(config, name=name)
    return OpenedModel(model=exported_model(load_decoder(user, reference, progress), name=name), name=name)


def no_way(text: str) -> UsageError:
    """Return the error for a model that `generate` cannot read."""
    return UsageError(
        f"{text}: `analyze generate` reads no such model.",
        hint=f"Give a folder with {CONFIG_NAME} or {GENAI_NAME}, an .onnx file with its cache, or model.py.",
    )


_WHAT_IT_IS = "onnxruntime_genai.models.builder writes the folder: give it whole."
# Names of inputs and outputs, a number of a layer in them (onnxruntime-genai, src/config.h).
_PATTERNS = (
    ("past_key_names", "present_key_names", "past_key_values.%d.key", "present.%d.key"),
    ("past_value_names", "present_value_names", "past_key_values.%d.value", "present.%d.value"),
)
_MOST_LAYERS = 10_000


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
    result = []
    for past, present, usual_past, usual_present in _PATTERNS:
        before, after = inputs.get(past, usual_past), outputs.get(present, usual_present)
        for name in (before, after):
            if not isinstance(name, str) or name.count("%d") != 1:
                raise _wrong(file, f"model.decoder's {past}", "is no name with one %d")
        result += [
            (before.replace("%d", str(layer)), after.replace("%d", str(layer))) for layer in range(layers)
        ]
    return tuple(result)


def _wrong(file: Path, key: str, what: str) -> UsageError:
    return UsageError(f"{file}: {key} {what}.", hint=_WHAT_IT_IS)
