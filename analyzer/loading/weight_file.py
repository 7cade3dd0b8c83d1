"""What a file of weights or of a whole model is (.pt, .pth, .bin, .ckpt, .safetensors), and what to name.

Nothing of it is executed: a pickle's operations are read one by one, which names its classes and calls none.
"""

from __future__ import annotations

import io
import json
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.text import plural

# Kept small, as a file may be made to be large to read: what comes later adds only to the count of tensors.
_MOST_PICKLE_BYTES = 2**24
_MOST_OPERATIONS = 300_000
# Of a zip file its list of entries is read at once.
_MOST_BYTES_AT_ONCE = 2**26
# torch.save before its zip files writes three pickles ahead of the object: a number, a version, the system.
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_LEGACY_HEADERS = 3
# What tensors, and what training keeps beside them, are made of.
_PLAIN = ("torch", "collections", "builtins", "__builtin__", "numpy", "_codecs", "copyreg", "copy_reg")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_CODE = "Name the code that builds the model: model.py, model.py:Net or 'model.py:Net(hidden=512)'."
_WEIGHTS = f"{_CODE} The weights are not needed."


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """What a file is.

    Attributes:
        what: As what follows its name: ``holds weights alone``.
        hint: What to do.
    """

    what: str
    hint: str


@dataclass(slots=True, kw_only=True)
class _Pickle:
    """What the operations of a pickle say.

    Attributes:
        top: The class of the object itself, ``dict`` of a dictionary; empty where it is neither.
        classes: All that it names, in their order.
        tensors: Data of tensors that stand outside of the pickle.
        whole: Whether it was read to its end.
    """

    top: str = ""
    classes: list[str] = field(default_factory=list)
    tensors: int = 0
    whole: bool = False


def weight_file(path: Path) -> WeightFile | None:
    """What a file is; None where it is of no kind that is known.

    Args:
        path: An existing file.
    """
    try:
        with _Bounded(path) as file:
            start = file.read(512)
            if start.startswith(b"PK"):
                return _zipped(file, path)
            if start.startswith(b"\x80"):
                file.seek(0)
                content = file.read(_MOST_PICKLE_BYTES)
                return _of_pickle(_read(content, behind=_LEGACY_HEADERS * content.startswith(_LEGACY_MAGIC)))
            if start.startswith(b"version https://git-lfs"):
                return WeightFile(
                    what="is a pointer of Git LFS, not the file itself", hint="Fetch it: git lfs pull."
                )
            return _safetensors(file, start)
    except (
        OSError,
        ValueError,
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
    ):  # RecursionError is one
        return None  # damaged, or encrypted


class _Bounded(io.FileIO):
    """A file of which no read takes more than a bounded part into memory."""

    def read(self, size: int | None = -1) -> bytes:
        wanted = _MOST_BYTES_AT_ONCE if size is None or size < 0 else size
        if wanted > _MOST_BYTES_AT_ONCE:
            raise ValueError("too much at once")
        return super().read(wanted) or b""


def _zipped(file: _Bounded, path: Path) -> WeightFile | None:
    archive = zipfile.ZipFile(file)
    # All but old ones are in a folder of the name that the file had once.
    names = {name.partition("/")[2]: name for name in archive.namelist()} | {
        name: name for name in archive.namelist()
    }
    if "archive_format" in names or "serialized_exported_program.json" in names:
        return WeightFile(
            what="is a program of torch.export.save under another name",
            hint=f"Rename it to {path.stem}.pt2.",
        )
    if "data.pkl" not in names:
        return None
    if "constants.pkl" in names or any(name.startswith("code/") for name in names):
        return WeightFile(
            what="is a TorchScript program (torch.jit.save), which is not read",
            hint="Name the code of the model, or save it with torch.export.save (.pt2), or write ONNX: "
            "torch.onnx.export(torch.jit.load(FILE), inputs, 'model.onnx', dynamo=False).",
        )
    with archive.open(names["data.pkl"]) as stream:
        return _of_pickle(_read(stream.read(_MOST_PICKLE_BYTES)))


def _of_pickle(found: _Pickle) -> WeightFile | None:
    if not found.classes and not found.top:
        return None
    at_least = "" if found.whole else "at least "
    tensors = f"{at_least}{plural(found.tensors, 'tensor')}"
    strangers = [name for name in found.classes if not _is_plain(name)]
    modules = [name for name in found.classes if name.startswith("torch.nn.modules.")]
    if found.top in ("dict", "collections.OrderedDict"):
        if modules:
            return _pickled_model((strangers or modules)[0])
        return WeightFile(what=f"holds weights alone (a state dict or checkpoint, {tensors})", hint=_WEIGHTS)
    if _is_plain(found.top) and not found.top.startswith("torch.nn.modules."):
        return WeightFile(what=f"holds data alone ({tensors}), no model", hint=_CODE)
    return _pickled_model(found.top)


def _pickled_model(name: str) -> WeightFile:
    module, _, own = name.rpartition(".")
    if module == "__main__":
        hint = f"Name the file that defines {own}: model.py:{own}."
    elif name.startswith("torch.nn.modules."):
        hint = _CODE
    else:
        hint = f"Name the code, with its arguments where it needs some: '{module}:{own}'."
    return WeightFile(
        what=f"is a pickled model of the class {name}; it is not unpickled, as that runs what the file says",
        hint=f"{hint} The weights are not needed.",
    )


def _is_plain(name: str) -> bool:
    return name.partition(".")[0] in _PLAIN and not name.startswith("torch.nn.modules.")


def _read(content: bytes, *, behind: int = 0) -> _Pickle:
    """What a pickle names.

    Args:
        content: Its bytes, perhaps not all of them.
        behind: How many pickles stand before it.
    """
    stream = io.BytesIO(content)
    found = _Pickle()
    try:
        for _ in range(behind):
            for _operation in pickletools.genops(stream):
                pass
        for name, argument in _operations(stream):
            if name == "class":
                found.classes.append(argument)
                found.top = found.top or argument
            elif name == "BINPERSID":
                found.tensors += 1
            elif name == "EMPTY_DICT":
                found.top = found.top or "dict"
            elif name == "STOP":
                found.whole = True
    except (ValueError, IndexError, KeyError, UnicodeError):
        pass  # cut off, or damaged: what came before is what is known
    return found


def _operations(stream: io.BytesIO) -> Iterator[tuple[str, str]]:
    """Operations of a pickle; a class by whatever operation it is named is ``class`` with its dotted name."""
    texts: list[str] = []  # the last ones that were put on the stack
    memo: dict[int, str] = {}
    count, last = 0, ""
    for number, (operation, argument, _) in enumerate(pickletools.genops(stream)):
        if number > _MOST_OPERATIONS:
            return
        name = operation.name
        if name in _TEXTS:
            last = str(argument)
            texts = [*texts[-1:], last]
        elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
            if last:
                memo[count if name == "MEMOIZE" else int(argument or 0)] = last
            count += 1
            continue  # what was last stays on top
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            last = memo.get(int(argument or 0), "")
            texts = [*texts[-1:], last] if last else texts
        else:
            last = ""
        if name == "GLOBAL":
            yield "class", str(argument).replace(" ", ".", 1)
        elif name == "STACK_GLOBAL":
            yield "class", ".".join(texts)
        elif name in ("BINPERSID", "EMPTY_DICT", "STOP"):
            yield name, ""


def _safetensors(file: _Bounded, start: bytes) -> WeightFile | None:
    """Of a file that begins with the length of a header of JSON."""
    if len(start) < 10 or start[8:9] != b"{":
        return None
    (length,) = struct.unpack("<Q", start[:8])
    file.seek(8)
    header = json.loads(file.read(length).decode())
    if not isinstance(header, dict):
        return None
    tensors = plural(len(header.keys() - {"__metadata__"}), "tensor")
    return WeightFile(what=f"holds weights alone (safetensors, {tensors})", hint=_WEIGHTS)
