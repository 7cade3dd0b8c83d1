"""The folder of a fleet: each finished model's files, and what they were made from: nothing is done twice.

Of each task there is a note under ``.analyze-fleet/``: what was asked, what was read, the row. It is written
last, so that a model counts as finished only when its files are there. Whoever ends the program at any moment
loses at most the models that were being worked on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from analyzer.errors import OutputError
from analyzer.fleet.job import Job, Outcome
from analyzer.loading.cache import package_versions
from analyzer.loading.dependencies import Dependencies
from analyzer.record.fleet import FleetModel
from analyzer.record.formats import find
from analyzer.record.output_files import Target, check_writable, write_all
from analyzer.run_folder import file_aside
from analyzer.toml_file import split_entry

NOTES_FOLDER = ".analyze-fleet"
LOGS_FOLDER = "logs"
# Of a record's row: 10 MB are 20,000 cells.
_LARGEST_NOTE = 2**26


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The saved note of a finished task; ``key`` hashes the request and the version of the program.

    ``sizes`` are the bytes of its files by name, so that one that was cut or taken away is seen.
    """

    key: str
    model: FleetModel
    dependencies: Dependencies
    seconds: float
    sizes: Mapping[str, int] = field(default_factory=dict)


class Store:
    """The folder that ``--output`` names; with ``force`` files there that are not ours may be replaced."""

    def __init__(self, folder: Path, *, force: bool = False) -> None:
        self.folder = folder
        self._force = force

    def check(self, tasks: list[str]) -> None:
        """Report what cannot be written before any work is done.

        Raises:
            OutputError: A file there is not ours, or the folder cannot be written.
        """
        check_writable([target for task in tasks for target in self._targets(task)], force=self._force)
        try:
            (self.folder / NOTES_FOLDER).mkdir(parents=True, exist_ok=True)
            with file_aside(self.folder / NOTES_FOLDER, b""):
                pass
        except OSError as error:
            raise OutputError(
                f"{self.folder} cannot be written: {error.strerror or error}.", hint="Choose another --output."
            ) from error

    def note_of(self, job: Job) -> Note | None:
        """Return the stored note of a finished job whose sources have not changed."""
        note = self._note(job.task)
        if note is None or note.key != key_of(job):
            return None
        if any(self._size(name) != size for name, size in note.sizes.items()):
            return None
        return note if note.dependencies.unchanged() else None

    def keep(self, job: Job, outcome: Outcome) -> Note:
        """Write a finished job's files, whole, and then its note.

        Raises:
            OutputError: They cannot be written.
        """
        texts = {}
        if outcome.model.failure is None:
            json_target, page_target = self._targets(job.task)
            texts = {json_target: outcome.record, page_target: outcome.page}
            write_all(texts, force=self._force)
        self._keep_log(job.task, outcome.log)
        note = Note(
            key=key_of(job),
            model=outcome.model,
            dependencies=outcome.dependencies,
            seconds=outcome.seconds,
            sizes={
                target.path.name: len(text.encode())
                for target, text in texts.items()
                if target.path is not None
            },
        )
        self._write_aside(self._note_path(job.task), msgspec.json.encode(note))
        return note

    def _targets(self, task: str) -> tuple[Target, Target]:
        record, page = find("json"), find("html")
        return (
            Target(format=record, path=self.folder / f"{task}{record.extension}"),
            Target(format=page, path=self.folder / f"{task}{page.extension}"),
        )

    def _keep_log(self, task: str, log: str) -> None:
        path = self.folder / LOGS_FOLDER / f"{task}.log"
        with contextlib.suppress(OSError):  # of use to whoever looks, and of no more
            if log:
                path.parent.mkdir(exist_ok=True)
                path.write_text(log + "\n", encoding="utf-8", errors="replace")
            else:
                path.unlink(missing_ok=True)

    def _note_path(self, task: str) -> Path:
        return self.folder / NOTES_FOLDER / f"{task}.json"

    def _note(self, task: str) -> Note | None:
        """Return a note as it was written; one that is none of ours is none at all."""
        path = self._note_path(task)
        try:
            if path.stat().st_size > _LARGEST_NOTE:
                return None
            return msgspec.json.decode(path.read_bytes(), type=Note)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _size(self, name: str) -> int | None:
        # A name of a note is no path.
        if os.path.basename(name) != name:
            return None
        try:
            return (self.folder / name).stat().st_size
        except OSError:
            return None

    def _write_aside(self, path: Path, content: bytes) -> None:
        try:
            with file_aside(path.parent, content) as whole:
                os.replace(whole, path)
        except OSError as error:
            raise OutputError(
                f"{path} cannot be written: {error.strerror or error}.",
                hint="Make room; what is finished stays.",
            ) from error


def key_of(job: Job) -> str:
    """Return hash of what is asked and of the program that answers; the model stands in the dependencies."""
    digest = hashlib.sha256(program_digest().encode())
    digest.update(msgspec.msgpack.encode(job))
    digest.update(json.dumps([package_versions(), _files_named(job.keywords)]).encode())
    return digest.hexdigest()


def _files_named(keywords: Mapping[str, Any]) -> list[str | None]:
    """Return digests of files that options name: prices, arrivals, devices of one's own."""
    from analyzer.loading.dependencies import file_digest

    texts = [str(keywords.get(name) or "") for name in ("prices", "arrivals", "cpu")]
    gpus = keywords.get("gpu") or ()
    texts += gpus.split(",") if isinstance(gpus, str) else list(gpus)
    files = [split_entry(text)[0] for text in texts]
    return [file_digest(name) for name in files if name and os.path.isfile(name)]


@lru_cache(maxsize=1)
def program_digest() -> str:
    """Return a hash of this package with its data, so that another version never reuses an old answer."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent.parent
    templates = [folder for folder in (root / "templates", root.parent / "templates") if folder.is_dir()]
    for folder in (root, *templates[:1]):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(path.read_bytes())
    return digest.hexdigest()
