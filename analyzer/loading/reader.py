"""Loading: asks the reading process: ``reading_process`` does what is asked, ``reading.Limits`` bounds it.

Everything that parses a stranger's file, infers its shapes or computes its constants happens
there. What comes back is data: a weight-free model that was parsed and written anew, and Graphs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import GraphError
from analyzer.reading import READING, Limits, sendable

if TYPE_CHECKING:
    import onnx

# The process keeps so many models parsed; more are sent again when asked about.
CACHED_MODELS = 4

MODEL_NUMBERS = itertools.count(1)
"""A number for each model, by which the reading process knows it again."""


def parsed(
    content: bytes | Path, *, subject: str, opset: int | None, limits: Limits
) -> tuple[onnx.ModelProto, bool]:
    """Return a model, serialised or in a file, without its weights, and whether it was converted to the opset.

    Raises:
        ModelError: It cannot be read, or takes more than the limits.
        UsageError: There is no conversion to that opset.
    """
    source = os.fsencode(content) if isinstance(content, Path) else content
    arguments = {"source": source, "is_path": isinstance(content, Path), "subject": sendable(subject)}
    arguments |= {"opset": opset, "limits": limits.as_message()}
    result, converted = READING.ask("parse", arguments, limits, subject=subject)
    return model_of(result), converted


def write_file(path: Path, opset: int | None, sizes: Mapping[str, int], folder: Path, limits: Limits) -> None:
    """Write an .onnx file's model, bound to these sizes, into ``folder`` with its weights beside it."""
    arguments = {
        "path": os.fsencode(path),
        "opset": opset,
        "sizes": _plain_sizes(sizes),
        "folder": os.fsencode(folder),
    }
    READING.ask("write_file", arguments, limits, subject=f"'{path}'", file_bytes=path.stat().st_size)


def graph_message(
    number: int,
    proto: onnx.ModelProto,
    sizes: Mapping[str, int],
    *,
    subject: str,
    limits: Limits,
    **options: Any,
) -> bytes:
    """Return a model at these sizes of its symbolic dimensions, for ``from_message``; ``number`` identifies it.

    ``options`` are ``pruned`` and those of ``onnx_graph.build.to_graph``.
    """
    arguments = {"number": number, "sizes": _plain_sizes(sizes), "limits": limits.as_message(), **options}
    message = READING.ask("graph", arguments, limits, subject=subject)
    if message is None:  # it does not know this model, or no longer
        content = {"number": number, "content": proto.SerializeToString()}
        READING.ask("keep", content, limits, subject=subject)
        message = READING.ask("graph", arguments, limits, subject=subject)
    return bytes(message)


def open_sizes(
    proto: onnx.ModelProto,
    sizes: Mapping[str, int],
    usual: Mapping[str, int],
    *,
    example: int,
    subject: str,
    limits: Limits,
) -> tuple[bool, dict[str, int], dict[str, int]]:
    """Return sizes for the dimensions that nothing binds, as ``onnx_graph.build.open_sizes`` gives them."""
    arguments = {
        "content": proto.SerializeToString(),
        "sizes": _plain_sizes(sizes),
        "usual": _plain_sizes(usual),
        "example": example,
        "limits": limits.as_message(),
    }
    fits, smallest, examples = READING.ask("open_sizes", arguments, limits, subject=subject)
    return fits, smallest, examples


def _plain_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return sizes as a message has them: those that are but usual are of a class of their own."""
    for name, size in sizes.items():
        if size >= 2**63:
            raise GraphError(
                f"dimension '{name}' is larger than can be addressed: {size}", hint="give a smaller --batch"
            )
    return {name: int(size) for name, size in sizes.items()}


def model_of(content: bytes) -> onnx.ModelProto:
    """Return the model of a message between the two processes."""
    import onnx

    model = onnx.ModelProto()
    model.ParseFromString(content)
    return model
