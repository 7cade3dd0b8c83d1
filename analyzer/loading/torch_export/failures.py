"""Messages of failed exports, and their remedies.

Operators that PyTorch cannot translate to ONNX stay in the graph: shapes known, cost unknown.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from analyzer.errors import AnalyzerError, ExportError, InputError, LibraryError
from analyzer.loading.dependencies import is_library
from analyzer.loading.python.example_inputs import ExampleInputs, tensor_names
from analyzer.loading.python.input_spec import GRAPH_EDGES
from analyzer.loading.python.layers import call, misfit
from analyzer.loading.python.model_weights import cuda_is_elsewhere
from analyzer.loading.python.source_lines import at_line, source_line
from analyzer.loading.python.user_model import UserModel
from analyzer.loading.python.user_module import user_failure
from analyzer.loading.torch_export.tracing import has_autocast
from analyzer.loading.torch_private import (
    emit_several,
    is_operator,
    number_of_results,
    operator_name,
    overload_name,
    qualified_name,
    registered_decompositions,
    translation_registry,
    tree_leaves,
)

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

    from analyzer.loading.torch_private import OpOverload, PythonKernel

    Result = ir.Value | Sequence[ir.Value]
    """What a translation gives: one value for each output of the operator."""

# Its layers take a packed sequence apart into ``batch_sizes`` and more, whose sizes hang on the data.
_RECURRENT = os.path.join("torch", "nn", "modules", "rnn.py")
# What torch/fx/experimental/symbolic_shapes.py adds to its message for who debugs the tracer.
_ASIDES = re.compile(r"\s*\((?:unhinted|Size-like symbols): (?:[^()]|\([^()]*\))*\)\.?")
_HINTS = (
    (
        re.compile(r"PackedParams|quantized::"),
        "Modules that PyTorch quantised eagerly hold packed weights, which cannot be exported: analyse the "
        "float model with --precision int8, or an .onnx file quantised with ONNX Runtime.",
    ),
    (re.compile(r"not a known type"), "Return tensors, or tuples, lists and dicts of them."),
    (
        re.compile(r"extract specialized integer"),
        "A number that the data decide is needed where the graph is made: write x.max().item() in place of "
        "int(x.max()), or give the size to forward as an argument.",
    ),
    (
        re.compile(r"ata-dependent|Dynamic control flow|torch\.cond"),
        "Control flow that depends on tensor values cannot be traced: use torch.where or torch.cond, "
        "or analyse an .onnx file made elsewhere.",
    ),
)


def call_shapes(inputs: ExampleInputs) -> str:
    """Return the shapes of the inputs, for messages: ``[4, 3, 224, 224] float32``."""
    parts = [
        f"{list(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"
        for leaf in inputs.leaves
        if hasattr(leaf, "shape")
    ]
    return ", ".join(parts) or "nothing"


def explain_failure(user: UserModel, inputs: ExampleInputs, error: Exception) -> Exception:
    """Return whether the inputs do not fit (a plain call fails as well) or the export itself fails."""
    if isinstance(error, LibraryError):
        return error
    # A plain call tells the two apart: inputs that do not fit make the tracer fail as well.
    try:
        with cuda_is_elsewhere("meta" if user.meta else "cpu"):
            call(user, inputs)
    except AnalyzerError as failure:
        return failure
    except Exception as failure:
        explained = user_failure(
            failure, f"{user.name} cannot be called with inputs of {call_shapes(inputs)}", InputError
        )
        layer = misfit(user.model, failure)
        if layer is not None:
            explained.message = f"{explained.message.removesuffix('.')}: {layer.text}."
        explained.hint = _other_shapes(user, inputs)
        return explained
    explained = user_failure(error, f"torch.export cannot trace {user.name}", ExportError)
    explained.message = without_asides(explained.message)
    explained.hint = (
        hint_on(str(error))
        or "Rewrite that line with what torch.export supports, or analyse an .onnx file made elsewhere."
    )
    if _packs_sequences(error):
        # What PyTorch raises there speaks of its own fake tensors.
        cause = explained.message.partition(f": {type(error).__name__}")[0]
        explained.message = f"{cause}: it packs sequences (pack_padded_sequence)"
        explained.hint = (
            "Packed sequences (pack_padded_sequence) cannot be exported: give the recurrent layer the padded "
            "tensor, which is what ONNX Runtime would run."
        )
    return explained


# Operators whose kernels refuse tensors of several types, which they do not look at while they are traced.
_OF_ONE_TYPE = re.compile(
    r"addb?mm|addmv|addr|baddbmm|bmm|conv(_transpose)?[123]d|dot|einsum|(gru|lstm|rnn_relu|rnn_tanh)_cell|linear|"
    r"matmul|mm|mv|scaled_dot_product_attention"
)
# Those whose kernels refuse whole numbers; a softmax may be given the type to compute in.
_OF_FLOATS = re.compile(
    r"adaptive_avg_pool[23]d|c?elu|selu|gelu|silu|mish|hard(sigmoid|swish)|leaky_relu|(log_)?softmax|softplus|"
    r"upsample_(bicubic2d|bilinear2d|linear1d|trilinear3d)"
)


def check_types(user: UserModel, program: ExportedProgram, inputs: ExampleInputs) -> None:
    """Refuse a program in which an operator gets tensors of types that PyTorch's kernels do not take."""
    import torch

    if has_autocast(program):
        return
    for node in program.graph.nodes:
        name = operator_name(node.target)
        of_one_type = _OF_ONE_TYPE.fullmatch(name)
        if not of_one_type and not _OF_FLOATS.fullmatch(name):
            continue
        # A mask may be of truth values: of attention, query, key and value count.
        leaves = tree_leaves(node.args[:3] if "attention" in name else (node.args, node.kwargs))
        values = [leaf.meta.get("val") for leaf in leaves if isinstance(leaf, torch.fx.Node)]
        types = list(dict.fromkeys(value.dtype for value in values if isinstance(value, torch.Tensor)))
        whole = not any(item.is_floating_point or item.is_complex for item in types)
        if (
            len(types) > 1
            if of_one_type
            else whole and not any(isinstance(leaf, torch.dtype) for leaf in leaves)
        ):
            where = at_line(source_line(node.meta.get("stack_trace") or "", "", {}))
            names = " and ".join(str(item).removeprefix("torch.") for item in types)
            raise InputError(
                f"{user.name} cannot be called with inputs of {call_shapes(inputs)}{where}: {name} does "
                f"not take {names}.",
                hint="Give inputs of the weights' type (--input NAME=SHAPE:DTYPE), or convert them in forward.",
            )


def hint_on(message: str) -> str | None:
    """Return what to do about a message of PyTorch's tracer; None where that is not known."""
    return next((hint for pattern, hint in _HINTS if pattern.search(message)), None)


def without_asides(message: str) -> str:
    """Return the message of PyTorch without what it adds for those who debug its tracer."""
    return _ASIDES.sub("", message)


def _other_shapes(user: UserModel, inputs: ExampleInputs) -> str:
    """Return how to give other inputs, which were tried in which shapes, and what those of a graph must be."""
    hint = "Give inputs that fit with example_inputs(batch) in the file, or --input NAME=SHAPE[:DTYPE]"
    tensors = [leaf for leaf in inputs.leaves if hasattr(leaf, "shape")]
    tried = {
        name: ",".join(map(str, tensor.shape))
        for name, tensor in zip(tensor_names(user, inputs), tensors, strict=False)
    }
    if not tried:
        return f"{hint}."
    hint += f"; tried were {' '.join(f'{name}={sizes}' for name, sizes in tried.items())}."
    if GRAPH_EDGES in tried:
        # B, 1 where no batch is said, is often written for the number of nodes.
        hint += (
            f" Each number in {GRAPH_EDGES} is a row of the nodes: write how many nodes there are, not B, and "
            f"numbers below that (--input {GRAPH_EDGES}=2,400:int64=0..99 for 100 nodes)."
        )
    return hint


def _packs_sequences(error: Exception) -> bool:
    """Return whether a recurrent layer of PyTorch was given a packed sequence where the error was raised."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(
        frame.f_code.co_filename.endswith(_RECURRENT) and frame.f_locals.get("batch_sizes") is not None
        for frame in frames
    )


Translated = TypeVar("Translated")
# The domain of such operators in the graph.
OPAQUE_DOMAIN = "pytorch.aten"
# Both as torch/onnx/_internal/exporter/_core.py says them.
_MISSING = re.compile(
    r"No ONNX function found for <OpOverload\(op='(?P<op>[\w.]+)', overload='(?P<overload>\w+)'\)>"
)
_REASON = re.compile(r"<class '(?:[\w.]+\.)?(\w+)'>: ")
_LINE = re.compile(r'File "([^"\n]+)", line (\d+), in ')
_NODE = re.compile(r"Error when translating node (?P<node>%\w+)")
# More untranslatable operators than any model seen has: each costs one more translation.
_LIMIT = 16


def without_untranslatable(
    program: ExportedProgram, attempt: Callable[[Mapping[Any, PythonKernel]], Translated], notes: list[str]
) -> Translated:
    """Call ``attempt(translations)``, with one untranslatable operator of a program after another translated.

    Raises:
        ExportError: The translation fails for another reason.
    """
    import torch

    table: dict[Any, PythonKernel] = {}
    for _ in range(_LIMIT):
        try:
            return attempt(table)
        except LibraryError:
            raise
        except Exception as error:
            message = _whole_message(error)
            match = _MISSING.search(message)
            if match is None:
                raise ExportError(
                    f"PyTorch cannot translate the model to ONNX: {_gist(message)}",
                    hint=hint_on(message) or "Try another --opset, or analyse an .onnx file made elsewhere.",
                ) from error
            namespace, _, name = match["op"].partition(".")
            target = getattr(getattr(getattr(torch.ops, namespace), name), match["overload"])
            # Where the traced program has none, an operator that is made of one of its composite operators.
            target = _ancestor(program, target, name) or (
                _ancestor(_decomposed(program), target, name) or target
            )
            if target in table:  # the dispatcher takes no translation of real numbers for complex ones
                raise ExportError(
                    "An operator of the model on complex numbers has no ONNX translation: "
                    f"{qualified_name(target).replace('::', '.')}.",
                    hint="Compute on real and imaginary parts (torch.view_as_real) where the model multiplies, "
                    "assigns or indexes complex tensors.",
                ) from error
            values = [node.meta.get("val") for node in program.graph.nodes if node.target == target]
            table[target] = opaque(target, *values)
            notes.append(
                f"{qualified_name(target).replace('::', '.')} has no ONNX translation in this PyTorch: kept as "
                "an operator of unknown cost; ONNX Runtime cannot run the model."
            )
    raise ExportError(f"More than {_LIMIT} operators of the model have no ONNX translation.")


def _whole_message(error: BaseException | None) -> str:
    parts = []
    while error is not None:
        parts.append(str(error))
        error = error.__cause__
    return "\n".join(parts)


def _gist(message: str) -> str:
    """Return the lines of an exporter's message that name the reason, the operator and the user's line."""
    node = _NODE.search(message)
    reasons = [line for line in message.splitlines() if _REASON.match(line)]
    reason = _REASON.sub(r"\1: ", reasons[0]) if reasons else message.strip().splitlines()[0]
    reason = without_asides(reason)[:300]
    lines = [(file, int(number)) for file, number in _LINE.findall(message) if not is_library(file)]
    at = f" (at {node['node']})" if node and node["node"] not in reason else ""
    return f"{reason}{at}{at_line(lines[-1] if lines else None)}"


def _ancestor(program: ExportedProgram, target: OpOverload, name: str) -> OpOverload | None:
    """Return the operator of the traced program ``target`` or is decomposed into it; None where none looks so.

    ``linalg_inv`` becomes ``linalg_inv_ex`` and a check with side effects, ``linalg_svd`` becomes
    ``_linalg_svd``: the whole of it has to be replaced.
    """
    calls = _operators(program)
    if target in calls:
        return target
    stem = name.strip("_").removesuffix("_ex")
    alike = next((call for call in calls if operator_name(call).strip("_") == stem), None)
    # torch/onnx/_internal/exporter/_decomp.py decomposes what it does not translate: cumprod into prims.prod.
    translated = translation_registry().functions
    others = (call for call in calls if not alike and overload_name(call) not in translated)
    tables = ((call, registered_decompositions([operator_name(call)])) for call in others)
    made = (call for call, table in tables if table and target in _operators(_decomposed(program, table)))
    return alike or next(made, None)


def _decomposed(program: ExportedProgram, table: dict[Any, PythonKernel] | None = None) -> ExportedProgram:
    """Return a program in PyTorch's decompositions, as it is where sizes that depend on values refuse them."""
    try:
        decomposed: ExportedProgram = program.run_decompositions(table)
    except Exception:  # PyTorch raises whatever its parts raise
        return program
    return decomposed


def _operators(program: ExportedProgram) -> dict[OpOverload, None]:
    """Return the operators that a program calls, in its order."""
    return dict.fromkeys(node.target for node in program.graph.nodes if is_operator(node.target))


def opaque_node(name: str, outputs: int, *arguments: object) -> Result:
    """Inside a translation: a node that says what it is and nothing about how it computes."""
    import onnx_ir

    values: list[ir.Value | None] = []
    for argument in arguments:
        parts = argument if isinstance(argument, (tuple, list)) else (argument,)
        values += [value for value in parts if isinstance(value, onnx_ir.Value)]
    results = emit_several(OPAQUE_DOMAIN, name, values, {}, outputs)
    return results[0] if outputs == 1 else results


def opaque(target: OpOverload, *values: object) -> PythonKernel:
    """Return a translation of an operator into one such node; ``values`` are results of its calls, if any."""
    count = number_of_results(target)
    if values and isinstance(values[0], (tuple, list)):
        count = len(values[0])

    def translation(*arguments: object, **keywords: object) -> Result:
        return opaque_node(operator_name(target), count, *arguments, *keywords.values())

    return translation
