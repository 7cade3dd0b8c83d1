"""Operators of the joint graph whose translation PyTorch lacks, or has wrong: mostly compact ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from analyzer.loading.training import pooling  # registers its translations
from analyzer.loading.training.torch_interfaces import emit
from analyzer.loading.training.translation_registry import (
    OWN,
    constant,
    numbers,
    opaque,
    shaped,
    spread,
    translates,
)
from analyzer.training_operators import DOMAIN


def table(notes: list[str]) -> Mapping[str, Callable[..., Any]]:
    """Translations by qualified name; ``opaque`` makes one for an operator that nobody translates.

    Args:
        notes: Receives a sentence for each operator that is kept without a translation.
    """

    def keep(target: Any, node: Any) -> Callable[..., Any]:
        name = target.name().partition(".")[0].rpartition("::")[2]
        told = (
            f"{name} has no ONNX translation: kept as an operator of unknown cost; ONNX Runtime cannot "
            "run the step."
        )
        if told not in notes:
            notes.append(told)
        value = node.meta.get("val")
        outputs = len(value) if isinstance(value, (tuple, list)) else 1
        return lambda *arguments, **keywords: opaque(name, outputs, arguments, keywords)

    return {**OWN, **pooling.OWN, "opaque": keep}


def own_names() -> frozenset[str]:
    """Qualified names that have a translation here, overloads left out."""
    return frozenset(OWN)


@translates("convolution_backward")
def _convolution_backward(
    gradient: Any, x: Any, weight: Any, _bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, _output_padding: Any, groups: int, _mask: Any,
) -> Any:  # fmt: skip
    rank = len(weight.shape) - 2
    attributes = {
        "strides": spread(stride, rank),
        "pads": spread(padding, rank),
        "dilations": spread(dilation, rank),
        "group": int(groups),
        "transposed": int(transposed),
    }
    return emit(DOMAIN, "ConvGrad", [gradient, x, weight], attributes, 3)


@translates("_native_batch_norm_legit_functional")
def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        y = _frozen_batch_norm(x, weight, bias, mean, variance, eps)
        same = [emit("", "Identity", [statistic], {}, 1) for statistic in (mean, variance)]
        return (y, *_no_statistics(), *same)
    attributes = {"momentum": float(momentum), "eps": float(eps)}
    return emit(DOMAIN, "BatchNorm", [x, weight, bias, mean, variance], attributes, 5)


@translates("_native_batch_norm_legit_no_training")
def _batch_norm_without_training(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, _momentum: float, eps: float
) -> Any:
    return (_frozen_batch_norm(x, weight, bias, mean, variance, eps), *_no_statistics())


def _no_statistics() -> list[Any]:
    """Statistics of a batch that nothing took; the gradient reads the running ones."""
    return [constant([], "float32"), constant([], "float32")]


def _frozen_batch_norm(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: float) -> Any:
    """With running statistics: ONNX's own operator, which always has a scale and a bias."""
    channels = int(x.shape[1])
    weight = weight if weight is not None else constant([1.0] * channels, x.dtype.numpy())
    bias = bias if bias is not None else constant([0.0] * channels, x.dtype.numpy())
    return emit("", "BatchNormalization", [x, weight, bias, mean, variance], {"epsilon": float(eps)}, 1)


@translates("_native_batch_norm_legit")
def _batch_norm_without_statistics(
    x: Any, weight: Any, bias: Any, _training: bool, momentum: float, eps: float
) -> Any:
    attributes = {"momentum": float(momentum), "eps": float(eps)}
    return emit(DOMAIN, "BatchNorm", [x, weight, bias], attributes, 3)


@translates("native_batch_norm_backward")
def _batch_norm_backward(
    gradient: Any, x: Any, weight: Any, mean: Any, variance: Any, save_mean: Any, save_inverse: Any,
    train: bool, eps: float, _mask: Any,
) -> Any:  # fmt: skip
    if not train:
        inputs = [gradient, x, weight, mean, variance]
        return emit(DOMAIN, "FrozenBatchNormGrad", inputs, {"eps": float(eps)}, 3)
    return emit(DOMAIN, "BatchNormGrad", [gradient, x, weight, save_mean, save_inverse], {}, 3)


@translates("native_layer_norm_backward")
def _layer_norm_backward(
    gradient: Any, x: Any, shape: Any, mean: Any, inverse: Any, weight: Any, _bias: Any, _mask: Any
) -> Any:
    axis = len(x.shape) - len(shape)
    return emit(DOMAIN, "LayerNormGrad", [gradient, x, mean, inverse, weight], {"axis": axis}, 3)


@translates("_softmax_backward_data")
def _softmax_backward(gradient: Any, output: Any, dim: int, *_: Any, **_more: Any) -> Any:
    return emit(DOMAIN, "SoftmaxGrad", [gradient, output], {"axis": int(dim)}, 1)


@translates("_log_softmax_backward_data")
def _log_softmax_backward(gradient: Any, output: Any, dim: int, *_: Any, **_more: Any) -> Any:
    return emit(DOMAIN, "LogSoftmaxGrad", [gradient, output], {"axis": int(dim)}, 1)


@translates("threshold_backward")
def _threshold_backward(gradient: Any, x: Any, threshold: float) -> Any:
    return emit(DOMAIN, "ReluGrad", [gradient, x], {"threshold": float(threshold)}, 1)


@translates("gelu_backward")
def _gelu_backward(gradient: Any, x: Any, approximate: str = "none") -> Any:
    return emit(DOMAIN, "GeluGrad", [gradient, x], {"approximate": approximate}, 1)


@translates("sigmoid_backward")
def _sigmoid_backward(gradient: Any, output: Any) -> Any:
    return emit(DOMAIN, "SigmoidGrad", [gradient, output], {}, 1)


@translates("tanh_backward")
def _tanh_backward(gradient: Any, output: Any) -> Any:
    return emit(DOMAIN, "TanhGrad", [gradient, output], {}, 1)


@translates("silu_backward")
def _silu_backward(gradient: Any, x: Any) -> Any:
    return emit(DOMAIN, "SiluGrad", [gradient, x], {}, 1)


@translates("embedding_dense_backward")
def _embedding_backward(
    gradient: Any, indices: Any, _rows: int, padding_idx: int = -1, scale: bool = False
) -> Any:
    attributes = {"padding_idx": int(padding_idx), "scale": int(scale)}
    return emit(DOMAIN, "EmbeddingGrad", [gradient, indices], attributes, 1)


@translates("native_dropout")
def _dropout(x: Any, p: float, _train: bool | None = True) -> Any:
    return emit("", "Dropout", [x, constant(p, "float32"), constant(True, "bool")], {}, 2)


@translates("slice_backward")
def _slice_backward(gradient: Any, shape: Any, dim: int, start: int, _end: int, step: int) -> Any:
    size = int(shape[dim])
    first = min(max(start + size if start < 0 else start, 0), size)
    if step != 1:
        attributes = {"axis": int(dim) % len(shape), "start": first, "step": int(step)}
        return emit(DOMAIN, "SliceGrad", [gradient], attributes, 1)
    return _padded(gradient, len(shape), int(dim) % len(shape), first, size - first - int(gradient.shape[dim]))


@translates("select_backward")
def _select_backward(gradient: Any, shape: Any, dim: int, index: int) -> Any:
    size, axis = int(shape[dim]), int(dim) % len(shape)
    wide = emit("", "Unsqueeze", [gradient, numbers([axis])], {}, 1)
    place = index + size if index < 0 else index
    return _padded(wide, len(shape), axis, place, size - place - 1)


def _padded(gradient: Any, rank: int, axis: int, before: int, after: int) -> Any:
    """The gradient with zeros around it along one axis."""
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = before, after
    return emit("", "Pad", [gradient, numbers(pads)], {}, 1)


# PyTorch's own translation of nll_loss_forward makes up the number of labels, and with it every gradient.
@translates("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(scores: Any, labels: Any, weights: Any, reduction: int, ignore_index: int) -> Any:
    attributes = {"reduction": int(reduction), "ignore_index": int(ignore_index)}
    if len(scores.shape) < 2:  # one example without an axis for it
        inputs = [_with_axis(scores), _with_axis(labels), weights]
        loss, total = emit(DOMAIN, "NllLoss", inputs, attributes, 2)
        if reduction == 0:
            loss = emit("", "Squeeze", [shaped(loss, [1], scores), numbers([0])], {}, 1)
        return loss, total
    return emit(DOMAIN, "NllLoss", [scores, labels, weights], attributes, 2)


@translates("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(
    gradient: Any, scores: Any, labels: Any, weights: Any, reduction: int, ignore_index: int, total: Any
) -> Any:
    attributes = {"reduction": int(reduction), "ignore_index": int(ignore_index)}
    if len(scores.shape) < 2:
        inputs = [gradient, _with_axis(scores), _with_axis(labels), weights, total]
        found = emit(DOMAIN, "NllLossGrad", inputs, attributes, 1)
        return emit("", "Squeeze", [shaped(found, [1, *scores.shape], scores), numbers([0])], {}, 1)
    return emit(DOMAIN, "NllLossGrad", [gradient, scores, labels, weights, total], attributes, 1)


def _with_axis(tensor: Any) -> Any:
    wide = emit("", "Unsqueeze", [tensor, numbers([0])], {}, 1)
    return shaped(wide, [1, *tensor.shape], tensor)


@translates("hardtanh_backward")
def _hardtanh_backward(gradient: Any, x: Any, minimum: float, maximum: float) -> Any:
    attributes = {"minimum": float(minimum), "maximum": float(maximum)}
    return emit(DOMAIN, "HardtanhGrad", [gradient, x], attributes, 1)


@translates("linalg_inv_ex")
def _inverse(x: Any, **_options: Any) -> Any:
    return emit("com.microsoft", "Inverse", [x], {}, 1), constant(0, "int32")


@translates("_linalg_det")
def _determinant(x: Any) -> Any:
    return emit("", "Det", [x], {}, 1), x, constant(0, "int32")


@translates("mv")
def _matrix_by_vector(matrix: Any, vector: Any) -> Any:
    """As a product of matrices: ONNX Runtime 1.31 multiplies a transposed matrix by a vector wrongly."""
    column = emit("", "Unsqueeze", [vector, numbers([1])], {}, 1)
    return emit("", "Squeeze", [emit("", "MatMul", [matrix, column], {}, 1), numbers([1])], {}, 1)


# Sums are mode 0 and means 1; the largest are taken apart.
@translates("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    table: Any, indices: Any, offsets: Any, _scale: bool = False, mode: int = 0, _sparse: bool = False,
    weights: Any = None, include_last: bool = False, padding_idx: int = -1,
) -> Any:  # fmt: skip
    attributes = {"mean": int(mode), "include_last": int(include_last), "padding": int(padding_idx)}
    found = emit(DOMAIN, "EmbeddingBag", [table, indices, offsets, weights], attributes, 3)
    return (*found, constant([], "int64"))


@translates("_embedding_bag_backward")
def _embedding_bag_backward(
    gradient: Any, indices: Any, _offsets: Any, bags: Any, sizes: Any, _maxima: Any, _rows: int, scale: bool,
    mode: int, _sparse: bool, weights: Any, padding_idx: int = -1,
) -> Any:  # fmt: skip
    inputs = [gradient, indices, bags, sizes, weights]
    if scale:  # PyTorch's own scales by the use of another row
        return opaque("_embedding_bag_backward", 1, inputs, {})
    attributes = {"mean": int(mode), "padding": int(padding_idx)}
    return emit(DOMAIN, "EmbeddingBagGrad", inputs, attributes, 1)


@translates("copy")
def _copy(target: Any, source: Any, _non_blocking: bool = False) -> Any:
    """A write into a tensor; PyTorch's own translation forgets to broadcast what is written."""
    if source.dtype != target.dtype:
        source = emit("", "Cast", [source], {"to": int(target.dtype)}, 1)
    return emit("", "Expand", [source, numbers([int(size) for size in target.shape])], {}, 1)


@translates("view", "_unsafe_view")
def _view(x: Any, sizes: Any) -> Any:
    """Sizes of a traced step are known: one constant, where PyTorch's own translation puts them together.

    What is left to be worked out (-1) is so at some batches alone.
    """
    rest = prod(size for size in sizes if size != -1)
    known = [prod(x.shape) // rest if size == -1 and rest else size for size in sizes]
    return emit("", "Reshape", [x, numbers(known)], {"allowzero": 1}, 1)
