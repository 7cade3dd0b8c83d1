"""Functions that ONNX lacks, from those it has: by asymptotic series (DLMF, chapter 5) and by iteration."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, pi
from typing import TYPE_CHECKING

from analyzer.loading.torch_private import REFUSED

if TYPE_CHECKING:
    from torch import Tensor

    from analyzer.loading.torch_private import OpOverload, PythonKernel, Refused


_SHIFT = 6  # the series are for numbers of at least this and a half; recurrence leads there


def special_functions() -> Mapping[OpOverload, PythonKernel]:
    """By operator, the function that stands for it."""
    import torch

    aten = torch.ops.aten
    return {
        aten.lgamma.default: _log_gamma,
        aten.digamma.default: _digamma,
        aten.polygamma.default: _polygamma,
        aten.erfinv.default: _inverse_error,
        aten.special_erfcx.default: _scaled_error,
    }


def _reflected(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whether a number is below one half, its mirror image there, pi times how far it is from a whole one."""
    below = x < 0.5
    return below, below.to(x.dtype) + x * (1 - 2 * below.to(x.dtype)), pi * (x - x.round())


def _log_gamma(x: Tensor) -> Tensor:
    import torch

    below, y, angle = _reflected(x)
    product = y
    for step in range(1, _SHIFT):
        product = product * (y + step)
    near = y < _SHIFT  # beyond, the product would overflow
    w = torch.where(near, y + _SHIFT, y)
    square = 1 / (w * w)
    series = ((square / 1260 - 1 / 360) * square + 1 / 12) / w
    found = (w - 0.5) * w.log() - w + 0.5 * log(2 * pi) + series
    found = found - torch.where(near, product, 1.0).log()
    return torch.where(below, log(pi) - angle.sin().abs().log() - found, found)


def _digamma(x: Tensor) -> Tensor:
    import torch

    below, y, angle = _reflected(x)
    w = y + _SHIFT
    square = 1 / (w * w)
    found = w.log() - 0.5 / w - square * (1 / 12 - square * (1 / 120 - square / 252))
    for step in range(_SHIFT):
        found = found - 1 / (y + step)
    return torch.where(below, found - pi / angle.tan(), found)


def _polygamma(order: int, x: Tensor) -> Tensor | Refused:
    import torch

    if order != 1:
        return REFUSED if order else _digamma(x)
    below, y, angle = _reflected(x)
    w = y + _SHIFT
    square = 1 / (w * w)
    found = (1 + square * (1 / 6 - square * (1 / 30 - square / 42))) / w + square / 2
    for step in range(_SHIFT):
        found = found + 1 / (y + step).square()
    return torch.where(below, (pi / angle.sin()).square() - found, found)


def _inverse_error(x: Tensor) -> Tensor:
    """Winitzki's approximation, made exact by two of Halley's steps."""
    import torch

    logarithm = ((1 - x) * (1 + x)).log()
    half = 2 / (pi * 0.147) + logarithm / 2
    y = x.sign() * ((half * half - logarithm / 0.147).sqrt() - half).clamp_min(0).sqrt()
    for _ in range(2):
        step = (y.erf() - x) * (y * y).exp() * (pi**0.5 / 2)
        y = y - step / (1 + y * step)
    return torch.where(x.abs() < 1, y, x * float("inf"))


# Chebyshev fit of erfc by Numerical Recipes (1992), section 6.2: within 1.2e-7 of each value.
_FIT = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587,
        -0.82215223, 0.17087277)  # fmt: skip


def _scaled_error(x: Tensor) -> Tensor:
    """PyTorch's own translation multiplies what is 0 by what is infinite."""
    import torch

    size = x.abs()
    t = 1 / (1 + size / 2)
    found = torch.full_like(x, _FIT[-1])
    for part in reversed(_FIT[:-1]):
        found = found * t + part
    found = t * found.exp()
    return torch.where(x < 0, 2 * (x * x).exp() - found, found)
