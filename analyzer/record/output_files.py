"""Where reports go: names, folders, and writing whole files or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.errors import OutputError

STANDARD_OUTPUT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One report to write: its format and its file; ``path`` None is standard output."""

    format: str
    path: Path | None


def targets(
    formats: Sequence[tuple[str, str]], output: str | None, stem: str, default: Path
) -> tuple[Target, ...]:
    """Which report goes where.

    One format: OUTPUT is the file, ``-`` is standard output. Several, a trailing slash or an existing
    folder: OUTPUT is a folder that receives ``<stem><extension>``.

    Args:
        formats: Name and extension of each.
        output: What the user gave.
        stem: The report's name.
        default: The folder where nothing was given.

    Raises:
        OutputError: Several formats for standard output.
    """
    if output == STANDARD_OUTPUT:
        if len(formats) > 1:
            raise OutputError(
                "Several formats cannot share standard output.", hint="Give one --format with --output -."
            )
        return (Target(format=formats[0][0], path=None),)
    folder = Path(output) if output else default
    # A trailing slash is gone once it is a Path: it is looked for in the text.
    single = output and len(formats) == 1 and not output.endswith(("/", os.sep)) and not folder.is_dir()
    if single:
        return (Target(format=formats[0][0], path=folder),)
    return tuple(Target(format=name, path=folder / f"{stem}{extension}") for name, extension in formats)


def check_writable(paths: Sequence[Path]) -> None:
    """Fails early where a report could not be written, before anything is measured.

    Raises:
        OutputError: A folder cannot be made or written.
    """
    for path in paths:
        folder = path.parent
        if path.is_dir():
            raise OutputError(
                f"{path} is a folder.", hint="End it with a slash to have the report put into it."
            )
        if is_stream(path):
            if not os.access(path, os.W_OK):
                raise OutputError(f"{path} cannot be written.", hint="Choose another --output.")
            continue
        # The nearest folder that exists: the rest is made when it is written.
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            raise OutputError(f"{path} cannot be written: {folder} is not a folder.")
        if not os.access(folder, os.W_OK):
            raise OutputError(
                f"{path} cannot be written: no permission in {folder}.", hint="Choose another --output."
            )


def is_stream(path: Path) -> bool:
    """Whether this is a device, pipe or socket, such as ``/dev/null``."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write_all(contents: Mapping[Path, str]) -> None:
    """Writes files whole: each to a temporary name beside its place, all moved at the end.

    A link is followed. A device or pipe is written to, never replaced.

    Raises:
        OutputError: One of them cannot be written; none is moved then.
    """
    temporaries: dict[Path, str] = {}
    streams: dict[Path, str] = {}
    try:
        for given, text in contents.items():
            # os.replace would put the file in the link's own place.
            path = Path(os.path.realpath(given))
            if is_stream(given):
                streams[given] = text
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            # In the same folder: a file is moved at once within one file system alone.
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            temporaries[path] = temporary
            # "\n" on every system: the same record gives the same bytes.
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            # mkstemp makes files for their owner alone; a report gets the rights of any other new file.
            os.chmod(temporary, 0o666 & ~_umask())
        # What has gone into a pipe cannot be taken back: after all files were made, before any is moved.
        for path, text in streams.items():
            with path.open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
        for path in tuple(temporaries):
            os.replace(temporaries[path], path)
            del temporaries[path]
    except OSError as error:
        raise OutputError(
            f"{error.filename or 'The report'} cannot be written: {error.strerror or error}.",
            hint="Choose another --output.",
        ) from error
    finally:
        for temporary in temporaries.values():
            Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    # Python can only ask for it by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
