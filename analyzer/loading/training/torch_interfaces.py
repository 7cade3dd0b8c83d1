"""PyTorch's private interfaces, all of them here: the joint graph of forward and backward, and its translation.

Written for PyTorch 2.13. What another version lacks is told as one error instead of an AttributeError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from analyzer.errors import ExportError
from analyzer.loading.training.decompositions import own_decompositions
from analyzer.loading.training.selections import choosing
from analyzer.loading.training.special_functions import special_functions
from analyzer.loading.training.trace_rewrites import rewritten
from analyzer.loading.training.type_promotion import promote


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What an input or output of the joint graph is.

    Attributes:
        kind: ``state`` (parameter or buffer), ``input`` (of the step), ``tangent`` (of the loss),
            ``no tangent`` (of what else the pass gives, which the loss does not see); for outputs ``result``,
            ``gradient``, ``update`` (a buffer's new value), ``none``.
        name: Dotted path of the parameter or buffer, else empty.
        position: Of an input of the step.
    """

    kind: str
    name: str = ""
    position: int = -1


@contextmanager
def _needed() -> Iterator[None]:
    import torch

    try:
        yield
    except (ImportError, AttributeError) as error:
        raise ExportError(
            f"PyTorch {torch.__version__} lacks an interface that --training needs: {error}",
            hint="Install PyTorch 2.13, or leave --training out to analyse inference.",
        ) from error


@contextmanager
def fake_tensors() -> Iterator[Any]:
    """A mode in which tensors have shapes and no data."""
    with _needed():
        from torch._subclasses.fake_tensor import FakeTensorMode
    yield FakeTensorMode(allow_non_fake_inputs=True)


# Resizing that PyTorch would take apart into dozens of gathers before it differentiates.
_WHOLE = (
    *(f"upsample_{kind}" for kind in ["linear1d", "bilinear2d", "trilinear3d", "bicubic2d"]),
    *(f"{kind}{axes}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3)),
)


@contextmanager
def _whole_resizing() -> Iterator[None]:
    """Resizing as one operator with one gradient."""
    import torch

    with _needed():
        keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
        found = [getattr(getattr(torch.ops.aten, name), kind) for name in _WHOLE for kind in ("default", "vec")]
        taken = [(op, key, op.py_kernels.pop(key)) for op in found for key in keys if key in op.py_kernels]
        for item in found:
            item._dispatch_cache.clear()
    try:
        yield
    finally:
        for item, key, kernel in taken:
            item.py_kernels[key] = kernel
        for item in found:
            item._dispatch_cache.clear()


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
            _whole_resizing(),
            rewritten(),
        ):
            yield


@contextmanager
def own_functions() -> Iterator[list[str]]:
    """Names of ``torch.autograd.Function`` classes outside PyTorch that are called inside the block."""
    import torch

    called: list[str] = []
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if not cls.__module__.startswith("torch.") and cls.__name__ not in called:
            called.append(cls.__name__)
        return original.__func__(cls, *arguments, **keywords)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]  # undone below
    try:
        yield called
    finally:
        torch.autograd.Function.apply = original  # type: ignore[method-assign]


def joint_graph(module: Any, arguments: tuple[Any, ...], own: Collection[str]) -> Any:
    """The fx graph of forward and backward of a module with a scalar result.

    ``own`` are operators by qualified name that we translate: they stay whole.
    """
    from torch import fx

    with _needed():
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with ExitStack() as stack, fx.traceback.preserve_node_meta():
        joint = aot_export_joint_with_descriptors(stack, module, arguments, decompositions=_decompositions(own))
    graph = joint.graph_module.graph
    for node in [node for node in graph.nodes if node.op == "placeholder" and "val" not in node.meta]:
        graph.erase_node(node)  # no tensor: targets that the loss does not take
    return joint.graph_module


def _decompositions(own: Collection[str]) -> dict[Any, Any]:
    """Operators to take apart: their translation is wrong or missing, and their parts are few."""
    import torch

    with _needed():
        from torch._decomp import get_decompositions

    aten = torch.ops.aten
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
    packets = [getattr(aten, name) for name in names.split() if hasattr(aten, name)]
    ours = {**own_decompositions(), **special_functions(), **choosing()}
    return {**_for_untranslatable(own), **get_decompositions(packets), **ours}


def _for_untranslatable(own: Collection[str]) -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's core decompositions of what neither it nor we can translate."""
    import torch

    with _needed():
        from torch._decomp import core_aten_decompositions
        from torch.onnx._internal.exporter import _registration

    known = _registry(_registration)
    found: Any = core_aten_decompositions()
    return {
        target: function
        for target, function in found.items()
        if isinstance(target, torch._ops.OpOverload)
        and _qualified(target).partition(".")[0] not in own
        and not known.is_registered(target)
    }


def slots(graph: Any) -> tuple[list[Slot], list[Slot]]:
    """What the inputs and outputs of a joint graph are, in its order."""
    with _needed():
        from torch._functorch._aot_autograd.descriptors import (
            BufferAOTInput,
            GradAOTOutput,
            InputMutationAOTOutput,
            ParamAOTInput,
            PlainAOTInput,
            PlainAOTOutput,
            TangentAOTInput,
        )

    def source(found: Any) -> Slot:
        if isinstance(found, (ParamAOTInput, BufferAOTInput)):
            return Slot(kind="state", name=found.target)
        if isinstance(found, PlainAOTInput):
            return Slot(kind="input", position=found.idx)
        if isinstance(found, TangentAOTInput):
            return Slot(kind="tangent" if isinstance(found.output, PlainAOTOutput) else "no tangent")
        return Slot(kind="unknown")

    def target(found: Any) -> Slot:
        if isinstance(found, GradAOTOutput):
            return Slot(kind="gradient", name=source(found.grad_of).name)
        if isinstance(found, InputMutationAOTOutput):
            return Slot(kind="update", name=source(found.mutated_input).name)
        return Slot(kind="none" if found is None else "result")

    inputs = [source(node.meta.get("desc")) for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    return inputs, [target(found) for found in output.meta["desc"]]


def translate(graph_module: Any, own: Mapping[str, Callable[..., Any]], opset: int) -> Any:
    """An fx graph of aten operators -> an onnx_ir model with the graph's own inputs and outputs.

    Args:
        graph_module: Every node with its ``val``.
        own: Translations by qualified name (``aten::gelu_backward``) that go before PyTorch's own.
        opset: Opset of the result.
    """
    import torch

    with _needed():
        from torch.onnx._internal.exporter import _ir_passes, _registration
        from torch.onnx._internal.exporter._core import _translate_fx_graph

    import onnx_ir

    _drop_checks(graph_module.graph)
    _constants(graph_module)
    promote(graph_module.graph)
    registry = _registry(_registration)
    for node in graph_module.graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            continue
        function = own.get(_qualified(target)) or own.get(_qualified(target).partition(".")[0])
        if function is None and not registry.is_registered(target):
            function = own["opaque"](target, node)
        if function is not None:
            name = _qualified(target)
            of_complex = [known for known in registry.functions.get(name, ()) if known.is_complex]
            registry.functions[name] = [_meta(_registration, target, function), *of_complex]
    model = onnx_ir.Model(
        onnx_ir.Graph([], [], nodes=[], name="training_step"), ir_version=10, producer_name="analyzer"
    )
    _translate_fx_graph(
        graph_module.graph,
        model,
        graph_like=model.graph,
        owned_graphs={},
        lower="at_conversion",
        registry=registry,
    )
    _ir_passes.add_opset_imports(model)
    if opset != registry.opset_version:
        with _needed():
            from torch.onnx._internal import _lazy_import

            apis: Any = _lazy_import
        model = apis.onnxscript_apis.convert_version(model, opset)
    return model


def _constants(graph_module: Any) -> None:
    """Gives constants that the user's code made their values back, which the tracer hides."""
    from torch import Tensor

    for node in graph_module.graph.nodes:
        held = getattr(graph_module, node.target, None) if node.op == "get_attr" else None
        if isinstance(held, Tensor):
            node.meta["val"] = held


def _drop_checks(graph: Any) -> None:
    """Takes out what only asserts: it gives nothing and has no translation."""
    for node in list(graph.nodes):
        said = str(node.target)
        if node.op == "call_function" and not node.users and ("_assert" in said or "check_errors" in said):
            graph.erase_node(node)


def _qualified(target: Any) -> str:
    """``aten::relu`` or ``aten::add.Tensor``."""
    return str(target.name())


def emit(domain: str, op_type: str, inputs: list[Any], attributes: Mapping[str, Any], outputs: int) -> Any:
    """Inside a translation: one node of any domain; its output, or a sequence of its outputs."""
    import onnx_ir

    with _needed():
        from torch.onnx._internal.exporter import _core

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
    assert _core.current_tracer is not None  # a translation runs
    _core.current_tracer.nodes.append(node)
    return node.outputs[0] if outputs == 1 else node.outputs


_REGISTRY: list[Any] = []


def _registry(registration: Any) -> Any:
    """PyTorch's own translations; gathering them takes a third of a second, so they are kept."""
    import copy

    if not _REGISTRY:
        _REGISTRY.append(registration.ONNXRegistry.from_torchlib())
    fresh = copy.copy(_REGISTRY[0])
    fresh.functions = dict(_REGISTRY[0].functions)
    return fresh


def _meta(registration: Any, target: Any, function: Callable[..., Any]) -> Any:
    return registration.OnnxDecompMeta(
        onnx_function=function,
        fx_target=target,
        signature=None,
        is_custom=True,
        skip_signature_inference=True,
    )
