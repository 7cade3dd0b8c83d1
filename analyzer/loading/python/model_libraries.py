"""Libraries that build models by name: ``timm:resnet50``, ``torchvision:resnet50``, without trained weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.errors import ModelError
from analyzer.loading.model_reference import Reference
from analyzer.text import did_you_mean

if TYPE_CHECKING:
    from torch.nn import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLibrary:
    """How a library builds a model by its name.

    Attributes:
        part: Its module that holds the functions; empty for the library itself.
        builder: The function that takes a name.
        fixed: What it is called with besides.
        install: What `pip install` takes.
    """

    part: str
    builder: str
    fixed: Mapping[str, Any]
    install: str


# Of either, `list_models` gives all names.
LIBRARIES: Mapping[str, ModelLibrary] = {
    # timm/models/_factory.py
    "timm": ModelLibrary(part="", builder="create_model", fixed={"pretrained": False}, install="timm"),
    # torchvision/models/_api.py
    "torchvision": ModelLibrary(
        part="models", builder="get_model", fixed={"weights": None}, install="torchvision"
    ),
}


def library_builder(reference: Reference, module: ModuleType) -> Callable[..., object] | None:
    """What builds the named model of a library; None where the reference names something else.

    Args:
        reference: What the user named.
        module: The imported module of that name.

    Raises:
        ModelError: The library has no model of that name.
    """
    library = LIBRARIES.get(reference.module or "")
    if library is None or reference.name is None or hasattr(module, reference.name.partition(".")[0]):
        return None
    functions = getattr(module, library.part) if library.part else module
    known = list(functions.list_models())
    # timm's names may end in those of trained weights: resnet50.a1_in1k.
    if reference.name.partition(".")[0] not in known:
        listed = f"{functions.__name__}.list_models() names the {len(known)} that it has."
        hint = did_you_mean(reference.name, known, listed, spelled=lambda name: f"{reference.module}:{name}")
        raise ModelError(f"{reference.module} has no model {reference.name}.", hint=hint)
    return partial(getattr(functions, library.builder), reference.name, **library.fixed)


def inputs_of_library(reference: Reference, model: Module) -> Callable[..., object] | None:
    """A function ``example_inputs`` for a model that says which images it takes; None for any other.

    Args:
        reference: What the user named.
        model: The built model.
    """
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
