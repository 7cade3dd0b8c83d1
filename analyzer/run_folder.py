"""A run's folder of temporary things, and files until they are whole (leaf: imports errors)."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from analyzer.errors import OutputError

_PREFIX = "onnx-analyzer-"
# Where the modules and libraries of a process look for the folder of temporary files.
_VARIABLES = ("TMPDIR",) if os.name == "posix" else ("TEMP", "TMP")
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
# Of the folders that this process now puts all temporary things into, by both names where one is a link.
_IN_USE: set[str] = set()


@contextmanager
def run_folder() -> Iterator[Path]:
    """Make a folder inside the temporary folder, for this user alone, removed at the end.

    Raises:
        OutputError: There is no folder for temporary files, or no room in it.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
    except OSError as error:
        raise OutputError(
            f"No temporary folder can be made: {error.strerror or error}.",
            hint="Set TMPDIR to a folder that can be written.",
        ) from error
    with folder as name:
        yield Path(name)


@contextmanager
def temporary_things_in_one_folder() -> Iterator[None]:
    """Have this process and its children put temporary things into one folder, removed at the end."""
    with ExitStack() as stack:
        folder = ""
        # Most ways of using the program need none: the one that does says so.
        with contextlib.suppress(OutputError):
            folder = str(stack.enter_context(run_folder()))
        if not folder:
            yield
            return
        names = {folder, os.path.realpath(folder)}
        before = {name: os.environ.get(name) for name in _VARIABLES}
        chosen = tempfile.tempdir
        os.environ.update(dict.fromkeys(_VARIABLES, folder))
        tempfile.tempdir = folder
        _IN_USE.update(names)
        try:
            yield
        finally:
            _IN_USE.difference_update(names)
            tempfile.tempdir = chosen
            # Libraries note their own folders in variables too (torch/_inductor/runtime/cache_dir_utils.py).
            for name in [name for name, value in os.environ.items() if value.startswith(tuple(names))]:
                del os.environ[name]
            os.environ.update({name: value for name, value in before.items() if value is not None})


def in_run_folder(text: str) -> bool:
    """Return whether a path lies in the folder that this process puts all temporary things into."""
    return any(text == folder or text.startswith(folder + os.sep) for folder in _IN_USE)


@contextmanager
def folder_aside(around: Path) -> Iterator[Path]:
    """Make a hidden folder to write into before it is moved to its place; removed where it was not moved.

    Args:
        around: The folder that it is made in, as a folder is moved in one step within a file system alone.

    Raises:
        OSError: It cannot be made.
    """
    with tempfile.TemporaryDirectory(dir=around, prefix=f".{_PREFIX}", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def file_aside(folder: Path, content: bytes) -> Iterator[Path]:
    """Write a hidden file, its owner's alone, that `os.replace` then moves; removed where it was not moved.

    Args:
        folder: Of the file's place, as a file is moved in one step within a file system alone.
        content: The whole of it.

    Raises:
        OSError: It cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{_PREFIX}")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def is_about_writing(error: OSError, folder: Path) -> bool:
    """Return whether an error is the fault of the folder that files are made in, not that of what is read."""
    named = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    # Where there is no room, copying names what it copies.
    return not named or error.errno in _NO_ROOM or Path(named).is_relative_to(folder)


def umask() -> int:
    """Return the rights that new files of this process do not get."""
    # Python can only ask for it by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
