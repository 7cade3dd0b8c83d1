"""Products of groups of rows with a matrix for each group, as experts compute them, in operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_export.autocast import nodes_of, tensor_read
from analyzer.loading.torch_private import qualified_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

    from analyzer.loading.torch_private import PythonKernel
    from analyzer.loading.training.translation_registry import Symbol


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
    parts = op.Split(rows, op.Sub(ends, starts), axis=0, num_outputs=experts)
    products = []
    for expert in range(experts):
        matrix = op.Gather(matrices, op.Constant(value_int=expert), axis=0)
        products.append(op.MatMul(parts[expert], matrix))
    product: ir.Value = op.Concat(*products, axis=0)
    return product


def mend_splits(model: ir.Model) -> None:
    """A Split by given sizes must not say their number as well, which the recording of one needs."""
    for node in model.graph.all_nodes():
        if node.op_type == "Split" and len(node.inputs) > 1 and node.inputs[1] is not None:
            node.attributes.pop("num_outputs", None)
