"""What is written otherwise while a step is traced: what reads values, or has gradients without translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import log, pi
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_private import (
    batch_norm_class,
    check_input_rank,
    gradient_kernels,
    operator,
    unchecked_distributions,
    without_autograd,
)
from analyzer.loading.training.decompositions import running_products

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.function import FunctionCtx
    from torch.nn import BatchNorm1d as BatchNorm

    from analyzer.loading.torch_private import OpOverload, PythonKernel


@contextmanager
def rewritten() -> Iterator[None]:
    """Puts our own functions in the place of PyTorch's, and its own back after."""
    import torch

    batch_norm = batch_norm_class()
    # Python functions that read values, or change a number that they read as one: no kernel could be replaced.
    places: list[tuple[object, str, PythonKernel]] = [
        (batch_norm, "forward", _batch_norm(batch_norm.forward)),
        (torch.nn.functional, "gaussian_nll_loss", _gaussian_loss),
        (torch.nn.functional, "ctc_loss", _ctc_loss),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    with gradient_kernels(_apart()), unchecked_distributions():
        try:
            for owner, name, function in places:
                setattr(owner, name, function)
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)


def _apart() -> Mapping[OpOverload, PythonKernel]:
    """By operator, what the tracer sees in its place before it differentiates."""
    import torch

    aten = torch.ops.aten
    return {
        aten.cumprod.default: running_products,
        aten.multilabel_margin_loss_forward.default: _margins_of_labels,
        operator("_linalg_solve_ex"): _solve,
        operator("_linalg_det"): _determinant,
        operator("_linalg_slogdet"): _logarithm_of_determinant,
        operator("_linalg_check_errors"): lambda *_, **__: None,
    }


def _batch_norm(plain: Callable[[BatchNorm, Tensor], Tensor]) -> PythonKernel:
    """Without momentum the running statistics are means over all batches so far, whose number is a tensor."""

    def forward(self: BatchNorm, x: Tensor) -> Tensor:
        import torch

        number = self.num_batches_tracked if self.training and self.track_running_stats else None
        if self.momentum is not None or number is None:
            return plain(self, x)
        check_input_rank(self, x)
        number.add_(1)
        running = [statistic for statistic in (self.running_mean, self.running_var) if statistic is not None]
        current = [torch.zeros_like(statistic) for statistic in running]
        y = torch.nn.functional.batch_norm(
            x, current[0], current[1], self.weight, self.bias, True, 1.0, self.eps
        )
        with torch.no_grad():
            for average, statistic in zip(running, current, strict=True):
                average.add_((statistic - average) / number)
        return y

    return forward


def _gaussian_loss(
    x: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """As in torch/nn/functional.py, without the check that no variance is negative, which needs the values."""
    import torch

    if not isinstance(var, torch.Tensor):
        var = torch.full_like(x, var)
    if var.dim() == x.dim() - 1:
        var = var.unsqueeze(-1)
    var = var + (var.clamp_min(eps) - var).detach()  # the gradient passes where the variance is raised
    loss = 0.5 * (var.log() + (x - target).square() / var)
    if full:
        loss = loss + 0.5 * log(2 * pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


@cache
def _ctc_operator() -> PythonKernel:
    """An operator with a gradient and no more said.

    Inside PyTorch's (aten/src/ATen/native/LossCTC.cpp) the table of paths is as wide as a value says.
    """
    import torch

    library, signature = torch.library, "Tensor scores, Tensor targets, Tensor lengths, Tensor sizes, int blank"
    library.define("analyzer::ctc_loss", f"({signature}) -> Tensor")
    library.define("analyzer::ctc_loss_backward", f"(Tensor gradient, {signature}) -> Tensor")
    library.register_fake("analyzer::ctc_loss", lambda scores, *_: scores.new_empty(scores.shape[1:-1]))
    library.register_fake("analyzer::ctc_loss_backward", lambda _, scores, *__: torch.empty_like(scores))

    # PyTorch passes both by name (register_autograd of torch/library.py).
    def save(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
        ctx.save_for_backward(*inputs[:4])
        ctx.blank = inputs[4]  # type: ignore[attr-defined]  # a context holds what it is given

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        to_scores = torch.ops.analyzer.ctc_loss_backward(gradient, *ctx.saved_tensors, ctx.blank)
        return to_scores, None, None, None, None

    library.register_autograd("analyzer::ctc_loss", backward, setup_context=save)
    return torch.ops.analyzer.ctc_loss


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0,
    reduction: str = "mean", *_rest: object, **_options: object,
) -> Tensor:  # fmt: skip
    import torch

    lengths, sizes = (torch.as_tensor(size) for size in (input_lengths, target_lengths))
    losses: Tensor = _ctc_operator()(log_probs, targets, lengths, sizes, blank)
    if reduction == "mean":
        return (losses / sizes.clamp_min(1)).mean()
    return losses.sum() if reduction == "sum" else losses


def _margins_of_labels(x: Tensor, labels: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Of every label, up to the first below 0, over every other class.

    What the tracer would take, torch/_decomp/decompositions.py (2.13), counts each place after the first -1 as
    class 0: loss and gradient differ from those of PyTorch's kernel wherever an example has fewer labels than
    classes.
    """
    import torch

    counted = ((labels < 0).long().cumsum(-1) == 0).unsqueeze(-1)
    chosen = labels.clamp_min(0)
    is_label = ((chosen.unsqueeze(-1) == torch.arange(x.shape[-1])) & counted).any(-2).to(x.dtype)
    margins = (1 - x.gather(-1, chosen).unsqueeze(-1) + x.unsqueeze(-2)).clamp_min(0)
    losses = (margins * counted.to(x.dtype) * (1 - is_label).unsqueeze(-2)).sum((-2, -1)) / x.shape[-1]
    return (losses, losses.mean(), losses.sum())[reduction], is_label


def _solve(
    a: Tensor, b: Tensor, *, left: bool = True, **_options: object
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Through the inverse, which ONNX Runtime has a kernel for; what the factors would be is given to nobody.

    A trace through it has the gradient of ``inv_ex``, where linalg_solve_backward would ask for the factors.
    """
    import torch

    # A batch of vectors has the shape of a batch of matrices but for
    # one axis: torch.linalg.solve tells them so.
    vector = b.dim() == 1 or (b.dim() + 1 == a.dim() and b.shape == a.shape[:-1])
    columns = b.unsqueeze(-1) if vector else b
    inverse = torch.linalg.inv_ex(a)[0]
    solution = inverse @ columns if left else columns @ inverse
    pivots = torch.zeros(a.shape[:-1], dtype=torch.int32)
    return solution.squeeze(-1) if vector else solution, a, pivots, pivots.sum(-1)


def _determinant(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Jacobi's formula, d det(A) = det(A) tr(A^-1 dA): the value without a gradient, times a 1 that has it.

    linalg_det_backward (torch/csrc/autograd/FunctionsManual.cpp) solves with factors that ONNX does not have.
    """
    import torch

    return _fixed(a) * (1 + _first_order(a)), a, torch.zeros(a.shape[:-1], dtype=torch.int32)


def _logarithm_of_determinant(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    import torch

    value = _fixed(a)
    pivots = torch.zeros(a.shape[:-1], dtype=torch.int32)
    return value.sign(), value.abs().log() + _first_order(a), a, pivots


def _fixed(a: Tensor) -> Tensor:
    with without_autograd():
        value: Tensor = operator("_linalg_det")(a.detach())[0]
    return value


def _first_order(a: Tensor) -> Tensor:
    """Zero, whose gradient is that of the determinant's logarithm: the inverse, transposed."""
    import torch

    fixed = a.detach()
    inverse: Tensor = torch.linalg.inv_ex(fixed)[0]
    return (inverse.mT * (a - fixed)).sum((-2, -1))
