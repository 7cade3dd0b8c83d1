"""Checks: rules with codes, budgets and a baseline over an ``Analysis``; findings out."""

from __future__ import annotations

# Importing a family registers its rules.
from analyzer.checks import (  # noqa: F401
    baseline,
    budgets,
    coverage,
    fusion,
    loading,
    placement,
    timing,
)
from analyzer.checks.evaluation import Judgement, fails, judge, judge_failure, run
from analyzer.checks.registry import FAMILIES, CheckRule, find, rules

__all__ = ["FAMILIES", "CheckRule", "Judgement", "fails", "find", "judge", "judge_failure", "rules", "run"]
