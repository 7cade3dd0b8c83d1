"""Twice our multiply-accumulates equal what PyTorch's own counter gives, to the unit, layer by layer.

The counter misses fused attention on a CPU, the fast path of multi-head attention and recurrent layers of
oneDNN; all three are turned off for it.
"""

import io
import warnings
from typing import Any

import onnx
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from analyzer.costs import count
from analyzer.loading.onnx_graph.build import to_graph


class Attention(nn.Module):
    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, k, v)


class Products(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return torch.einsum("bij,bjk->bik", a, b) + torch.matmul(a[0], b)


LAYERS: dict[str, tuple[nn.Module, list[tuple[int, ...]]]] = {
    "convolution": (nn.Conv2d(6, 8, 3, stride=2, padding=1), [(2, 6, 11, 11)]),
    "grouped and dilated convolution": (nn.Conv2d(6, 9, 3, groups=3, dilation=2), [(2, 6, 11, 11)]),
    "one-dimensional convolution": (nn.Conv1d(6, 8, 5), [(2, 6, 30)]),
    "three-dimensional convolution": (nn.Conv3d(2, 4, 3), [(1, 2, 6, 7, 8)]),
    "transposed convolution": (
        nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1),
        [(2, 6, 7, 7)],
    ),
    "linear layer": (nn.Linear(12, 7), [(3, 5, 12)]),
    "einsum and broadcast product": (Products(), [(4, 5, 6), (4, 6, 7)]),
    "scaled dot-product attention": (Attention(), [(2, 4, 9, 8), (2, 4, 11, 8), (2, 4, 11, 6)]),
    "encoder layer": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), [(2, 7, 16)]),
    "LSTM": (nn.LSTM(5, 6, num_layers=2, bidirectional=True), [(4, 3, 5)]),
    "GRU": (nn.GRU(5, 6), [(4, 3, 5)]),
    # its first state is given: from zeros, the first product would be a constant and cost nothing
    "RNN": (nn.RNN(5, 6), [(4, 3, 5), (1, 3, 6)]),
}


def by_pytorch(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    torch.backends.mha.set_fastpath_enabled(False)
    counter = FlopCounterMode(display=False)
    try:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), torch.no_grad():
            warnings.simplefilter("ignore")  # turning oneDNN off warns of a GPU that is not there
            with torch.backends.mkldnn.flags(enabled=False), counter:
                model(*inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    return counter.get_total_flops()


def exported(model: nn.Module, inputs: tuple[torch.Tensor, ...], opset: int) -> onnx.ModelProto:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, inputs, dynamo=True, opset_version=opset, optimize=False, verbose=False
        )
        stream = io.BytesIO()
        program.save(stream)  # type: ignore[arg-type]  # it takes a stream too
    return onnx.load_from_string(stream.getvalue())


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_as_many_products_as_pytorch_counts(name: str) -> None:
    model, shapes = LAYERS[name]
    model = model.eval()
    inputs = tuple(torch.randn(shape) for shape in shapes)
    table = count(to_graph(exported(model, inputs, 20)))
    assert 2 * table.total.macs == by_pytorch(model, inputs)
    assert table.coverage().unknown == 0


def test_attention_as_one_operator_has_as_many_products_as_written_out() -> None:
    model, shapes = LAYERS["scaled dot-product attention"]
    inputs = tuple(torch.randn(shape) for shape in shapes)
    graph = to_graph(exported(model, inputs, 23))
    assert "Attention" in {node.op_type for node in graph.nodes}
    assert 2 * count(graph).total.macs == by_pytorch(model, inputs)
