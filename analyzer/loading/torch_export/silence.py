"""What the exporter would print stays off the terminal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

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
