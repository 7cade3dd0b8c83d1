"""MODEL on the command line -> which file or module, and which name in it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analyzer.errors import ModelError

ReferenceKind = Literal["python", "onnx", "pt2", "record"]

_SUFFIXES: dict[str, ReferenceKind] = {".py": "python", ".onnx": "onnx", ".pt2": "pt2", ".json": "record"}
_NAMED_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][\w.]*)")
_NAMED_MODULE = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_][\w.]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What MODEL names.

    Attributes:
        text: As the user wrote it.
        kind: ``python``, ``onnx``, ``pt2`` or ``record`` (a saved report).
        path: The file; None for a module given by its dotted name.
        module: Dotted module name; None for a file.
        name: The name after the colon, None where there is none.
    """

    text: str
    kind: ReferenceKind
    path: Path | None = None
    module: str | None = None
    name: str | None = None

    @property
    def stem(self) -> str:
        """A short name for reports: ``resnet50`` or ``resnet50-Small``."""
        base = self.path.stem if self.path else (self.module or "model").rsplit(".", 1)[-1]
        return f"{base}-{self.name}" if self.name else base


def parse_reference(text: str) -> Reference:
    """Reads MODEL.

    Raises:
        ModelError: There is no such file, or it is of no kind that can be read.
    """
    if not text:
        raise ModelError("MODEL is empty.", hint="Name a file: model.py, model.onnx.")
    # Before the suffix: "model.py:Net.inner" ends in no suffix that is known. A Windows drive ("C:\\x.py") has
    # its colon before the suffix and so is no name.
    if match := _NAMED_FILE.fullmatch(text):
        return Reference(text=text, kind="python", path=_existing(match["file"]), name=match["name"])
    path = Path(text)
    if path.suffix.lower() in _SUFFIXES:
        return Reference(text=text, kind=_SUFFIXES[path.suffix.lower()], path=_existing(text))
    if match := _NAMED_MODULE.fullmatch(text):
        return Reference(text=text, kind="python", module=match["module"], name=match["name"])
    if path.is_dir():
        raise _folder(text)
    if path.exists():
        raise ModelError(
            f"{text} is of no kind that can be read.",
            hint="A model is model.py, model.py:Name, package.module:Name, model.onnx or model.pt2.",
        )
    _existing(text)
    raise AssertionError("unreachable: a missing file raises")


def _existing(text: str) -> Path:
    path = Path(text)
    if path.is_file():
        return path
    if path.is_dir():
        raise _folder(text)
    raise ModelError(f"No such file: {text}.", hint=_nearest(path))


def _folder(text: str) -> ModelError:
    generates = (Path(text) / "config.json").is_file()
    return ModelError(
        f"{text} is a folder, not a model.",
        hint=f"Of a model that generates: analyze generate {text}."
        if generates
        else "Name a file in it: model.py, model.onnx.",
    )


def _nearest(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    names = [item.name for item in sorted(folder.iterdir()) if item.suffix.lower() in _SUFFIXES]
    close = difflib.get_close_matches(path.name, names, n=1)
    if close:
        return f"Did you mean {folder / close[0]}?"
    return "A model is model.py, model.py:Name, package.module:Name, model.onnx or model.pt2."
