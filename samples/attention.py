"""Scaled dot-product attention of 8 heads, 128 tokens and 64 values a head; a function, no module.

Vaswani et al., "Attention Is All You Need", 2017 (arXiv:1706.03762), section 3.2.1.
"""

import torch
from torch.nn import functional as F


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q, k and v are [batch, heads, tokens, values per head]."""
    return F.scaled_dot_product_attention(q, k, v)


def example_inputs(batch: int = 32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shape = (batch, 8, 128, 64)
    return torch.randn(shape), torch.randn(shape), torch.randn(shape)
