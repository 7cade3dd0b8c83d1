"""What an export that failed says, and what to do about it."""

from __future__ import annotations

import os
import re
import traceback

from analyzer.errors import ExportError, InputError, LibraryError
from analyzer.loading.python.example_inputs import ExampleInputs, flatten, tensor_names
from analyzer.loading.python.forward_reads import GRAPH_EDGES
from analyzer.loading.python.plain_call import call, misfit
from analyzer.loading.python.untraceable_calls import cuda_is_elsewhere
from analyzer.loading.python.user_model import UserModel
from analyzer.loading.python.user_module import user_failure

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
    explained.message = _ASIDES.sub("", explained.message)
    explained.hint = next(
        (hint for pattern, hint in _HINTS if pattern.search(str(error))),
        "Rewrite that line with what torch.export supports, or analyse an .onnx file made elsewhere.",
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
