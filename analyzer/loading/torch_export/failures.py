"""What an export that failed says, and what to do about it."""

from __future__ import annotations

import os
import re
import traceback
from typing import TYPE_CHECKING

from analyzer.errors import AnalyzerError, ExportError, InputError, LibraryError
from analyzer.loading.python.example_inputs import ExampleInputs, flatten, tensor_names
from analyzer.loading.python.graph_inputs import GRAPH_EDGES
from analyzer.loading.python.plain_call import call, misfit
from analyzer.loading.python.source_lines import line_text, shown_path, source_line
from analyzer.loading.python.untraceable_calls import cuda_is_elsewhere
from analyzer.loading.python.user_model import UserModel
from analyzer.loading.python.user_module import user_failure
from analyzer.loading.torch_export.decomposed import has_autocast
from analyzer.loading.torch_private import operator_name, tree_leaves

if TYPE_CHECKING:
    from torch.export import ExportedProgram

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
    """The shapes of the inputs, for messages: ``[4, 3, 224, 224] float32``."""
    parts = [
        f"{list(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"
        for leaf in flatten(inputs.arguments, inputs.keywords)
        if hasattr(leaf, "shape")
    ]
    return ", ".join(parts) or "nothing"


def explain_failure(user: UserModel, inputs: ExampleInputs, error: Exception) -> Exception:
    """Whether the inputs do not fit (a plain call fails as well) or the export itself fails."""
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
        told = explained.message.partition(f": {type(error).__name__}")[0]
        explained.message = f"{told}: it packs sequences (pack_padded_sequence)"
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
    """Refuse a program in which an operator gets tensors of types that PyTorch's kernels do not take.

    Raises:
        InputError: It names the operator, its types and the user's line.
    """
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
            place = source_line(node.meta.get("stack_trace") or "", "", {})
            where = f" ({shown_path(place[0])}:{place[1]}: {line_text(*place)})" if place else ""
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
    """How to give other inputs, which were tried in which shapes, and what those of a graph must be."""
    hint = "Give inputs that fit with example_inputs(batch) in the file, or --input NAME=SHAPE[:DTYPE]"
    tensors = [leaf for leaf in flatten(inputs.arguments, inputs.keywords) if hasattr(leaf, "shape")]
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
    """Whether a recurrent layer of PyTorch was given a packed sequence where the error was raised."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(
        frame.f_code.co_filename.endswith(_RECURRENT) and frame.f_locals.get("batch_sizes") is not None
        for frame in frames
    )
