"""The archive of a saved program (.pt2) -> its graph as text and its tensors; no pickle in it is executed.

``torch.export.save`` writes a zip file (torch/export/pt2_archive/_package.py): the graph as JSON, weights and
constants as raw bytes with their shapes in JSON, example inputs as a pickle. The first two are read here, the
pickle never, nor compiled libraries (AOTInductor's ``.so``), which ``torch.export.load`` would load. Older
files hold weights and constants as a pickle each, which PyTorch's unpickler for weights alone reads.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from analyzer.loading.saved_program_graph import Json, RefusedError, vetted
from analyzer.loading.torch_private import program_of, saved_dtype

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram

# As zipfile counts: a model of 100 billion parameters has some thousand tensors.
_MOST_ENTRIES = 100_000
# A program that was exported without weights holds none; zeros stand for them.
_MOST_MADE_UP_BYTES = 2 * 1024**3
_PIECE = 2**22
_PICKLED = (
    "is a pickle, not plain data: a subclass of a tensor or another object, which only its own code can read"
)


@dataclass(frozen=True, slots=True)
class _Archive:
    """The entries of a zip file, by name without the folder that all of them are in."""

    file: zipfile.ZipFile
    entries: Mapping[str, zipfile.ZipInfo]

    def read(self, name: str) -> bytes:
        """An entry's content.

        Raises:
            RefusedError: There is none of that name.
        """
        if name not in self.entries:
            raise RefusedError(f"it holds no {name!a}")
        return self.file.read(self.entries[name])

    def octets(self, name: str) -> Tensor:
        """An entry's content as a tensor of bytes; piece by piece, since it can be most of the memory."""
        import torch

        if name not in self.entries:
            raise RefusedError(f"it holds no {name!a}")
        flat = torch.empty(self.entries[name].file_size, dtype=torch.uint8)
        filled, at = flat.numpy(), 0
        with self.file.open(self.entries[name]) as stream:
            while piece := stream.read(_PIECE):
                filled[at : at + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
                at += len(piece)
        if at < len(filled):
            raise RefusedError(f"its {name!a} ends early")
        return flat

    def json(self, name: str) -> Json:
        """What an entry says as JSON."""
        return json.loads(self.read(name))


def read_archive(path: Path) -> ExportedProgram:
    """The program of a .pt2 file, without its example inputs.

    Raises:
        RefusedError: The file holds what is not read.
        Exception: Whatever damage raises in the libraries that read zip files, JSON and the graph.
    """
    with path.open("rb") as file:
        archive = _opened(file)
        if "version" in archive.entries:  # until torch 2.7
            graph = vetted(archive.json("serialized_exported_program.json"))
            state = _unpickled(archive.read("serialized_state_dict.pt"), "serialized_state_dict.pt")
            constants = _unpickled(archive.read("serialized_constants.pt"), "serialized_constants.pt")
            return program_of(json.dumps(graph).encode(), state, constants)
        if archive.read("archive_format") != b"pt2" or archive.read("archive_version") != b"0":
            raise RefusedError("it is of a newer format")
        graph = vetted(archive.json("models/model.json"))
        state = _tensors(archive, "data/weights/", "weights")
        constants = _tensors(archive, "data/constants/", "constants")
        return program_of(json.dumps(graph).encode(), state, constants)


def _opened(file: IO[bytes]) -> _Archive:
    """A zip file whose entries are plain: stored, apart from one another, each name once.

    Reading all of them is then no more than reading the file.
    """
    archive = zipfile.ZipFile(file)
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        raise RefusedError(f"it holds {len(entries)} entries")
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise RefusedError("two of its entries have one name")
    for name in names:
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise RefusedError(f"an entry is named {name!a}")
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries):
        raise RefusedError("its entries are compressed or encrypted")
    size = file.seek(0, io.SEEK_END)
    if any(entry.file_size != entry.compress_size for entry in entries) or (
        sum(entry.file_size for entry in entries) > size
    ):
        raise RefusedError("its entries are larger than the file")
    root = f"{names[0].partition('/')[0]}/" if names and "/" in names[0] and "version" not in names else ""
    return _Archive(archive, {entry.filename.removeprefix(root): entry for entry in entries})


def _tensors(archive: _Archive, folder: str, kind: str) -> dict[str, Tensor]:
    """Weights or constants by name; those that share data share it here too."""
    import torch

    if f"{folder}model.pt" in archive.entries:  # torch 2.8
        return _unpickled(archive.read(f"{folder}model.pt"), f"{folder}model.pt")
    stored: dict[str, Tensor] = {}
    tensors = {}
    for name, item in archive.json(f"{folder}model_{kind}_config.json")["config"].items():
        meta, entry = item["tensor_meta"], item["path_name"]
        if item["use_pickle"] is not False or meta is None:
            raise RefusedError(f"{name!a} of its {kind} {_PICKLED}")
        sizes, strides = ([int(size["as_int"]) for size in meta[key]] for key in ("sizes", "strides"))
        dtype = saved_dtype(meta["dtype"])
        if entry not in stored:
            flat = archive.octets(f"{folder}{entry}")
            if not flat.numel() and 0 not in sizes:
                flat = torch.zeros(_bytes_of_zeros(sizes, strides, dtype.itemsize), dtype=torch.uint8)
            kind_of_device, index = meta["device"]["type"], meta["device"].get("index")
            stored[entry] = (
                flat.to(torch.device(kind_of_device, index or 0)) if kind_of_device != "cpu" else flat
            )
        offset = int(meta["storage_offset"]["as_int"])
        tensor = torch.as_strided(stored[entry].view(dtype), sizes, strides, offset)
        if item["is_param"]:
            tensor = torch.nn.Parameter(tensor, requires_grad=meta["requires_grad"] is True)
        tensors[name] = tensor
    return tensors


def _bytes_of_zeros(sizes: list[int], strides: list[int], itemsize: int) -> int:
    """How many bytes stand for a tensor that the program was exported without.

    Raises:
        RefusedError: More than a few weights are, so that a small file would take much memory.
    """
    elements = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if not 0 <= elements * itemsize <= _MOST_MADE_UP_BYTES:
        raise RefusedError(f"it holds no data for a tensor of the sizes {sizes[:8]}")
    return elements * itemsize


def _unpickled(data: bytes, entry: str) -> dict[str, Tensor]:
    """Tensors by name of a pickle of weights alone.

    Raises:
        RefusedError: It holds anything else.
    """
    import torch

    if not data:
        return {}
    _opened(io.BytesIO(data))
    try:
        tensors = torch.load(io.BytesIO(data), weights_only=True)  # noqa: TID251  # executes nothing
    except Exception as error:
        raise RefusedError(f"{entry} {_PICKLED}") from error
    if not isinstance(tensors, dict) or not all(
        type(name) is str and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        for name, tensor in tensors.items()
    ):
        raise RefusedError(f"{entry} {_PICKLED}")
    return tensors
