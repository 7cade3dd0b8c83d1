"""One fully connected layer, 1024 -> 512: the smallest model worth asking about."""

import torch
from torch import nn


def build_model() -> nn.Module:
    return nn.Linear(1024, 512)


def example_inputs(batch: int = 64) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 1024),)
