"""Deciding: estimates become plans, a verdict with its reasons, and prices."""

from analyzer.decision.decide import decide
from analyzer.decision.decision_input import Decision, DecisionInput, Pin, Sweep, WhatIf
from analyzer.decision.pins import parse as parse_pin
from analyzer.decision.sweep import BATCHES, sweep

__all__ = [
    "BATCHES",
    "Decision",
    "DecisionInput",
    "Pin",
    "Sweep",
    "WhatIf",
    "decide",
    "parse_pin",
    "sweep",
]
