"""A model object of the Python interface -> Loaded; never cached: nothing says what it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.errors import ExportError, ModelError, UsageError
from analyzer.loading import reader
from analyzer.loading.load import export_any_batch, loaded_of
from analyzer.loading.loaded import DEFAULT_OPSET, Loaded, check_opset
from analyzer.loading.python.example_inputs import ExampleInputs, resolve_inputs
from analyzer.loading.python.input_spec import InputSpec
from analyzer.progress import StageProgress
from analyzer.reading import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from analyzer.loading.python.user_model import UserModel
    from analyzer.loading.torch_export.export import Exported


def load_live(
    model: Any,
    *,
    inputs: Any,
    batch: int | None,
    specs: Sequence[InputSpec],
    opset: int | None,
    progress: StageProgress,
    training: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Loaded:
    """Loads an ``nn.Module``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.

    Raises:
        ModelError: It is none of these.
        UsageError: ``inputs`` does not go with an ONNX model.
        AnalyzerError: As ``load``.
    """
    # By the class's module: torch, onnx and onnx_ir need not be imported to say that a model is none of theirs.
    kind = type(model)
    package = kind.__module__.partition(".")[0]
    if package in ("onnx", "onnx_ir"):
        if inputs is not None:
            raise UsageError("inputs= goes with a module; an ONNX model declares its own.")
        if training:
            raise UsageError("training= needs an nn.Module: an ONNX model holds no loss and no gradients.")
        return _from_onnx(model, batch, specs, opset, limits)
    if any(base.__module__.startswith("torch.nn") and base.__name__ == "Module" for base in kind.__mro__):
        from analyzer.loading.python.user_model import live_model

        check_opset(opset or DEFAULT_OPSET)
        user = live_model(model, inputs)
        return _of_user(user, batch, specs, opset or DEFAULT_OPSET, progress, train=training)
    if isinstance(model, type):
        raise ModelError(
            f"{model.__name__} is a class, not a model.", hint=f"Give an instance: {model.__name__}(...)."
        )
    raise ModelError(
        f"A {kind.__name__} is no model that can be analysed.",
        hint="Give a path, an nn.Module with inputs=, an onnx.ModelProto or an onnx_ir.Model.",
    )


def _from_onnx(
    model: Any, batch: int | None, specs: Sequence[InputSpec], opset: int | None, limits: Limits
) -> Loaded:
    import onnx

    from analyzer.loading.from_onnx import from_proto
    from analyzer.loading.onnx_graph.onnx_file import KEEP_BYTES, check_versions, without_weights

    if not isinstance(model, onnx.ModelProto):
        import onnx_ir

        model = onnx_ir.to_proto(model)
    if not model.HasField("graph"):
        raise ModelError("The onnx.ModelProto holds no graph.", hint="Give one that was loaded or built.")
    check_versions(model, "the model")
    name = model.graph.name or "model"
    # What comes back is named and bound; the caller's model stays as it is.
    content = without_weights(model.SerializeToString(), keep_bytes=KEEP_BYTES)
    proto, converted = reader.parsed_bytes(content, subject="the model", opset=opset, limits=limits)
    loaded = from_proto(
        proto,
        name=name,
        source="onnx.ModelProto",
        batch=batch,
        specs=specs,
        converted=converted,
        limits=limits,
    )
    return replace(loaded, live=model)


def _exported(user: UserModel, specs: Sequence[InputSpec], inputs: ExampleInputs, opset: int) -> Exported:
    """The export as it is traced, else as Dynamo reads it; the first error is the one to tell."""
    try:
        return export_any_batch(user, specs, inputs, opset)
    except ExportError:
        with suppress(Exception):  # a failure of Dynamo may be ours alone
            return export_any_batch(user, specs, inputs, opset, strict=True)
        raise


def live_at(loaded: Loaded, batch: int, opset: int) -> Loaded:
    """A module that was given as an object, exported again at another batch.

    Raises:
        AnalyzerError: Its code forbids that batch.
    """
    return _of_user(loaded.live, batch, loaded.specs, opset, lambda _: None, train=False)


def _of_user(
    user: UserModel,
    batch: int | None,
    specs: Sequence[InputSpec],
    opset: int,
    progress: StageProgress,
    train: bool,
) -> Loaded:
    from analyzer.loading.python.user_model import in_mode

    with in_mode(user.model, training=False):  # the caller's model stays as it was
        example = resolve_inputs(user, specs, batch)
        progress("exporting to ONNX")
        if train:
            from analyzer.loading.training.load_step import step_of_user

            exported = step_of_user(user, example, opset)
        else:
            exported = _exported(user, specs, example, opset)
    return loaded_of(user, example, exported, specs, None)
