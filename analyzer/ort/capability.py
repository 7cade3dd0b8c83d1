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
    """Report in one sentence why the CUDA provider does not take this node; empty where it does."""
    rule = _RULES.get(node.op_type) if node.domain == DEFAULT_DOMAIN else None
    return rule(node) if rule is not None else ""


def failing(node: Node, provider: Provider) -> str:
    """Says why ONNX Runtime takes this node but cannot create its kernel, and so no session; else empty.

    What a constructor refuses (``ORT_ENFORCE``) comes after placement: it ends the session and is no fallback.
    """
    if node.domain == DEFAULT_DOMAIN:
        # onnxruntime/core/providers/cuda/nn/batch_norm.h; the CPU kernel does take it.
        training = node.op_type == "BatchNormalization" and node.attributes.get("training_mode", 0)
        if training and provider == "cuda":
            return f"the CUDA kernel of BatchNormalization does not take training_mode=1 ({node.name})"
    refused = next(filter(None, (_unknown_name(node), _refused_values(node))), "")
    return f"no kernel of {node.op_type} takes {refused} ({node.name})" if refused else ""


_AUTO_PADS = {"auto_pad": ("", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")}
_RECURRENT_NAMES = {
    "direction": ("forward", "reverse", "bidirectional"),
    # Compared in lower case, the others as they are (core/providers/cpu/rnn/rnn_helpers.cc).
    "activations": (
        *("affine", "relu", "leakyrelu", "thresholdedrelu", "tanh", "scaledtanh", "sigmoid", "hardsigmoid"),
        *("elu", "softsign", "softplus"),
    ),
}
# By operator and attribute, the names that the kernels' constructors know: core/providers/common.h
# (StringToAutoPadType), cpu/tensor/upsamplebase.h, padbase.h, grid_sample.h, space_depth_ops.h and
# cpu/object_detection.
_NAMES: Mapping[str, Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), _AUTO_PADS),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _AUTO_PADS),
    **dict.fromkeys(_DEFAULT_ACTIVATIONS, _RECURRENT_NAMES),
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Upsample": {"mode": ("nearest", "linear", "cubic")},
    "Resize": {
        "mode": ("nearest", "linear", "cubic"),
        "coordinate_transformation_mode": (
            *("half_pixel", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn", "align_corners"),
            *("tf_crop_and_resize", "half_pixel_symmetric"),
        ),
        "nearest_mode": ("", "simple", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    },
    "GridSample": {"mode": ("linear", "nearest", "cubic"), "padding_mode": ("zeros", "border", "reflection")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "RoiAlign": {"mode": ("avg", "max")},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
}
# GridSample until opset 20.
_OLDER_MODES = ("bilinear", "nearest", "bicubic")


def _unknown_name(node: Node) -> str:
    """Return the attribute of a node that has a name which its kernels do not know."""
    if node.domain != DEFAULT_DOMAIN:
        return ""
    for attribute, known in _NAMES.get(node.op_type, {}).items():
        value = node.attributes.get(attribute, ())
        if node.op_type == "GridSample" and attribute == "mode" and node.version < 20:
            known = _OLDER_MODES
        names = [value] if isinstance(value, str) else [str(name).lower() for name in value]
        for name in names:
            if name not in known:
                return f"{attribute}={name}"
    return ""


def _refused_values(node: Node) -> str:
    """Return the values of attributes or constants that a node's kernels refuse when they are made."""
    attributes = node.attributes
    if node.identity == ("com.microsoft", "MatMulNBits"):  # contrib_ops/cpu/quantization/matmul_nbits.cc
        if attributes.get("block_size") not in (16, 32, 64, 128, 256):
            return f"block_size={attributes.get('block_size')}"
        return "" if attributes.get("bits", 4) in (2, 4, 8) else f"bits={attributes['bits']}"
    if node.domain != DEFAULT_DOMAIN:
        return ""
    if node.op_type in _DEFAULT_ACTIVATIONS:
        # core/providers/cpu/rnn/deep_cpu_gru.h, lstm_base.h, cuda/rnn/cudnn_rnn_base.h
        both = 1 + (attributes.get("direction") == "bidirectional")
        given, wanted = len(attributes.get("activations", ())), both * len(_DEFAULT_ACTIVATIONS[node.op_type])
        if attributes.get("layout", 0):
            return "layout=1"
        # core/providers/cpu/rnn/rnn.h drops a second one, which an RNN of one direction has no use for.
        taken = (0, wanted, 2 if node.op_type == "RNN" else wanted)
        return f"{given} activations in place of {wanted}" if given not in taken else ""
    if node.op_type in ("MaxPool", "AveragePool", "LpPool"):  # core/providers/cpu/nn/pool_attributes.h
        kernel, pads = attributes.get("kernel_shape", ()), attributes.get("pads", ())
        if any(pad >= size for pad, size in zip(pads, (*kernel, *kernel), strict=False)):
            return f"pads={list(pads)} with a kernel of {list(kernel)}"
    elif node.op_type == "LRN" and attributes.get("size", 1) % 2 == 0:  # core/providers/cpu/nn/lrn.h
        return f"size={attributes['size']}, which is even"
    elif node.op_type in ("Resize", "Upsample"):
        return _refused_scales(node)
    elif node.op_type in ("Div", "Mod"):  # element_wise_ops.h and .cc there; on a GPU the result is undefined
        divisor = node.input(1)
        if divisor and divisor.constant and divisor.value is not None and not divisor.dtype.is_float:
            return "a constant 0 as divisor" if (divisor.value == 0).any() else ""
    return ""


def _refused_scales(node: Node) -> str:
    # ScalesValidation of core/providers/cpu/tensor/upsamplebase.h; computed scales are looked at in a run.
    given = node.input(2 if node.op_type == "Resize" and node.version > 10 else 1)
    mode = node.attributes.get("mode", "nearest")
    if given is None or given.value is None or not given.value.size or not given.constant:
        return ""
    scales = [float(scale) for scale in given.value.ravel()]
    axes, data = node.attributes.get("axes", ()), node.input(0)
    if axes and data is not None and data.shape is not None and len(axes) == len(scales):
        at = dict(zip((axis % len(data.shape) for axis in axes), scales, strict=True))
        scales = [at.get(axis, 1.0) for axis in range(len(data.shape))]
    if min(scales) <= 0:
        return f"scales of {scales}"
    rank, outer, last = len(scales), scales[:2] == [1, 1], (scales[0], scales[-1]) == (1, 1)
    takes = {
        "linear": rank in (2, 3) or (rank == 4 and (outer or last)) or (rank == 5 and outer),
        "cubic": rank == 2
        or (rank == 4 and (outer or (last and (min(scales) >= 1 or node.attributes.get("antialias", 0))))),
    }
    return "" if takes.get(mode, True) else f"mode={mode} with scales of {scales}"


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
    if any(tensor and tensor.dtype.name == "string" for tensor in (node.input(0), node.output(0))):
        return "the CUDA kernel of Cast does not take strings"
    return ""


_RULES: dict[str, Callable[[Node], str]] = {
    **dict.fromkeys(_DEFAULT_ACTIVATIONS, _recurrent),
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("ArgMax", "ArgMin"), _last_index),
    "Cast": _cast,
}
