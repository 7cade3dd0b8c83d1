"""The folder of an applied plan: written aside, and put in its place when it is whole."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analyzer.errors import OutputError


@contextmanager
def folder_to_be(place: Path) -> Iterator[Path]:
    """A folder beside a place; what is in it at the end is moved there, and nothing where the block fails.

    Files of that place with the same names are replaced, all others stay.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}-"))
    except OSError as error:
        raise _unwritable(place, error) from error
    try:
        yield aside
        _put(aside, place)
    except OSError as error:
        raise _unwritable(place, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put(aside: Path, place: Path) -> None:
    place.mkdir(exist_ok=True)
    for path in sorted(aside.iterdir()):
        # A weights file that the user's model shares would change with it.
        if path.stat().st_nlink > 1:
            own = path.with_name(f"{path.name}.copy")
            shutil.copyfile(path, own)
            os.replace(own, path)
        os.chmod(path, 0o666 & ~_umask())
        os.replace(path, place / path.name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unwritable(place: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{place} cannot be written: {error.strerror or error}.", hint="Name another folder with --output."
    )


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a file that people read, too."""
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
