"""The origin of an operator: the module that holds it and the user's own source line.

A stack trace names every frame of ``forward``; the deepest one in the user's own code is the line to show.
Inside an ``nn.Sequential`` all children share one such line, so there the line that constructed the child is
shown, which a hook on ``nn.Module.__init__`` remembers.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from analyzer.loading.dependencies import is_library
from analyzer.loading.torch_private import replaced

if TYPE_CHECKING:
    from torch.nn import Module


# As torch writes stack traces into a node's metadata: in the form of Python's own.
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
# A line that begins a definition and holds nothing of its body: where a class stands for want of a line that
# builds it (_note_definition).
_HEAD = re.compile(r"@|(?:async\s+def|def|class)\b.*[:,(]\s*(?:#.*)?$")
_ATTRIBUTE = "_analyzer_built_at"
_OWN_FOLDER = str(Path(__file__).resolve().parent.parent) + os.sep
# nn.Sequential and its like call their children: the only frame of the user's is that of the container's call.
_CONTAINER = os.path.join("torch", "nn", "modules", "container.py")


@contextmanager
def construction_lines() -> Iterator[None]:
    """Remember, for each ``nn.Module`` built inside the block, the user's line that built it."""
    import torch

    original = torch.nn.Module.__init__
    torch_folder = os.path.dirname(torch.__file__)

    def init_and_note_line(module: Module, *arguments: object, **keywords: object) -> None:
        original(module, *arguments, **keywords)
        current = inspect.currentframe()
        frame: FrameType | None = current.f_back if current else None
        while frame is not None:
            file = frame.f_code.co_filename
            # This package built it; what called the package is no part of the model.
            if file.startswith(_OWN_FOLDER):
                break
            # The user's own class calls super().__init__() in its file: not the line that builds it.
            own = frame.f_locals.get("self") is module
            if not own and not file.startswith(torch_folder) and not is_library(file):
                object.__setattr__(module, _ATTRIBUTE, (file, frame.f_lineno))
                return
            frame = frame.f_back
        # The line of a user's class that no line of the user's builds: the analysis itself did.
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        if code is not None and not is_library(code.co_filename):
            object.__setattr__(module, _ATTRIBUTE, (code.co_filename, code.co_firstlineno))

    # A patch and no subclass: PyTorch has no hook for construction, and models build PyTorch's own classes.
    with replaced(torch.nn.Module, "__init__", init_and_note_line):
        yield


def built_at(model: Module) -> dict[str, tuple[str, int]]:
    """Return the line that built each submodule, by dotted path; modules built elsewhere are absent."""
    lines = {}
    for path, module in model.named_modules(remove_duplicate=False):
        line = getattr(module, _ATTRIBUTE, None)
        if line is not None:
            lines[path] = line
    return lines


def source_line(trace: str, module: str, built: Mapping[str, tuple[str, int]]) -> tuple[str, int] | None:
    """Return the user's line for one operator, as (absolute file, line number).

    Args:
        trace: The exporter's stack trace, outermost frame first; may be empty.
        module: Dotted path of the module that holds the operator.
        built: Lines by module path, from ``built_at``.
    """
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(trace)]
    # What lies outside our own frames called us: a script that calls analyze() is no part of the model.
    own = max((i for i, (file, _) in enumerate(frames) if file.startswith(_OWN_FOLDER)), default=-1)
    frames = frames[own + 1 :]
    last = max((i for i, (file, _) in enumerate(frames) if not is_library(file)), default=None)
    in_container = last is not None and any(file.endswith(_CONTAINER) for file, _ in frames[last + 1 :])
    if last is not None and not (in_container and module in built):
        return frames[last]
    while module:
        if module in built:
            return built[module]
        module = module.rpartition(".")[0]
    return built.get("") if last is None else frames[last]


def line_text(file: str, line: int) -> str:
    """Return the text of a source line without its indentation, empty where the file cannot be read."""
    return linecache.getline(file, line).strip()


def at_line(place: tuple[str, int] | None) -> str:
    """Return line of the user's as the end of a clause, `` (model.py:12: return x @ y)``; empty without one."""
    return f" ({shown_path(place[0])}:{place[1]}: {line_text(*place)})" if place else ""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, its class where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def statement(file: str, line: int) -> str:
    """Return the text of a line that computes something; empty of one that only begins a definition."""
    text = line_text(file, line)
    return "" if _HEAD.match(text) else text


@lru_cache(maxsize=64)
def repository_root(folder: str) -> str | None:
    """Return the nearest folder upwards that holds ``.git``, None where there is none."""
    for candidate in (Path(folder), *Path(folder).parents):
        if (candidate / ".git").exists():
            return str(candidate)
    return None


def shown_path(file: str | os.PathLike[str]) -> str:
    """Return path as reports show it: relative to its repository, else to the working folder, with slashes."""
    # Relative, with slashes: a record must not differ between two machines.
    path = os.path.realpath(file)
    root = repository_root(os.path.dirname(path)) or os.getcwd()
    relative = os.path.relpath(path, root)
    return (path if relative.startswith("..") else relative).replace(os.sep, "/")
