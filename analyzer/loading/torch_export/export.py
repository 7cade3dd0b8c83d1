"""A user's PyTorch model -> a weight-free ONNX graph with a symbolic batch, each operator with its origin.

``torch.onnx.export`` (torch.export) does the translation without its optimiser, which would rename BatchNorm
into Conv; a light pass of our own then folds the shape arithmetic that the translation leaves behind. The
TorchScript exporter is the fallback and is named in the report: it records the one path that the example inputs
take, needs real weights, and knows no source lines, so that operators get the line that built their module.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, ExportError, LibraryError
from analyzer.loading.from_onnx import fed_inputs
from analyzer.loading.loaded import ExportFacts
from analyzer.loading.onnx_graph.construction import CLASSES, SCOPES, module_of_name
from analyzer.loading.onnx_graph.normalize import name_nodes
from analyzer.loading.python.example_inputs import ExampleInputs, tensor_names
from analyzer.loading.python.input_spec import tensors_in_containers
from analyzer.loading.python.model_weights import (
    cuda_is_elsewhere,
    fake_like,
    parameter_sizes,
    plain_transformers,
    without_data,
)
from analyzer.loading.python.source_lines import built_at, shown_path, source_line, statement
from analyzer.loading.python.user_model import UserModel
from analyzer.loading.torch_export.failures import (
    OPAQUE_DOMAIN,
    check_types,
    explain_failure,
    without_untranslatable,
)
from analyzer.loading.torch_export.tracing import (
    decomposed,
    has_autocast,
    nothing_on_standard_output,
    quiet_exporter,
    trace,
    translations,
    without_whole_slices,
)
from analyzer.loading.torch_private import (
    fake_tensor_mode,
    recurrences_by_one_step,
    replaced,
    translations_gathered_once,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)
from analyzer.run_folder import run_folder

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from onnxscript.optimizer._constant_folding import Replacement
    from torch.export import ExportedProgram

    from analyzer.loading.torch_private import PythonKernel

    Constants = Mapping[ir.Value, ir.TensorProtocol]
    from torch import Tensor
    from torch.nn import Module


BATCH_SYMBOL = "batch"
# Initializers up to this many elements keep their values: shapes, axes, scalars, small tables. Inference reads
# them; what is larger is a weight, whose values decide nothing that is counted.
SMALL_ELEMENTS = 64
# Nodes with larger results stay operators instead of being evaluated at export. Measured on a training step of
# GPT-2 with onnxscript 0.7.2: 8.5 s and 3.6 GB without a limit (zeros as large as the logits), 0.5 s and
# 0.4 GB with it.
_FOLD_ELEMENTS = 4096

# What the exporter writes at each node beside its scopes: torch/onnx/_internal/exporter/_core.py.
_TRACE = "pkg.torch.onnx.stack_trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported(ExportFacts):
    """A graph without weights.

    Attributes:
        proto: The model; initializers over 64 elements have no data, the batch is the dimension ``batch``.
        needs_values: Names of large constants that are no parameter or buffer of the model.
        needs_real: Whether the export is right only for a model that is not on the meta device.
    """

    proto: onnx.ModelProto
    exporter: str = "torch.export"
    needs_values: tuple[str, ...] = ()
    needs_real: bool = False


def export_model(user: UserModel, inputs: ExampleInputs, opset: int, *, strict: bool = False) -> Exported:
    """Export through torch.export, with the batch symbolic where the model's code lets it.

    ``strict`` is that of ``trace``.

    Raises:
        InputError: The model cannot be called with these inputs.
        ExportError: torch.export or the translation fails; the message names operator and line.
    """
    with quiet_exporter():
        try:
            program = _traced(user, inputs, strict=strict)
        except Exception as error:
            raise explain_failure(user, inputs, error) from error
        check_types(user, program, inputs)
        return translate(user, program, inputs, opset)


def _traced(user: UserModel, inputs: ExampleInputs, *, strict: bool) -> ExportedProgram:
    """Trace the model; without values in a way that gives tensors which ``forward`` writes out theirs."""
    symbolic, on_meta = bool(inputs.batch_axes), None
    if user.weights != "small":
        on_meta = trace(user.model, inputs, symbolic=symbolic, strict=strict)
        if not any(map(_is_hollow, _literals(on_meta))):
            return on_meta
    # Beside fake tensors on the CPU, unlike those on the meta device, a literal (`x[:, [-1]]`) has values.
    mode = fake_tensor_mode()
    arguments, keywords = tree_map(lambda leaf: fake_like(leaf, mode), inputs.tree)
    fakes = replace(inputs, arguments=arguments, keywords=keywords)
    # Fake tensors would go to a GPU that is not there.
    with without_data(user.model, mode, only_meta=True), cuda_is_elsewhere("cpu"):
        program = trace(user.model, fakes, symbolic=symbolic, strict=strict, elsewhere=True)
    # PyTorch 2.13 crashes where it translates a constant that is a fake tensor.
    if not any(map(_is_hollow, _literals(program))):
        return program
    if on_meta is None:
        raise ExportError(f"{user.name} holds tensors that are neither parameters nor buffers.")
    return on_meta


def _literals(program: ExportedProgram) -> list[object]:
    """Return the constants of a program that are no buffers of the module."""
    return [program.constants.get(name) for name in program.graph_signature.lifted_tensor_constants]


def translate(user: UserModel, program: ExportedProgram, inputs: ExampleInputs, opset: int) -> Exported:
    """Return an exported program -> a weight-free ModelProto with origins."""
    notes: list[str] = []
    model = to_onnx_ir(program, opset, notes)
    static = _name_axes(model, inputs) if inputs.axis_names else _name_batch(model, inputs)
    held_back = lighten(model)
    attach_origins(model, built_at(user.model))
    stored = set(dict(user.model.named_parameters(remove_duplicate=False)))
    stored |= set(dict(user.model.named_buffers(remove_duplicate=False)))
    finished = finish(model, held_back, stored, keep=lambda name: name not in stored)
    parameters, parameter_bytes = parameter_sizes(user.model.parameters())
    return replace(
        finished,
        static_batch=inputs.batch if static else None,
        needs_real=has_autocast(program),
        batch_range=batch_bounds(program),
        notes=tuple(notes),
        parameters=parameters,
        parameter_bytes=parameter_bytes,
    )


def finish(model: ir.Model, held_back: Constants, stored: set[str], keep: Callable[[str], bool]) -> Exported:
    """Return the last steps for an onnx_ir model: weights out, symbolic inner shapes out, unique names."""
    import onnx_ir

    needs_values = strip_weights(model, held_back, keep=keep, stored=stored)
    _drop_symbolic_shapes(model)
    proto = onnx_ir.to_proto(model)
    name_nodes(proto.graph)  # placement, costs and measured times are told by names
    return Exported(proto=proto, needs_values=needs_values)


def to_onnx_ir(program: ExportedProgram, opset: int, notes: list[str]) -> ir.Model:
    """Translate to onnx_ir; operators without a translation become opaque ones, with a note."""
    import torch

    program = without_whole_slices(decomposed(program))

    def attempt(opaque: Mapping[Any, PythonKernel]) -> ir.Model:
        # Without no_grad, complex tensors that a gradient flows through cannot be translated.
        with torch.no_grad(), recurrences_by_one_step(), translations_gathered_once():
            exported = torch.onnx.export(
                program,
                (),
                dynamo=True,
                opset_version=opset,
                # Its optimiser joins BatchNorm into Conv under the norm's name, and reads weights, which a
                # model on the meta device does not have.
                optimize=False,
                verbose=False,
                custom_translation_table={**translations(program), **opaque},
            )
        assert exported is not None  # always so with dynamo=True
        return exported.model

    return without_untranslatable(program, attempt, notes)


def _name_batch(model: ir.Model, inputs: ExampleInputs) -> bool:
    """Name the batch's symbol on the graph's inputs; True where some batch axis came out fixed or derived."""
    axes = [
        (shape, axis, leaf.shape[axis])
        for position, leaf, shape in _tensors(model, inputs)
        for axis in inputs.batch_axes.get(position, ())
    ]
    symbols = [getattr(shape[axis], "value", None) for shape, axis, _ in axes]
    fixed = not axes or not all(isinstance(symbol, str) and symbol.isidentifier() for symbol in symbols)
    for shape, axis, size in axes:
        # A fixed size can come as a symbol too: one that is called "4", or "4*s1".
        shape[axis] = int(size) if fixed else BATCH_SYMBOL
    return fixed


def _tensors(model: ir.Model, inputs: ExampleInputs) -> Iterator[tuple[int, Any, ir.Shape]]:
    """Yield the input tensors: their position, the tensor, and its shape in the graph where it has one."""
    leaves = enumerate(inputs.leaves)
    tensors = ((position, leaf) for position, leaf in leaves if hasattr(leaf, "shape"))
    for (position, leaf), value in zip(tensors, model.graph.inputs, strict=False):
        if value.shape is not None:
            yield position, leaf, value.shape


def _name_axes(model: ir.Model, inputs: ExampleInputs) -> bool:
    """Name axes that follow several sizes; never fixed to one."""
    for position, leaf, shape in _tensors(model, inputs):
        for axis, name in inputs.axis_names.get(position, {}).items():
            # A fixed size can come as a symbol too: one that is called "4".
            if not re.search("[A-Za-z]", str(getattr(shape[axis], "value", shape[axis]))):
                raise ExportError(
                    f"The model's code fixes {name} to {leaf.shape[axis]}: steps of other sizes "
                    "cannot be inferred from it.",
                    hint="Compute with x.shape where the size is meant, and branch on no size.",
                )
            shape[axis] = name
    return False


def batch_bounds(program: ExportedProgram) -> tuple[int, int | None]:
    """Bounds that the tracer found for its symbols; it never tries sizes 0 and 1, so 2 stands for no bound."""
    low, high = 1, None
    for symbol, bounds in program.range_constraints.items():
        # Unbacked: a size or a value that the data decide; "z" stands before those of floating point.
        if str(symbol).startswith(("u", "z")):
            continue
        lower, upper = int(bounds.lower), bounds.upper
        # torch/fx/experimental/symbolic_shapes.py specialises 0 and 1 before it makes a symbol.
        low = max(low, 1 if lower <= 2 else lower)
        try:
            limit = int(upper)
        except (TypeError, ValueError, OverflowError, AttributeError):
            continue  # no bound: int_oo of torch/utils/_sympy/numbers.py is no int
        if limit < 2**31:
            high = limit if high is None else min(high, limit)
    return low, high


def lighten(model: ir.Model) -> Constants:
    """Inlines functions and folds shape arithmetic, without touching what computes on data.

    Returns:
        The data of large constants, which the model no longer holds: ``finish`` wants them.
    """
    import onnx_ir.passes.common as common
    from onnx_ir.passes import PassManager, Sequential

    held_back = {}
    for value in model.graph.initializers.values():
        constant = value.const_value
        # Of large ones the data go: the folder must neither read nor copy a weight. On the meta device even one
        # element has no value, and asking for it raises.
        if constant is not None and (constant.size > SMALL_ELEMENTS or _on_meta(constant)):
            held_back[value] = constant
            value.const_value = None
    origins = {
        output.name: dict(node.metadata_props)
        for node in model.graph
        for output in node.outputs
        if output.name and SCOPES in node.metadata_props
    }

    # Functions first: torchlib's bodies hold the shape arithmetic that is to be folded. Twice, since what one
    # round makes constant lets the next infer a shape. Common subexpressions last: equal constants are lifted.
    Sequential(
        common.InlinePass(),
        PassManager(
            [_folding(), common.RemoveUnusedNodesPass(), common.RemoveUnusedFunctionsPass()],  # type: ignore[no-untyped-call]  # onnx_ir's own gap
            steps=2,
            early_stop=True,
        ),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.CommonSubexpressionEliminationPass(),
    )(model)
    _drop_made_up_biases(model)
    _drop_still_transposes(model)
    _restore_origins(model, origins)
    return held_back


def _folding() -> ir.passes.PassBase:
    """Return the folding of constants by onnxscript/optimizer/_constant_folding.py, which its optimiser uses.

    The public function folds nothing where one node fails; as a class each node can fail by itself.
    """
    try:
        from onnxscript.optimizer._constant_folding import FoldConstantsPass
    except ImportError as error:
        raise LibraryError(
            f"onnxscript lacks an interface that the export needs: {error}.",
            hint="Install an onnxscript that was tested (0.5.6 to 0.7), or analyse an .onnx file.",
        ) from error

    class Folding(FoldConstantsPass):
        def process_node(self, node: ir.Node, is_function: bool) -> Replacement | None:
            try:
                return super().process_node(node, is_function)
            except RuntimeError:  # what it trips over stays as it is
                return None

    return Folding(
        shape_inference=True,
        input_size_limit=1024,
        output_size_limit=_FOLD_ELEMENTS,
        should_fold=_small_results_only,
    )


def _restore_origins(model: ir.Model, origins: Mapping[str, Mapping[str, str]]) -> None:
    """Give nodes that the folder made (Split in place of a sequence) the metadata of what they stand for.

    Their outputs are named after the original output: ``split_split_0`` comes from ``split``.
    """
    for node in model.graph:
        if SCOPES in node.metadata_props:
            continue
        for name in (output.name or "" for output in node.outputs):
            while name and name not in origins:
                name = name.rpartition("_")[0]
            if name:
                node.metadata_props.update(origins[name])
                break


def _drop_made_up_biases(model: ir.Model) -> None:
    """Take out the zeros that the translation gives a convolution for the bias it does not have.

    onnxscript/function_libs/torch_lib/ops/core.py expands a zero there (``aten_conv1d`` and its like).
    """
    for node in model.graph.all_nodes():
        if node.op_type not in ("Conv", "ConvTranspose") or len(node.inputs) < 3 or node.inputs[2] is None:
            continue
        bias = node.inputs[2]
        if bias.const_value is not None and not bias.const_value.numpy().any():
            node.resize_inputs(2)
            if not bias.uses() and bias.name in model.graph.initializers:
                del model.graph.initializers[bias.name or ""]


def _on_meta(constant: ir.TensorProtocol) -> bool:
    return _is_hollow(getattr(constant, "raw", None))


def _is_hollow(tensor: object) -> bool:
    # By name: FakeTensor and its like are private classes of PyTorch, of several modules.
    return bool(getattr(tensor, "is_meta", False)) or "Fake" in type(tensor).__name__


def _small_results_only(node: ir.Node) -> bool | None:
    for output in node.outputs:
        shape = output.shape
        known = [size for size in shape or () if isinstance(size, int)]
        if shape is not None and len(known) == len(shape) and prod(known) > _FOLD_ELEMENTS:
            return False
    return None  # the pass decides by its own limits


def attach_origins(model: ir.Model, built: Mapping[str, tuple[str, int]]) -> None:
    """Replace the exporter's metadata by module path, class, file, line and code."""
    for node in model.graph.all_nodes():
        properties = node.metadata_props
        scopes = listed(properties.get(SCOPES, "[]"))
        classes = listed(properties.get(CLASSES, "[]"))
        # The last scope and class are the traced node's own name and target, those before it modules.
        module = next((scope for scope in reversed(scopes[:-1]) if scope), "")
        kind = classes[-2].rsplit(".", 1)[-1] if len(classes) > 1 else ""
        line = source_line(properties.get(_TRACE, ""), module, built)
        properties.clear()
        properties.update(origin_properties(module, kind, line))


def origin_properties(module: str, kind: str, line: tuple[str, int] | None) -> dict[str, str]:
    """Return the metadata that ``loading/onnx_graph/construction.py`` reads."""
    properties = {"analyzer.module": module, "analyzer.class": kind}
    if line is not None:
        file, number = line
        properties |= {
            "analyzer.file": shown_path(file),
            "analyzer.line": str(number),
            "analyzer.code": statement(file, number),
        }
    return {key: value for key, value in properties.items() if value}


def listed(text: str) -> list[str]:
    """Return list that a text writes out as Python does, that the exporter's metadata is; else an empty one."""
    try:
        return list(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return []


def strip_weights(
    model: ir.Model, held_back: Constants, keep: Callable[[str], bool], stored: set[str]
) -> tuple[str, ...]:
    """Give large initializers a shape without data; returns the constants that are not among ``stored``."""
    import onnx_ir

    missing = []
    for name, value in model.graph.initializers.items():
        constant = held_back.get(value)
        if constant is None:
            if value.const_value is not None:
                continue
        elif keep(name) and not _on_meta(constant):
            value.const_value = constant
            continue
        if name not in stored:
            missing.append(name)
        assert value.shape is not None  # an initializer
        value.const_value = onnx_ir.ExternalTensor(
            "weights", 0, 0, value.dtype or onnx_ir.DataType.FLOAT, shape=value.shape, name=name
        )
    return tuple(missing)


def _drop_symbolic_shapes(model: ir.Model) -> None:
    """Forgets inner shapes with symbols in them; they are inferred again once the batch is bound.

    Nothing can infer what an opaque operator gives: there a plain batch stays, under its own name.
    """
    import onnx_ir

    for node in model.graph.all_nodes():
        for value in node.outputs:
            shape = value.shape
            if shape is None or all(isinstance(size, int) for size in shape):
                continue
            symbols = {str(size.value) for size in shape if not isinstance(size, int)}
            if node.domain == OPAQUE_DOMAIN and len(symbols) == 1 and symbols.pop().isidentifier():
                value.shape = onnx_ir.Shape(
                    [BATCH_SYMBOL if not isinstance(size, int) else size for size in shape]
                )
            else:
                value.shape = None


def _drop_still_transposes(model: ir.Model) -> None:
    """Take out transposes that leave each axis where it is, as the exporter's optimiser does.

    The translation of ``index_put`` puts one before and one behind, whatever the axis
    (onnxscript/function_libs/torch_lib/ops/core.py), and sessions run them: copies.
    """
    import onnx_ir

    outputs = model.graph.outputs
    for node in list(model.graph):
        order = node.attributes.get("perm") if node.op_type == "Transpose" else None
        source, result = (node.inputs[0], node.outputs[0]) if order is not None else (None, None)
        if order is None or source is None or result is None:
            continue
        axes = list(order.as_ints())
        if axes != list(range(len(axes))):
            continue
        if result in outputs:
            if source.producer() is None or source in outputs:
                continue  # an input that is returned as it is needs a node
            source.name = result.name
            outputs[outputs.index(result)] = source
        source.shape = source.shape or result.shape
        onnx_ir.convenience.replace_all_uses_with(result, source)
        model.graph.remove(node, safe=True)


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
