"""Operators of the joint graph whose translation PyTorch lacks, or has wrong: mostly compact ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analyzer.definitions import DOMAIN
from analyzer.loading.opaque import OPAQUE_DOMAIN
from analyzer.loading.training.interfaces import emit

_OWN: dict[str, Callable[..., Any]] = {}


def _translates(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _OWN.update({f"aten::{name}": function for name in names})
        return function

    return decorate


def table(notes: list[str]) -> Mapping[str, Callable[..., Any]]:
    """Translations by qualified name; ``opaque`` makes one for an operator that nobody translates.

    Args:
        notes: Receives a sentence for each operator that is kept without a translation.
    """

    def keep(target: Any, node: Any) -> Callable[..., Any]:
        name = target.name().partition(".")[0].removeprefix("aten::")
        told = (
            f"aten.{name} has no ONNX translation: kept as an operator of unknown cost; ONNX Runtime cannot "
            "run the step."
        )
        if told not in notes:
            notes.append(told)
        value = node.meta.get("val")
        outputs = len(value) if isinstance(value, (tuple, list)) else 1
        return lambda *arguments, **keywords: opaque(name, outputs, arguments, keywords)

    return {**_OWN, "opaque": keep}


def own_names() -> frozenset[str]:
    """Qualified names that have a translation here, overloads left out."""
    return frozenset(_OWN)


def opaque(name: str, outputs: int, arguments: Any, keywords: Mapping[str, Any]) -> Any:
    """A node that says what it is and nothing about how it computes."""
    import onnx_ir

    found: list[Any] = []
    for argument in (*arguments, *keywords.values()):
        items = argument if isinstance(argument, (tuple, list)) else (argument,)
        found += [item for item in items if isinstance(item, onnx_ir.Value)]
    return emit(OPAQUE_DOMAIN, name, found, {}, outputs)


def _spread(sizes: Any, rank: int) -> list[int]:
    """One number an axis, where a single one stands for all."""
    listed = [int(size) for size in sizes]
    return listed * rank if len(listed) == 1 else listed


@_translates("convolution_backward")
def _convolution_backward(
    gradient: Any, x: Any, weight: Any, _bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, _output_padding: Any, groups: int, _mask: Any,
) -> Any:  # fmt: skip
    rank = len(weight.shape) - 2
    attributes = {
        "strides": _spread(stride, rank),
        "pads": _spread(padding, rank),
        "dilations": _spread(dilation, rank),
        "group": int(groups),
        "transposed": int(transposed),
    }
    return emit(DOMAIN, "ConvGrad", [gradient, x, weight], attributes, 3)


@_translates("_native_batch_norm_legit_functional")
def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        return opaque("native_batch_norm", 5, (x, weight, bias, mean, variance), {})
    attributes = {"momentum": float(momentum), "eps": float(eps)}
    return emit(DOMAIN, "BatchNorm", [x, weight, bias, mean, variance], attributes, 5)


@_translates("_native_batch_norm_legit")
def _batch_norm_without_statistics(
    x: Any, weight: Any, bias: Any, _training: bool, momentum: float, eps: float
) -> Any:
    attributes = {"momentum": float(momentum), "eps": float(eps)}
    return emit(DOMAIN, "BatchNorm", [x, weight, bias], attributes, 3)


@_translates("native_batch_norm_backward")
def _batch_norm_backward(
    gradient: Any, x: Any, weight: Any, mean: Any, variance: Any, save_mean: Any, save_inverse: Any,
    train: bool, _eps: float, _mask: Any,
) -> Any:  # fmt: skip
    if not train:
        return opaque("native_batch_norm_backward", 3, (gradient, x, weight, mean, variance), {})
    return emit(DOMAIN, "BatchNormGrad", [gradient, x, weight, save_mean, save_inverse], {}, 3)


@_translates("native_layer_norm_backward")
def _layer_norm_backward(
    gradient: Any, x: Any, shape: Any, mean: Any, inverse: Any, weight: Any, _bias: Any, _mask: Any
) -> Any:
    axis = len(x.shape) - len(shape)
    return emit(DOMAIN, "LayerNormGrad", [gradient, x, mean, inverse, weight], {"axis": axis}, 3)


@_translates("_softmax_backward_data")
def _softmax_backward(gradient: Any, output: Any, dim: int, *_: Any, **_more: Any) -> Any:
    return emit(DOMAIN, "SoftmaxGrad", [gradient, output], {"axis": int(dim)}, 1)


@_translates("_log_softmax_backward_data")
def _log_softmax_backward(gradient: Any, output: Any, dim: int, *_: Any, **_more: Any) -> Any:
    return emit(DOMAIN, "LogSoftmaxGrad", [gradient, output], {"axis": int(dim)}, 1)


@_translates("threshold_backward")
def _threshold_backward(gradient: Any, x: Any, threshold: float) -> Any:
    return emit(DOMAIN, "ReluGrad", [gradient, x], {"threshold": float(threshold)}, 1)


@_translates("gelu_backward")
def _gelu_backward(gradient: Any, x: Any, approximate: str = "none") -> Any:
    return emit(DOMAIN, "GeluGrad", [gradient, x], {"approximate": approximate}, 1)


@_translates("sigmoid_backward")
def _sigmoid_backward(gradient: Any, output: Any) -> Any:
    return emit(DOMAIN, "SigmoidGrad", [gradient, output], {}, 1)


@_translates("tanh_backward")
def _tanh_backward(gradient: Any, output: Any) -> Any:
    return emit(DOMAIN, "TanhGrad", [gradient, output], {}, 1)


@_translates("silu_backward")
def _silu_backward(gradient: Any, x: Any) -> Any:
    return emit(DOMAIN, "SiluGrad", [gradient, x], {}, 1)


@_translates("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(
    x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> Any:
    rank = len(x.shape) - 2
    pads = _spread(padding, rank)
    attributes = {
        "kernel_shape": _spread(kernel, rank),
        "strides": _spread(stride or kernel, rank),
        "pads": [*pads, *pads],
        "dilations": _spread(dilation, rank),
        "ceil_mode": int(ceil_mode),
    }
    return emit("", "MaxPool", [x], attributes, 2)


@_translates("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool_backward(gradient: Any, _x: Any, *rest: Any) -> Any:
    return emit(DOMAIN, "MaxPoolGrad", [gradient, rest[-1]], {}, 1)


@_translates("avg_pool2d_backward", "avg_pool3d_backward")
def _average_pool_backward(
    gradient: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include_pad: bool,
    divisor: int | None = None,
) -> Any:  # fmt: skip
    rank = len(x.shape) - 2
    taps, pads = _spread(kernel, rank), _spread(padding, rank)
    if ceil_mode or (any(pads) and not include_pad):
        return opaque(f"avg_pool{rank}d_backward", 1, (gradient, x), {})
    return _average(gradient, taps, _spread(stride or kernel, rank), pads, divisor)


@_translates("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_pool_backward(gradient: Any, x: Any) -> Any:
    wanted, given = list(x.shape)[2:], list(gradient.shape)[2:]
    if any(size % part for size, part in zip(wanted, given, strict=True)):
        return opaque(f"_adaptive_avg_pool{len(wanted)}d_backward", 1, (gradient, x), {})
    taps = [size // part for size, part in zip(wanted, given, strict=True)]
    return _average(gradient, taps, taps, [0] * len(taps), None)


def _average(gradient: Any, taps: list[int], strides: list[int], pads: list[int], divisor: int | None) -> Any:
    import math

    attributes = {"kernel_shape": taps, "strides": strides, "pads": pads, "divisor": divisor or math.prod(taps)}
    return emit(DOMAIN, "AveragePoolGrad", [gradient], attributes, 1)


@_translates("embedding_dense_backward")
def _embedding_backward(
    gradient: Any, indices: Any, _rows: int, padding_idx: int = -1, scale: bool = False
) -> Any:
    if scale:
        return opaque("embedding_dense_backward", 1, (gradient, indices), {})
    return emit(DOMAIN, "EmbeddingGrad", [gradient, indices], {"padding_idx": int(padding_idx)}, 1)


@_translates("native_dropout")
def _dropout(x: Any, p: float, _train: bool | None = True) -> Any:
    import numpy as np
    import onnx_ir

    ratio = emit("", "Constant", [], {"value": onnx_ir.tensor(np.asarray(p, "float32"))}, 1)
    flag = emit("", "Constant", [], {"value": onnx_ir.tensor(np.asarray(True))}, 1)
    return emit("", "Dropout", [x, ratio, flag], {}, 2)


@_translates("slice_backward")
def _slice_backward(gradient: Any, shape: Any, dim: int, start: int, _end: int, step: int) -> Any:
    if step != 1:
        return opaque("slice_backward", 1, (gradient,), {})
    size = int(shape[dim])
    first = min(max(start + size if start < 0 else start, 0), size)
    return _padded(gradient, len(shape), int(dim) % len(shape), first, size - first - int(gradient.shape[dim]))


@_translates("select_backward")
def _select_backward(gradient: Any, shape: Any, dim: int, index: int) -> Any:
    size, axis = int(shape[dim]), int(dim) % len(shape)
    wide = emit("", "Unsqueeze", [gradient, _numbers([axis])], {}, 1)
    place = index + size if index < 0 else index
    return _padded(wide, len(shape), axis, place, size - place - 1)


def _padded(gradient: Any, rank: int, axis: int, before: int, after: int) -> Any:
    """The gradient with zeros around it along one axis."""
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = before, after
    return emit("", "Pad", [gradient, _numbers(pads)], {}, 1)


def _numbers(values: list[int]) -> Any:
    import numpy as np
    import onnx_ir

    return emit("", "Constant", [], {"value": onnx_ir.tensor(np.asarray(values, "int64"))}, 1)


# PyTorch's own translation of nll_loss_forward makes up the number of labels, and with it every gradient.
@_translates("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(scores: Any, labels: Any, weights: Any, reduction: int, ignore_index: int) -> Any:
    attributes = {"reduction": int(reduction), "ignore_index": int(ignore_index)}
    if len(scores.shape) < 2:
        return opaque("nll_loss_forward", 2, (scores, labels, weights), {})
    return emit(DOMAIN, "NllLoss", [scores, labels, weights], attributes, 2)


@_translates("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(
    gradient: Any, scores: Any, labels: Any, weights: Any, reduction: int, ignore_index: int, total: Any
) -> Any:
    attributes = {"reduction": int(reduction), "ignore_index": int(ignore_index)}
    if len(scores.shape) < 2:
        return opaque("nll_loss_backward", 1, (gradient, scores, labels, weights, total), {})
    return emit(DOMAIN, "NllLossGrad", [gradient, scores, labels, weights, total], attributes, 1)


@_translates("hardtanh_backward")
def _hardtanh_backward(gradient: Any, x: Any, minimum: float, maximum: float) -> Any:
    attributes = {"minimum": float(minimum), "maximum": float(maximum)}
    return emit(DOMAIN, "HardtanhGrad", [gradient, x], attributes, 1)
