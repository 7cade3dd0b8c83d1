"""Models that a library builds: by ``config.json`` (transformers) or by name (``timm:resnet50``), untrained.

Of the folder of a ``config.json`` nothing but that file is read, as data: no weights, and no code
(``auto_map``) is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, ModelError
from analyzer.loading.model_reference import (
    PIP_LINE,
    Reference,
    class_of,
    names_generation,
    read_config,
    transformers_silent,
)
from analyzer.text import did_you_mean, printable

if TYPE_CHECKING:
    import torch
    from torch.nn import Module

# What says nothing of the shape, and keys by which transformers would fetch code or trained weights.
_LEFT_OUT = frozenset(
    (
        *("architectures", "attn_implementation", "auto_map", "dtype", "experts_implementation", "model_type"),
        *("quantization_config", "torch_dtype", "transformers_version", "use_kernels"),
        "use_pretrained_backbone",
    )
)
# A usual length; models of sentences take 128 to 512.
_TOKENS = 128
# One second at the 16 kHz that models of speech are trained with.
_SAMPLES = 16000
_DTYPES = ("float16", "bfloat16")


Assumed = Mapping[str, tuple[int, int] | None]


def configured(reference: Reference) -> tuple[ModuleType, Assumed]:
    """Return a module with a configuration's ``model`` and ``example_inputs``, and what is assumed of these.

    Assumed are the inputs whose sizes the configuration leaves open, with the values that fill them.

    The default device is where the model is built.

    Raises:
        ModelError: transformers is missing, or does not know the model, or it generates.
        UsageError: The file cannot be read.
    """
    assert reference.path is not None
    values = read_config(reference.path)
    if names_generation(values):
        raise ModelError(
            f"{reference.text} describes a model that generates ({printable(class_of(values) or '')}).",
            hint=f"Of a model that generates: analyze generate {reference.text}. One pass alone needs a "
            ".py file with build_model().",
        )
    model = _built(reference, values)
    module = ModuleType(type(model).__name__)
    module.__file__ = str(reference.path)
    module.model = model  # type: ignore[attr-defined]  # what a user's file would define
    offered = _example_inputs(reference, model)
    if offered is None:
        return module, {}
    module.example_inputs = offered  # type: ignore[attr-defined]  # as above
    return module, _assumed(values, model)


def _built(reference: Reference, values: Mapping[str, Any]) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ModelError(
            f"{reference.text}: transformers builds the model of a configuration, and is not installed.",
            hint=PIP_LINE,
        ) from error
    import torch

    kind, name = values.get("model_type"), class_of(values)
    named = getattr(transformers, name, None) if name else None
    if kind not in transformers.CONFIG_MAPPING or (
        name and not (isinstance(named, type) and issubclass(named, transformers.PreTrainedModel))
    ):
        raise _unknown(reference, kind, name, "auto_map" in values)
    try:
        with transformers_silent():
            config = transformers.CONFIG_MAPPING[kind](**_plain(values, transformers.CONFIG_MAPPING[kind]))
            if hasattr(config, "use_cache"):
                config.use_cache = False
            model = named(config) if named is not None else transformers.AutoModel.from_config(config)
    except Exception as error:  # whatever its classes say of values that they do not take
        reason = " ".join(printable(str(error)).split())[:300]
        raise ModelError(
            f"{reference.text}: transformers builds no {printable(name or str(kind))} of it: "
            f"{type(error).__name__}: {reason}",
            hint="Compare it with the config.json that the model was published with.",
        ) from error
    dtype = values.get("dtype", values.get("torch_dtype"))
    return model.to(getattr(torch, dtype)) if dtype in _DTYPES else model


def _unknown(reference: Reference, kind: object, name: str | None, has_code: bool) -> ModelError:
    what = printable(name or str(kind))
    if has_code:
        return ModelError(
            f"{reference.text}: {what} is code of the folder itself (`auto_map`), which is never run.",
            hint="Export it where you trust it (torch.onnx.export, torch.export.save), or name a .py file.",
        )
    return ModelError(
        f"{reference.text}: the installed transformers knows no {what} ({printable(str(kind))}).",
        hint="A newer release may; or name a .py file with build_model().",
    )


def _plain(values: Mapping[str, Any], owner: type | None) -> dict[str, Any]:
    """Return the values that say what shape the model has, those of its parts too."""
    # Any other key becomes an attribute of the object: none may hide one of its methods.
    return {
        # Of a part the family is needed, which of the whole is read apart.
        key: {**_plain(value, None), **{name: value[name] for name in ("model_type",) if name in value}}
        if isinstance(value, Mapping)
        else value
        for key, value in values.items()
        if not key.startswith("_") and key not in _LEFT_OUT and not callable(getattr(owner, key, None))
    }


Inputs = dict[str, "torch.Tensor"]


def _example_inputs(reference: Reference, model: Any) -> Callable[[int], Inputs] | None:
    """Return inputs by the model's main one; None where its first layers must tell their sizes."""
    config, taken = model.config, signature(model.forward).parameters
    main = model.main_input_name
    vision = getattr(config, "vision_config", config)
    is_pair = main == "input_ids" and "pixel_values" in taken and vision is not config
    image = _image(vision) if main == "pixel_values" or is_pair else None
    if main == "pixel_values" and image is None:
        return None

    def example_inputs(batch: int = 1) -> Inputs:
        import torch

        result: Inputs = {}
        if main == "input_ids":
            result |= _tokens(model, batch)
        if image is not None:
            result["pixel_values"] = torch.randn((batch, *image)).to(model.dtype)
        if main in ("input_values", "input_features"):
            result[main] = torch.randn((batch, *_sound(reference, config, main))).to(model.dtype)
        if not result:
            raise InputError(
                f"{reference.text}: nothing says what {main} of {type(model).__name__} looks like.",
                hint=f"Give --input {main}=B,..., with its sizes behind the batch in place of `...`.",
            )
        return result

    return example_inputs


def _assumed(values: Mapping[str, Any], model: Any) -> Assumed:
    """Return the inputs whose sizes the file leaves open, with their smallest and largest value."""
    config, main = model.config, model.main_input_name
    assumed: dict[str, tuple[int, int] | None] = {}
    if main == "input_ids":
        ids = (0, _words(config) - 1)
        assumed = {"input_ids": ids, "attention_mask": (1, 1), "decoder_input_ids": ids}
    part = values.get("vision_config", values)
    if not isinstance(part, Mapping) or "image_size" not in part:  # its class has a usual one
        assumed["pixel_values"] = None
    if main == "input_values" and _spectrogram(config, main) is None:
        assumed["input_values"] = None
    return assumed


def _words(config: Any) -> int:
    return _size(getattr(config, "text_config", config), "vocab_size") or 2


def _tokens(model: Any, batch: int) -> Inputs:
    import torch

    config, taken = model.config, signature(model.forward).parameters
    text = getattr(config, "text_config", config)
    longest = _size(text, "max_position_embeddings") or _TOKENS
    shape = (batch, min(_TOKENS, longest))
    ids = torch.randint(0, _words(config), shape)
    result = {"input_ids": ids}
    if "attention_mask" in taken:
        result["attention_mask"] = torch.ones(shape, dtype=torch.int64)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in taken:
        result["decoder_input_ids"] = ids
    return result


def _image(config: Any) -> tuple[int, ...] | None:
    """Frames where there are some, channels, height, width; None where the configuration says no size."""
    size = getattr(config, "image_size", None)
    if isinstance(size, Mapping):
        size = (size.get("height"), size.get("width"))
    sides = (size, size) if isinstance(size, int) else size
    if (
        not isinstance(sides, (list, tuple))
        or len(sides) != 2
        or not all(isinstance(side, int) for side in sides)
    ):
        return None
    frames = _size(config, "num_frames")
    return (*([frames] if frames else []), _size(config, "num_channels") or 3, *sides)


def _sound(reference: Reference, config: Any, main: str) -> tuple[int, ...]:
    """Return a spectrogram whose sizes are told, else a second of samples."""
    spectrogram = _spectrogram(config, main)
    if spectrogram is not None:
        return spectrogram
    if main == "input_values":
        channels = _size(config, "audio_channels")  # of a codec
        return (channels, _SAMPLES) if channels else (_SAMPLES,)
    raise InputError(
        f"{reference.text}: the configuration does not say how long {main} is.",
        hint=f"Give --input {main}=B,..., with its sizes behind the batch in place of `...`.",
    )


def _spectrogram(config: Any, main: str) -> tuple[int, ...] | None:
    """Of the audio spectrogram transformer and of Whisper's encoder; None where no size is told."""
    bins = _size(config, "num_mel_bins")
    frames = _size(config, "max_length")
    if main == "input_values" and bins and frames:
        return frames, bins
    positions = _size(config, "max_source_positions")
    if main == "input_features" and bins and positions:
        return bins, 2 * positions  # its second convolution has a stride of 2
    return None


def _size(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# By library, its module that builds models by their names and lists these, the function, and further arguments
# (timm/models/_factory.py, torchvision/models/_api.py).
LIBRARIES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "timm": ("", "create_model", {"pretrained": False}),
    "torchvision": ("models", "get_model", {"weights": None}),
}


def library_builder(reference: Reference, module: ModuleType) -> Callable[..., object] | None:
    """Return what builds the named model of a library; None where the reference names something else.

    Raises:
        ModelError: The library has no model of that name.
    """
    library = LIBRARIES.get(reference.module or "")
    if library is None or reference.name is None or hasattr(module, reference.name.partition(".")[0]):
        return None
    part, builder, fixed = library
    functions = getattr(module, part) if part else module
    known = list(functions.list_models())
    # timm's names may end in those of trained weights: resnet50.a1_in1k.
    if reference.name.partition(".")[0] not in known:
        listed = f"{functions.__name__}.list_models() names the {len(known)} that it has."
        hint = did_you_mean(reference.name, known, listed, spelled=lambda name: f"{reference.module}:{name}")
        raise ModelError(f"{reference.module} has no model {reference.name}.", hint=hint)
    return partial(getattr(functions, builder), reference.name, **fixed)


def inputs_of_library(reference: Reference, model: Module) -> Callable[..., object] | None:
    """Return a function ``example_inputs`` for a model that says which images it takes; None for any other."""
    # Of timm's models; what they were built with goes before what their weights were trained for.
    facts = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    size = facts.get("input_size") if isinstance(facts, Mapping) else None
    if reference.module not in LIBRARIES or not isinstance(size, (tuple, list)) or not size:
        return None
    given = {item.name: item.value for item in reference.arguments if not item.calls}
    image = given.get("img_size", tuple(size[1:]))
    image = (image, image) if isinstance(image, int) else tuple(image)
    shape = (given.get("in_chans", size[0]), *image)

    def example_inputs(batch: int = 1) -> object:
        import torch

        return torch.randn((batch, *shape))

    return example_inputs
