"""Words by which notes of a record are told apart: what makes a count the least, what tells of sizes."""

from __future__ import annotations

SIZE_OF_ONE = "1 is assumed"
"""Behind the name of a size that only the run decides."""

ONE_TRIP = "the number of trips is not known before the run: the body is counted once"
"""Of a loop whose end the data decide."""

WHOLE_SEQUENCES = "its times are those of whole sequences"
"""Of a recurrence whose lengths nobody gave."""


DECIDE_SIZES = "decide the size of"
"""In a note of the model that tells which inputs decide sizes, and how these are known."""


def is_least(note: str) -> bool:
    """Whether a count with this note is "at least" so much."""
    return SIZE_OF_ONE in note or ONE_TRIP in note


def without_trips(note: str) -> bool:
    """Whether a note says that nobody knows how often something is done."""
    return ONE_TRIP in note
