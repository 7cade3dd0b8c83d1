"""A perceptron with one hidden layer, 1024 -> 512 -> 10, such as classifies small images."""

import torch
from torch import nn


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    ).eval()


def example_inputs(batch: int = 64) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 1024),)
