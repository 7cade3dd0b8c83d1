"""Progress of long work (leaf)."""

from __future__ import annotations

from collections.abc import Callable

# A stage, and how much of it is done (0 to 1), None where that cannot be told.
Progress = Callable[[str, float | None], None]
# A stage alone, of work that never knows how far it is.
StageProgress = Callable[[str], None]


def silent(_stage: str, _share: float | None) -> None:
    """Show no progress."""
