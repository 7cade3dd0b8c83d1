"""What a fix made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.pipeline.apply.fixes.bench import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedStage:
    """A model behind a fix that keeps its numbers.

    Attributes:
        stage: The model.
        what: What was done, in a sentence.
        numbers: How its outputs compare with the original's.
        blocked: Operators that were left as they were, each ``name`` with ``why``.
    """

    stage: Stage
    what: str
    numbers: Mapping[str, Any]
    blocked: tuple[Mapping[str, str], ...] = ()
