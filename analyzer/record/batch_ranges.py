"""What the ranges of batches of a verdict say: who is faster where, and how sure the crossover is."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.record.outcome import BatchRange, VerdictResult
from analyzer.text import listed


def crossover_interval(ranges: Sequence[BatchRange]) -> tuple[int, int | None] | None:
    """From which batch on the GPU may be faster, and from which it is certain to be; None where it never may.

    The second is None where no batch up to the largest is certain.
    """
    if not ranges or ranges[-1].device == "cpu":
        return None
    sure = ranges[-1].first if ranges[-1].device == "gpu" else None
    may = ranges[-1].first
    for one in reversed(ranges):
        if one.device == "cpu":
            break
        may = one.first
    return may, sure


def interval_words(verdict: VerdictResult) -> str:
    """``12 to 64``, ``from 12``: where the crossover lies; empty where that is one batch or unknown."""
    found = crossover_interval(verdict.ranges)
    if found is None or found[0] == found[1]:
        return ""
    may, sure = found
    return f"{may} to {sure}" if sure is not None else f"from {may}"


def who_wins(
    ranges: Sequence[BatchRange], even: int | None, *, cpu: str = "the CPU", gpu: str = "the GPU"
) -> str:
    """Who is faster over the batches, in the words of the verdict.

    Args:
        ranges: From the smallest batch to the largest, at least one.
        even: The batch from which the GPU is expected to be faster.
        cpu: What to call it.
        gpu: What to call it.
    """
    names = {"cpu": f"{cpu} wins", "gpu": f"{gpu} wins", "either": "either may win"}
    if len(ranges) == 1:
        return _everywhere(ranges[0], even, cpu=cpu, gpu=gpu)
    parts = []
    for number, one in enumerate(ranges):
        if number == 0:
            where = f"at batch {one.last}" if one.first == one.last else f"up to batch {one.last}"
        elif number == len(ranges) - 1:
            where = f"from batch {one.first} on"
        else:
            where = f"at {one.first}" if one.first == one.last else f"from {one.first} to {one.last}"
        within = one.device == "either" and even is not None and one.first < even <= one.last
        parts.append(f"{names[one.device]} {where}{f' (even odds at {even})' if within else ''}")
    return _sentence(listed(parts))


def _everywhere(one: BatchRange, even: int | None, *, cpu: str, gpu: str) -> str:
    if one.first == one.last:
        winner = {"cpu": f"{cpu} wins", "gpu": f"{gpu} wins", "either": "either may win"}[one.device]
        return _sentence(f"{winner} at batch {one.first}, the only one that could be looked at")
    where = f"from {one.first} to {one.last}"
    if one.device == "either":
        expected = f"{cpu if even is None else gpu} is expected to"
        if even is not None and even > one.first:
            expected += f" from batch {even} on"
        return _sentence(f"either may win at every batch {where}; {expected}")
    return _sentence(f"{gpu} wins at {'no' if one.device == 'cpu' else 'every'} batch {where}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
