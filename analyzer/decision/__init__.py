"""Deciding: estimates become plans, a verdict with its reasons, and prices."""

from analyzer.decision.decide import decide as decide
from analyzer.decision.decision_input import Decision as Decision
from analyzer.decision.decision_input import DecisionInput as DecisionInput
from analyzer.decision.decision_input import Pin as Pin
from analyzer.decision.decision_input import Sweep as Sweep
from analyzer.decision.sweep import BATCHES as BATCHES
from analyzer.decision.sweep import sweep as sweep
