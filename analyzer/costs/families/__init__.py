"""The rules, one module a family; importing this package fills the registry."""

from analyzer.costs.families import (
    convolution,
    elementwise,
    movement,
    normalization,
    pooling,
    products,
    reduction,
)

__all__ = [
    "convolution",
    "elementwise",
    "movement",
    "normalization",
    "pooling",
    "products",
    "reduction",
]
