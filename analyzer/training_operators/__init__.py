"""Compact operators of a training step, and what each means in ONNX's own operators.

A backward or an optimizer step is one operator in the graph, so that it can be read, counted and shown as one;
no runtime has kernels for it. What runs, and what is placed and timed, is its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analyzer.graph import Node
from analyzer.training_operators import gradients, optimizer_steps
from analyzer.training_operators.definition import DOMAIN, OPSET, Definition
from analyzer.training_operators.optimizer_steps import (
    IMPLEMENTATION,
    Implementation,
    Pass,
    implementation_of,
    is_update,
    passes_of,
)

__all__ = [
    "DOMAIN", "IMPLEMENTATION", "OPSET", "Definition", "Implementation", "Pass",
    "definition", "implementation_of", "is_defined", "is_update", "passes_of",
]  # fmt: skip

_DEFINITIONS: Mapping[str, Callable[[Definition, Node], None]] = {
    "BatchNorm": gradients.batch_norm,
    "NllLoss": gradients.nll_loss,
    "ConvGrad": gradients.conv_grad,
    "BatchNormGrad": gradients.batch_norm_grad,
    "FrozenBatchNormGrad": gradients.frozen_batch_norm_grad,
    "LayerNormGrad": gradients.layer_norm_grad,
    "SoftmaxGrad": gradients.softmax_grad,
    "LogSoftmaxGrad": gradients.log_softmax_grad,
    "ReluGrad": gradients.relu_grad,
    "SigmoidGrad": gradients.sigmoid_grad,
    "TanhGrad": gradients.tanh_grad,
    "SiluGrad": gradients.silu_grad,
    "GeluGrad": gradients.gelu_grad,
    "MaxPoolGrad": gradients.max_pool_grad,
    "EmbeddingGrad": gradients.embedding_grad,
    "NllLossGrad": gradients.nll_loss_grad,
    "HardtanhGrad": gradients.hardtanh_grad,
    "SliceGrad": gradients.slice_grad,
    "Sgd": optimizer_steps.sgd,
    "Adam": optimizer_steps.adam,
    "AdamW": optimizer_steps.adam,
    "Rmsprop": optimizer_steps.rmsprop,
    "Adagrad": optimizer_steps.adagrad,
    "Adamax": optimizer_steps.adamax,
    "Adadelta": optimizer_steps.adadelta,
    "AveragePoolGrad": gradients.average_pool_grad,
    "ResizeGrad": gradients.through_matrices,
}


def is_defined(node: Node) -> bool:
    """Return whether a node is a compact operator with a definition."""
    return node.domain == DOMAIN and node.op_type in _DEFINITIONS


def definition(node: Node, opset: int = OPSET) -> Definition | None:
    """Return the meaning of a compact operator; None for any other."""
    if not is_defined(node):
        return None
    body = Definition(node=node, opset=opset)
    _DEFINITIONS[node.op_type](body, node)
    return body
