"""The joint graph of forward and backward, and its translation to ONNX, by PyTorch's own parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, overload

from analyzer.loading.torch_private import (
    Slot,
    add_translation,
    at_opset,
    describe_input,
    describe_output,
    emit_node,
    is_operator,
    joint_graph_module,
    overload_name,
    registered_decompositions,
    translate_into,
    translation_registry,
    whole_operators,
)
from analyzer.loading.training.decompositions import own_decompositions
from analyzer.loading.training.selections import choosing
from analyzer.loading.training.special_functions import special_functions
from analyzer.loading.training.trace_rewrites import rewritten
from analyzer.loading.training.type_promotion import promote

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch
    from torch import fx
    from torch.nn import Module

    from analyzer.loading.torch_private import OpOverload, PythonKernel

    Inputs = Sequence[ir.Value | None]

# Resizing that PyTorch would take apart into dozens of gathers before it differentiates.
_WHOLE = (
    *(f"upsample_{kind}" for kind in ["linear1d", "bilinear2d", "trilinear3d", "bicubic2d"]),
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
            sdpa_kernel(SDPBackend.MATH),
            torch.backends.mkldnn.flags(enabled=False),
            whole_operators(_WHOLE, ("default", "vec")),
            rewritten(),
        ):
            yield


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

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]  # undone below
    try:
        yield called
    finally:
        torch.autograd.Function.apply = original  # type: ignore[method-assign]


def joint_graph(module: Module, arguments: tuple[Any, ...], own: Collection[str]) -> fx.GraphModule:
    """The fx graph of forward and backward of a module with a scalar result.

    ``own`` are operators by qualified name that we translate: they stay whole.
    """
    found = joint_graph_module(module, arguments, _decompositions(own))
    graph = found.graph
    for node in [node for node in graph.nodes if node.op == "placeholder" and "val" not in node.meta]:
        graph.erase_node(node)  # no tensor: targets that the loss does not take
    return found


def _decompositions(own: Collection[str]) -> Mapping[OpOverload, PythonKernel]:
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
    ours = {**own_decompositions(), **special_functions(), **choosing()}
    return {**_for_untranslatable(own), **registered_decompositions(names.split()), **ours}


def _for_untranslatable(own: Collection[str]) -> Mapping[OpOverload, PythonKernel]:
    """PyTorch's core decompositions of what neither it nor we can translate."""
    from torch.export import default_decompositions

    known = translation_registry()
    table: dict[Any, PythonKernel] = default_decompositions()
    return {
        target: function
        for target, function in table.items()
        if is_operator(target)
        and overload_name(target).partition(".")[0] not in own
        and not known.is_registered(target)
    }


def slots(graph: fx.Graph) -> tuple[list[Slot], list[Slot]]:
    """What the inputs and outputs of a joint graph are, in its order."""
    inputs = [describe_input(node.meta.get("desc")) for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    return inputs, [describe_output(found) for found in output.meta["desc"]]


def translate(graph_module: fx.GraphModule, own: Mapping[str, PythonKernel], opset: int) -> ir.Model:
    """An fx graph of aten operators -> an onnx_ir model with the graph's own inputs and outputs.

    Args:
        graph_module: Every node with its ``val``.
        own: Translations by qualified name (``aten::gelu_backward``) that go before PyTorch's own.
        opset: Opset of the result.
    """
    import onnx_ir

    _drop_checks(graph_module.graph)
    _constants(graph_module)
    promote(graph_module.graph)
    registry = translation_registry()
    for node in graph_module.graph.nodes:
        target = node.target
        if not is_operator(target):
            continue
        function = own.get(overload_name(target)) or own.get(overload_name(target).partition(".")[0])
        if function is None and not registry.is_registered(target):
            function = own["opaque"](target, node)
        if function is not None:
            add_translation(registry, target, function)
    model = onnx_ir.Model(
        onnx_ir.Graph([], [], nodes=[], name="training_step"), ir_version=10, producer_name="analyzer"
    )
    translate_into(model, graph_module.graph, registry)
    return model if opset == registry.opset_version else at_opset(model, opset)


def _constants(graph_module: fx.GraphModule) -> None:
    """Gives constants that the user's code made their values back, which the tracer hides."""
    from torch import Tensor

    for node in graph_module.graph.nodes:
        held = getattr(graph_module, node.target, None) if node.op == "get_attr" else None
        if isinstance(held, Tensor):
            node.meta["val"] = held


def _drop_checks(graph: fx.Graph) -> None:
    """Takes out what only asserts: it gives nothing and has no translation."""
    for node in list(graph.nodes):
        said = str(node.target)
        if node.op == "call_function" and not node.users and ("_assert" in said or "check_errors" in said):
            graph.erase_node(node)


@overload
def emit(  # type: ignore[overload-overlap]  # 1 is a number as well: a count that is not written out gives several
    domain: str, op_type: str, inputs: Inputs, attributes: Mapping[str, Any], outputs: Literal[1]
) -> ir.Value: ...


@overload
def emit(
    domain: str, op_type: str, inputs: Inputs, attributes: Mapping[str, Any], outputs: int
) -> Sequence[ir.Value]: ...


def emit(
    domain: str, op_type: str, inputs: Inputs, attributes: Mapping[str, Any], outputs: int
) -> ir.Value | Sequence[ir.Value]:
    """Inside a translation: one node of any domain; its output, or a sequence of its outputs."""
    import onnx_ir

    inputs = list(inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    node = onnx_ir.Node(
        domain,
        op_type,
        inputs=inputs,
        attributes=onnx_ir.convenience.convert_attributes(dict(attributes)),
        num_outputs=outputs,
        version=1 if domain else None,
    )
    emit_node(node)
    return node.outputs[0] if outputs == 1 else node.outputs
