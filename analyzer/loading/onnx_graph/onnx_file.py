"""Loading, first step for an ONNX file: bytes on disk -> ModelProto without weights.

What is wrong with a file is told here, in one sentence: it is missing, empty, cut off, no ONNX model at all,
or of a version that the installed onnx cannot read.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.errors import ModelError
from analyzer.loading.onnx_graph.protobuf_scan import WireError, without_weights

if TYPE_CHECKING:
    import onnx

KEEP_BYTES = 16 * 1024
"""Initializers of up to so many bytes keep their data: shapes, axes, scales."""

_HINT_DAMAGED = "check that the file was copied whole and is an ONNX model"


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Reads an ONNX file without loading its weights.

    Args:
        path: An ``.onnx`` file; external data beside it is neither needed nor read.

    Returns:
        The model; initializers over 16 KiB have no data (``data_location`` is ``EXTERNAL``).

    Raises:
        ModelError: The file is missing, empty, truncated, not ONNX, or newer than the installed onnx.
    """
    file = Path(path)
    if file.is_dir():
        raise ModelError(f"'{file}' is a folder, not an ONNX file", hint="name the .onnx file in it")
    if not file.exists():
        raise ModelError(f"there is no file '{file}'", hint="check the path")
    model = _parsed(file)
    # Protobuf parses many files that are no ONNX at all: unknown fields are allowed, and all fields are
    # optional.
    if not model.HasField("graph") or not (model.ir_version and (model.graph.node or model.graph.output)):
        raise ModelError(f"'{file}' holds no ONNX graph", hint=_HINT_DAMAGED)
    if not model.opset_import and model.ir_version >= 3:  # onnx.proto demands it from IR version 3 on
        raise ModelError(f"'{file}' imports no operator set", hint=_HINT_DAMAGED)
    check_versions(model, str(file))
    return model


def check_versions(model: onnx.ModelProto, name: str) -> None:
    """Raises ModelError where the installed onnx does not know the model's IR or opset version."""
    import onnx

    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"'{name}' has IR version {model.ir_version}; the installed onnx {onnx.__version__} reads up to"
            f" {onnx.IR_VERSION}",
            hint="upgrade the onnx package or save the model with an older IR version",
        )
    newest = onnx.defs.onnx_opset_version()
    if model.ir_version < 1 or any(opset.version < 1 for opset in model.opset_import):
        raise ModelError(
            f"'{name}' has an IR or opset version below 1", hint="check that the file was copied whole"
        )
    # Of other domains onnx knows no newest version; their operators are looked up by name.
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > newest:
            raise ModelError(
                f"'{name}' uses opset {opset.version}; the installed onnx {onnx.__version__} knows {newest}",
                hint="upgrade the onnx package or export with an older opset",
            )


# How every pointer file begins, by the specification of Git LFS.
_LFS_POINTER = b"version https://git-lfs"


def _parsed(file: Path) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

    model = onnx.ModelProto()
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size == 0:
                raise ModelError(f"'{file}' is empty", hint=_HINT_DAMAGED)
            if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise ModelError(f"'{file}' is a Git LFS pointer, not the model", hint="fetch it: git lfs pull")
            stream.seek(0)
            # Reading the file through a map copies what is no weight alone: gigabytes are never read.
            if size <= KEEP_BYTES:
                model.ParseFromString(stream.read())
                return model
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                model.ParseFromString(without_weights(whole, keep_bytes=KEEP_BYTES))
    except OSError as error:
        raise ModelError(
            f"'{file}' cannot be read: {error.strerror}", hint="check the path and its rights"
        ) from error
    except (DecodeError, WireError) as error:
        raise ModelError(
            f"'{file}' is no ONNX model, or it is cut off ({error})", hint=_HINT_DAMAGED
        ) from error
    return model
