"""Names and figures as the decision's sentences use them."""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.decision.decision_input import DecisionInput
from analyzer.prediction.estimate import Estimate
from analyzer.units import factor, seconds


def gpu_name(question: DecisionInput) -> str:
    """``the L4``: the name without its vendor."""
    if question.gpu is None:
        return "the GPU"
    return f"the {question.gpu.name.removeprefix('NVIDIA ').removeprefix('AMD ')}"


def cpu_name(question: DecisionInput) -> str:
    """``this CPU`` on this machine, else ``the EPYC 9654``."""
    here = question.here
    if here is None:
        measured = any(time is not None and time.origin == "measured" for time in question.cpu_times)
        here = question.cpu.origin == "calibrated" or measured
    return "this CPU" if here else f"the {question.cpu.name.removeprefix('Intel ').removeprefix('AMD ')}"


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def timed(estimate: Estimate) -> str:
    """``1.2 ms (predicted)``."""
    return f"{seconds(estimate.time_s)} ({estimate.origin})"


def interval(middle: float, low: float, high: float) -> str:
    """``3.4x (2.1x to 5.0x)``."""
    return f"{factor(middle)} ({factor(low)} to {factor(high)})"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """``1 copy``, ``3 copies``."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def listed(words: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    items = tuple(words)
    return items[0] if len(items) == 1 else " and ".join((", ".join(items[:-1]), items[-1])) if items else ""
