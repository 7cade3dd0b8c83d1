"""Deciding: estimates become plans, a verdict with its reasons, and prices."""

from analyzer.decision.decide import decide
from analyzer.decision.pins import parse as parse_pin
from analyzer.decision.question import OBJECTIVES, Decision, Pin, Question, Sweep, WhatIf
from analyzer.decision.sweep import BATCHES, sweep

__all__ = [
    "BATCHES",
    "OBJECTIVES",
    "Decision",
    "Pin",
    "Question",
    "Sweep",
    "WhatIf",
    "decide",
    "parse_pin",
    "sweep",
]
