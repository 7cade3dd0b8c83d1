"""Functions that ONNX lacks, from those it has: by asymptotic series (DLMF, chapter 5) and by iteration."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, pi
from typing import TYPE_CHECKING

from analyzer.loading.torch_private import REFUSED

if TYPE_CHECKING:
    from torch import Tensor

    from analyzer.loading.torch_private import OpOverload, PythonKernel, Refused


# The series are for numbers of at least this; recurrence leads there. From 6 on the first term left out of DLMF
# 5.11.1 and 5.11.2 is below 4e-9, and single precision resolves 6e-8.
_SHIFT = 6


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

    below, y, angle = _reflected(x)  # reflection: DLMF 5.5.3
    product = y
    for step in range(1, _SHIFT):
        product = product * (y + step)
    near = y < _SHIFT  # beyond, the product would overflow
    w = torch.where(near, y + _SHIFT, y)
    square = 1 / (w * w)
    # DLMF 5.11.1: log gamma(w) = (w - 1/2) log w - w + log(2 pi) / 2 + 1/12w - 1/360w^3 + 1/1260w^5.
    series = ((square / 1260 - 1 / 360) * square + 1 / 12) / w
    result = (w - 0.5) * w.log() - w + 0.5 * log(2 * pi) + series
    result = result - torch.where(near, product, 1.0).log()
    return torch.where(below, log(pi) - angle.sin().abs().log() - result, result)


def _digamma(x: Tensor) -> Tensor:
    import torch

    below, y, angle = _reflected(x)
    w = y + _SHIFT
    square = 1 / (w * w)
    # DLMF 5.11.2: psi(w) = log w - 1/2w - 1/12w^2 + 1/120w^4 - 1/252w^6; psi(y + 1) = psi(y) + 1/y (5.5.2).
    result = w.log() - 0.5 / w - square * (1 / 12 - square * (1 / 120 - square / 252))
    for step in range(_SHIFT):
        result = result - 1 / (y + step)
    return torch.where(below, result - pi / angle.tan(), result)


def _polygamma(order: int, x: Tensor) -> Tensor | Refused:
    import torch

    if order != 1:
        return REFUSED if order else _digamma(x)  # a gradient of digamma asks for order 1, no step for more
    below, y, angle = _reflected(x)
    w = y + _SHIFT
    square = 1 / (w * w)
    # The derivative of DLMF 5.11.2: psi'(w) = 1/w + 1/2w^2 + 1/6w^3 - 1/30w^5 + 1/42w^7.
    result = (1 + square * (1 / 6 - square * (1 / 30 - square / 42))) / w + square / 2
    for step in range(_SHIFT):
        result = result + 1 / (y + step).square()
    return torch.where(below, (pi / angle.sin()).square() - result, result)


def _inverse_error(x: Tensor) -> Tensor:
    """Winitzki's approximation (a = 0.147, within 2e-3), made exact by two of Halley's steps."""
    import torch

    logarithm = ((1 - x) * (1 + x)).log()
    half = 2 / (pi * 0.147) + logarithm / 2
    y = x.sign() * ((half * half - logarithm / 0.147).sqrt() - half).clamp_min(0).sqrt()
    for _ in range(2):
        # Newton's step f / f' with f' = 2 exp(-y^2) / sqrt(pi); f'' / f' = -2 y makes it Halley's below.
        step = (y.erf() - x) * (y * y).exp() * (pi**0.5 / 2)
        y = y - step / (1 + y * step)
    return torch.where(x.abs() < 1, y, x * float("inf"))


# Chebyshev fit of erfc by Numerical Recipes (1992), section 6.2: within 1.2e-7 of each value.
_FIT = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587,
        -0.82215223, 0.17087277)  # fmt: skip


def _scaled_error(x: Tensor) -> Tensor:
    """``exp(x^2) erfc(x)`` without either factor where ``x`` is large.

    onnxscript/function_libs/torch_lib/ops/special.py multiplies the two: 0 from x = 4 on, no number from 9.5
    on.
    """
    import torch

    size = x.abs()
    t = 1 / (1 + size / 2)
    polynomial = torch.full_like(x, _FIT[-1])
    for part in reversed(_FIT[:-1]):
        polynomial = polynomial * t + part
    polynomial = t * polynomial.exp()
    return torch.where(x < 0, 2 * (x * x).exp() - polynomial, polynomial)
