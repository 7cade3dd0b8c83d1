"""A saved ``torch.export`` program (.pt2) -> Loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analyzer.errors import InputError, ModelError
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.example_inputs import InputSpec
from analyzer.loading.python.parameter_sizes import parameter_sizes
from analyzer.loading.python.source_lines import shown_path
from analyzer.loading.torch_export.silence import quiet_exporter
from analyzer.progress import StageProgress

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def read_program(reference: Reference) -> ExportedProgram:
    """The ``torch.export.ExportedProgram`` of a .pt2 file.

    Raises:
        ModelError: The file is damaged, foreign, or written by a torch that this one cannot read.
    """
    import torch

    try:
        return torch.export.load(str(reference.path))
    except Exception as error:  # torch.export.load raises whatever its parts raise
        lines = str(error).strip().splitlines()
        raise ModelError(
            f"{reference.text} is no exported program that torch {torch.__version__} can read: "
            f"{lines[0] if lines else type(error).__name__}",
            hint="Save it with torch.export.save, with the same or an older torch.",
        ) from error


def load_pt2(
    reference: Reference,
    *,
    batch: int | None,
    specs: Sequence[InputSpec],
    opset: int,
    progress: StageProgress,
) -> Loaded:
    """Loads a .pt2 file; the first symbolic leading dimension of its inputs is the batch.

    Raises:
        ModelError: The file cannot be read.
        InputError: ``--input`` was given, or the program's batch is fixed to another size.
    """
    from analyzer.loading.from_onnx import batch_dimension
    from analyzer.loading.torch_export import export

    if specs:
        raise InputError(
            "A .pt2 file holds its own inputs.", hint="Leave --input out; --batch binds a symbolic batch."
        )
    progress("reading the exported program")
    program = read_program(reference)
    notes: list[str] = []
    progress("translating to ONNX")
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
    if batch is not None and symbol and not (low <= batch and (high is None or batch <= high)):
        span = f"from {low} to {high}" if high else f"from {low} on"
        raise InputError(
            f"{reference.text} was exported for batches {span}, not {batch}.",
            hint="Give a --batch in that range, or export it with a wider torch.export.Dim.",
        )
    parameters, parameter_bytes = parameter_sizes({id(item): item for item in program.parameters()}.values())
    return Loaded(
        reference=reference,
        name=reference.stem,
        source=shown_path(str(reference.path)),
        proto=proto,
        symbol=symbol,
        batch=batch or (_example_batch(program) if symbol else fixed),
        static_batch=None if symbol else fixed,
        batch_range=(low, high),
        inputs_origin="file",
        exporter="pt2",
        notes=tuple(notes),
        parameters=parameters,
        parameter_bytes=parameter_bytes,
    )


def _example_batch(program: ExportedProgram) -> int:
    from analyzer.loading.python.example_inputs import flatten

    if program.example_inputs is None:
        return 1
    leaves = flatten(*program.example_inputs)
    return next((int(leaf.shape[0]) for leaf in leaves if hasattr(leaf, "shape") and leaf.dim()), 1)
