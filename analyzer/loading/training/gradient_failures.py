"""Why a training step cannot be traced: the operator without a gradient by its name and line."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, ExportError, ModelError
from analyzer.loading.python.source_lines import at_line, first_line, source_line
from analyzer.loading.python.user_model import UserModel
from analyzer.loading.torch_private import operator_name, tree_leaves

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

    from analyzer.loading.torch_private import Tree


# As torch/csrc/autograd/functions/basic_ops.h says it.
_NO_DERIVATIVE = re.compile(r"derivative for '?(?:aten::)?(?P<op>\w+)'? is not implemented")


# What the tracer raises where a shape or a branch hangs on values, which a trace does not have: classes of
# torch/_subclasses/fake_tensor.py and torch/fx/experimental/symbolic_shapes.py.
_NEEDS_VALUES = ("DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode")

_FIXED = "--training needs a graph of fixed shapes; analyse inference, or rewrite that line."
# By operators, what to write instead.
_INSTEAD = {
    "nonzero masked_select": "Keep the shape: torch.where(mask, x, 0), a loss with reduction='none' times the "
    "mask over mask.sum(), or the loss's ignore_index.",
    "_local_scalar_dense equal is_nonzero": "Keep it a tensor: no item(), float(), int(), bool() or if.",
    "_pack_padded_sequence": "Feed the padded batch to the layer, and leave padding out of the loss.",
}


def needs_values(what: str, error: BaseException) -> AnalyzerError | None:
    """Return the error for what has shapes or branches that depend on values; None for any other."""
    if type(error).__name__ not in _NEEDS_VALUES:
        return None
    line = at_line(source_line("".join(traceback.format_tb(error.__traceback__)), "", {}))
    words = str(error).strip().removeprefix("aten.").partition(".")[0].splitlines()
    op = words[0] if words else "an operator"
    return ExportError(
        f"{what} cannot be traced: {op} gives shapes or branches that depend on values{line}.",
        hint=next((advice for names, advice in _INSTEAD.items() if op in names.split()), _FIXED),
    )


def tracing_failure(user: UserModel, program: ExportedProgram | None, error: Exception) -> AnalyzerError:
    """Return an error of the tracer: an operator without a gradient by its name and line, else as it is."""
    failure = needs_values(f"The training step of {user.name}", error)
    if failure is not None:
        return failure
    match = _NO_DERIVATIVE.search(str(error))
    if match is not None:
        op = match["op"]
        nodes = program.graph.nodes if program is not None else ()
        call = next((node for node in nodes if _short(node).strip("_") == op.strip("_")), None)
        place = _line(call) if call is not None else ""
        return ModelError(
            f"{match['op']} has no gradient in PyTorch{place}: {user.name} cannot be trained through it.",
            hint="Use an operation that has one, or detach what needs none.",
        )
    return ExportError(
        f"PyTorch cannot trace the training step of {user.name}: {first_line(error)}",
        hint="Control flow that depends on tensor values cannot be traced; --training needs a graph.",
    )


def without_gradient(user: UserModel, program: ExportedProgram | None, call: tuple[Tree, ...]) -> AnalyzerError:
    """Return the error of a loss without gradient: the last operator that breaks the chain."""
    breaking = _break(program, call) if program is not None else None
    reason = (
        f"{_short(breaking)} has no gradient{_line(breaking)}"
        if breaking is not None
        else "no parameter leads to it"
    )
    return ModelError(
        f"The loss of {user.name} has no gradient: {reason}.",
        hint="Every operator between a parameter and the loss needs a gradient.",
    )


def untranslated(user: UserModel, graph: fx.Graph, error: Exception) -> AnalyzerError:
    """Return the error of a missing translation: complex numbers by the first operator and its line."""
    while error.__cause__ is not None:
        error = error.__cause__  # type: ignore[assignment]
    first = next((node for node in graph.nodes if _is_complex(node)), None)
    if first is not None and "complex" in str(error):
        return ExportError(
            f"The training step of {user.name} computes with complex numbers, whose gradients PyTorch cannot "
            f"translate to ONNX: {_short(first).strip('_')}{_line(first)}.",
            hint="Analyse it without --training, or compute with real tensors.",
        )
    return ExportError(
        f"The training step of {user.name} cannot be translated to ONNX: {first_line(error)[:300]}",
        hint="Try another --opset, or leave --training out.",
    )


def _is_complex(node: fx.Node) -> bool:
    from torch import Tensor

    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, Tensor) and value.is_complex()


def _break(program: ExportedProgram, call: tuple[Tree, ...]) -> fx.Node | None:
    """Return the last operator that reads what has a gradient and gives what has none."""
    import torch
    from torch import fx

    broken: list[fx.Node] = []

    class Watch(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            inputs = [self.env[source] for source in n.all_input_nodes if source in self.env]
            reads = any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in inputs)
            gives = any(
                isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tree_leaves(result)
            )
            if n.op == "call_function" and reads and not gives and isinstance(result, torch.Tensor):
                broken.append(n)
            return result

    # On fake tensors, so without a guard (which would read values) and with all results kept to be looked at.
    try:
        Watch(program.module(check_guards=False), garbage_collect_values=False).run(*tree_leaves(call))
    except Exception:  # only to name the operator; the error stands without it
        return broken[-1] if broken else None
    return broken[-1] if broken else None


def _short(node: fx.Node) -> str:
    return operator_name(node.target) or str(node.target)


def _line(node: fx.Node) -> str:
    return at_line(source_line(node.meta.get("stack_trace") or "", "", {}))
