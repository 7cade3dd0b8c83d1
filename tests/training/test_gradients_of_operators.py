"""Operators with a gradient defined here: run under ONNX Runtime against PyTorch in float64, and counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from analyzer.costs import count
from analyzer.loading.load import load_live

LIMIT = 1e-5


class Through(nn.Module):
    """Parameters, then a function of what they give."""

    def __init__(self, first: Any, function: Any, **modules: Any) -> None:
        super().__init__()
        self.first, self.function = first, function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Any, *more: Any) -> Any:
        return self.function(self, self.first(x), *more)


def image(function: Any) -> Any:
    """A convolution of images of 9 x 10, then a function."""
    torch.manual_seed(0)
    return Through(nn.Conv2d(3, 4, 3, padding=1), lambda _, x: function(x)), (torch.randn(2, 3, 9, 10),)


def line(function: Any) -> Any:
    torch.manual_seed(0)
    return Through(nn.Conv1d(3, 4, 3), lambda _, x: function(x)), (torch.randn(2, 3, 12),)


def volume(function: Any) -> Any:
    torch.manual_seed(0)
    return Through(nn.Conv3d(3, 4, 3), lambda _, x: function(x)), (torch.randn(2, 3, 6, 7, 8),)


def rows(function: Any, *more: Any, **modules: Any) -> Any:
    """A Linear from 8 to 6 over four rows, then a function."""
    torch.manual_seed(0)
    return Through(nn.Linear(8, 6), function, **modules), (torch.randn(4, 8), *more)


class FrozenNorm(nn.BatchNorm2d):
    """Keeps its statistics, as code for fine-tuning freezes it."""

    def train(self, mode: bool = True) -> Any:
        return super().train(mode and False)


def frozen_norm() -> Any:
    norm = FrozenNorm(4)
    norm.running_mean.copy_(torch.tensor([0.3, -0.2, 0.1, 0.5]))
    norm.running_var.copy_(torch.tensor([0.5, 2.0, 1.5, 0.7]))
    torch.manual_seed(0)
    model = Through(nn.Conv2d(3, 4, 3, padding=1), lambda own, x: own.norm(x), norm=norm)
    return model, (torch.randn(2, 3, 9, 10),)


def bag(mode: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(11, 5, mode=mode, **options), nn.Linear(5, 3))
    return model, (torch.randint(0, 11, (4, 6)),)


class Weighted(nn.Module):
    """Bags whose words have weights that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.bags, self.weights = nn.EmbeddingBag(11, 5, mode="sum"), nn.Parameter(torch.rand(4, 6))

    def forward(self, words: Any) -> Any:
        return self.bags(words, per_sample_weights=self.weights)


def square(function: Any) -> Any:
    """A positive definite matrix of 4 x 4 from four rows, then a function of both."""

    def whole(_: Any, x: Any) -> Any:
        return function(x @ x.mT + 0.5 * torch.eye(4).to(x), x)

    return rows(whole)


class Doubled(torch.autograd.Function):
    """Rounds, and claims a slope of 2."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        return 2 * gradient


class Sampled(nn.Module):
    """An image looked at where a grid of parameters says."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.first, self.options = nn.Conv2d(3, 4, 3, padding=1), options
        self.grid = nn.Parameter(torch.rand(2, 5, 6, 2) * 2.4 - 1.2)  # some of it beyond the edges

    def forward(self, x: Any) -> Any:
        return functional.grid_sample(self.first(x), self.grid, **self.options)


def sample(**options: Any) -> Any:
    torch.manual_seed(1)
    return Sampled(**options), (torch.randn(2, 3, 9, 10),)


def resize(**options: Any) -> Any:
    return image(lambda x: functional.interpolate(x, **options))


def average(**options: Any) -> Any:
    return image(lambda x: functional.avg_pool2d(x, **options))


def _written(x: Any) -> Any:
    found = torch.zeros(4, 3, 6).to(x)
    found[:, 1] = x[0]
    return found * x.unsqueeze(1)


def pooled_places() -> Any:
    """Swin's end: norm, a mean over places that are an axis in the middle, flattened."""
    torch.manual_seed(0)
    pool = nn.AdaptiveAvgPool1d(1)
    pooled = Through(nn.LayerNorm(8), lambda _, x: torch.flatten(pool(x.transpose(1, 2)), 1))
    return nn.Sequential(pooled, nn.Linear(8, 3)), (torch.randn(4, 6, 8),)


CASES: dict[str, Callable[[], Any]] = {
    "batch norm with running statistics": frozen_norm,
    "average that leaves padding out": lambda: average(
        kernel_size=3, stride=2, padding=1, count_include_pad=False
    ),
    "average over windows that end beyond": lambda: average(kernel_size=3, stride=2, padding=1, ceil_mode=True),
    "both": lambda: average(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
    "average with a divisor": lambda: average(kernel_size=(2, 3), stride=(2, 1), divisor_override=5),
    "average of volumes": lambda: volume(lambda x: functional.avg_pool3d(x, 3, 2, 1, count_include_pad=False)),
    "adaptive average that divides": lambda: image(lambda x: functional.adaptive_avg_pool2d(x, (3, 5))),
    "adaptive average that does not": lambda: image(lambda x: functional.adaptive_avg_pool2d(x, (4, 7))),
    "adaptive average of volumes": lambda: volume(lambda x: functional.adaptive_avg_pool3d(x, (3, 2, 4))),
    "adaptive maximum": lambda: image(lambda x: functional.adaptive_max_pool2d(x, (3, 5))),
    "dilated maximum": lambda: image(lambda x: functional.max_pool2d(x, 3, 2, 1, dilation=2)),
    "maximum with its places": lambda: image(
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), [2, 2])
    ),
    "slice with a step": lambda: rows(lambda _, x: x[:, 1::2].sum() + x[::3, :5:3].sum() * x),
    "slice from the end": lambda: rows(lambda _, x: x[:, -4:-1] * x[-3:-2, :3]),
    "nearest neighbours, doubled": lambda: resize(scale_factor=2),
    "nearest neighbours, any size": lambda: resize(size=(13, 7)),
    "nearest neighbours, a factor": lambda: resize(scale_factor=1.7),
    "nearest neighbours, exact": lambda: resize(size=(13, 7), mode="nearest-exact"),
    "linear": lambda: resize(scale_factor=2, mode="bilinear"),
    "linear, any size": lambda: resize(size=(13, 7), mode="bilinear"),
    "linear, a factor": lambda: resize(scale_factor=1.7, mode="bilinear"),
    "linear, corners": lambda: resize(size=(13, 7), mode="bilinear", align_corners=True),
    "cubic": lambda: resize(size=(13, 7), mode="bicubic"),
    "cubic, corners": lambda: resize(scale_factor=2, mode="bicubic", align_corners=True),
    "linear, a factor that rounds down": lambda: resize(scale_factor=0.7, mode="bilinear"),
    "linear, a line": lambda: line(lambda x: functional.interpolate(x, scale_factor=2, mode="linear")),
    "linear, a volume": lambda: volume(lambda x: functional.interpolate(x, size=(5, 9, 3), mode="trilinear")),
    "reflected edges": lambda: image(lambda x: functional.pad(x, (2, 1, 3, 2), mode="reflect")),
    "repeated edges": lambda: image(lambda x: functional.pad(x, (2, 1, 3, 2), mode="replicate")),
    "repeated edges of volumes": lambda: volume(
        lambda x: functional.pad(x, (2, 1, 1, 0, 2, 2), mode="replicate")
    ),
    "sampling": lambda: sample(align_corners=False),
    "sampling, corners and edges": lambda: sample(align_corners=True, padding_mode="border"),
    "sampling, nearest": lambda: sample(align_corners=False, mode="nearest"),
    "writing a row into a tensor": lambda: rows(lambda _, x: _written(x)),
    "a view of the mean over places": pooled_places,
    "bags, sums": lambda: bag("sum"),
    "bags, means": lambda: bag("mean"),
    "bags, sums without padding": lambda: bag("sum", padding_idx=3),
    "bags, means without padding": lambda: bag("mean", padding_idx=3),
    "bags, the largest": lambda: bag("max"),
    "bags, the largest without padding": lambda: bag("max", padding_idx=3),
    "bags with weights": lambda: (Weighted(), (torch.randint(0, 11, (4, 6)),)),
    "layer norm over everything": lambda: rows(lambda own, x: own.norm(x) * x, norm=nn.LayerNorm((4, 6))),
    "running products": lambda: rows(lambda _, x: (x * torch.tensor([1.0, 0, 1, 1, 0, 1]).to(x)).cumprod(-1)),
    "the largest of all": lambda: rows(lambda _, x: x * torch.amax(x) + torch.amin(x)),
    "inverse": lambda: square(lambda a, x: torch.linalg.inv(a) @ x),
    "a distribution that checks its arguments": lambda: rows(
        lambda _, x: torch.distributions.Normal(x, x.exp()).log_prob(x.abs() + 0.1)  # type: ignore[no-untyped-call]
    ),
    "values put where a mask is": lambda: rows(
        lambda _, x, m: x.masked_scatter(m, x * x) + x.index_put((m,), torch.tensor(2.0).to(x)),
        torch.arange(24).reshape(4, 6) % 3 == 0,
    ),
    "weight norm": lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)), (torch.randn(4, 8),)),
    "weight norm as it was": lambda: (nn.utils.weight_norm(nn.Linear(8, 6)), (torch.randn(4, 8),)),
    "spectral norm": lambda: (nn.utils.parametrizations.spectral_norm(nn.Linear(8, 6)), (torch.randn(4, 8),)),
    "bilinear layer": lambda: rows(lambda own, x: own.both(x, x), both=nn.Bilinear(6, 6, 3)),
    "distances": lambda: rows(lambda _, x: torch.cdist(x, x * 2 + 1)),
    "distances in another norm": lambda: rows(lambda _, x: torch.cdist(x, x * 2 + 1, p=3.0)),
    "shrinking": lambda: rows(lambda _, x: functional.softshrink(x, 0.3) + functional.hardshrink(x, 0.2)),
    "types that mix": lambda: rows(lambda _, x: functional.logsigmoid(x) + x.amax(-1, keepdim=True)),
    "sorting": lambda: rows(lambda _, x: x.sort(dim=-1, stable=True)[0] * torch.arange(6).to(x)),
    "products": lambda: rows(lambda _, x: x.prod(-1)),
    "windows of a tensor": lambda: rows(lambda _, x: x.unfold(1, 3, 2)),
    "diagonals": lambda: rows(lambda _, x: torch.diag_embed(x) + torch.diagonal(x).sum()),
    "means of groups": lambda: rows(
        lambda _, x, i: torch.zeros(4, 3).to(x).scatter_reduce(1, i, x, "mean"),
        torch.tensor([[0, 1, 1, 2, 0, 0]] * 4),
    ),
    "a gradient of the user's own": lambda: rows(lambda _, x: Doubled.apply(3 * x) * x),  # type: ignore[no-untyped-call]
    "embedding that renormalises": lambda: (
        nn.Sequential(nn.Embedding(11, 5, max_norm=1.0), nn.Linear(5, 3)),
        (torch.randint(0, 11, (4, 6)),),
    ),
}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_gradients_are_those_of_pytorch_in_float64(make: Any, run_step: Any, relative: Any) -> None:
    model, inputs = make()
    loaded = load_live(
        model, inputs=inputs, batch=None, specs=(), opset=None, progress=lambda _: None, training=True
    )
    graph = loaded.graph()
    assert {node.domain for node in graph.nodes} <= {"ai.onnx", "analyzer.training", "com.microsoft"}
    assert count(graph).total.basis != "unknown"
    _, given, reference = run_step(loaded)
    assert set(loaded.step.gradients.values()) <= set(reference)
    assert max(relative(given[key], value) for key, value in reference.items()) < LIMIT


def test_the_gradient_of_an_average_is_counted_by_hand(run_step: Any) -> None:
    # 3 x 3 windows of stride 2 over 9 x 10 with padding 1: 5 x 5 of them, for 2 images of 4 channels.
    model, inputs = CASES["average that leaves padding out"]()
    loaded = load_live(
        model, inputs=inputs, batch=None, specs=(), opset=None, progress=lambda _: None, training=True
    )
    graph = loaded.graph()
    node = next(node for node in graph.nodes if node.op_type == "AveragePoolGrad")
    assert count(graph).costs[node.index].flops == 2 * 4 * 5 * 5 * (1 + 9)


def test_the_gradient_of_resizing_is_counted_by_its_taps() -> None:
    # Each of 18 x 20 outputs takes 2 x 2 inputs with weights: a product and a sum for each.
    model, inputs = CASES["linear"]()
    loaded = load_live(
        model, inputs=inputs, batch=None, specs=(), opset=None, progress=lambda _: None, training=True
    )
    graph = loaded.graph()
    node = next(node for node in graph.nodes if node.op_type == "ResizeGrad")
    # At the four edges both taps are the same input: 2 of 18 rows and 2 of 20 columns have one tap.
    assert count(graph).costs[node.index].flops == 2 * 2 * 4 * (2 * 18 - 2) * (2 * 20 - 2)


def test_an_optimizer_that_nobody_knows_is_told_and_left_out_of_the_run(step_of: Any, run_step: Any) -> None:
    loaded = step_of(
        "mlp",
        """
        class Lion(torch.optim.Optimizer):
            def __init__(self, parameters, lr=1e-4):
                super().__init__(parameters, dict(lr=lr))

        optimizer = Lion
        """,
    )
    assert any("How Lion updates is not known" in note for note in loaded.notes)
    _, given, reference = run_step(loaded)
    assert "0.weight.new" not in given
    assert all(np.isfinite(given[name]).all() for name in reference)


def _scaled_by_use(_: Any, x: Any) -> Any:
    return functional.embedding(torch.tensor([1, 2, 1]), x, scale_grad_by_freq=True)


def _shrunk(_: Any, x: Any) -> Any:
    return functional.interpolate(x.reshape(1, 1, 4, 6), (3, 4), mode="bilinear", antialias=True)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("lgamma", lambda _, x: torch.lgamma(3 * x)),
        ("cummax", lambda _, x: x.cummax(-1)[0]),
        ("_upsample_bilinear2d_aa_backward", _shrunk),
        ("embedding_dense_backward", _scaled_by_use),
        ("nll_loss_forward", lambda _, x: functional.cross_entropy(x[0], torch.tensor(3))),
        ("median", lambda _, x: x.median(-1)[0]),
        ("_linalg_solve_ex", lambda _, x: torch.linalg.solve(x[:, :4], x[:, 0])),
    ],
)
def test_a_rare_operator_stays_whole_with_its_shapes_and_without_a_cost(name: str, function: Any) -> None:
    model, inputs = rows(lambda own, x: function(own, x).reshape(-1, 1) * x[0])
    loaded = load_live(
        model, inputs=inputs, batch=None, specs=(), opset=None, progress=lambda _: None, training=True
    )
    graph = loaded.graph()
    opaque = [node for node in graph.nodes if node.domain == "pytorch.aten"]
    assert opaque
    assert opaque[0].outputs[0] is not None
    assert opaque[0].outputs[0].shape is not None
    assert count(graph).total.basis == "unknown"
    assert name in {node.op_type for node in opaque}


def test_onnx_runtime_multiplies_a_transposed_matrix_by_a_vector_wrongly() -> None:
    """Why products by a vector are written as products of matrices; may go when this fails."""
    from onnx import TensorProto, helper

    given = [
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [6, 8]),
        helper.make_tensor_value_info("u", TensorProto.FLOAT, [6]),
    ]
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "u"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "product", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    w, u = generator.standard_normal((6, 8), np.float32), generator.standard_normal(6, np.float32)
    (found,) = session.run(None, {"w": w, "u": u})
    assert np.abs(found - w.T @ u).max() > 0.1


def test_a_loss_that_onnx_lacks_is_kept_with_its_shapes_and_without_a_cost(step_of: Any) -> None:
    loaded = step_of(
        """
        def build_model():
            return nn.Sequential(nn.Linear(8, 5), nn.LogSoftmax(-1))

        def example_inputs(batch=12):
            return (torch.randn(batch, 3, 8),)

        def loss(outputs, targets):
            lengths = torch.full((3,), outputs.shape[0]), torch.full((3,), 4)
            return nn.CTCLoss(zero_infinity=True)(outputs, targets, *lengths)

        def example_targets(batch=12):
            return torch.randint(1, 5, (3, 4))
        """
    )
    graph = loaded.graph()
    shapes = {node.op_type: node.outputs[0].shape for node in graph.nodes if node.domain == "pytorch.aten"}
    assert shapes == {"ctc_loss": (3,), "ctc_loss_backward": (12, 3, 5)}
    assert count(graph).total.basis == "unknown"
    assert any("ctc_loss has no ONNX translation" in note for note in loaded.notes)
