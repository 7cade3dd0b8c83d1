"""A recommender: 26 embedding tables, two perceptrons and, between them, the products of all pairs of features.

Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019
(arXiv:1906.00091), figure 1, with the layer widths of its authors' configuration for the Criteo Kaggle data
(13-512-256-64-16 and 512-256-1). Tables have 100,000 rows each, and a feature holds 8 ids, whose rows are
summed. Little arithmetic, much reading at random places: memory decides.
"""

from itertools import pairwise

import torch
from torch import nn

DENSE, TABLES, ROWS, WIDTH, IDS = 13, 26, 100_000, 16, 8


def perceptron(*widths: int, last: nn.Module) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


class DLRM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Each feature has the same number of ids, so their rows are looked up and summed; nn.EmbeddingBag
        # is for bags of unequal length, which ONNX can only express as a loop.
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(TABLES))
        self.bottom = perceptron(DENSE, 512, 256, 64, WIDTH, last=nn.ReLU())
        pairs = TABLES * (TABLES + 1) // 2
        self.top = perceptron(WIDTH + pairs, 512, 256, 1, last=nn.Sigmoid())
        # Where the pairs stand in the matrix of all products: below the diagonal.
        rows, columns = torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1)
        self.register_buffer("pairs", rows * (TABLES + 1) + columns, persistent=False)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """dense is [batch, 13] floats, ids is [batch, 26, 8] rows of the tables."""
        bottom = self.bottom(dense)
        looked_up = [table(ids[:, index]).sum(dim=1) for index, table in enumerate(self.tables)]
        features = torch.stack([bottom, *looked_up], dim=1)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([bottom, products[:, self.pairs]], dim=1))


def build_model() -> nn.Module:
    return DLRM().eval()


def example_inputs(batch: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, DENSE), torch.randint(0, ROWS, (batch, TABLES, IDS))
