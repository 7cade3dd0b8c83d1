"""MODEL, or an object of the Python interface, -> Loaded: the one entry of this folder.

Imports torch only where a Python model is exported afresh or a .pt2 file is read, which is code as a Python
file is. An object is never cached: nothing says what it depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, ExportError, InputError, MemoryForeseenError, ModelError, UsageError
from analyzer.loading import cache as export_cache
from analyzer.loading import reader
from analyzer.loading.loaded import DEFAULT_OPSET, Loaded, cached_export, check_opset, keep_export
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.example_inputs import ExampleInputs, resolve_inputs
from analyzer.loading.python.input_spec import InputSpec, named_by_position
from analyzer.loading.python.model_weights import ValuedWeights, parameter_sizes
from analyzer.loading.python.source_lines import first_line, shown_path
from analyzer.loading.torch_export.tracing import quiet_exporter
from analyzer.loading.torch_private import example_size, require_torch
from analyzer.progress import StageProgress
from analyzer.reading import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram

    from analyzer.loading.dependencies import Dependencies
    from analyzer.loading.python.user_model import UserModel
    from analyzer.loading.torch_export.export import Exported

# More than the memory of any GPU of the catalogue (a test compares them).
NO_GPU_HOLDS_BYTES = 300e9


def load(
    reference: Reference,
    *,
    batch: int | None = None,
    specs: Sequence[InputSpec] = (),
    opset: int | None = None,
    use_cache: bool = True,
    progress: StageProgress = lambda _: None,
    training: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Loaded:
    """Load any kind of model; an .onnx file is converted to ``opset``, any other is exported at it."""
    if training and reference.kind in ("onnx", "pt2"):
        raise UsageError(
            f"--training needs the model's Python code: {reference.text} holds no loss and no gradients.",
            hint="Give the .py file that defines the model.",
        )
    if reference.kind == "onnx":
        from analyzer.loading.from_onnx import from_proto

        assert reference.path is not None  # a file
        proto, converted = reader.parsed(
            reference.path, subject=f"'{reference.path}'", opset=opset, limits=limits
        )
        return from_proto(
            proto,
            name=reference.stem,
            source=shown_path(reference.path),
            batch=batch,
            specs=specs,
            converted=converted,
            reference=reference,
            limits=limits,
        )
    if reference.kind == "record":
        raise ModelError(
            f"{reference.text} is a saved report, not a model.",
            hint=f"Use `analyze render {reference.text}` or `analyze check {reference.text}`.",
        )
    check_opset(opset or DEFAULT_OPSET)
    if reference.kind == "pt2":
        progress("reading the exported program")
        return load_pt2(reference, batch=batch, specs=specs, opset=opset or DEFAULT_OPSET, limits=limits)
    request = _Request(
        reference, batch, tuple(specs), opset or DEFAULT_OPSET, progress, training=training, limits=limits
    )
    source = str(reference.path.resolve()) if reference.path else reference.module or ""
    texts = [*(spec.key for spec in specs), *["--training"] * training, *reference.script_arguments]

    def key(fixed: int | None) -> str:
        return export_cache.key(
            source=source, name=reference.called, opset=request.opset, specs=texts, batch=fixed
        )

    if use_cache:
        # First the export for any batch, then the one for this batch alone; 0 stands for the inputs' own.
        for fixed in (None, batch or 0):
            cached = cached_export(key(fixed), reference, limits, request.specs, batch)
            # What was exported at a requested batch alone does not say the inputs' own.
            if cached and cached.batch is not None and cached.supports(cached.batch):
                return cached
    with building(reference, progress) as recorded:
        exported = _export_first_that_works(request)
    loaded = loaded_of(*exported, request.specs, reference)
    if use_cache:
        fixed = None if loaded.symbol else (batch or 0)
        keep_export(key(fixed), loaded, recorded[0], loaded.batch if batch is None else None)
    return loaded


@dataclass(frozen=True, slots=True)
class _Request:
    """A model of Python to export, as ``load`` is given it; ``live`` is one that is an object."""

    reference: Reference | None
    batch: int | None
    specs: tuple[InputSpec, ...]
    opset: int
    progress: StageProgress
    training: bool
    limits: Limits
    live: UserModel | None = None

    def built(self, weights: ValuedWeights) -> tuple[UserModel, ExampleInputs]:
        """Build the model and its inputs with these values."""
        from analyzer.loading.python.user_model import load_user_model

        if self.reference is None:
            assert self.live is not None
            return self.live, resolve_inputs(self.live, self.specs, self.batch)
        user = load_user_model(
            self.reference,
            weights=weights,
            specs=self.specs,
            memory_bytes=self.limits.memory,
            training=self.training,
        )
        return user, resolve_inputs(user, self.specs, self.batch)

    def exported(self, user: UserModel, inputs: ExampleInputs, *, strict: bool) -> Exported:
        """Export the model, or one training step of it."""
        if self.training:
            from analyzer.loading.training.load_step import step_of_user

            self.progress("tracing the training step")
            return step_of_user(user, inputs, self.opset)
        self.progress("exporting to ONNX")
        return export_any_batch(user, self.specs, inputs, self.opset, strict=strict)


@contextmanager
def building(reference: Reference, progress: StageProgress) -> Iterator[list[Dependencies]]:
    """Note what a model is built from inside the block; afterwards the list holds it."""
    from analyzer.loading.dependencies import recording
    from analyzer.loading.python.user_module import home_folder

    progress("importing torch")
    require_torch()  # before recording: its own reading is no dependency of the model
    with recording(home_folder(reference)) as recorded:
        progress("building the model")
        yield recorded


def loaded_of(
    user: UserModel,
    inputs: ExampleInputs,
    exported: Exported,
    specs: Sequence[InputSpec],
    reference: Reference | None,
) -> Loaded:
    """Return what an export of a module makes; without a reference of one that the Python interface gave."""
    from analyzer.loading.python.example_inputs import left_out, tensor_names
    from analyzer.loading.python.source_lines import shown_path
    from analyzer.loading.python.user_model import path_of

    kind, path = type(user.model), path_of(user)
    source = f"{kind.__module__}.{kind.__qualname__}"
    if reference is not None:
        source = shown_path(path) if path else reference.text
    notes = (*user.notes, *exported.notes, *left_out(user, inputs))
    specs = named_by_position(specs, tensor_names(user, inputs))
    return Loaded(
        **{**exported.facts(), "notes": notes},
        reference=reference,
        name=kind.__name__ if reference is None else reference.stem,
        source=source,
        proto=exported.proto,
        symbol="" if exported.static_batch is not None else "batch",
        batch=inputs.batch,
        inputs_origin=inputs.origin,
        guessed=tuple(spec.text for spec in inputs.guessed),
        specs=tuple(specs),
        live=user if reference is None else None,
    )


def _export_first_that_works(request: _Request) -> tuple[UserModel, ExampleInputs, Exported]:
    """Build without weights, then a real one, all again for Dynamo, then TorchScript; a step without these two.

    The first error of a real model is the one to tell. torch.onnx.export tries Dynamo (``strict``) too
    (torch/onnx/_internal/exporter/_capture_strategies.py).
    """
    from analyzer.loading.python.model_weights import WEIGHTLESS

    first: AnalyzerError | None = None
    weightless: Exception | None = None
    ways: tuple[ValuedWeights, ...] = ("real",) if request.reference is None else (*WEIGHTLESS, "real")
    for strict, weights in product((False,) if request.training else (False, True), ways):
        try:
            user, inputs = request.built(weights)
            exported = request.exported(user, inputs, strict=strict)
        except MemoryForeseenError as error:
            why = f" Without weights it fails: {str(weightless).rstrip('.')}." if weightless is not None else ""
            subject = "The model" if request.reference is None else request.reference.text
            message = f"{subject} has to be built with its weights. {error.message}{why}"
            raise MemoryForeseenError(message, hint=error.hint) from error
        except Exception as error:
            if weights != "real":
                weightless = weightless if strict else error
            if weights != "real" or strict:
                continue  # a failure without values, or of Dynamo, may be ours alone
            # What fails on real tensors is the user's to mend.
            if request.training or not isinstance(error, ExportError):
                raise
            first = error
        else:
            # A large constant that the model does not store has its values only where it was made with them.
            if weights == "real" or not (exported.needs_values or (exported.needs_real and user.meta)):
                return user, inputs, exported
    assert first is not None
    if request.reference is None:
        raise first
    from analyzer.loading.torch_export.export import export_torchscript

    try:
        request.progress("exporting to ONNX with TorchScript")
        user, inputs = request.built("real")
        return user, inputs, export_torchscript(user, inputs, request.opset, first)
    except MemoryForeseenError:
        raise first from None


def export_any_batch(
    user: UserModel, specs: Sequence[InputSpec], inputs: ExampleInputs, opset: int, *, strict: bool = False
) -> Exported:
    """Return a symbolic export if the code lets the batch vary, else one fixed to the batch of ``inputs``.

    A model whose weights no GPU can hold has no batch to look for: it is exported at the one asked for, in half
    the time.
    """
    from analyzer.loading.torch_export.export import export_model

    if not inputs.batch_axes:
        return export_model(user, inputs, opset, strict=strict)
    _, weight_bytes = parameter_sizes(user.model.parameters())
    if weight_bytes > NO_GPU_HOLDS_BYTES:
        weights = f"{weight_bytes / 1e9:,.0f} GB of weights"
        note = f"Exported at batch {inputs.batch} alone: no GPU holds its {weights}."
        exported = export_model(user, replace(inputs, batch_axes={}), opset, strict=strict)
        return replace(exported, static_batch=inputs.batch, notes=(*exported.notes, note))
    # The tracer fixes sizes 0 and 1, so a batch of 1 is traced as 2 and bound afterwards.
    probe = inputs if inputs.batch > 1 else resolve_inputs(user, specs, 2)
    try:
        exported = export_model(user, probe, opset, strict=strict)
        if exported.static_batch is None or probe is inputs:
            return exported
    except (ExportError, InputError):
        if probe is inputs and not inputs.batch_axes:
            raise
    return export_model(user, replace(inputs, batch_axes={}), opset, strict=strict)


_LARGEST_BATCH = 2**31 - 1


def load_pt2(
    reference: Reference, *, batch: int | None, specs: Sequence[InputSpec], opset: int, limits: Limits
) -> Loaded:
    """Load a .pt2 file; the first symbolic leading dimension is the batch.

    Raises:
        ModelError: The file cannot be read.
        InputError: ``--input`` does not fit the program, or its batch is fixed to another size.
    """
    from analyzer.loading.from_onnx import (
        batch_dimension,
        fed_inputs,
        given_sizes,
        require_one_size,
        takes_one_graph,
        with_declared_batch,
    )
    from analyzer.loading.torch_export import export

    program = _read_program(reference)
    notes: list[str] = []
    with quiet_exporter():
        model = export.to_onnx_ir(program, opset, notes)
        held_back = export.lighten(model)
        export.attach_origins(model, {})
        proto = export.finish(model, held_back, stored=set(program.state_dict), keep=lambda _: False).proto
    symbol, fixed = batch_dimension(proto)
    if batch is not None and not symbol and batch != fixed:
        raise InputError(
            f"{reference.text} is fixed to batch {fixed}, not {batch}.",
            hint='Export it with dynamic_shapes={"x": {0: torch.export.Dim("batch")}}, or leave --batch out.',
        )
    low, high = export.batch_bounds(program)
    specs = named_by_position(specs, [value.name for value in fed_inputs(proto)])
    specs = with_declared_batch(proto, specs, symbol if batch is not None else "")
    bindings = given_sizes(proto, specs)
    given = bindings.get(symbol)
    require_one_size(symbol, batch, bindings)
    size = batch or given if symbol else fixed
    if symbol and size is not None and not low <= size <= (high or _LARGEST_BATCH):
        span = f"from {low} to {high}" if high else f"from {low} on"
        raise InputError(
            f"{reference.text} was exported for batches {span}, not {size}.",
            hint="Write B for the batch, and give --batch in that range."
            if batch is None
            else "Give a --batch in that range, or export it with a wider torch.export.Dim.",
        )
    if symbol and size is None:
        size = _example_batch(program, low, high)
    if batch is None and symbol and size and takes_one_graph(proto):
        bindings.setdefault(symbol, size)
        low, high, symbol, size, fixed = 1, 1, "", 1, 1
    # Tied ones are loaded as two parameters with one memory.
    untied = {item.data_ptr(): item for item in program.parameters()}
    parameters, parameter_bytes = parameter_sizes(untied.values())
    assert reference.path is not None  # a file
    return Loaded(
        reference=reference,
        name=reference.stem,
        source=shown_path(str(reference.path)),
        proto=proto,
        symbol=symbol,
        batch=size,
        static_batch=None if symbol else fixed,
        batch_range=(low, high),
        inputs_origin="given" if specs else "file",
        exporter="pt2",
        notes=tuple(notes),
        specs=tuple(specs),
        bindings=bindings,
        limits=limits,
        parameters=parameters,
        parameter_bytes=parameter_bytes,
    )


def stored_tensors(reference: Reference) -> Mapping[str, Tensor]:
    """Return the parameters, buffers and constants of a .pt2 file by name."""
    program = _read_program(reference)
    return {**program.state_dict, **program.constants}


def _read_program(reference: Reference) -> ExportedProgram:
    require_torch()
    import torch

    assert reference.path is not None  # a file
    try:
        with quiet_exporter():
            return torch.export.load(reference.path)  # noqa: TID251  # code that the user trusts, as a .py is
    except MemoryError:
        raise
    except Exception as error:  # PyTorch raises whatever its parts raise
        raise ModelError(
            f"{reference.text} is no exported program that torch {torch.__version__} can read: "
            f"{first_line(error.__cause__ or error)[:300]}",
            hint="Save it with torch.export.save, with the same or an older torch.",
        ) from error


def _example_batch(program: ExportedProgram, low: int, high: int | None) -> int:
    """Return the batch of the example inputs, noted at its symbol; without a note the smallest."""
    taken = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        shape = getattr(node.meta.get("val"), "shape", ())
        if node.name not in taken or not shape or isinstance(shape[0], int):
            continue
        size = example_size(shape[0]) or low
        return size if low <= size <= (high or _LARGEST_BATCH) else low
    return low


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
    """Load an ``nn.Module``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.

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

        require_torch()
        check_opset(opset or DEFAULT_OPSET)
        live, opset = live_model(model, inputs), opset or DEFAULT_OPSET
        return _of_live(_Request(None, batch, tuple(specs), opset, progress, training, limits, live))
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
    proto, converted = reader.parsed(content, subject="the model", opset=opset, limits=limits)
    loaded = from_proto(
        proto, name=name, source="onnx.ModelProto", batch=batch, specs=specs, converted=converted, limits=limits
    )
    return replace(loaded, live=model)


def live_at(loaded: Loaded, batch: int, opset: int) -> Loaded:
    """Return a module that was given as an object, exported again at another batch."""
    limits, live = DEFAULT_LIMITS, loaded.live
    return _of_live(_Request(None, batch, loaded.specs, opset, lambda _: None, False, limits, live))


def _of_live(request: _Request) -> Loaded:
    from analyzer.loading.python.user_model import in_mode

    assert request.live is not None
    with in_mode(request.live.model, training=False):  # the caller's model stays as it was
        exported = _export_first_that_works(request)
    return loaded_of(*exported, request.specs, None)
