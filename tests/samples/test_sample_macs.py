"""Twice the multiply-accumulates that we count equal PyTorch's own counter, to the unit, on every sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# PyTorch counts products under the names of its own operators, convolutions under one.
ATEN_CONVOLUTIONS = {"aten.convolution", "aten._convolution", "aten.cudnn_convolution"}
ONNX_CONVOLUTIONS = {"Conv", "ConvTranspose"}
WHOLE = [
    *("linear", "mlp", "batch_matmul", "conv", "attention", "resnet50", "unet"),
    *("recommender", "preprocessing"),
]
# Where all layers or steps are equal, fewer of them, each as wide as it is: they would export in a minute.
SHORTER = {
    **dict.fromkeys(("vit_b16", "bert_base", "llama_7b"), "whole.LAYERS = 2"),
    **dict.fromkeys(("gpt2", "gpt3_175b"), "whole.SIZE = dataclasses.replace(whole.SIZE, layers=2)"),
    # Each kind of block: without widening, with and without a residual, with and without a stride.
    "mobilenet_v2": "whole.STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 320, 1, 1))",
    "lstm": "example_inputs = lambda batch=16: (torch.randn(batch, 4, 128),)",
}


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


@pytest.fixture
def path_of(
    samples_folder: Path, sample: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """The file of a sample; of a deep one, a file that makes it with fewer layers or steps."""

    def path(name: str) -> Path:
        if name not in SHORTER:
            return samples_folder / f"{name}.py"
        short = tmp_path / f"short_{name}.py"
        short.write_text(
            f"import dataclasses\nimport torch\nimport {name} as whole\n"
            f"build_model, example_inputs = whole.build_model, whole.example_inputs\n{SHORTER[name]}\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        return short

    return path


@pytest.mark.parametrize("name", [*WHOLE, *SHORTER])
def test_twice_our_multiply_accumulates_equal_pytorch_s_own_counter(
    sample: Callable[[str], Any],
    build: Callable[[str], Any],
    counted_in_full: Any,
    path_of: Callable[[str], Path],
    name: str,
) -> None:
    import torch

    from analyzer.loading.load import load
    from analyzer.loading.model_reference import parse_reference

    path = path_of(name)
    loaded = load(parse_reference(str(path)))
    module = sample(path.stem)
    with torch.device("meta"):
        model = build(path.stem)
    # The graph of another batch is bound anew from the symbolic one; what no GPU holds is exported at one.
    for batch in (None, 5) if loaded.symbol else (None,):
        assert by_us(loaded, batch) == by_pytorch(module, model, batch, counted_in_full)
