"""A user's decoder with a cache -> Loaded, with sequences, new tokens and cached tokens as symbolic sizes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from analyzer.errors import InputError, ModelError
from analyzer.loading import cache as export_cache
from analyzer.loading.dependencies import Dependencies
from analyzer.loading.loaded import DEFAULT_OPSET, Loaded, cached_export, keep_export
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.example_inputs import ExampleInputs, arguments_and_keywords
from analyzer.loading.python.input_spec import register_containers
from analyzer.loading.python.model_weights import WEIGHTLESS, ValuedWeights, built_with, cuda_is_elsewhere
from analyzer.loading.python.source_lines import shown_path
from analyzer.loading.python.user_model import UserModel, in_mode, load_user_model, path_of, user_failure
from analyzer.loading.torch_export.export import export_model
from analyzer.loading.torch_private import tree_leaves
from analyzer.progress import StageProgress
from analyzer.reading import Limits

BATCH, TOKENS, PAST, CONTEXT = "batch", "tokens", "past", "context"
_TAKEN = (BATCH, TOKENS, PAST)
# No two are alike, nor is their sum another: sizes that are equal by chance are one symbol to the tracer.
_BASE = {BATCH: 2, TOKENS: 3, PAST: 5}
HOW_TO_WRITE = """Write the inputs of one step, the cache of earlier tokens among them:

    def example_inputs(batch=1, tokens=1, past=64):
        ids = torch.randint(0, VOCABULARY, (batch, tokens))
        shape = (batch, HEADS, past, SIZE)
        cache = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(LAYERS)]
        return ids, cache"""


def configuration_of(user: UserModel) -> Mapping[str, Any] | None:
    """Return the configuration of Hugging Face's kind that a model or a part of it has; None without."""
    for module in (user.model, *user.model.children()):
        config = getattr(module, "config", None)
        to_dict = getattr(config, "to_dict", None)
        values = to_dict() if callable(to_dict) else config
        if isinstance(values, Mapping) and isinstance(values.get("model_type"), str):
            return values
    return None


def python_model(reference: Reference) -> UserModel:
    """Return the model of a user's file, without weights where its code allows."""
    for weights in WEIGHTLESS:
        # What fails without values may be ours alone; on real tensors it is the user's to mend.
        with suppress(Exception):
            return load_user_model(reference, weights=weights)
    return load_user_model(reference, weights="real")


def _key(reference: Reference) -> str:
    source = str(reference.path.resolve()) if reference.path else reference.module or ""
    # No input of `analyze` is spelt so: a step with named sizes is another export than the model as it is.
    return export_cache.key(
        source=source, name=reference.called, opset=DEFAULT_OPSET, specs=("a step of generation",), batch=None
    )


def cached_decoder(reference: Reference, limits: Limits) -> Loaded | None:
    """Return the export of an earlier run, where nothing that it was made from has changed since; else None."""
    return cached_export(_key(reference), reference, limits)


def keep_decoder(reference: Reference, loaded: Loaded, dependencies: Dependencies) -> None:
    """Store an export for the next run."""
    keep_export(_key(reference), loaded, dependencies)


def has_step_inputs(user: UserModel) -> bool:
    """Return whether there is a function of batch, tokens and past."""
    offered = getattr(user.module, "example_inputs", None)
    return callable(offered) and set(_TAKEN) <= set(inspect.signature(offered).parameters)


def load_decoder(
    user: UserModel, reference: Reference | None, progress: StageProgress = lambda _: None
) -> Loaded:
    """Export a decoder; its symbolic sizes are ``batch``, ``tokens``, ``past`` and their sum ``context``."""
    name = reference.stem if reference else user.name
    if not has_step_inputs(user):
        raise ModelError(
            f"{name} has neither a configuration of transformers nor a function example_inputs(batch, tokens, "
            "past).",
            hint=HOW_TO_WRITE,
        )
    progress("exporting to ONNX")
    with in_mode(user.model, training=False):  # the caller's model stays as it was
        exported = export_model(user, step_inputs(user), DEFAULT_OPSET)
        if user.weights != "real" and reference is not None and (exported.needs_values or exported.needs_real):
            user = load_user_model(reference, weights="real")
            exported = export_model(user, step_inputs(user), DEFAULT_OPSET)
    path = path_of(user)
    kind = type(user.model)
    return Loaded(
        **exported.facts(),
        reference=reference,
        name=name,
        source=shown_path(path) if path and reference else f"{kind.__module__}.{kind.__qualname__}",
        proto=exported.proto,
        symbol="",
        batch=None,
        inputs_origin="file",
        live=user,
    )


def step_inputs(user: UserModel) -> ExampleInputs:
    """Return the inputs of a step, with a name for every axis that follows one of its sizes.

    Raises:
        InputError: The function raises, or an axis follows none of them in a way that is known.
    """
    with cuda_is_elsewhere("meta" if user.meta else "cpu"):
        arguments, keywords = _called(user, _BASE, user.weights)
        register_containers(arguments, keywords)
        base = _shapes(arguments, keywords)
        moved = {}
        for size in _TAKEN:
            moved[size] = _shapes(*_called(user, {**_BASE, size: _BASE[size] + 1}, "meta"))
            if [shape and len(shape) for shape in moved[size]] != [shape and len(shape) for shape in base]:
                raise InputError(
                    f"example_inputs gives other tensors where {size} is one more: a step takes the same ones "
                    "at every size.",
                    hint=HOW_TO_WRITE,
                )
    names: dict[int, dict[int, str]] = {}
    for position, shape in enumerate(base):
        for axis, length in enumerate(shape or ()):
            longer = [moved[size][position] or base[position] or () for size in _TAKEN]
            steps = tuple(other[axis] - length for other in longer)
            if any(steps):
                names.setdefault(position, {})[axis] = _name(steps, length, position)
    return ExampleInputs(
        arguments=arguments,
        keywords=keywords,
        batch=_BASE[BATCH],
        batch_axes={position: tuple(axes) for position, axes in names.items()},
        origin="file",
        axis_names=names,
    )


def _called(
    user: UserModel, sizes: Mapping[str, int], weights: ValuedWeights
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    with built_with(weights):
        try:
            return arguments_and_keywords(user, user.module.example_inputs(**sizes))
        except Exception as error:
            raise user_failure(error, "example_inputs raises", InputError) from error


def _shapes(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[tuple[int, ...] | None]:
    leaves = tree_leaves((arguments, dict(keywords)))
    return [tuple(leaf.shape) if hasattr(leaf, "shape") else None for leaf in leaves]


_NAMES: Mapping[tuple[int, ...], str] = {
    (1, 0, 0): BATCH,
    (0, 1, 0): TOKENS,
    (0, 0, 1): PAST,
    (0, 1, 1): CONTEXT,
}


def _name(steps: tuple[int, ...], length: int, position: int) -> str:
    name = _NAMES.get(steps)
    whole = sum(step * size for step, size in zip(steps, _BASE.values(), strict=True))
    if name is None or length != whole:
        raise InputError(
            f"An axis of tensor {position} of example_inputs is neither batch, tokens, past nor tokens + past.",
            hint=HOW_TO_WRITE,
        )
    return name
