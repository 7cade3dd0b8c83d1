"""MODEL -> one training step as an exported graph: without weights where the user's code lets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analyzer.errors import AnalyzerError
from analyzer.loading.model_reference import Reference
from analyzer.loading.onnx_graph.construction import PREFIX
from analyzer.loading.python.example_inputs import ExampleInputs, resolve_inputs
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.model_weights import WEIGHTLESS, parameter_sizes
from analyzer.loading.python.user_model import UserModel, load_user_model
from analyzer.loading.torch_export.export import Exported
from analyzer.loading.training.gradient_failures import untranslated
from analyzer.loading.training.joint_graph import trace_step
from analyzer.loading.training.step_model import to_step
from analyzer.progress import StageProgress
from analyzer.record.analysis import UNROLLED
from analyzer.text import listed

if TYPE_CHECKING:
    import onnx


def export_step(
    reference: Reference,
    batch: int | None,
    specs: Sequence[InputSpec],
    opset: int,
    progress: StageProgress,
    memory_bytes: int,
) -> tuple[UserModel, ExampleInputs, Exported]:
    """Builds the model on the meta device, else with its weights, and exports its step.

    Raises:
        AnalyzerError: A child of it, by what the user must do.
    """
    # Without weights first: a model of any size is traced in little memory, and most are built so.
    for weights in (*WEIGHTLESS, "real"):
        try:
            user = load_user_model(
                reference, weights=weights, specs=specs, memory_bytes=memory_bytes, training=True
            )
            inputs = resolve_inputs(user, specs, batch)
            progress("tracing the training step")
            exported = step_of_user(user, inputs, opset)
        except Exception:
            # What fails on real tensors is the user's to mend; a failure without values may be ours alone.
            if weights == "real":
                raise
        else:
            # A large constant that the model does not store has its values only where it was made with them.
            if exported.needs_values and weights != "real":
                continue
            return user, inputs, exported
    raise AssertionError("the last attempt returns or raises")


def step_of_user(user: UserModel, inputs: ExampleInputs, opset: int, *, modules: bool = True) -> Exported:
    """The step of a model that is built; without ``modules`` sooner, for its figures at another batch.

    Raises:
        AnalyzerError: As ``trace_step``; ExportError where an operator cannot be translated.
    """
    joint = trace_step(user, inputs, modules=modules)
    notes: list[str] = []
    try:
        proto, missing = to_step(user, joint, opset, notes)
    except AnalyzerError:
        raise
    except Exception as error:
        raise untranslated(user, joint.module.graph, error) from error
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
    """The recurrent layers of PyTorch whose steps the graph holds one by one, by path."""
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
