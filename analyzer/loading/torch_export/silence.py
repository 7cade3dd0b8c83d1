"""What the exporter would print stays off the terminal."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from analyzer.loading.torch_private import silent_tracer


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
