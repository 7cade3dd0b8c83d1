"""Operators that PyTorch cannot translate to ONNX stay in the graph: shapes known, cost unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from analyzer.errors import ExportError, LibraryError
from analyzer.loading.dependencies import is_library
from analyzer.loading.python.source_lines import line_text, shown_path
from analyzer.loading.torch_export.failures import hint_on, without_asides
from analyzer.loading.torch_private import (
    core_decompositions,
    is_operator,
    operator_name,
    outside_tracer,
    overload_name,
    qualified_name,
    registered_decompositions,
    translation_registry,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from analyzer.loading.torch_private import OpOverload, PythonKernel, Tree


Translated = TypeVar("Translated")
# The domain of such operators in the graph.
OPAQUE_DOMAIN = "pytorch.aten"
# Both as torch/onnx/_internal/exporter/_core.py says them.
_MISSING = re.compile(
    r"No ONNX function found for <OpOverload\(op='(?P<op>[\w.]+)', overload='(?P<overload>\w+)'\)>"
)
_REASON = re.compile(r"<class '(?:[\w.]+\.)?(\w+)'>: ")
_LINE = re.compile(r'File "([^"\n]+)", line (\d+), in ')
_NODE = re.compile(r"Error when translating node (?P<node>%\w+)")
# More untranslatable operators than any model seen has: each costs one more decomposition and translation.
_LIMIT = 16


def without_untranslatable(
    program: ExportedProgram, attempt: Callable[[ExportedProgram], Translated], notes: list[str]
) -> Translated:
    """Calls ``attempt(program)``, replacing one untranslatable operator after another by an opaque one.

    Args:
        program: A ``torch.export.ExportedProgram``.
        attempt: Translates a program or raises.
        notes: Receives a sentence for each operator replaced.

    Raises:
        ExportError: The translation fails for another reason, or an operator's shapes cannot be told.
    """
    for _ in range(_LIMIT):
        try:
            return attempt(program)
        except LibraryError:
            raise
        except Exception as error:
            message = _whole_message(error)
            match = _MISSING.search(message)
            if match is None:
                raise ExportError(
                    f"PyTorch cannot translate the model to ONNX: {_gist(message)}",
                    hint=hint_on(message) or "Try another --opset, or analyse an .onnx file made elsewhere.",
                ) from error
            # An operator replaced before (torch/onnx/ops/_symbolic_impl.py), which gives complex numbers.
            if match["op"].startswith("onnx_symbolic."):
                raise ExportError(
                    f"An operator of the model on complex numbers has no ONNX translation: {_last_of(notes)}.",
                    hint="Compute on real and imaginary parts (torch.view_as_real) where the model multiplies, "
                    "assigns or indexes complex tensors.",
                ) from error
            program = _replaced(program, match["op"], match["overload"], error, notes)
    raise ExportError(f"More than {_LIMIT} operators of the model have no ONNX translation.")


def _last_of(notes: list[str]) -> str:
    return notes[-1].partition(" ")[0] if notes else "an unnamed one"


def _whole_message(error: BaseException | None) -> str:
    parts = []
    while error is not None:
        parts.append(str(error))
        error = error.__cause__
    return "\n".join(parts)


def _gist(message: str) -> str:
    """The lines of an exporter's message that name the reason, the operator and the user's line."""
    node = _NODE.search(message)
    reasons = [line for line in message.splitlines() if _REASON.match(line)]
    reason = _REASON.sub(r"\1: ", reasons[0]) if reasons else message.strip().splitlines()[0]
    reason = without_asides(reason)[:300]
    lines = [(file, int(number)) for file, number in _LINE.findall(message) if not is_library(file)]
    where = f" ({shown_path(lines[-1][0])}:{lines[-1][1]}: {line_text(*lines[-1])})" if lines else ""
    return reason + (f" (at {node['node']})" if node and node["node"] not in reason else "") + where


def _replaced(
    program: ExportedProgram, op: str, overload: str, error: Exception, notes: list[str]
) -> ExportedProgram:
    import torch

    namespace, _, name = op.partition(".")
    target = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    ancestor = _ancestor(program, target, name)
    table: dict[Any, PythonKernel] = {ancestor or target: _opaque(ancestor or target, notes)}
    try:
        if ancestor is None:  # the failing operator is made by a decomposition, which has to happen first
            table = {**core_decompositions(), **table}
        taken_apart: ExportedProgram = program.run_decompositions(table)
    except LibraryError:
        raise
    except Exception as no_shapes:
        raise ExportError(
            f"{op} has no ONNX translation, and its output shapes cannot be told either: {no_shapes}",
            hint="Rewrite that operation with ones that ONNX has.",
        ) from error
    return taken_apart


def _ancestor(program: ExportedProgram, target: OpOverload, name: str) -> OpOverload | None:
    """The operator of the traced program that is ``target`` or is decomposed into it; None where none looks so.

    ``linalg_inv`` becomes ``linalg_inv_ex`` and a check with side effects, ``linalg_svd`` becomes
    ``_linalg_svd``: the whole of it has to be replaced.
    """
    calls = _operators(program)
    if target in calls:
        return target
    stem = name.strip("_").removesuffix("_ex")
    alike = next((call for call in calls if operator_name(call).strip("_") == stem), None)
    # torch/onnx/_internal/exporter/_decomp.py decomposes what it does not translate: cumprod into prims.prod.
    translated = translation_registry().functions
    others = (call for call in calls if not alike and overload_name(call) not in translated)
    tables = ((call, registered_decompositions([operator_name(call)])) for call in others)
    made = (call for call, table in tables if table and target in _operators(program.run_decompositions(table)))
    return alike or next(made, None)


def _operators(program: ExportedProgram) -> dict[OpOverload, None]:
    """Return the operators that a program calls, in its order."""
    return dict.fromkeys(node.target for node in program.graph.nodes if is_operator(node.target))


def _opaque(target: OpOverload, notes: list[str]) -> PythonKernel:
    """Return a decomposition into one symbolic ONNX operator with the right output shapes; it adds its note."""
    name = qualified_name(target).replace("::", ".")
    note = (
        f"{name} has no ONNX translation in this PyTorch: kept as an operator of unknown cost; "
        "ONNX Runtime cannot run the model."
    )

    def decomposition(*arguments: object, **keywords: object) -> Tree:
        import torch

        if note not in notes:
            notes.append(note)

        def as_meta(leaf: object) -> object:
            if isinstance(leaf, torch.Tensor):
                # Strides too: what an operator gives can hang on the layout of what it is given.
                return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
            return leaf

        # Outside the tracer, which would otherwise decompose this very call again.
        with outside_tracer():
            outputs = target(*tree_map(as_meta, arguments), **tree_map(as_meta, keywords))
        tensors = [leaf for leaf in tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor)]
        results, spec = tree_flatten(outputs)
        symbolic = torch.onnx.ops.symbolic_multi_out(
            f"{OPAQUE_DOMAIN}::{operator_name(target)}",
            tensors,
            dtypes=[result.dtype for result in results],
            shapes=[result.shape for result in results],
            version=1,
        )
        return tree_unflatten(list(symbolic), spec)

    return decomposition
