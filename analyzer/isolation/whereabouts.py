"""Where the process that reads a file has got to, in memory that outlives it: what a crash is blamed on."""

from __future__ import annotations

import mmap

SIZE = 1024
_shared: mmap.mmap | None = None


def shared_memory(file: int = -1) -> mmap.mmap:
    """Memory that a fork of this process sees too, or whoever has the same open file of ``SIZE`` bytes."""
    return mmap.mmap(file, SIZE)


def tell_in(memory: mmap.mmap) -> None:
    """Has ``now_at`` write there from now on."""
    global _shared
    _shared = memory


def now_at(place: str) -> None:
    """Notes what is being read; for whatever may end the process. Without another process it does nothing."""
    if _shared is not None:
        text = place.encode("utf-8", "replace")[: SIZE - 1]
        _shared[: len(text) + 1] = text + b"\0"


def last_place(memory: mmap.mmap) -> str:
    """What was noted last, empty where nothing was."""
    return memory[:].partition(b"\0")[0].decode("utf-8", "replace")
