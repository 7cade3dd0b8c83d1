"""Nodes that fall back to the CPU although there is a CUDA kernel: attributes that the kernel cannot do.

Mirrors ``CUDAExecutionProvider::GetCapability`` and its ``...NeedFallbackToCPU`` functions in
``onnxruntime/core/providers/cuda/cuda_execution_provider.cc``, which stand at each rule. The source that was at
hand is older than 1.31.1 (it has neither the rule of ArgMax nor Relu for RNN); ``tests/judge`` asks the
release's own provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from analyzer.graph import DEFAULT_DOMAIN, Node
from analyzer.ort.execution import Provider

# Activations of cuDNN's recurrent kernels, in ONNX's order, for one direction: ``activations_supported``.
_DEFAULT_ACTIVATIONS: Mapping[str, Sequence[str]] = {
    "RNN": ("tanh",),
    "GRU": ("sigmoid", "tanh"),
    "LSTM": ("sigmoid", "tanh", "tanh"),
}


def unsupported(node: Node) -> str:
    """Says in one sentence why the CUDA provider does not take this node; empty where it does."""
    rule = _RULES.get(node.op_type) if node.domain == DEFAULT_DOMAIN else None
    return rule(node) if rule is not None else ""


def failing(node: Node, provider: Provider) -> str:
    """Says why ONNX Runtime takes this node but cannot create its kernel, and so no session; else empty."""
    if node.domain != DEFAULT_DOMAIN:
        return ""
    # ORT_ENFORCE in the constructors: core/providers/cpu/rnn/deep_cpu_gru.h and cuda/rnn/cudnn_rnn_base.h. What
    # a constructor refuses comes after placement: it ends the session and is no fallback.
    if node.op_type in _DEFAULT_ACTIVATIONS and node.attributes.get("layout", 0):
        return f"no kernel of {node.op_type} takes layout=1 ({node.name})"
    # onnxruntime/core/providers/cuda/nn/batch_norm.h; the CPU kernel does take it.
    training = node.op_type == "BatchNormalization" and node.attributes.get("training_mode", 0)
    if training and provider == "cuda":
        return f"the CUDA kernel of BatchNormalization does not take training_mode=1 ({node.name})"
    return ""


def _recurrent(node: Node) -> str:
    # RNNNeedFallbackToCPU; names are compared in lower case.
    defaults = tuple(_DEFAULT_ACTIVATIONS[node.op_type])
    activations = tuple(str(name).lower() for name in node.attributes.get("activations", ()))
    if node.op_type == "RNN" and not set(activations) <= {"tanh", "relu"}:
        return "the CUDA kernel of RNN takes tanh or relu alone"
    # Twice the defaults where the operator goes both ways.
    if node.op_type != "RNN" and activations != defaults * (len(activations) // len(defaults)):
        return f"the CUDA kernel of {node.op_type} takes the default activations alone"
    for name in ("activation_alpha", "activation_beta", "clip"):
        if node.attributes.get(name):
            return f"the CUDA kernel of {node.op_type} does not take {name}"
    # cuDNN applies the reset gate after the product alone, which is not ONNX's default.
    if node.op_type == "GRU" and not node.attributes.get("linear_before_reset", 0):
        return "the CUDA kernel of GRU needs linear_before_reset=1"
    if node.op_type == "LSTM" and node.attributes.get("input_forget", 0):
        return "the CUDA kernel of LSTM does not take input_forget=1"
    if node.op_type == "LSTM" and node.input(7) is not None:
        return "the CUDA kernel of LSTM does not take peepholes"
    return ""


def _conv_transpose(node: Node) -> str:
    # ConvTransposeNeedFallbackToCPU: cuDNN pads both ends alike.
    pads = node.attributes.get("pads", ())
    half = len(pads) // 2
    if tuple(pads[:half]) != tuple(pads[half:]):
        return "the CUDA kernel of ConvTranspose needs the same padding on both sides"
    # SAME may come out alike on both sides; the provider does not wait to see.
    if str(node.attributes.get("auto_pad", "NOTSET")) not in ("NOTSET", "", "VALID"):
        return "the CUDA kernel of ConvTranspose does not take auto_pad SAME"
    return ""


def _last_index(node: Node) -> str:
    if node.attributes.get("select_last_index", 0):
        return f"the CUDA kernel of {node.op_type} does not take select_last_index=1"
    return ""


def _cast(node: Node) -> str:
    # CastNeedFallbackToCPU
    target = node.output(0)
    source = node.input(0)
    if any(tensor is not None and tensor.dtype.name == "string" for tensor in (source, target)):
        return "the CUDA kernel of Cast does not take strings"
    return ""


_RULES: dict[str, Callable[[Node], str]] = {
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "ConvTranspose": _conv_transpose,
    "ArgMax": _last_index,
    "ArgMin": _last_index,
    "Cast": _cast,
}
