"""A forecaster: a two-layer LSTM over 50 steps of 128 features, and a linear layer on its last state.

Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with forget gates (Gers et al., 2000), as
torch.nn.LSTM has it. Each step waits for the one before: little of a GPU's width can be used at a small
batch.
"""

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, features: int = 128, hidden: int = 512, outputs: int = 10) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(series)
        return self.head(states[:, -1])


def build_model() -> nn.Module:
    return Forecaster().eval()


def example_inputs(batch: int = 16) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 50, 128),)
