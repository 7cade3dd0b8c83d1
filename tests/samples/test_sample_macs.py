"""Twice the multiply-accumulates that we count equal PyTorch's own counter, to the unit, on every sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# PyTorch counts products under the names of its own operators, convolutions under one.
ATEN_CONVOLUTIONS = {"aten.convolution", "aten._convolution", "aten.cudnn_convolution"}
ONNX_CONVOLUTIONS = {"Conv", "ConvTranspose"}
SMALL = [
    *("linear", "mlp", "batch_matmul", "conv", "attention", "resnet50", "mobilenet_v2", "vit_b16", "unet"),
    *("bert_base", "gpt2", "lstm", "recommender", "preprocessing"),
]
LARGE = ["llama_7b", "gpt3_175b"]


def by_pytorch(module: Any, model: Any, batch: int | None, counted_in_full: Any) -> tuple[int, int]:
    """FLOPs in all and of convolutions alone, on tensors without memory."""
    import torch

    with torch.device("meta"):
        inputs = module.example_inputs() if batch is None else module.example_inputs(batch)
    with counted_in_full() as counter:
        model(*inputs)
    counts = counter.get_flop_counts()["Global"] if counter.get_total_flops() else {}
    convolutions = sum(value for key, value in counts.items() if str(key) in ATEN_CONVOLUTIONS)
    return counter.get_total_flops(), convolutions


def by_us(loaded: Any, batch: int | None) -> tuple[int, int]:
    """The same two figures from the exported graph."""
    from analyzer.costs import count

    graph = loaded.graph(batch)
    pairs = list(zip(graph.nodes, count(graph).costs, strict=True))
    assert all(cost.macs is not None for _, cost in pairs)
    convolutions = sum(cost.macs or 0 for node, cost in pairs if node.op_type in ONNX_CONVOLUTIONS)
    return 2 * sum(cost.macs or 0 for _, cost in pairs), 2 * convolutions


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_twice_our_multiply_accumulates_equal_pytorch_s_own_counter(
    sample: Callable[[str], Any],
    build: Callable[[str], Any],
    counted_in_full: Any,
    samples_folder: Path,
    name: str,
) -> None:
    import torch

    from analyzer.loading.load import load
    from analyzer.loading.model_reference import parse_reference

    loaded = load(parse_reference(str(samples_folder / f"{name}.py")), use_cache=False)
    module = sample(name)
    with torch.device("meta"):
        model = build(name)
    # The graph of another batch is bound anew from the symbolic one; what no GPU holds is exported at one.
    for batch in (None, 5) if loaded.symbol else (None,):
        assert by_us(loaded, batch) == by_pytorch(module, model, batch, counted_in_full)
