"""Finished exports on disk, under a hash of what was asked for, used while nothing they read has changed.

One file an entry: a line of JSON, then the weight-free ONNX model. Written to a temporary name and moved, so
that an interrupted run leaves no half entry.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from analyzer.loading.dependencies import Dependencies, count_as_read, open_file
from analyzer.run_folder import file_aside

# Exports hold no weights: GPT-3's takes 3 MB.
_LIMIT_BYTES = 512 * 2**20
# The last three build models by their names or configurations.
_PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "timm", "torchvision", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """A cached export.

    Attributes:
        facts: What the loader wants back: name, batch range, origin of the inputs, notes.
        dependencies: What building the model read.
    """

    proto: bytes
    facts: Mapping[str, Any]
    dependencies: Dependencies


def cache_folder() -> Path:
    """Return where entries are kept; ``ANALYZER_CACHE_DIR`` overrides the platform's cache folder."""
    override = os.environ.get("ANALYZER_CACHE_DIR")
    if override:
        return Path(override) / "exports"
    import platformdirs

    return Path(platformdirs.user_cache_dir("onnx-analyzer", appauthor=False)) / "exports"


@lru_cache(maxsize=1)
def package_versions() -> tuple[tuple[str, str], ...]:
    """Return versions of what takes part in an export, read without importing anything heavy."""
    versions = []
    for name in _PACKAGES:
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            versions.append((name, ""))
    return tuple(versions)


@lru_cache(maxsize=1)
def _digest_of_own_code() -> str:
    """Return hash of the loading code itself, so that a changed program never reads an old program's export."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def key(*, source: str, name: str | None, opset: int, specs: Sequence[str], batch: int | None) -> str:
    """Return the hash under which an export is kept; ``batch`` is None for one with a symbolic batch."""
    import platform

    code, python = _digest_of_own_code(), platform.python_version()
    # Relative paths in the user's code start in the working folder, and paths are shown relative to it.
    facts = [code, python, package_versions(), source, name, opset, list(specs), batch, os.getcwd()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def find(entry_key: str) -> CacheEntry | None:
    """Return the entry of this key if there is one and nothing it depends on has changed, else None.

    There is one for each set of values of the environment variables that the user's code read.
    """
    for path in sorted(cache_folder().glob(f"{entry_key}-*")):
        entry = _unchanged(path)
        if entry is not None:
            with contextlib.suppress(OSError):
                os.utime(
                    path
                )  # the time of last use decides what goes first; st_atime is often not kept (noatime)
            count_as_read(entry.dependencies)
            return entry
    return None


def _unchanged(path: Path) -> CacheEntry | None:
    """Return an entry that is as it was written and nothing that it depends on has changed, else None.

    A digest finds damage and proves no author: an entry that is none of ours is none at all.
    """
    import msgspec

    try:
        with open_file(path, largest=_LIMIT_BYTES) as file:
            content = file.read()
        header, _, proto = content.partition(b"\n")  # JSON on one line has no line break of its own
        stored = json.loads(header)
        dependencies = msgspec.convert(stored["dependencies"], Dependencies)
        intact = _digest(stored["facts"], stored["dependencies"], proto) == stored["digest"]
        if not intact or not isinstance(stored["facts"], dict) or not dependencies.unchanged():
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # msgspec's error is a ValueError
        return None
    return CacheEntry(proto=proto, facts=stored["facts"], dependencies=dependencies)


def keep(entry_key: str, entry: CacheEntry) -> None:
    """Store an entry; a folder that cannot be written merely means no cache."""
    facts, dependencies = dict(entry.facts), asdict(entry.dependencies)
    digest = _digest(facts, dependencies, entry.proto)
    header = json.dumps({"facts": facts, "dependencies": dependencies, "digest": digest})
    variant = hashlib.sha256(json.dumps(dependencies["environment"]).encode()).hexdigest()[:16]
    folder, name = cache_folder(), f"{entry_key}-{variant}"
    # A full disk, or a folder of others, costs the entry alone.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with file_aside(folder, header.encode() + b"\n" + entry.proto) as whole:
            os.replace(whole, folder / name)
        _make_room(folder)


def _digest(facts: Mapping[str, Any], dependencies: Mapping[str, Any], proto: bytes) -> str:
    """SHA-256 of all that an entry holds, so that no damage to it goes unseen."""
    return hashlib.sha256(json.dumps([facts, dependencies]).encode() + b"\n" + proto).hexdigest()


def _make_room(folder: Path) -> None:
    """Remove the entries used longest ago until the rest fits."""
    entries = []
    for path in folder.iterdir():
        # Other runs add and remove entries at the same time.
        with contextlib.suppress(FileNotFoundError):
            entries.append((path.stat().st_mtime, path.stat().st_size, path))
    total = 0
    for _, size, path in sorted(entries, reverse=True):
        total += size
        if total > _LIMIT_BYTES:
            path.unlink(missing_ok=True)
