"""Attention over other than four axes, which the translation to ONNX refuses, as the products that it is."""

from __future__ import annotations

from typing import Any

from analyzer.loading.torch_export.autocast import nodes_of, with_origins
from analyzer.loading.torch_private import attention_products


def with_products(program: Any) -> Any:
    """The program with such attentions written out; the program itself where it has none.

    Args:
        program: A ``torch.export.ExportedProgram``.
    """
    import torch

    attention = torch.ops.aten.scaled_dot_product_attention.default
    odd = [
        node for node in nodes_of(program) if node.target is attention and node.args[0].meta["val"].dim() != 4
    ]
    if not odd:
        return program
    return with_origins(program, program.run_decompositions({attention: _products}))


def _products(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    return attention_products()(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
