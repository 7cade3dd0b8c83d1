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
        old = [item for item in (self.running_mean, self.running_var) if item is not None]
        new = [torch.zeros_like(statistic) for statistic in old]
        y = torch.nn.functional.batch_norm(x, new[0], new[1], self.weight, self.bias, True, 1.0, self.eps)
        with torch.no_grad():
            for before, now in zip(old, new, strict=True):
                before.add_((now - before) / number)
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
    """Without the check that no variance is negative, which needs the values."""
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
    """An operator with a gradient and no more said: sizes inside PyTorch's own depend on values."""
    import torch

    library, rest = torch.library, "Tensor scores, Tensor targets, Tensor lengths, Tensor sizes, int blank"
    library.define("analyzer::ctc_loss", f"({rest}) -> Tensor")
    library.define("analyzer::ctc_loss_backward", f"(Tensor gradient, {rest}) -> Tensor")
    library.register_fake("analyzer::ctc_loss", lambda scores, *_: scores.new_empty(scores.shape[1:-1]))
    library.register_fake("analyzer::ctc_loss_backward", lambda _, scores, *__: torch.empty_like(scores))

    # PyTorch passes both by name.
    def keep(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
        ctx.save_for_backward(*inputs[:4])
        ctx.blank = inputs[4]  # type: ignore[attr-defined]  # a context holds what it is given

    def back(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = torch.ops.analyzer.ctc_loss_backward(gradient, *ctx.saved_tensors, ctx.blank)
        return found, None, None, None, None

    library.register_autograd("analyzer::ctc_loss", back, setup_context=keep)
    return torch.ops.analyzer.ctc_loss


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0,
    reduction: str = "mean", *_rest: object, **_options: object,
) -> Tensor:  # fmt: skip
    import torch

    lengths, sizes = (torch.as_tensor(item) for item in (input_lengths, target_lengths))
    losses: Tensor = _ctc_operator()(log_probs, targets, lengths, sizes, blank)
    if reduction == "mean":
        return (losses / sizes.clamp_min(1)).mean()
    return losses.sum() if reduction == "sum" else losses


def _margins_of_labels(x: Tensor, labels: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Of every label, up to the first below 0, over every other class; PyTorch's own gradient is wrong."""
    import torch

    counted = ((labels < 0).long().cumsum(-1) == 0).unsqueeze(-1)
    chosen = labels.clamp_min(0)
    own = ((chosen.unsqueeze(-1) == torch.arange(x.shape[-1])) & counted).any(-2).to(x.dtype)
    apart = (1 - x.gather(-1, chosen).unsqueeze(-1) + x.unsqueeze(-2)).clamp_min(0)
    losses = (apart * counted.to(x.dtype) * (1 - own).unsqueeze(-2)).sum((-2, -1)) / x.shape[-1]
    return (losses, losses.mean(), losses.sum())[reduction], own


def _solve(
    a: Tensor, b: Tensor, *, left: bool = True, **_options: object
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Through the inverse; what the factors would be is given to nobody."""
    import torch

    vector = b.dim() == 1 or (b.dim() + 1 == a.dim() and b.shape == a.shape[:-1])
    columns = b.unsqueeze(-1) if vector else b
    inverse = torch.linalg.inv_ex(a)[0]
    found = inverse @ columns if left else columns @ inverse
    pivots = torch.zeros(a.shape[:-1], dtype=torch.int32)
    return found.squeeze(-1) if vector else found, a, pivots, pivots.sum(-1)


def _determinant(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Jacobi's formula: the value without a gradient, times one that is 1 and has it."""
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
