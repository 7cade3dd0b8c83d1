"""Attention over other than four axes, which the translation to ONNX refuses, as the products that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.loading.torch_export.autocast import nodes_of, tensor_read, with_origins
from analyzer.loading.torch_private import attention_products

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram


def with_products(program: ExportedProgram) -> ExportedProgram:
    """The program with such attentions written out; the program itself where it has none.

    Args:
        program: A ``torch.export.ExportedProgram``.
    """
    import torch

    attention = torch.ops.aten.scaled_dot_product_attention.default
    # onnxscript/function_libs/torch_lib/ops/nn.py asserts four axes in query, key and value.
    others = [
        node for node in nodes_of(program) if node.target is attention and tensor_read(node, 0).dim() != 4
    ]
    if not others:
        return program
    # The table has no key by call: where one attention of a program has other axes, all are taken apart.
    return with_origins(program, program.run_decompositions({attention: _products}))


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
