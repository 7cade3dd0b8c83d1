"""Operators that PyTorch cannot translate to ONNX stay in the graph: shapes known, cost unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from analyzer.errors import ExportError, LibraryError
from analyzer.loading.dependencies import is_library
from analyzer.loading.python.source_lines import line_text, shown_path
from analyzer.loading.torch_export.failures import hint_on, without_asides
from analyzer.loading.torch_private import (
    emit,
    is_operator,
    number_of_results,
    operator_name,
    overload_name,
    qualified_name,
    registered_decompositions,
    translation_registry,
)

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

    from analyzer.loading.torch_private import OpOverload, PythonKernel

    Result = ir.Value | Sequence[ir.Value]
    """What a translation gives: one value for each output of the operator."""


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
# More untranslatable operators than any model seen has: each costs one more translation.
_LIMIT = 16


def without_untranslatable(
    program: ExportedProgram,
    attempt: Callable[[Mapping[Any, PythonKernel]], Translated],
    notes: list[str],
) -> Translated:
    """Call ``attempt(translations)``, with one untranslatable operator of a program after another translated.

    Args:
        program: A ``torch.export.ExportedProgram``.
        attempt: Translates the program with these additional translations, or raises.
        notes: Receives a sentence for each operator of unknown cost.

    Raises:
        ExportError: The translation fails for another reason.
    """
    import torch

    table: dict[Any, PythonKernel] = {}
    for _ in range(_LIMIT):
        try:
            return attempt(table)
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
            namespace, _, name = match["op"].partition(".")
            target = getattr(getattr(getattr(torch.ops, namespace), name), match["overload"])
            # Where the traced program has none, an operator that is made of one of its composite operators.
            target = _ancestor(program, target, name) or (
                _ancestor(program.run_decompositions(), target, name) or target
            )
            if target in table:  # the dispatcher takes no translation of real numbers for complex ones
                raise ExportError(
                    "An operator of the model on complex numbers has no ONNX translation: "
                    f"{qualified_name(target).replace('::', '.')}.",
                    hint="Compute on real and imaginary parts (torch.view_as_real) where the model multiplies, "
                    "assigns or indexes complex tensors.",
                ) from error
            values = [node.meta.get("val") for node in program.graph.nodes if node.target == target]
            table[target] = opaque(target, *values)
            notes.append(
                f"{qualified_name(target).replace('::', '.')} has no ONNX translation in this PyTorch: kept as "
                "an operator of unknown cost; ONNX Runtime cannot run the model."
            )
    raise ExportError(f"More than {_LIMIT} operators of the model have no ONNX translation.")


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


def opaque_node(name: str, outputs: int, *arguments: object) -> Result:
    """Inside a translation: a node that says what it is and nothing about how it computes."""
    import onnx_ir

    values: list[ir.Value | None] = []
    for argument in arguments:
        parts = argument if isinstance(argument, (tuple, list)) else (argument,)
        values += [value for value in parts if isinstance(value, onnx_ir.Value)]
    return emit(OPAQUE_DOMAIN, name, values, {}, outputs)


def opaque(target: OpOverload, *values: object) -> PythonKernel:
    """Return a translation of an operator into one such node; ``values`` are results of its calls, if any."""
    count = number_of_results(target)
    if values and isinstance(values[0], (tuple, list)):
        count = len(values[0])

    def translation(*arguments: object, **keywords: object) -> Result:
        return opaque_node(operator_name(target), count, *arguments, *keywords.values())

    return translation
