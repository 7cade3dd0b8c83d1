"""What lasts for one run: its folder of temporary things, files until they are whole (leaf: imports errors).

A run that is killed leaves what it had. So all that it makes is locked while it lives, and the system takes the
lock back however a process ends: the next run removes what has our name, belongs to the same user and is locked
by nobody. Nothing rests on a clock, nor on the number of a process, which another process may have by then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from analyzer.errors import OutputError

_LOCKS: Any = None
with contextlib.suppress(ImportError):  # Windows
    import fcntl

    _LOCKS = fcntl

_PREFIX = "onnx-analyzer-"
# The number of the process, and eight characters of the module tempfile. What is being written is hidden.
_FOLDER_NAME = re.compile(rf"{_PREFIX}(\d+)-[a-z0-9_]{{8}}")
_HIDDEN_NAME = re.compile(rf"\.{_PREFIX}(\d+)-[a-z0-9_]{{8}}")
# Where the modules and libraries of a process look for the folder of temporary files.
_VARIABLES = ("TMPDIR",) if os.name == "posix" else ("TEMP", "TMP")
# One is made anew where another run took it for a leftover in the moment before it was locked.
_ATTEMPTS = 100
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
# Of the folders that this process now puts all temporary things into, by both names where one is a link.
_IN_USE: set[str] = set()


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new folder inside the temporary folder, for this user alone, removed at the end.

    What dead runs left there is removed first.

    Raises:
        OutputError: There is no folder for temporary files, or no room in it.
    """
    try:
        base = Path(tempfile.gettempdir())
        _remove_dead_folders(base, _FOLDER_NAME)
        folder, lock = _new_folder(base, _PREFIX)
    except OSError as error:
        raise OutputError(
            f"No temporary folder can be made: {error.strerror or error}.",
            hint="Set TMPDIR to a folder that can be written.",
        ) from error
    try:
        yield folder
    finally:
        # Still locked: no other run removes it at the same time.
        _remove_folder(folder, lock)
        _release(lock)


@contextmanager
def temporary_things_in_one_folder() -> Iterator[None]:
    """Has this process, its libraries and children put temporary things into one folder, removed at the end."""
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
    """Whether a path lies in the folder that this process puts all temporary things into."""
    return any(text == folder or text.startswith(folder + os.sep) for folder in _IN_USE)


@contextmanager
def folder_aside(around: Path) -> Iterator[Path]:
    """A new hidden folder to write into before it is moved to its place; removed where it was not moved.

    What dead runs were writing beside it is removed first.

    Args:
        around: The folder that it is made in, as a folder is moved in one step within a file system alone.

    Raises:
        OSError: It cannot be made.
    """
    remove_dead_asides(around)
    folder, lock = _new_folder(around, f".{_PREFIX}")
    try:
        yield folder
    finally:
        # By what is open: in its place it is nobody's to remove.
        if _is_still(str(folder), lock):
            _remove_folder(folder, lock)
        _release(lock)


def remove_dead_asides(around: Path) -> None:
    """Removes hidden folders that dead runs of the same user were writing in a folder."""
    _remove_dead_folders(around, _HIDDEN_NAME)


class FileToBe:
    """A file that is written aside and moved to its place when it is whole; removed where it never is.

    Args:
        folder: Of the file's place, as a file is moved in one step within a file system alone.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        for _ in range(_ATTEMPTS):
            handle, name = tempfile.mkstemp(dir=folder, prefix=f".{_PREFIX}{os.getpid()}-")
            if _lock(handle) and _is_still(name, handle):
                break
            os.close(handle)
        else:
            raise OSError("another program locks every file made there")
        self._path: Path | None = Path(name)
        self._file = os.fdopen(handle, "wb")

    def write(self, content: bytes) -> None:
        """Adds to the file."""
        self._file.write(content)
        self._file.flush()

    def move_to(self, place: Path, *, mode: int | None = None) -> None:
        """Puts the file into its place, in one step; ``mode`` are its rights, by default the owner's alone."""
        assert self._path is not None
        if mode is not None:
            os.chmod(self._path, mode)
        if _LOCKS is None:  # Windows moves no open file
            self._file.close()
        os.replace(self._path, place)
        self._path = None

    def __enter__(self) -> FileToBe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None and _LOCKS is not None:
            self._path.unlink(missing_ok=True)  # before the lock is given back
        with contextlib.suppress(OSError):  # a full disk was told where it was written to
            self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def remove_dead_files(folder: Path) -> None:
    """Removes files that dead runs of the same user were writing in a folder."""
    for path in _named(folder, _HIDDEN_NAME):
        with _if_dead(path, stat.S_ISREG) as lock, contextlib.suppress(OSError):
            if lock is not None:
                path.unlink()


def is_being_written(path: Path) -> bool:
    """Whether a file is one that a run is writing aside, or was when it died."""
    return _HIDDEN_NAME.fullmatch(path.name) is not None


def is_about_writing(error: OSError, folder: Path) -> bool:
    """Whether what failed while files were made in a folder is the folder's fault, not that of what is read."""
    named = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    # Where there is no room, copying names what it copies.
    return not named or error.errno in _NO_ROOM or Path(named).is_relative_to(folder)


def umask() -> int:
    """The rights that new files of this process do not get."""
    # Python can only ask for it by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _remove_dead_folders(base: Path, pattern: re.Pattern[str]) -> None:
    for path in _named(base, pattern):
        with _if_dead(path, stat.S_ISDIR) as lock:
            if lock is not None:
                _remove_folder(path, lock)


def _named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries if pattern.fullmatch(entry.name)]
    except OSError:
        return []


# Windows has no such locks: there is nothing to hold.
_NO_LOCK = -1


def _new_folder(base: Path, prefix: str) -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        name = tempfile.mkdtemp(dir=base, prefix=f"{prefix}{os.getpid()}-")
        if _LOCKS is None:
            return Path(name), _NO_LOCK
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        if _lock(handle) and _is_still(name, handle):
            return Path(name), handle
        os.close(handle)
    raise OSError("another program locks every folder made there")


def _lock(handle: int) -> bool:
    """Locks a file or folder until it is closed; False where another process holds it."""
    if _LOCKS is None:
        return True
    try:
        _LOCKS.flock(handle, _LOCKS.LOCK_EX | _LOCKS.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks on this file system: who looks for leftovers gets none either
    return True


def _is_still(name: str, handle: int) -> bool:
    """Whether a name stands for what is open: between making and locking it another run may have removed it."""
    if _LOCKS is None:
        return True
    try:
        return os.path.samestat(os.lstat(name), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextmanager
def _if_dead(path: Path, is_kind: Callable[[int], bool]) -> Iterator[int | None]:
    """Inside the block the lock of what a dead run of this user left; None where it is anything else."""
    handle = _taken(path, is_kind)
    try:
        yield handle
    finally:
        _release(handle)


def _taken(path: Path, is_kind: Callable[[int], bool]) -> int | None:
    if _LOCKS is None:
        return None if _runs(path) else _NO_LOCK
    try:
        found = path.lstat()
        if found.st_uid != os.geteuid() or not is_kind(found.st_mode):
            return None
        # A link in its place is not followed, and a pipe not waited for.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        _LOCKS.flock(handle, _LOCKS.LOCK_EX | _LOCKS.LOCK_NB)
        if os.path.samestat(found, os.fstat(handle)):
            return handle
    except OSError:  # it is held, or nothing can be locked there
        pass
    os.close(handle)
    return None


def _runs(path: Path) -> bool:
    """Whether the process whose number a name holds exists, or another one that got the number since."""
    import psutil

    named = _FOLDER_NAME.fullmatch(path.name) or _HIDDEN_NAME.fullmatch(path.name)
    return named is None or psutil.pid_exists(int(named[1]))


def _release(handle: int | None) -> None:
    if handle is not None and handle != _NO_LOCK:
        os.close(handle)


def _remove_folder(path: Path, handle: int) -> None:
    """Removes a folder that is open under ``handle``; what cannot be removed is left to the next run."""
    if handle == _NO_LOCK:
        shutil.rmtree(path, ignore_errors=True)
        return
    # Again where a process that has just been ended was still writing, or where a folder may not be written.
    for attempt in range(3):
        if attempt:
            _make_writable(path)
        # By what is open, not by the name, which could have become a link to another folder.
        with contextlib.suppress(OSError), os.scandir(handle) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.name, dir_fd=handle, ignore_errors=True)
                else:
                    os.unlink(entry.name, dir_fd=handle)
        with contextlib.suppress(OSError):
            path.rmdir()
            return


def _make_writable(path: Path) -> None:
    """Gives the owner the right to change the folders of a folder, which a model's code may have taken."""
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, stat.S_IRWXU)
