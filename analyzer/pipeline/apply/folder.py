"""The folder of an applied plan: written aside, and put in its place when it is whole."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analyzer.errors import ModelError, OutputError
from analyzer.pipeline.apply.request import ORIGINAL_RECORD, RESULT
from analyzer.run_folder import folder_aside, is_about_writing, umask

# Whatever an apply.json names: no other file is ever taken away.
_OURS = re.compile(rf"{re.escape(ORIGINAL_RECORD)}|weights(-\d+)?\.bin")


@contextmanager
def folder_to_be(place: Path) -> Iterator[Path]:
    """A folder aside; what is in it at the end is the place's, whole, and nothing is where the block fails.

    A place that is there keeps its own files but those of the same names, and those that an earlier plan left
    and this one does not have.

    Raises:
        OutputError: It cannot be written.
        ModelError: A file of somebody else, such as the model's, cannot be read any more.
    """
    # A link's or a mount's folder may be of another file system than the one around it, or alone be writable.
    there = place.is_dir()
    around = place if there else place.parent
    try:
        around.mkdir(parents=True, exist_ok=True)
        with folder_aside(around) as aside:
            try:
                yield aside
            except OutputError as error:  # where another process wrote
                message = error.message.replace(str(aside), str(place))
                raise OutputError(message, hint=error.hint) from error
            except OSError as error:
                if is_about_writing(error, aside):
                    raise
                raise ModelError(f"{error.filename} cannot be read: {error.strerror or error}.") from error
            _own(aside)
            if there:
                _put(aside, place)
            else:
                aside.chmod(0o777 & ~umask())
                # At once: of two that write the same folder, one is told that it is no longer empty.
                os.rename(aside, place)
    except OSError as error:
        raise _unwritable(place, error) from error


def _own(aside: Path) -> None:
    """Files that are nobody else's, and as readable as any that the user writes."""
    for path in sorted(aside.iterdir()):
        # A weights file that the user's model shares would change with it.
        if path.stat().st_nlink > 1:
            own = path.with_name(f"{path.name}.copy")
            shutil.copyfile(path, own)
            os.replace(own, path)
        os.chmod(path, 0o666 & ~umask())


def _put(aside: Path, place: Path) -> None:
    """All files of one folder into another, or none."""
    names = sorted(path.name for path in aside.iterdir())
    before = aside / "before"
    before.mkdir()
    try:
        for name in [*names, *(_left_over(place) - set(names))]:
            target = place / name
            if target.is_dir() and not target.is_symlink():
                raise OSError(errno.EISDIR, f"{name} is a folder")
            if os.path.lexists(target):
                os.replace(target, before / name)
            if name in names:
                os.replace(aside / name, target)
    except BaseException:
        for name in names:
            if not os.path.lexists(aside / name):
                (place / name).unlink(missing_ok=True)
        for path in before.iterdir():
            os.replace(path, place / path.name)
        raise


def _left_over(place: Path) -> set[str]:
    """What an earlier plan wrote there and this one need not have: weights, the first model's record."""
    try:
        written = json.loads((place / RESULT).read_text(encoding="utf-8"))["files"]
        return {name for name in written if _OURS.fullmatch(name) and os.path.lexists(place / name)}
    except (OSError, ValueError, TypeError, LookupError):
        return set()


def _unwritable(place: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{place} cannot be written: {error.strerror or error}.", hint="Name another folder with --output."
    )


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a file that people read, too."""
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
