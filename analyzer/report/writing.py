"""Write results whole or not at all: to a temporary name beside the target, then moved."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from analyzer.errors import OutputError


def write_all(texts: Mapping[Path, str]) -> None:
    """Write several files; either every one is written or none is begun to be moved into place.

    Raises:
        OutputError: A folder or file cannot be written.
    """
    waiting: list[tuple[str, Path]] = []
    try:
        for path, text in texts.items():
            waiting.append((_temporary(path, text), path))
        while waiting:
            temporary, path = waiting[0]
            os.replace(temporary, path)
            waiting.pop(0)
    except OSError as error:
        where = error.filename2 or error.filename or ""
        raise OutputError(
            f"{where} cannot be written: {error.strerror or error}", hint="give another place with --output"
        ) from error
    finally:
        for temporary, _ in waiting:
            Path(temporary).unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Write one file whole or not at all."""
    write_all({path: text})


def _temporary(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder", str(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_umask())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return name


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
