"""Names and figures as the decision's sentences use them."""

from __future__ import annotations

from analyzer.decision.decision_input import DecisionInput
from analyzer.figures import Figure
from analyzer.units import factor, seconds


def gpu_name(question: DecisionInput) -> str:
    """``the L4``: the name without its vendor."""
    if question.gpu is None:
        return "the GPU"
    return f"the {short_name(question.gpu.name)}"


def short_name(name: str) -> str:
    """A device's name without its vendor."""
    return name.removeprefix("NVIDIA ").removeprefix("AMD ").removeprefix("Intel ")


def cpu_name(question: DecisionInput) -> str:
    """``this CPU`` on this machine, else ``the EPYC 9654``."""
    is_this_machine = question.cpu_is_this_machine
    if is_this_machine is None:
        # A calibration is kept by the machine's fingerprint, and a CPU from the catalogue is never measured.
        measured = any(time is not None and time.origin == "measured" for time in question.cpu_times)
        is_this_machine = question.cpu.origin == "calibrated" or measured
    return "this CPU" if is_this_machine else f"the {short_name(question.cpu.name)}"


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def timed(estimate: Figure) -> str:
    """``1.2 ms (predicted)``."""
    return f"{seconds(estimate.value)} ({estimate.origin})"


def interval(middle: float, low: float, high: float) -> str:
    """``3.4x (2.1x to 5.0x)``."""
    return f"{factor(middle)} ({factor(low)} to {factor(high)})"
