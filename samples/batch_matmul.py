"""A product of two batches of matrices, 256 x 1024 times 1024 x 2048.

Both factors are inputs, so a batch shares nothing: the second factor crosses memory once for each product.
"""

import torch
from torch import nn


class BatchMatmul(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.bmm(left, right)


def build_model() -> nn.Module:
    return BatchMatmul()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 256, 1024), torch.randn(batch, 1024, 2048)
