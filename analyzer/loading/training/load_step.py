"""MODEL -> one training step as an exported graph: without weights where the user's code lets it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from analyzer.errors import AnalyzerError, ExportError, MeasurementError
from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, names_read
from analyzer.loading.loaded import Step
from analyzer.loading.onnx_graph.construction import PREFIX
from analyzer.loading.onnx_graph.evaluation import node_proto
from analyzer.loading.python.example_inputs import ExampleInputs
from analyzer.loading.python.model_weights import parameter_sizes
from analyzer.loading.python.source_lines import first_line
from analyzer.loading.python.user_model import UserModel, set_training
from analyzer.loading.torch_export.export import Exported
from analyzer.loading.torch_private import tree_leaves, tree_map
from analyzer.loading.training.joint_graph import trace_step, with_loss
from analyzer.loading.training.recipe import Recipe, find_recipe
from analyzer.loading.training.step_model import to_step
from analyzer.record.analysis import UNROLLED
from analyzer.text import listed
from analyzer.training_operators import DOMAIN, OPSET, definition, is_defined
from analyzer.units import byte_count

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray
    from torch import Tensor
    from torch.nn import Module

    Array = NDArray[np.generic]  # floats of either precision; losses and gradients


def step_of_user(user: UserModel, inputs: ExampleInputs, opset: int, *, modules: bool = True) -> Exported:
    """Return the step of a built model; without ``modules`` sooner, for its figures at another batch."""
    joint = trace_step(user, inputs, modules=modules)
    notes: list[str] = []
    try:
        proto, missing = to_step(user, joint, opset, notes)
    except AnalyzerError:
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ExportError(
            f"The training step of {user.name} cannot be translated to ONNX: {first_line(cause)[:300]}",
            hint="Try another --opset, compute with real tensors where the model has complex ones, or leave "
            "--training out.",
        ) from error
    if joint.random:
        notes.append("The step draws random numbers (dropout): its numbers cannot be compared with PyTorch's.")
    if unrolled := _unrolled(user, proto):
        notes.append(f"The recurrences of {listed(unrolled)} are {UNROLLED}, each step by itself.")
    parameters, parameter_bytes = parameter_sizes(user.model.parameters())
    return Exported(
        proto=proto,
        static_batch=inputs.batch,
        notes=(*joint.notes, *notes),
        needs_values=missing,
        parameters=parameters,
        parameter_bytes=parameter_bytes,
    )


# Of a recurrent layer: Tanh and Sigmoid are its gates, Relu that of nn.RNN.
_GATES = ("Relu", "Sigmoid", "Tanh")
# One step of an LSTM takes five of them, two for the cell's state and three for its gates.
_GATES_OF_A_STEP = 5


def _unrolled(user: UserModel, proto: onnx.ModelProto) -> list[str]:
    """Return the recurrent layers of PyTorch whose steps the graph holds one by one, by path."""
    from torch import nn

    gates: Counter[str] = Counter(
        entry.value
        for node in proto.graph.node
        if node.op_type in _GATES
        for entry in node.metadata_props
        if entry.key == f"{PREFIX}module"
    )
    layers = [path for path, layer in user.model.named_modules() if isinstance(layer, nn.RNNBase)]
    return [path for path in layers if gates[path] > _GATES_OF_A_STEP]


# Of the largest gradient: what is smaller is compared with this. A bias before batch norm has no gradient but
# rounding, and the quotient of two roundings says nothing.
_NEGLIGIBLE = 1e-3


def runnable_proto(proto: onnx.ModelProto, graph: Graph, step: Step) -> onnx.ModelProto:
    """Return a copy in which every compact operator is its definition, and the gradients are results as well.

    An optimizer that nobody defines is left out.

    Raises:
        MeasurementError: An operator has neither a kernel nor a definition.
    """
    import onnx
    from onnx import helper

    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    by_name = {node.name: node for node in graph.nodes}
    opset = graph.opsets.get(DEFAULT_DOMAIN, OPSET)
    nodes: list[onnx.NodeProto] = []
    left_out: set[str] = set()
    for written in proto.graph.node:
        node = by_name.get(written.name)
        if written.domain != DOMAIN:
            nodes.append(written)
        elif node is not None and node.phase == "optimizer" and not is_defined(node):
            left_out.update(written.output)
        elif node is not None:  # one that is gone from the graph is used by nothing
            nodes += _expanded(node, opset, copied.graph)
    del copied.graph.node[:]
    copied.graph.node.extend(nodes)
    del copied.graph.value_info[:]  # they describe values of compact operators, some of which are gone
    for value in [value for value in copied.graph.output if value.name in left_out]:
        copied.graph.output.remove(value)
    outputs = {value.name for value in copied.graph.output}
    for name in step.gradients.values():
        if name not in outputs:
            copied.graph.output.append(
                helper.make_empty_tensor_value_info(name)
            )  # ONNX Runtime infers the type
    return copied


def _expanded(node: Node, opset: int, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    from onnx import numpy_helper

    parts = definition(node, opset)
    if parts is None:
        raise MeasurementError(
            f"{node.op_type} has no definition in ONNX's operators: the step can be counted and not run."
        )
    for literal in parts.literals:
        assert literal.value is not None
        graph.initializer.append(numpy_helper.from_array(literal.value, literal.name))
    return [proto for part in parts.nodes if (proto := node_proto(part)) is not None]


def feeds_of(user: UserModel, inputs: ExampleInputs, step: Step, graph: Graph) -> dict[str, Tensor]:
    """Tensors for every input of the step: weights as they are, states zero, inputs and targets as examples.

    Raises:
        MeasurementError: The step takes something that the model does not have.
    """
    import torch

    state: dict[str, Tensor] = dict(user.model.named_parameters(remove_duplicate=False))
    state |= dict(user.model.named_buffers(remove_duplicate=False))
    tensors = [leaf for leaf in inputs.leaves if hasattr(leaf, "shape")]
    tensors += [leaf for leaf in tree_leaves(_recipe(user, inputs).targets) if hasattr(leaf, "shape")]
    by_input = dict(zip(step.fed, tensors, strict=False))
    states = set(step.states)
    feeds: dict[str, Tensor] = {}
    for tensor in graph.inputs:
        if tensor.name in states:
            feeds[tensor.name] = torch.zeros([size or 0 for size in tensor.shape or ()])
        elif tensor.name in state:
            feeds[tensor.name] = state[tensor.name]
        elif tensor.name in by_input:
            feeds[tensor.name] = by_input[tensor.name]
        else:
            raise MeasurementError(f"Nothing gives a value for the step's input {tensor.name}.")
    return feeds


def _recipe(user: UserModel, inputs: ExampleInputs) -> Recipe:
    """Return the loss and targets for real tensors; the outputs are those of a call without gradients."""
    import torch

    with torch.no_grad():
        model = _copied(user.model)  # a call in training mode changes running statistics
        set_training(model, training=True)
        outputs = model(*inputs.arguments, **inputs.keywords)
    return find_recipe(user, inputs, outputs)


def _copied(model: Module) -> Module:
    """Return a copy with its own parameters and buffers; tensors that a hook computes anew stay behind."""
    import torch

    # copy.deepcopy refuses tensors with a history: weight norm in its older form leaves such at each call.
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                setattr(module, name, value.detach())
    return copy.deepcopy(model)


def eager_gradients(
    user: UserModel, inputs: ExampleInputs, step: Step, graph: Graph
) -> Callable[[], Mapping[str, Array]] | None:
    """Loss and gradients by PyTorch in float64, by the names of the step's tensors; None with dropout.

    The function that is returned raises a MeasurementError where memory would not do.
    """
    if step.random:
        return None

    def run() -> Mapping[str, Array]:
        _foresee_double(graph)
        # Targets first, from the model as it is: those that the run was given, then in double like all else.
        recipe = _recipe(user, inputs)
        model = _copied(user.model).double()
        set_training(model, training=True)
        call = tree_map(_double, (inputs.arguments, dict(inputs.keywords), recipe.targets))
        loss = with_loss(model, recipe)(*call)
        loss.backward()
        reference = {"loss": loss.detach().numpy()}
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and name in step.gradients:
                reference[step.gradients[name]] = parameter.grad.numpy()
        return reference

    return run


def _foresee_double(graph: Graph) -> None:
    """Refuse a reference in float64 that would not fit: weights, gradients, what the backward pass reads."""
    import psutil

    read = {name for node in graph.nodes if node.phase == "backward" for name in names_read(node)}
    forward = (tensor for node in graph.nodes if node.phase == "forward" for tensor in node.present_outputs)
    activations = sum(tensor.nbytes or 0 for tensor in forward if tensor.name in read)
    inputs = sum(tensor.nbytes or 0 for tensor in graph.inputs)
    # Twice, since eight bytes take the place of four; inputs twice more,
    # for each weight has a gradient as large.
    needed, available = 2 * (activations + 2 * inputs), psutil.virtual_memory().available
    if needed > available:
        raise MeasurementError(
            f"it would need about {byte_count(needed)} of memory, {byte_count(available)} are free"
        )


def _double(leaf: object) -> object:
    import torch

    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def relative_errors(
    expected: Mapping[str, Array], actual: Mapping[str, Array]
) -> list[tuple[str, float, float]]:
    """By tensor: the largest difference, and the same over the largest magnitude of the reference.

    A gradient that is zero but for rounding (of a bias before batch norm) has no magnitude to compare with: it
    is taken as at least a thousandth of the largest gradient of all.
    """
    import numpy as np

    sizes = {name: _largest(value) for name, value in expected.items() if name in actual}
    least = _NEGLIGIBLE * max((size for name, size in sizes.items() if name != "loss"), default=0.0)
    rows = []
    for name, size in sizes.items():
        difference = _largest(np.asarray(expected[name], np.float64) - np.asarray(actual[name], np.float64))
        scale = size if name == "loss" else max(size, least)
        rows.append((name, difference, difference / scale if scale else difference))
    return rows


def _largest(array: Array) -> float:
    import numpy as np

    return float(np.max(np.abs(np.asarray(array, np.float64)), initial=0.0))
