"""Checks: rules with codes, budgets and a baseline over an ``Analysis``; findings out."""

from __future__ import annotations

# Importing a family registers its rules.
from analyzer.checks import bodies, budget, coverage, fusion, loading, memory, placement, timing  # noqa: F401
from analyzer.checks.judge import Judgement, fails, judge, run
from analyzer.checks.rule import FAMILIES, Rule, find, rules

__all__ = ["FAMILIES", "Judgement", "Rule", "fails", "find", "judge", "rules", "run"]
