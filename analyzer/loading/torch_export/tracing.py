"""A module called with inputs -> a program of torch.export, with nothing printed."""

from __future__ import annotations

import ctypes
import inspect
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from analyzer.loading.python.example_inputs import ExampleInputs
from analyzer.loading.python.input_containers import (
    UNKNOWN_OUTPUT,
    marks_in_form,
    outputs_as_containers,
    returns_constants,
)
from analyzer.loading.python.untraceable_calls import cuda_is_elsewhere, plain_transformers
from analyzer.loading.python.user_module import NO_CUDA
from analyzer.loading.torch_private import recurrences_by_one_step, silent_tracer, tree_flatten

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

# The tracer may go on with tensors that claim to be on a GPU, until they meet others.
_FOR_CUDA = re.compile(rf"{NO_CUDA.pattern}|different from other tensors|at least two devices, .*cuda")


def trace(
    model: Module, inputs: ExampleInputs, *, symbolic: bool, strict: bool = False, elsewhere: bool = False
) -> ExportedProgram:
    """``torch.export.export`` with every batch axis left to the tracer (``Dim.AUTO``).

    Args:
        model: An ``nn.Module``.
        inputs: What it is called with.
        symbolic: Whether the batch may vary.
        strict: Whether Dynamo reads the code. It refuses more of Python than a trace does, and follows some
            that a trace cannot: ``int(...)`` of a tensor.
        elsewhere: Whether this runs where asking for CUDA gives another device.
    """
    import torch

    marked: Any = None
    if symbolic:  # AUTO, not a named Dim: where the code fixes the size it is fixed, and no error
        leaves, spec = tree_flatten((inputs.arguments, dict(inputs.keywords)))
        axes = [
            dict.fromkeys(inputs.batch_axes.get(i, ()), torch.export.Dim.AUTO)
            if isinstance(leaf, torch.Tensor)
            else None
            for i, leaf in enumerate(leaves)
        ]
        marked = marks_in_form(spec, iter(axes))

    def export() -> ExportedProgram:
        shapes = None
        if marked is not None:  # as ``forward`` takes them: those of ``*arguments`` together
            shapes = dict(inspect.signature(model.forward).bind(*marked[0], **marked[1]).arguments)
        return torch.export.export(
            model, inputs.arguments, dict(inputs.keywords), dynamic_shapes=shapes, strict=strict
        )

    with (
        torch.no_grad(),
        plain_transformers(),
        recurrences_by_one_step(),
        _named_keywords(model, inputs.keywords),
    ):
        try:
            program = export()
            if not returns_constants(program):
                return program
        except Exception as error:
            if _FOR_CUDA.search(str(error)) and not elsewhere:
                with cuda_is_elsewhere(_device_of(model)):
                    return trace(model, inputs, symbolic=symbolic, strict=strict, elsewhere=True)
            if not UNKNOWN_OUTPUT.search(str(error)):
                raise
        with outputs_as_containers(model):
            return export()


def _device_of(model: Module) -> str:
    first = next(iter((*model.parameters(), *model.buffers())), None)
    return first.device.type if first is not None else "cpu"


@contextmanager
def _named_keywords(model: Module, keywords: Mapping[str, Any]) -> Iterator[None]:
    """Gives ``forward(**keywords)`` a signature that names them: the tracer looks there for what may vary."""
    import torch

    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("a saved TorchScript model holds no Python code")
    parameters = inspect.signature(model.forward).parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        yield
        return
    forward = model.forward

    def called(*arguments: object, **keywords_given: object) -> object:
        return forward(*arguments, **keywords_given)

    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    declared = {parameter.name for parameter in named}
    added = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY) for key in keywords if key not in declared]
    vars(called)["__signature__"] = inspect.Signature([*named, *added])
    with patch.object(model, "forward", called):
        yield


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silences what the exporter logs and warns about; errors still arrive as exceptions."""
    # For all loggers at once: torch, onnx_ir and onnxscript log under a name for each module.
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with silent_tracer(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def nothing_on_standard_output() -> Iterator[None]:
    """Inside the block the process's standard output leads nowhere, for C++ too: a report may go there.

    PyTorch's TorchScript exporter prints a whole graph where it fails (``_jit_onnx_log`` of
    torch/onnx/_internal/torchscript_exporter/utils.py).
    """
    with ExitStack() as stack:
        with suppress(OSError, ValueError):  # there may be none
            sys.stdout.flush()
            kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 1)
            stack.callback(_flush_libraries)
            os.dup2(nowhere, 1)
            os.close(nowhere)
        yield


def _flush_libraries() -> None:
    """Writes what C and C++ keep back for a file or a pipe, where there is such a function to ask."""
    if os.name == "posix":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)
