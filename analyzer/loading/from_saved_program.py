"""A saved ``torch.export`` program (.pt2) -> Loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, InputError, ModelError
from analyzer.loading import reader
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.model_weights import parameter_sizes
from analyzer.loading.python.source_lines import repository_root, shown_path
from analyzer.loading.torch_export.silence import quiet_exporter
from analyzer.loading.torch_private import example_size
from analyzer.reading import Limits

if TYPE_CHECKING:
    import onnx
    from torch.export import ExportedProgram

_LARGEST_BATCH = 2**31 - 1


def read_program(reference: Reference) -> ExportedProgram:
    """The ``torch.export.ExportedProgram`` of a .pt2 file, without its example inputs.

    Nothing of the file is executed: loading/saved_program_archive.py reads it in place of torch.export.load.

    Raises:
        ModelError: The file is damaged, foreign, or written by a torch that this one cannot read; or it holds
            what only executing it could read.
    """
    import torch

    from analyzer.loading.saved_program_archive import read_archive
    from analyzer.loading.saved_program_graph import RefusedError

    assert reference.path is not None  # a file
    try:
        return read_archive(reference.path)
    except (AnalyzerError, MemoryError):
        raise
    except RefusedError as error:
        raise ModelError(
            f"{reference.text} is not read: {error}.",
            hint="Nothing of a .pt2 file is executed. Save it with torch.export.save, or export an .onnx file.",
        ) from error
    except Exception as error:  # PyTorch raises whatever its parts raise
        lines = str(error.__cause__ or error).strip().splitlines()
        raise ModelError(
            f"{reference.text} is no exported program that torch {torch.__version__} can read: "
            f"{lines[0][:300] if lines else type(error).__name__}",
            hint="Save it with torch.export.save, with the same or an older torch.",
        ) from error


def load_pt2(
    reference: Reference, *, batch: int | None, specs: Sequence[InputSpec], opset: int, limits: Limits
) -> Loaded:
    """Loads a .pt2 file in the reading process; the first symbolic leading dimension is the batch.

    Raises:
        ModelError: The file cannot be read, or takes more than the limits.
        InputError: ``--input`` does not fit the program, or its batch is fixed to another size.
    """
    from analyzer.loading.from_onnx import given_sizes, require_one_size, takes_one_graph

    assert reference.path is not None
    proto, facts = reader.saved_program(
        reference.path, text=reference.text, batch=batch, opset=opset, limits=limits
    )
    bindings = given_sizes(proto, specs)
    require_one_size(facts["symbol"], batch, bindings)
    low, high = facts.pop("batch_range")
    size = bindings.get(facts["symbol"])
    if size is not None and batch is None:
        if not low <= size <= (high or _LARGEST_BATCH):
            raise InputError(
                _outside(reference, size, low, high),
                hint="Write B for the batch, and give --batch in that range.",
            )
        facts["batch"] = size
    if batch is None and facts["symbol"] and takes_one_graph(proto):
        bindings.setdefault(facts["symbol"], facts["batch"])
        low, high = 1, 1
        facts |= {"symbol": "", "batch": 1, "static_batch": 1}
    return Loaded(
        reference=reference,
        name=reference.stem,
        source=shown_path(str(reference.path)),
        proto=proto,
        batch_range=(low, high),
        inputs_origin="given" if specs else "file",
        exporter="pt2",
        notes=tuple(facts.pop("notes")),
        specs=tuple(specs),
        bindings=bindings,
        limits=limits,
        **facts,
    )


def program_facts(
    reference: Reference, *, batch: int | None, opset: int
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A .pt2 file as a weight-free model, and further fields of ``Loaded``; called in the reading process.

    Raises:
        ModelError: The file cannot be read.
        InputError: The program's batch is fixed to another size.
    """
    from analyzer.loading.from_onnx import batch_dimension
    from analyzer.loading.torch_export import export

    program = read_program(reference)
    notes: list[str] = []
    with quiet_exporter():
        model = export.to_onnx_ir(program, opset, notes)
        held_back = export.lighten(model)
        export.attach_origins(model, {}, quoted=_beside(reference))
        proto = export.finish(model, held_back, stored=set(program.state_dict), keep=lambda _: False).proto
    symbol, fixed = batch_dimension(proto)
    if batch is not None and not symbol and batch != fixed:
        raise InputError(
            f"{reference.text} is fixed to batch {fixed}, not {batch}.",
            hint='Export it with dynamic_shapes={"x": {0: torch.export.Dim("batch")}}, or leave --batch out.',
        )
    low, high = export.batch_bounds(program)
    if batch is not None and symbol and not (low <= batch and (high is None or batch <= high)):
        raise InputError(
            _outside(reference, batch, low, high),
            hint="Give a --batch in that range, or export it with a wider torch.export.Dim.",
        )
    parameters, parameter_bytes = parameter_sizes({id(item): item for item in program.parameters()}.values())
    facts = {
        "symbol": symbol,
        "batch": batch or (_example_batch(program, low, high) if symbol else fixed),
        "static_batch": None if symbol else fixed,
        "batch_range": (low, high),
        "notes": notes,
        "parameters": parameters,
        "parameter_bytes": parameter_bytes,
    }
    return proto, facts


def _outside(reference: Reference, batch: int, low: int, high: int | None) -> str:
    span = f"from {low} to {high}" if high else f"from {low} on"
    return f"{reference.text} was exported for batches {span}, not {batch}."


def _beside(reference: Reference) -> Callable[[str], bool]:
    """Whether a file belongs to the program's repository or to the one that is worked in.

    A program names the files that it was traced from; a stranger's could name any file of this machine, whose
    lines would then stand in a report.
    """
    assert reference.path is not None
    roots = [
        Path(repository_root(str(folder)) or folder)
        for folder in (Path(os.path.realpath(reference.path)).parent, Path.cwd())
    ]
    return lambda file: any(Path(os.path.realpath(file)).is_relative_to(root) for root in roots)


def _example_batch(program: ExportedProgram, low: int, high: int | None) -> int:
    """The batch of the example inputs, which the graph notes at its symbol; without a note the smallest."""
    taken = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        shape = getattr(node.meta.get("val"), "shape", ())
        if node.name not in taken or not shape or isinstance(shape[0], int):
            continue
        size = example_size(shape[0]) or low
        return size if low <= size <= (high or _LARGEST_BATCH) else low
    return low
