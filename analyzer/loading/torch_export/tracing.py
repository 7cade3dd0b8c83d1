"""A module called with inputs -> a program of torch.export, with nothing printed, as it is translated.

That is without slices that take all, and with what is refused or mistaken decomposed.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from analyzer.loading.python.example_inputs import ExampleInputs
from analyzer.loading.python.input_spec import (
    UNKNOWN_OUTPUT,
    marks_in_form,
    outputs_as_containers,
    returns_constants,
)
from analyzer.loading.python.model_weights import cuda_is_elsewhere, plain_transformers
from analyzer.loading.python.user_module import NO_CUDA
from analyzer.loading.torch_private import (
    attention_products,
    emit_several,
    qualified_name,
    recurrences_by_one_step,
    registered_decompositions,
    replaced,
    silent_tracer,
    tree_flatten,
)

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch import Tensor, fx
    from torch.export import ExportedProgram
    from torch.nn import Module

    from analyzer.loading.torch_private import PythonKernel
    from analyzer.loading.training.translations import Symbol

# The tracer may go on with tensors that claim to be on a GPU, until they meet others.
_FOR_CUDA = re.compile(rf"{NO_CUDA.pattern}|different from other tensors|at least two devices, .*cuda")


def trace(
    model: Module, inputs: ExampleInputs, *, symbolic: bool, strict: bool = False, elsewhere: bool = False
) -> ExportedProgram:
    """``torch.export.export`` with every batch axis left to the tracer (``Dim.AUTO``).

    Args:
        model: An ``nn.Module``.
        inputs: What it is called with.
        symbolic: Whether the batch may vary.
        strict: Whether Dynamo reads the code. It refuses more of Python than a trace does, and follows some
            that a trace cannot: ``int(...)`` of a tensor.
        elsewhere: Whether this runs where asking for CUDA gives another device.
    """
    import torch

    marked: Any = None
    if symbolic:  # AUTO, not a named Dim: where the code fixes the size it is fixed, and no error
        leaves, spec = tree_flatten(inputs.tree)
        axes = [
            dict.fromkeys(inputs.batch_axes.get(i, ()), torch.export.Dim.AUTO)
            if isinstance(leaf, torch.Tensor)
            else None
            for i, leaf in enumerate(leaves)
        ]
        marked = marks_in_form(spec, iter(axes))

    def export() -> ExportedProgram:
        shapes = None
        if marked is not None:  # as ``forward`` takes them: those of ``*arguments`` together
            shapes = dict(inspect.signature(model.forward).bind(*marked[0], **marked[1]).arguments)
        return torch.export.export(
            model, inputs.arguments, dict(inputs.keywords), dynamic_shapes=shapes, strict=strict
        )

    with (
        torch.no_grad(),
        plain_transformers(),
        recurrences_by_one_step(),
        _named_keywords(model, inputs.keywords),
    ):
        try:
            program = export()
            if not returns_constants(program):
                return program
        except Exception as error:
            if _FOR_CUDA.search(str(error)) and not elsewhere:
                held = next(iter((*model.parameters(), *model.buffers())), None)
                with cuda_is_elsewhere(held.device.type if held is not None else "cpu"):
                    return trace(model, inputs, symbolic=symbolic, strict=strict, elsewhere=True)
            if not UNKNOWN_OUTPUT.search(str(error)):
                raise
        with outputs_as_containers(model):
            return export()


@contextmanager
def _named_keywords(model: Module, keywords: Mapping[str, Any]) -> Iterator[None]:
    """Give ``forward(**keywords)`` a signature that names them: the tracer looks there for what may vary."""
    import torch

    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("a saved TorchScript model holds no Python code")
    parameters = inspect.signature(model.forward).parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        yield
        return
    forward = model.forward

    def called(*arguments: object, **keywords_given: object) -> object:
        return forward(*arguments, **keywords_given)

    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    declared = {parameter.name for parameter in named}
    added = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY) for key in keywords if key not in declared]
    vars(called)["__signature__"] = inspect.Signature([*named, *added])
    with replaced(model, "forward", called):
        yield


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silences what the exporter logs and warns about; errors still arrive as exceptions."""
    # For all loggers at once: torch, onnx_ir and onnxscript log under a name for each module.
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with silent_tracer(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def nothing_on_standard_output() -> Iterator[None]:
    """Inside the block the process's standard output leads nowhere, for C++ too: a report may go there.

    PyTorch's TorchScript exporter prints a whole graph where it fails (``_jit_onnx_log`` of
    torch/onnx/_internal/torchscript_exporter/utils.py).
    """
    with ExitStack() as stack:
        with suppress(OSError, ValueError):  # there may be none
            sys.stdout.flush()
            saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, 1)
            if os.name == "posix":  # what C and C++ keep back is written first
                stack.callback(ctypes.CDLL(None).fflush, None)
            os.dup2(nowhere, 1)
            os.close(nowhere)
        yield


_LAST = 2**63 - 1  # the end of ``x[:]`` where the size is a symbol


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """Return the program with such calls decomposed, and with the casts of its regions under autocast."""
    import torch

    attention, lstm = torch.ops.aten.scaled_dot_product_attention.default, torch.ops.aten.lstm.input
    table: dict[Any, Any] = {}
    # The table has no key by call: where one call of an operator needs it, all are decomposed.
    for node in nodes_of(program):
        # onnxscript/function_libs/torch_lib/ops/nn.py asserts four axes in query, key and value.
        if node.target is attention and tensor_read(node, 0).dim() != 4:
            table[attention] = _products
        elif node.target is lstm:
            hidden, cell = (state.meta["val"] for state in cast("list[fx.Node]", node.args[1]))
            if hidden.shape[-1] != cell.shape[-1]:  # projected: ONNX's LSTM has no such weights
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
    """Return what PyTorch's translation to ONNX lacks for the grouped products of a program."""
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
    """Return rows up to each end, times that group's matrix, one after another."""
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
    """Return whether a part of the program runs under autocast, which tensors on the meta device ignore.

    Such a part is a call of ``wrap_with_autocast`` of torch/_higher_order_ops/wrap.py.
    """
    return any("wrap_with_autocast" in str(node.target) for node in nodes_of(program))


def nodes_of(program: ExportedProgram) -> list[fx.Node]:
    """Return the nodes of a program and of its regions."""
    from torch.fx import GraphModule

    modules = [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    return [node for module in modules for node in module.graph.nodes]


def tensor_read(node: fx.Node, position: int) -> Tensor:
    """Return the tensor that a node of a program is given at a position, with a shape and no data."""
    value: Tensor = cast("fx.Node", node.args[position]).meta["val"]
    return value
