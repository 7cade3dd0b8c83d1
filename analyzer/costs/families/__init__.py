"""The rules, one module a family; importing this package fills the registry."""

from analyzer.costs.families import (  # noqa: F401 - each fills the registry
    attention,
    classical_ml,
    contrib_attention,
    control_flow,
    convolution,
    elementwise,
    generation,
    mixture_of_experts,
    movement,
    normalization,
    pooling,
    products,
    quantized,
    recurrent,
    reduction,
    signals,
    training,
    vision,
)
