"""The older TorchScript exporter: the fallback where torch.export cannot trace the model.

It records the one path that the example inputs take, needs real weights, and knows no source lines: operators
get the line that constructed their module. The report says so.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, ExportError, LibraryError
from analyzer.loading.from_onnx import fed_inputs
from analyzer.loading.onnx_graph.construction import module_of_name
from analyzer.loading.python.example_inputs import ExampleInputs, tensor_names
from analyzer.loading.python.input_spec import tensors_in_containers
from analyzer.loading.python.model_weights import cuda_is_elsewhere, parameter_sizes, plain_transformers
from analyzer.loading.python.source_lines import built_at, source_line
from analyzer.loading.python.user_model import UserModel
from analyzer.loading.torch_export.export import Exported, origin_properties
from analyzer.loading.torch_export.tracing import nothing_on_standard_output, quiet_exporter
from analyzer.loading.torch_private import replaced, tree_flatten, tree_leaves, tree_unflatten
from analyzer.run_folder import run_folder

if TYPE_CHECKING:
    import onnx
    from torch import Tensor
    from torch.nn import Module

# The newest opset that the TorchScript exporter writes: ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET of
# torch/onnx/_constants.py.
NEWEST_OPSET = 20
_SMALL_BYTES = 1024
# What the exporter puts behind the path of a module that is called again: "encoder/lstm", then
# "encoder/lstm_1" (CreateUniqueName in torch/csrc/jit/passes/onnx/naming.cpp).
_AGAIN = re.compile(r"_\d+$")


def export_torchscript(user: UserModel, inputs: ExampleInputs, opset: int, first: AnalyzerError) -> Exported:
    """Export with fixed shapes through TorchScript; where that fails too, ``first`` is raised again."""
    import onnx
    import torch

    names = tensor_names(user, inputs)
    try:
        with (
            run_folder() as folder,
            quiet_exporter(),
            nothing_on_standard_output(),
            redirect_stdout(io.StringIO()),
            plain_transformers(),
            cuda_is_elsewhere("cpu"),
            _called_with_tensors(user.model, inputs) as tensors,
        ):
            path = folder / "model.onnx"
            torch.onnx.export(
                user.model,
                tensors,
                path,
                dynamo=False,
                opset_version=min(opset, NEWEST_OPSET),
                export_params=True,  # without them weights would be inputs like those of the model
                do_constant_folding=False,  # it makes constants of weights, under names that no state dict has
                input_names=names,
            )
            proto = onnx.load(path)
    except LibraryError:
        raise
    except Exception:  # the first exporter's words are the better ones
        raise first from None
    if not fed_inputs(proto):  # computed outside of PyTorch: the recorded graph is one constant
        raise first
    _attach_origins(proto, user)
    stored = set(user.model.state_dict())
    for initializer in proto.graph.initializer:
        # Small ones keep their data: a buffer can be a size or an axis, which inference of shapes needs.
        if initializer.name in stored and initializer.ByteSize() > _SMALL_BYTES:
            initializer.ClearField("raw_data")
            initializer.data_location = onnx.TensorProto.EXTERNAL
            initializer.external_data.add(key="location", value="weights")
    reason = first.message if isinstance(first, ExportError) else str(first)
    reason += "" if reason.endswith((".", "!", "?")) else "."
    parameters, parameter_bytes = parameter_sizes(user.model.parameters())
    return Exported(
        proto=proto,
        static_batch=inputs.batch,
        exporter="torchscript",
        notes=(
            f"Exported with TorchScript, because {reason} "
            "The graph holds only the path that the example inputs take.",
        ),
        parameters=parameters,
        parameter_bytes=parameter_bytes,
    )


@contextmanager
def _called_with_tensors(model: Module, inputs: ExampleInputs) -> Iterator[tuple[Any, ...]]:
    """Inside the block the model takes and returns tensors alone, no keywords, dicts or records."""
    import torch

    if isinstance(model, torch.jit.ScriptModule):
        schema: Any = getattr(model.forward, "schema")  # noqa: B009 - a compiled method, which typing takes for any
        order = [argument.name for argument in schema.arguments[1:]]
        named = sorted(inputs.keywords.items(), key=lambda pair: order.index(pair[0]))
        yield (*inputs.arguments, *(value for _, value in named))
        return
    leaves, spec = tree_flatten(inputs.tree)
    forward = model.forward

    def called(*tensors: Tensor) -> tuple[Tensor, ...]:
        remaining = iter(tensors)
        filled = [next(remaining) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        arguments, keywords = tree_unflatten(filled, spec)
        outputs = tree_leaves(tensors_in_containers(forward(*arguments, **keywords)))
        return tuple(leaf for leaf in outputs if isinstance(leaf, torch.Tensor))

    with replaced(model, "forward", called):
        yield tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def _attach_origins(proto: onnx.ModelProto, user: UserModel) -> None:
    """Write module, class and the line of the constructor beside each node: this exporter keeps no stack."""
    modules, built = dict(user.model.named_modules()), built_at(user.model)
    for node in proto.graph.node:
        path = module_of_name(node.name)
        # A module may be called ``lstm_1`` itself: a name as it stands goes before the one without the number.
        path = next((each for each in (path, _AGAIN.sub("", path)) if each in modules), "")
        kind = type(modules[path]).__name__ if path else user.name
        for key, value in origin_properties(path, kind, source_line("", path, built)).items():
            node.metadata_props.add(key=key, value=value)
