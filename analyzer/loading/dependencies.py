"""Sources of a model's building: files, folders, local modules and environment variables.

A cached export may only be used while all of these are as they were. Python's audit events name every
file that Python code opens; what a C library opens on its own (no audit event) cannot be seen, and neither can
the network.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import stat
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import all_suffixes
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, cast

from analyzer.run_folder import in_run_folder

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# What every process reads, changes without a change of the model (/proc), or holds what others wrote: torch's
# compiler keeps its results under /tmp/torchinductor_<user> (torch/_inductor/runtime/cache_dir_utils.py).
_SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/lib/", "/usr/share/", "/tmp/torchinductor_")

# In place of a digest: what was read is another at each reading, or takes longer to hash than an export.
NO_DIGEST = ""
_LARGEST_HASHED = 16 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The sources that a model was built from.

    Attributes:
        files: SHA-256 by absolute path; None for a file that was looked for and not there, ``NO_DIGEST`` for
            one that cannot be known to be as it was.
        folders: SHA-256 of the sorted names by absolute path of a folder whose listing was read.
        environment: Value by name of each environment variable that the user's code read; None if unset.
        imports: Top-level names of modules imported from elsewhere, which a new local file could shadow.
        home: The folder whose files come first on the import path.
    """

    files: Mapping[str, str | None] = field(default_factory=dict)
    folders: Mapping[str, str | None] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    home: str = ""

    def unchanged(self) -> bool:
        """Return whether everything is still as it was."""
        return (
            all(digest != NO_DIGEST and file_digest(path) == digest for path, digest in self.files.items())
            and all(folder_digest(path) == digest for path, digest in self.folders.items())
            and all(os.environ.get(name) == value for name, value in self.environment.items())
            and not self._shadowed()
        )

    def _shadowed(self) -> bool:
        # A new file json.py beside the model would be imported in place of the library's, though no file that
        # was read has changed.
        try:
            names = os.listdir(self.home) if self.home else []
        except OSError:
            return True
        # A package (a folder) or a file that can be imported: html.onnx stands in for nothing.
        suffixes = tuple(all_suffixes())
        local = {name.partition(".")[0] for name in names if "." not in name or name.endswith(suffixes)}
        return not local.isdisjoint(self.imports)


def file_digest(path: str | os.PathLike[str]) -> str | None:
    """SHA-256 of a file's bytes; None where it cannot be read, ``NO_DIGEST`` where it has no such bytes."""
    try:
        with open_file(path, largest=_LARGEST_HASHED) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except NotHashedError:
        return NO_DIGEST
    except OSError:
        return None


class NotHashedError(OSError):
    """A device, a pipe or a socket, whose bytes never end or never come; or a file larger than is read."""


def open_file(path: str | os.PathLike[str], *, largest: int) -> BufferedReader:
    """Return a regular file of at most this size, open for reading.

    Raises:
        NotHashedError: It is another kind of file, or larger.
        OSError: It cannot be read.
    """
    # Opened first and looked at then, as another file may take its place in between; without waiting for who
    # writes into a pipe. Windows has neither such pipes nor the flag.
    waits_not = getattr(os, "O_NONBLOCK", 0)
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | waits_not))  # noqa: SIM115
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
        file.close()
        raise NotHashedError(f"{path} is no file of at most {largest} bytes")
    return file


def folder_digest(path: str) -> str | None:
    """SHA-256 of the sorted names in a folder, None where it cannot be listed."""
    try:
        # Importing writes __pycache__ itself: the second look at a folder would never be like the first.
        names = sorted(name for name in os.listdir(path) if name != "__pycache__")
    except OSError:
        return None
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()


@lru_cache(maxsize=1)
def library_folders() -> tuple[str, ...]:
    """Return folders of the standard library, of installed packages and of this package: no user's code."""
    paths = {
        path
        for key, path in sysconfig.get_paths().items()
        if key in {"stdlib", "platstdlib", "purelib", "platlib"}
    }
    paths.update(os.path.dirname(module.__file__) for module in (os, sysconfig) if module.__file__)
    paths.add(str(Path(__file__).resolve().parent.parent))
    # A virtual environment may be a link, or hold links; files are named either way.
    folders = {os.path.realpath(path) for path in paths} | paths
    return tuple(sorted(path.rstrip(os.sep) + os.sep for path in folders))


def is_library(path: str) -> bool:
    """Return whether a file belongs to the standard library, an installed package or this package."""
    # "<frozen os>" and "<string>" are no files. A library of another environment on the path lies in none of
    # our own folders, but in some site-packages.
    return path.startswith(("<", *library_folders())) or "site-packages" in path


class _Reading:
    """Files and variables read inside of one block."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()
        self.environment: dict[str, str | None] = {}


class _Recorder:
    """Collects audit events for the blocks that are open; Python has no way to remove an audit hook."""

    def __init__(self) -> None:
        self.installed = False
        self.open: list[_Reading] = []

    def start(self) -> _Reading:
        if not self.installed:
            sys.addaudithook(self._on_event)
            self.installed = True
        self.open.append(_Reading())
        return self.open[-1]

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.open:
            return
        # Raised by open() and os.open() alike, each with what it was given: a mode, or flags (Python's table of
        # audit events). A file that the model writes itself is no input of it.
        if event == "open":
            path, mode, flags = arguments
            creates = mode[:1] in ("w", "x", "a") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
            if isinstance(path, (str, bytes)) and not creates:
                self._add_path("files", path)
        elif event in ("os.listdir", "os.scandir") and not _importing():
            self._add_path("folders", arguments[0] or ".")

    def _add_path(self, kind: Literal["files", "folders"], path: Any) -> None:
        if isinstance(path, int):  # a descriptor: what it stands for was opened by name before
            return
        text = os.path.abspath(os.fsdecode(path))
        # What lies in the run's own folder was made by this very run.
        if in_run_folder(text) or is_library(text):
            return
        if not text.startswith(_SYSTEM_FOLDERS) and not text.endswith(".pyc"):
            for reading in self.open:
                getattr(reading, kind).add(text)

    def note_variable(self, name: str, value: str | None) -> None:
        for reading in self.open:
            reading.environment[name] = value


def _importing() -> bool:
    """Return whether the import system itself lists a folder: local modules are found another way."""
    frame = inspect.currentframe()
    for _ in range(2):  # this function and the hook that asks
        frame = frame.f_back if frame else None
    return frame is not None and "importlib" in frame.f_code.co_filename


_RECORDER = _Recorder()


class _RecordingEnvironment(type(os.environ)):  # type: ignore[misc]  # a class that has no public name
    """``os.environ`` in all that it does, noting which variables the user's code reads while recording.

    Python raises no audit event for them.

    Args:
        environment: The true one, whose data this one has too: a change is a change of the process.
    """

    def __init__(self, environment: object) -> None:
        self.__dict__.update(vars(environment))

    def __getitem__(self, key: str) -> str:
        is_noted = bool(_RECORDER.open) and isinstance(key, str) and not is_library(_reader())
        try:
            value: str = super().__getitem__(key)
        except KeyError:
            if is_noted:
                _RECORDER.note_variable(key, None)
            raise
        if is_noted and not in_run_folder(value):  # TMPDIR, which is another in each run
            _RECORDER.note_variable(key, value)
        return value


def _reader() -> str:
    """Return file whose code reads a variable: the first one outside of the mapping and of ``os.getenv``."""
    frame = inspect.currentframe()
    skipped = ("<frozen", os.__file__, __file__)
    while frame and frame.f_back and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    return frame.f_code.co_filename if frame else "<unknown>"


@contextmanager
def recording(home: str = "") -> Iterator[list[Dependencies]]:
    """Note everything that is read inside the block; afterwards the yielded list holds one Dependencies.

    Blocks may lie inside each other: the outer one has what the inner ones have.
    """
    recorded: list[Dependencies] = []
    before = os.environ
    reading = _RECORDER.start()
    # os.getenv and `from os import environ` look the name up in os, and so meet the stand-in. It stays right,
    # and silent, for a model that keeps it for longer.
    if not isinstance(before, _RecordingEnvironment):
        os.environ = cast("Any", _RecordingEnvironment(before))  # noqa: B003  # its writes reach the true one
    try:
        yield recorded
    finally:
        _RECORDER.open.remove(reading)
        os.environ = before  # noqa: B003
        recorded.append(_gather(reading, home))


def count_as_read(dependencies: Dependencies) -> None:
    """Have open blocks note what something kept was made from, which is now used without reading it again."""
    for reading in _RECORDER.open:
        reading.files |= set(dependencies.files)
        reading.folders |= set(dependencies.folders)
        reading.environment |= dependencies.environment


def _gather(reading: _Reading, home: str) -> Dependencies:
    local, foreign = set(), set()
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # Modules that were imported before the recording began count too: they are part of the model all the
        # same.
        if isinstance(file, str) and not is_library(os.path.abspath(file)):
            local.add(os.path.abspath(file))
        elif "." not in name:
            foreign.add(name)
    files = {path for path in reading.files | local if not os.path.isdir(path)}
    return Dependencies(
        files={path: file_digest(path) for path in sorted(files)},
        folders={path: folder_digest(path) for path in sorted(reading.folders)},
        environment=dict(sorted(reading.environment.items())),
        imports=tuple(sorted(foreign - {"__main__"})),
        home=home,
    )
