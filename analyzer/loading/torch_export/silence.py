"""What the exporter would print stays off the terminal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silences what the exporter logs and warns about; errors still arrive as exceptions."""
    from torch.export import _trace

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    vars(_trace)["print"] = _say_nothing  # it prints the unfinished graph of a failed trace
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        del vars(_trace)["print"]


def _say_nothing(*_: Any, **__: Any) -> None:
    """Takes the place of ``print``."""
