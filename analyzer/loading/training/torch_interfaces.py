"""What a training step asks of PyTorch: what stays whole, what is taken apart, and its translation.

The calls of private names stand in loading/torch_private.py, which decides nothing; here is what they are
called with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from analyzer.loading.torch_private import (
    Slot,
    add_translation,
    at_opset,
    core_decompositions,
    describe_input,
    describe_output,
    gradient_kernels,
    is_operator,
    joint_graph_module,
    operator,
    operator_name,
    overload_name,
    registered_decompositions,
    translate_into,
    translation_registry,
    unchecked_distributions,
    whole_operators,
)
from analyzer.loading.training.decompositions import after_differentiation, before_differentiation

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch
    from torch import Tensor, fx
    from torch.autograd.function import FunctionCtx
    from torch.nn import Module

    from analyzer.loading.torch_private import OpOverload, PythonKernel, Tree

# Resizing that PyTorch would take apart into dozens of gathers before it differentiates: these have Python
# kernels for Autograd in torch/_decomp/decompositions.py.
_WHOLE = (
    *(f"upsample_{kind}" for kind in ["linear1d", "bilinear2d", "trilinear3d"]),
    *(f"{kind}{axes}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3)),
)


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Attention, recurrent layers and resizing as operators that have gradients and translations."""
    import warnings

    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            # Other kernels of attention have gradients that nothing translates; MATH is made of products.
            sdpa_kernel(SDPBackend.MATH),
            # On a CPU recurrent layers would be one mkldnn_rnn_layer, whose gradient has no translation either.
            torch.backends.mkldnn.flags(enabled=False),
            whole_operators(_WHOLE, ("default", "vec")),
            gradient_kernels(before_differentiation()),
            unchecked_distributions(),
            patch.object(torch.nn.functional, "ctc_loss", _ctc_loss),
        ):
            yield


@cache
def _ctc_operator() -> PythonKernel:
    """Return an operator with a gradient, for losses of speech and of text in images.

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


@contextmanager
def own_functions() -> Iterator[list[str]]:
    """Names of ``torch.autograd.Function`` classes outside PyTorch that are called inside the block."""
    import torch

    called: list[str] = []
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type[torch.autograd.Function], /, *arguments: object, **keywords: object) -> object:
        if not cls.__module__.startswith("torch.") and cls.__name__ not in called:
            called.append(cls.__name__)
        return original.__func__(cls, *arguments, **keywords)

    with patch.object(torch.autograd.Function, "apply", classmethod(apply)):
        yield called


def joint_graph(module: Module, arguments: tuple[Tree, ...], translated: Collection[str]) -> fx.GraphModule:
    """The fx graph of forward and backward of a module with a scalar result.

    ``translated`` are operators by qualified name that we translate: they stay whole.
    """
    joint = joint_graph_module(module, arguments, _decompositions(translated))
    graph = joint.graph
    for node in [node for node in graph.nodes if node.op == "placeholder" and "val" not in node.meta]:
        graph.erase_node(node)  # no tensor: targets that the loss does not take
    return joint


def _decompositions(translated: Collection[str]) -> Mapping[OpOverload, PythonKernel]:
    """Operators to take apart: their translation is wrong or missing, and their parts are few."""
    names = (
        "mse_loss_backward "
        "smooth_l1_loss_backward huber_loss_backward l1_loss hardswish_backward "
        "hardsigmoid_backward leaky_relu_backward elu_backward softplus_backward logit_backward "
        "binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits "
        "native_group_norm native_group_norm_backward select_scatter "
        "slice_scatter diagonal_backward unfold_backward _prelu_kernel_backward rrelu_with_noise_backward "
        "log_sigmoid_backward glu_backward _safe_softmax native_dropout_backward mish_backward "
        "_fused_rms_norm _fused_rms_norm_backward im2col col2im masked_fill_ addcdiv addcmul "
        "linalg_vector_norm logsumexp var_mean std_mean rsub index_add index_copy new_zeros new_ones new_full "
        "new_empty zeros_like ones_like full_like"
    )
    # The last wins: ours mend what PyTorch's have wrong or refuse.
    own = after_differentiation()
    return {**_for_untranslatable(translated), **registered_decompositions(names.split()), **own}


def _for_untranslatable(translated: Collection[str]) -> Mapping[OpOverload, PythonKernel]:
    """PyTorch's core decompositions of what neither it nor we can translate."""
    registry = translation_registry()
    return {
        target: function
        for target, function in core_decompositions().items()
        if is_operator(target)
        and overload_name(target).partition(".")[0] not in translated
        and not registry.is_registered(target)
    }


def slots(graph: fx.Graph) -> tuple[list[Slot], list[Slot]]:
    """What the inputs and outputs of a joint graph are, in its order."""
    inputs = [describe_input(node.meta.get("desc")) for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    return inputs, [describe_output(descriptor) for descriptor in output.meta["desc"]]


def translate(graph_module: fx.GraphModule, translations: Mapping[str, PythonKernel], opset: int) -> ir.Model:
    """An fx graph of aten operators -> an onnx_ir model with the graph's own inputs and outputs.

    Args:
        graph_module: Every node with its ``val``.
        translations: By qualified name (``aten::gelu_backward``) that go before PyTorch's own.
        opset: Opset of the result.
    """
    import onnx_ir

    _drop_checks(graph_module.graph)
    _constants(graph_module)
    promote(graph_module.graph)  # reads values, so after constants have theirs
    registry = translation_registry()
    for node in graph_module.graph.nodes:
        target = node.target
        if not is_operator(target):
            continue
        # An overload of its own name goes before the operator's.
        function = translations.get(overload_name(target)) or translations.get(
            overload_name(target).partition(".")[0]
        )
        if function is None and not registry.is_registered(target):
            function = translations["opaque"](target, node)
        if function is not None:
            add_translation(registry, target, function)
    model = onnx_ir.Model(
        onnx_ir.Graph([], [], nodes=[], name="training_step"), ir_version=10, producer_name="analyzer"
    )
    translate_into(model, graph_module.graph, registry)
    # torchlib is written at one opset (18); others are made by conversion.
    return model if opset == registry.opset_version else at_opset(model, opset)


def _constants(graph_module: fx.GraphModule) -> None:
    """Gives constants that the user's code made their values back, which the tracer hides."""
    from torch import Tensor

    for node in graph_module.graph.nodes:
        tensor = getattr(graph_module, node.target, None) if node.op == "get_attr" else None
        if isinstance(tensor, Tensor):
            node.meta["val"] = tensor


def _drop_checks(graph: fx.Graph) -> None:
    """Takes out what only asserts: it gives nothing and has no translation."""
    for node in list(graph.nodes):
        name = str(node.target)
        if node.op == "call_function" and not node.users and ("_assert" in name or "check_errors" in name):
            graph.erase_node(node)


# Operators whose operands ONNX wants of one type (its type constraint T). What PyTorch gives is known from the
# trace, so its rules (torch/_prims_common/__init__.py, elementwise_dtypes) need not be repeated here.
_ARITHMETIC = (
    "add sub mul div pow remainder fmod maximum minimum where atan2 lerp addcmul addcdiv rsub hypot xlogy "
    "sum prod cumsum mean"
)
_COMPARISONS = "eq ne lt le gt ge"


def promote(graph: fx.Graph) -> None:
    """Cast the operands of element-wise operators and reductions to the type that PyTorch computes in."""
    import torch

    comparisons = frozenset(_COMPARISONS.split())
    promoted = comparisons | frozenset(_ARITHMETIC.split())
    for node in list(graph.nodes):
        name = operator_name(node.target)
        if node.op != "call_function" or name not in promoted:
            continue
        operands = {
            position: value for position, item in enumerate(node.args) if (value := _tensor(item)) is not None
        }
        # A power or quotient of whole numbers is real already; numbers change no comparison of tensors.
        dtype = getattr(node.meta.get("val"), "dtype", None)
        if name in comparisons:
            dtype = torch.result_type(*operands.values()) if len(operands) == 2 else None
        for position, value in operands.items():
            # The condition of Where is of truth values, whatever it chooses between.
            if dtype is None or value.dtype == dtype or (name == "where" and position == 0):
                continue
            with graph.inserting_before(node):
                cast = graph.call_function(operator("_to_copy"), (node.args[position],), {"dtype": dtype})
            cast.meta = {**node.meta, "val": value.to(dtype)}
            node.update_arg(position, cast)


def _tensor(argument: object) -> Tensor | None:
    value = getattr(argument, "meta", {}).get("val")
    return value if hasattr(value, "dtype") and hasattr(value, "shape") else None
