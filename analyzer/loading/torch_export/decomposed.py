"""A program as it is translated: without slices that take all, and what is refused or mistaken decomposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from analyzer.loading.torch_private import (
    attention_products,
    emit_several,
    qualified_name,
    registered_decompositions,
)

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch import Tensor, fx
    from torch.export import ExportedProgram

    from analyzer.loading.torch_private import PythonKernel
    from analyzer.loading.training.translations import Symbol

_LAST = 2**63 - 1  # the end of ``x[:]`` where the size is a symbol


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """Return the program with such calls decomposed, and with the casts of its regions under autocast.

    Args:
        program: A ``torch.export.ExportedProgram``.
    """
    import torch

    attention, lstm = torch.ops.aten.scaled_dot_product_attention.default, torch.ops.aten.lstm.input
    table: dict[Any, Any] = {}
    # The table has no key by call: where one call of an operator needs it, all are decomposed.
    for node in nodes_of(program):
        # onnxscript/function_libs/torch_lib/ops/nn.py asserts four axes in query, key and value.
        if node.target is attention and tensor_read(node, 0).dim() != 4:
            table[attention] = _products
        elif node.target is lstm and _is_projected(node):
            table |= registered_decompositions(["lstm"])
    # Without a table too: the pass inlines regions under autocast and writes their casts. The translation to
    # ONNX would run them in the model's own precision.
    if not table and not has_autocast(program):
        return program
    return _with_origins(program, program.run_decompositions(table))


def without_whole_slices(program: ExportedProgram) -> ExportedProgram:
    """Remove slices that take all of an axis, in place: ``x[:, 0]`` has one where the batch is symbolic.

    ``torch.onnx.export`` removes them too, by its optimiser.
    """
    import torch

    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.slice.Tensor):
            given = dict(zip(("dim", "start", "end", "step"), node.args[1:], strict=False)) | node.kwargs
            takes_all = given.get("start") in (0, None) and given.get("end") in (_LAST, None)
            # The name of an output is in the program's signature.
            is_output = any(user.op == "output" for user in node.users)
            if takes_all and given.get("step", 1) == 1 and not is_output:
                node.replace_all_uses_with(node.args[0])
                module.graph.erase_node(node)
        module.recompile()
    return program


def _is_projected(lstm: fx.Node) -> bool:
    """Return whether its output has another width than its cell: ONNX's LSTM has no such weights."""
    states: Any = lstm.args[1]
    hidden, cell = (state.meta["val"] for state in states)
    return bool(hidden.shape[-1] != cell.shape[-1])


def _products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    return attention_products()(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


# Products of groups of rows with a matrix for each group, as experts compute them, in operators of ONNX.
# PyTorch's own refuses offsets (onnxscript/function_libs/torch_lib/ops/core.py: "ragged/MoE is not supported");
# transformers/integrations/moe.py registers an operator of its own where PyTorch's cannot be used.
_GROUPED = frozenset({"aten::_grouped_mm", "transformers::grouped_mm_fallback"})
# Each expert is an operator of its own: more of them than this stay one operator of unknown cost.
_MOST_EXPERTS = 64


def translations(program: ExportedProgram) -> dict[Any, PythonKernel]:
    """What PyTorch's translation to ONNX lacks for the grouped products of a program."""
    table: dict[Any, PythonKernel] = {}
    for node in nodes_of(program):
        if qualified_name(node.target) not in _GROUPED or len(node.args) < 3:
            continue
        rows, matrices = (tensor_read(node, position) for position in range(2))
        if (rows.dim(), matrices.dim()) != (2, 3) or matrices.shape[0] > _MOST_EXPERTS:
            return {}  # the table is by operator: one call that is left whole leaves all whole
        table[node.target] = _grouped
    return table


def _grouped(rows: Symbol, matrices: Symbol, ends: ir.Value, *_rest: object, **_more: object) -> ir.Value:
    """Rows up to each end, times that group's matrix, one after another."""
    from onnx import TensorProto
    from onnxscript import opset18

    op: Any = opset18  # its own types want to know those of the tensors
    experts = int(matrices.shape[0])
    ends = op.Cast(ends, to=TensorProto.INT64)
    starts = op.Concat(
        op.Constant(value_ints=[0]),
        op.Slice(ends, op.Constant(value_ints=[0]), op.Constant(value_ints=[-1])),
        axis=0,
    )
    # Without the number of parts as an attribute, which ONNX forbids beside their sizes.
    parts = emit_several("", "Split", [rows, op.Sub(ends, starts)], {"axis": 0}, experts)
    products = []
    for expert in range(experts):
        matrix = op.Gather(matrices, op.Constant(value_int=expert), axis=0)
        products.append(op.MatMul(parts[expert], matrix))
    product: ir.Value = op.Concat(*products, axis=0)
    return product


# What of a node's metadata says where it comes from.
_ORIGIN = ("stack_trace", "nn_module_stack")


def _with_origins(program: ExportedProgram, inlined: ExportedProgram) -> ExportedProgram:
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
