"""Regions under ``torch.autocast``, which the translation to ONNX would run in the model's own precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from torch import Tensor, fx
    from torch.export import ExportedProgram


# What of a node's metadata says where it comes from.
_ORIGIN = ("stack_trace", "nn_module_stack")


def with_casts(program: ExportedProgram) -> ExportedProgram:
    """The program with the casts of its autocast regions written out; the program itself where it has none.

    Args:
        program: A ``torch.export.ExportedProgram``.
    """
    # No operator is to be taken apart: the pass is run because it inlines the regions and writes their casts.
    return with_origins(program, program.run_decompositions({})) if has_autocast(program) else program


def with_origins(program: ExportedProgram, inlined: ExportedProgram) -> ExportedProgram:
    """``inlined``, made from ``program``, with each node's origin: its own, or that of what reads it."""
    origins = {
        node.name: {key: node.meta[key] for key in _ORIGIN if key in node.meta} for node in nodes_of(program)
    }
    # Backwards, so that of two casts in a row the second has its origin before the first asks for it.
    for node in reversed(inlined.graph.nodes):
        if node.op != "call_function":
            continue
        origin = origins.get(node.name)
        if origin is None and _ORIGIN[0] not in node.meta:  # a cast: it belongs to what reads it
            origin = next(
                ({key: user.meta[key] for key in _ORIGIN if key in user.meta} for user in node.users), {}
            )
        node.meta.update(origin or {})
    return inlined


def has_autocast(program: ExportedProgram) -> bool:
    """Whether a part of the program runs under autocast, which tensors on the meta device ignore.

    Such a part is a call of ``wrap_with_autocast`` of torch/_higher_order_ops/wrap.py.
    """
    return any("wrap_with_autocast" in str(node.target) for node in nodes_of(program))


def nodes_of(program: ExportedProgram) -> list[fx.Node]:
    """The nodes of a program and of its regions."""
    from torch.fx import GraphModule

    modules = [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    return [node for module in modules for node in module.graph.nodes]


def tensor_read(node: fx.Node, position: int) -> Tensor:
    """The tensor that a node of a program is given at a position, with a shape and no data."""
    value: Tensor = cast("fx.Node", node.args[position]).meta["val"]
    return value
