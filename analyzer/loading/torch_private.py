"""Loading: the one place that touches PyTorch's private names, a function for each use; it decides nothing.

What a training step asks of them, and with which operators, is decided in training/torch_interfaces.py.
Each function names the file of PyTorch that it relies on and says what happens where a name is missing: most
raise one LibraryError that tells which versions were tested, some do without. Nothing else in the package may
import from a module of torch whose path has an underscore in front, nor read such an attribute of torch: a test
walks the syntax trees and Ruff's private-name rule holds for every file but this.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.errors import LibraryError
from analyzer.graph import NO_ATTRIBUTES

if TYPE_CHECKING:
    import onnx_ir
    from torch import Tensor, fx
    from torch._ops import OpOverload as OpOverload  # what other modules annotate with
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode  # as above
    from torch.nn import Module
    from torch.onnx._internal.exporter._registration import ONNXRegistry as ONNXRegistry  # as above
    from torch.utils._pytree import TreeSpec as TreeSpec  # as above

    class Refused:
        """The result of a decomposition for a call that it leaves alone: NotImplemented, typed as Any."""

    REFUSED: Refused
else:
    REFUSED = NotImplemented

# pyproject.toml admits the first and all later ones.
_FIRST, _LAST = (2, 11), (2, 15)
TESTED = f"{_FIRST[0]}.{_FIRST[1]} to {_LAST[0]}.{_LAST[1]}"
PIP_LINE = 'pip install "onnx-analyzer[torch]"'

# A value nested in tuples, lists, dicts and users' own classes: whatever a model takes or gives. PyTorch has no
# narrower type (PyTree of torch/utils/_pytree.py is Any too), and users' classes are
# known only once the model runs.
Tree = Any
# Parameters differ by operator, no signature holds for all: py_kernels of torch/_ops.py has this type.
PythonKernel = Callable[..., Any]


def require_torch() -> None:
    """Import PyTorch, for a model that only it reads.

    Raises:
        LibraryError: It is not installed, is broken, or is older than the tested releases.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its C++ parts warn on standard error
    try:
        import torch
    except (ImportError, OSError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            message = "PyTorch, which this model needs, is not installed."
            raise LibraryError(message, hint=PIP_LINE) from error
        why = str(error).strip().partition("\n")[0]
        raise LibraryError(
            f"PyTorch does not import: {why}.", hint="pip install --force-reinstall torch"
        ) from error
    if _release(torch.__version__) < _FIRST:
        message = f"PyTorch {torch.__version__} is too old: {TESTED} are supported."
        raise LibraryError(message, hint=PIP_LINE)


def untested(version: str) -> str:
    """Return a note on a release of PyTorch that is newer than the tested ones, else nothing."""
    newer = _release(version) > _LAST
    return (
        f"PyTorch {version} is newer than {TESTED}, which were tested: an export may differ." if newer else ""
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


@contextmanager
def _looking_up() -> Iterator[None]:
    """Tell a name that is missing as one error; only look-ups stand inside, never calls of a user's code."""
    import torch

    try:
        yield
    except (ImportError, AttributeError, KeyError) as error:
        missing = str(error).partition(" (")[0]  # without the path of the file
        raise LibraryError(
            f"PyTorch {torch.__version__} lacks an interface that the analysis needs: {missing}.",
            hint=f"Install a PyTorch that was tested (torch {TESTED}), or analyse an .onnx file.",
        ) from error


# Trees of values: torch/utils/_pytree.py. There is no public module of this name; a missing one is an error.


def tree_flatten(tree: Tree) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of a tree, and how it is built (torch/utils/_pytree.py)."""
    with _looking_up():
        from torch.utils._pytree import tree_flatten as function
    return function(tree)


def tree_unflatten(leaves: Iterable[object], spec: TreeSpec) -> Tree:
    """Return the tree that is built as ``spec`` says (torch/utils/_pytree.py)."""
    with _looking_up():
        from torch.utils._pytree import tree_unflatten as function
    return function(leaves, spec)


def tree_leaves(tree: Tree) -> list[Any]:
    """Return the leaves of a tree, in the order in which torch.export takes them (torch/utils/_pytree.py)."""
    with _looking_up():
        from torch.utils._pytree import tree_leaves as function
    return function(tree)


def tree_map(function: Callable[[Any], object], tree: Tree) -> Tree:
    """Return the tree with a function applied to each leaf (torch/utils/_pytree.py)."""
    with _looking_up():
        from torch.utils._pytree import tree_map as apply
    return apply(function, tree)


def leaves_with_steps(tree: Tree) -> list[tuple[list[Any], Any]]:
    """Each leaf with the way to it: positions, keys and names of attributes (torch/utils/_pytree.py)."""
    with _looking_up():
        from torch.utils._pytree import tree_leaves_with_path as function
    # SequenceKey has ``idx``, MappingKey has ``key``, GetAttrKey has ``name``.
    return [
        ([getattr(key, "idx", getattr(key, "key", getattr(key, "name", ""))) for key in path], leaf)
        for path, leaf in function(tree)
    ]


def known_containers() -> frozenset[type]:
    """Return the classes that PyTorch looks into for tensors (SUPPORTED_NODES of torch/utils/_pytree.py)."""
    with _looking_up():
        from torch.utils._pytree import SUPPORTED_NODES
    return frozenset(SUPPORTED_NODES)


def register_container(
    kind: type,
    flatten: Callable[[Any], tuple[list[Any], Any]],
    unflatten: Callable[[Iterable[Any], Any], object],
    names: Callable[[Any], Sequence[str]],
) -> None:
    """Have PyTorch look into the objects of a class from now on (torch/utils/_pytree.py).

    Args:
        kind: The class.
        flatten: An object -> its parts and what else it holds.
        unflatten: Parts and the rest -> an object.
        names: What else it holds -> the names of its parts.
    """
    with _looking_up():
        from torch.utils._pytree import GetAttrKey, register_pytree_node

    def with_keys(value: object) -> tuple[list[tuple[Any, Any]], Any]:
        parts, rest = flatten(value)
        return [(GetAttrKey(name), part) for name, part in zip(names(rest), parts, strict=True)], rest

    register_pytree_node(kind, flatten, unflatten, flatten_with_keys_fn=with_keys)


def rebuilt(spec: TreeSpec, children: list[Any]) -> Tree:
    """Return the children in a container as ``spec`` has it, in a list where a user's class holds them.

    That is the form in which torch.export takes what it is told about inputs (torch/utils/_pytree.py).
    """
    with _looking_up():
        from torch.utils._pytree import BUILTIN_TYPES, SUPPORTED_NODES
    if spec.type not in BUILTIN_TYPES:
        return children
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


# What is put off while a model is built and traced. Where a name is missing nothing is put off: a model that
# does none of these things needs none of them, and one that does gets the tracer's own error.


@contextmanager
def scripting_disabled() -> Iterator[None]:
    """Inside the block ``torch.jit.script`` and ``trace`` give back what they get (torch/jit/_state.py)."""
    try:
        from torch.jit._state import _enabled as state
    except ImportError:
        yield
        return
    with replaced(state, "enabled", False):
        yield


def gradients_by(refuse: Callable[..., object]) -> AbstractContextManager[None]:
    """Inside the block ``refuse`` is called in place of autograd's engine (torch/autograd/__init__.py)."""
    import torch

    return replaced(torch.autograd, "_engine_run_backward", refuse)


def causal_masks_by_word(decide: Callable[..., bool]) -> AbstractContextManager[None]:
    """Inside the block ``decide`` says whether a mask is causal (torch/nn/modules/transformer.py looks)."""
    from torch.nn.modules import transformer

    return replaced(transformer, "_detect_is_causal_mask", decide)


@contextmanager
def recurrences_by_one_step() -> Iterator[None]:
    """Shapes of GRU, LSTM and RNN come from one step (torch/_decomp/decompositions.py runs each: 20 s for 300).

    Calls that are recorded or have values run all steps.
    """
    try:
        from torch._decomp import decompositions
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.fx.experimental.proxy_tensor import get_proxy_mode
    except ImportError:
        yield
        return

    def by_one_step(layer: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: Tensor, *arguments: object, **options: object) -> Any:
            has_values = not (x.is_meta or isinstance(x, FakeTensor))
            if has_values or get_proxy_mode() is not None or not x.shape[0]:
                return layer(x, *arguments, **options)
            step, state = layer(x[:1], *arguments, **options)
            return step.repeat(x.shape[0], *[1] * (step.dim() - 1)), state

        return run

    with ExitStack() as stack:
        for name in ("one_layer_rnn", "one_layer_lstm"):
            if layer := getattr(decompositions, name, None):
                stack.enter_context(replaced(decompositions, name, by_one_step(layer)))
        yield


@contextmanager
def silent_tracer() -> Iterator[None]:
    """Inside the block torch/export/_trace.py prints nothing: it shows the graph of a failed trace."""
    try:
        from torch.export import _trace
    except ImportError:
        yield
        return
    # A global of the module goes before the builtin: standard output itself stays free for our reports.
    vars(_trace)["print"] = lambda *_, **__: None
    try:
        yield
    finally:
        vars(_trace).pop("print", None)


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Inside the block an attribute is another; one that is not there is not made."""
    from unittest.mock import patch  # slow to import: asyncio comes with it

    with patch.object(owner, name, value) if hasattr(owner, name) else nullcontext():
        yield


# Modules.


def compiled_from(model: object) -> Module | None:
    """Return the module inside what ``torch.compile`` made, else None (torch/_dynamo/eval_frame.py)."""
    from torch.nn import Module

    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, Module) else None


def held_tensors(module: Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a module's own parameters and buffers, open to change (torch/nn/modules/module.py)."""
    with _looking_up():
        return module._parameters, module._buffers


def unchecked_distributions() -> AbstractContextManager[None]:
    """Inside the block no distribution looks at its arguments' values.

    The class has a public switch and no public way to ask how it stands (torch/distributions/distribution.py).
    """
    from torch.distributions import Distribution

    return replaced(Distribution, "_validate_args", False)


# Operators: torch/_ops.py.


def is_operator(target: object) -> bool:
    """Return whether a node calls an overload of an operator (OpOverload of torch/_ops.py)."""
    import torch

    return isinstance(target, type(torch.ops.aten.add.Tensor))


def operator(name: str, overload: str = "default") -> OpOverload:
    """Return an operator of ``aten`` whose name has an underscore in front: no promise says that it stays.

    They are declared in aten/src/ATen/native/native_functions.yaml.
    """
    import torch

    with _looking_up():
        target: OpOverload = getattr(getattr(torch.ops.aten, name), overload)
    return target


def operator_name(target: object) -> str:
    """``linalg_inv`` of an overload of that operator; empty for what is no operator (torch/_ops.py)."""
    return str(getattr(getattr(target, "overloadpacket", None), "__name__", ""))


def qualified_name(target: object) -> str:
    """``aten::add`` of an overload of that operator; empty for what is no operator (torch/_ops.py)."""
    name = operator_name(target)
    return f"{getattr(target, 'namespace', '')}::{name}" if name else ""


def overload_name(target: OpOverload) -> str:
    """``aten::add.Tensor``, or ``aten::relu`` of the default overload (torch/_ops.py)."""
    name: str = target.name()  # type: ignore[no-untyped-call]  # PyTorch's own gap
    return name


def number_of_results(target: OpOverload) -> int:
    """Return how many results an operator declares; a list counts once (torch/_ops.py)."""
    with _looking_up():
        return len(target._schema.returns)


def attention_products() -> Callable[..., tuple[Tensor, Tensor]]:
    """Return attention as products, with its weights (aten/src/ATen/native/transformers/attention.cpp)."""
    return operator("_scaled_dot_product_attention_math")


def gradient_kernels(functions: Mapping[OpOverload, PythonKernel]) -> AbstractContextManager[None]:
    """Inside the block operators are differentiated through other functions."""
    import torch

    with _looking_up():
        gradient, composite = torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd
        # Of a composite operator the composite kernel goes before gradients' (resolve_key of torch/_ops.py).
        keys = [composite if op.has_kernel_for_dispatch_key(composite) else gradient for op in functions]
    return _python_kernels([(op, key, functions[op]) for op, key in zip(functions, keys, strict=True)])


def whole_operators(names: Sequence[str], overloads: Sequence[str]) -> AbstractContextManager[None]:
    """Inside the block operators of ``aten`` are not taken apart by Python before they are differentiated.

    Their Python kernels were put there by torch/_decomp/decompositions.py.
    """
    import torch

    with _looking_up():
        keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
        operators = [operator(name, overload) for name in names for overload in overloads]
    # torch/_export/utils.py asks once for all operators that PyTorch takes apart, and remembers: not in here.
    torch.export.default_decompositions()
    return _python_kernels([(op, key, None) for op in operators for key in keys])


@contextmanager
def _python_kernels(changes: Sequence[tuple[OpOverload, Any, PythonKernel | None]]) -> Iterator[None]:
    """Inside the block operators have other kernels at dispatch keys, or none (py_kernels of torch/_ops.py)."""
    with _looking_up():
        before = [(op, key, op.py_kernels.get(key), op._dispatch_cache) for op, key, _ in changes]
    try:
        _put_kernels(changes)
        yield
    finally:
        _put_kernels([(op, key, kernel) for op, key, kernel, _ in before])


def _put_kernels(changes: Sequence[tuple[OpOverload, Any, PythonKernel | None]]) -> None:
    for op, key, kernel in changes:
        op.py_kernels.pop(key, None)
        if kernel is not None:
            op.py_kernels[key] = kernel
        op._dispatch_cache.clear()  # an operator that was called before answers from it


def example_size(size: object) -> int | None:
    """Return size in the example inputs that a symbolic size stands for (torch/fx/experimental/sym_node.py)."""
    hint = getattr(getattr(size, "node", None), "hint", None)
    return hint if isinstance(hint, int) else None


# One graph of forward and backward.


def fake_tensor_mode() -> FakeTensorMode:
    """Return a mode in which tensors have shapes and no data (torch/_subclasses/fake_tensor.py)."""
    with _looking_up():
        from torch._subclasses.fake_tensor import FakeTensorMode
    # Constants that a user's forward makes are real tensors: without leave the first of them is an error.
    return FakeTensorMode(allow_non_fake_inputs=True)


def dispatch_mode_class() -> Any:
    """Return the class of modes that see each operator before it runs (torch/utils/_python_dispatch.py)."""
    with _looking_up():
        from torch.utils._python_dispatch import TorchDispatchMode
    return TorchDispatchMode


def tensor_factories() -> frozenset[Callable[..., Any]]:
    """Return the functions that make a tensor on the default device (torch/utils/_device.py)."""
    with _looking_up():
        from torch.utils._device import _device_constructors
    return frozenset(_device_constructors())


def autowrap(tracer: fx.Tracer, *modules: ModuleType) -> None:
    """Have a tracer record its wrapped functions wherever they are called by way of ``torch`` or these modules.

    By itself it looks in the globals of what it traces alone; without the name it still does
    (torch/fx/_symbolic_trace.py).
    """
    import torch

    getattr(tracer, "_autowrap_search", []).extend((torch, *modules))


def joint_graph_module(
    module: Module, arguments: tuple[Any, ...], decompositions: Mapping[OpOverload, PythonKernel]
) -> fx.GraphModule:
    """Forward and backward of a module with a scalar result (torch/_functorch/aot_autograd.py)."""
    from torch import fx

    with _looking_up():
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    with ExitStack() as stack, fx.traceback.preserve_node_meta():
        joint = aot_export_joint_with_descriptors(stack, module, arguments, decompositions=dict(decompositions))
    return joint.graph_module


def core_decompositions() -> Mapping[Any, PythonKernel]:
    """PyTorch's decompositions for export, whole; to find them takes a seventh of a second."""
    with _looking_up():
        from torch._C import _dispatch_get_all_op_names
    # A user's code may register operators between two calls.
    return _core_decompositions(len(_dispatch_get_all_op_names()))


@cache
def _core_decompositions(_registered: int) -> Mapping[Any, PythonKernel]:
    from torch.export import default_decompositions

    # torch/export/decomp_utils.py fills its table when it is first read, which is what takes long.
    table: Any = default_decompositions()
    return dict(table.items())


def registered_decompositions(names: Iterable[str]) -> dict[OpOverload, PythonKernel]:
    """PyTorch's own decompositions of operators of ``aten``; those it lacks are left out.

    From the registry of torch/_decomp/__init__.py, which also knows those that torch.export's table does not.
    """
    import torch

    with _looking_up():
        from torch._decomp import get_decompositions
    packets = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
    decompositions: dict[Any, PythonKernel] = get_decompositions(packets)
    return decompositions


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """An input or output of a joint graph (torch/_functorch/_aot_autograd/descriptors.py).

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


def describe_input(descriptor: object) -> Slot:
    """Return what an input of a joint graph is (torch/_functorch/_aot_autograd/descriptors.py)."""
    with _looking_up():
        from torch._functorch._aot_autograd import descriptors as kinds

        state = (kinds.ParamAOTInput, kinds.BufferAOTInput)
        plain, tangent, result = kinds.PlainAOTInput, kinds.TangentAOTInput, kinds.PlainAOTOutput
    if isinstance(descriptor, state):
        return Slot(kind="state", name=descriptor.target)
    if isinstance(descriptor, plain):
        return Slot(kind="input", position=descriptor.idx)
    if isinstance(descriptor, tangent):
        return Slot(kind="tangent" if isinstance(descriptor.output, result) else "no tangent")
    return Slot(kind="unknown")


def describe_output(descriptor: object) -> Slot:
    """Return what an output of a joint graph is (torch/_functorch/_aot_autograd/descriptors.py)."""
    with _looking_up():
        from torch._functorch._aot_autograd import descriptors as kinds

        gradient, update = kinds.GradAOTOutput, kinds.InputMutationAOTOutput
    if isinstance(descriptor, gradient):
        return Slot(kind="gradient", name=describe_input(descriptor.grad_of).name)
    if isinstance(descriptor, update):
        return Slot(kind="update", name=describe_input(descriptor.mutated_input).name)
    return Slot(kind="none" if descriptor is None else "result")


# Translation of a graph of operators to ONNX: torch/onnx/_internal/exporter/.


def _all_translations(gather: Callable[..., ONNXRegistry], *opset: int) -> ONNXRegistry:
    """Every translation of PyTorch, to add to; to gather them takes a third of a second to a whole one."""
    registry = _gathered(gather, _has_quantized_operators(), *opset)
    # A copy, since adding writes into the registry's lists: the next graph is to begin with PyTorch's own.
    fresh = copy.copy(registry)
    fresh.functions = {target: list(known) for target, known in registry.functions.items()}
    return fresh


@cache
def _gathered(gather: Callable[..., ONNXRegistry], _quantized: bool, *opset: int) -> ONNXRegistry:
    return gather(*opset)


def _has_quantized_operators() -> bool:
    """Return whether ``torch.ao`` is loaded: only then PyTorch gathers translations of its operators."""
    import torch

    try:
        known: list[str] = torch._C._dispatch_get_all_op_names()
    except AttributeError:
        return False
    return any(name.startswith("quantized_decomposed::") for name in known)


def translation_registry() -> ONNXRegistry:
    """PyTorch's translations, to add others to (torch/onnx/_internal/exporter/_registration.py)."""
    with _looking_up():
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    return _all_translations(ONNXRegistry.from_torchlib)


@contextmanager
def translations_gathered_once() -> Iterator[None]:
    """Inside the block PyTorch's exporter starts from the translations that an export before has gathered.

    torch/onnx/_internal/exporter/_compat.py gathers them anew for each, which takes longer than a small model's
    whole export. Where the names are others, it goes on doing so.
    """
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        before = vars(ONNXRegistry)["from_torchlib"]
    except (ImportError, KeyError):
        yield
        return
    if isinstance(before, staticmethod):  # another thread exports too
        yield
        return
    gather = ONNXRegistry.from_torchlib

    def gathered(opset_version: int) -> ONNXRegistry:
        return _all_translations(gather, opset_version)

    with replaced(ONNXRegistry, "from_torchlib", staticmethod(gathered)):
        yield


def add_translation(registry: ONNXRegistry, target: OpOverload, function: PythonKernel) -> None:
    """Put a translation before PyTorch's own, but for those of complex numbers.

    The registry keeps a list by name, of which torch/onnx/_internal/exporter/_dispatching.py takes what fits.
    """
    with _looking_up():
        from torch.onnx._internal.exporter._registration import OnnxDecompMeta
    name = overload_name(target)
    of_complex = [known for known in registry.functions.get(name, ()) if known.is_complex]
    entry = OnnxDecompMeta(
        onnx_function=function,
        fx_target=target,
        signature=None,
        is_custom=True,
        skip_signature_inference=True,  # without a signature it is taken for every call of the operator
    )
    registry.functions[name] = [entry, *of_complex]


def translate_into(model: onnx_ir.Model, graph: fx.Graph, registry: ONNXRegistry) -> None:
    """Fill an empty model with the translation of a graph (torch/onnx/_internal/exporter/_core.py)."""
    with _looking_up():
        from torch.onnx._internal.exporter._core import _translate_fx_graph
        from torch.onnx._internal.exporter._ir_passes import add_opset_imports
    _translate_fx_graph(
        graph, model, graph_like=model.graph, owned_graphs={}, lower="at_conversion", registry=registry
    )
    add_opset_imports(model)


def emit(
    domain: str,
    op_type: str,
    inputs: Sequence[onnx_ir.Value | None],
    attributes: Mapping[str, Any] = NO_ATTRIBUTES,
) -> onnx_ir.Value:
    """Inside a translation: one node of any domain with one output."""
    return emit_several(domain, op_type, inputs, attributes, 1)[0]


def emit_several(
    domain: str,
    op_type: str,
    inputs: Sequence[onnx_ir.Value | None],
    attributes: Mapping[str, Any],
    outputs: int,
) -> Sequence[onnx_ir.Value]:
    """Return the same for a node with a number of outputs.

    The graph that is written is that of torch/onnx/_internal/exporter/_core.py.
    """
    import onnx_ir

    inputs = list(inputs)
    while inputs and inputs[-1] is None:  # optional inputs at the end are left out in ONNX, not empty
        inputs.pop()
    node = onnx_ir.Node(
        domain,
        op_type,
        inputs=inputs,
        attributes=onnx_ir.convenience.convert_attributes(dict(attributes)),
        num_outputs=outputs,
        version=1 if domain else None,  # of the default domain the graph's opset holds
    )
    with _looking_up():
        from torch.onnx._internal.exporter import _core

        tracer = _core.current_tracer
    assert tracer is not None  # a translation runs
    tracer.nodes.append(node)
    return node.outputs


def at_opset(model: onnx_ir.Model, opset: int) -> onnx_ir.Model:
    """Return the model at another opset, by the converter that PyTorch's exporter uses.

    torch/onnx/_internal/_lazy_import.py names the module of onnxscript that goes with this PyTorch.
    """
    with _looking_up():
        from torch.onnx._internal import _lazy_import

        apis: Any = vars(_lazy_import)["onnxscript_apis"]  # a module that is imported when it is asked
        convert: Callable[[onnx_ir.Model, int], onnx_ir.Model] = apis.convert_version
    return convert(model, opset)


def import_exporter() -> None:
    """Import what an export needs, for a process that others are forked from."""
    require_torch()
    import torch.export
    import torch.onnx

    # What an export imports of these on its way takes a second: a release that moves them costs that alone.
    with suppress(ImportError):
        import torch._functorch.partitioners
        import torch.onnx._internal.exporter._core  # noqa: F401
