"""A saved ``torch.export`` program (.pt2) -> Loaded. It is code, as a Python file is: PyTorch loads it here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analyzer.errors import InputError, ModelError
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.model_weights import parameter_sizes
from analyzer.loading.python.source_lines import first_line, shown_path
from analyzer.loading.torch_export.tracing import quiet_exporter
from analyzer.loading.torch_private import example_size
from analyzer.reading import Limits

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram

_LARGEST_BATCH = 2**31 - 1


def load_pt2(
    reference: Reference, *, batch: int | None, specs: Sequence[InputSpec], opset: int, limits: Limits
) -> Loaded:
    """Load a .pt2 file; the first symbolic leading dimension is the batch.

    Raises:
        ModelError: The file cannot be read.
        InputError: ``--input`` does not fit the program, or its batch is fixed to another size.
    """
    from analyzer.loading.from_onnx import batch_dimension, given_sizes, require_one_size, takes_one_graph
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
    """Return the parameters, buffers and constants of a .pt2 file by name.

    Raises:
        ModelError: The file cannot be read.
    """
    program = _read_program(reference)
    return {**program.state_dict, **program.constants}


def _read_program(reference: Reference) -> ExportedProgram:
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
